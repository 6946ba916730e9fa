// Package auth sends a token with each call.
package auth

import (
	"context"

	"google.golang.org/grpc/credentials"
)

type token struct {
	value  string
	secure bool
}

// NewFromToken returns credentials that send the token unchanged.
func NewFromToken(_ context.Context, value string, secure bool) credentials.PerRPCCredentials {
	return token{value, secure}
}

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": t.value}, nil
}

func (t token) RequireTransportSecurity() bool { return t.secure }
