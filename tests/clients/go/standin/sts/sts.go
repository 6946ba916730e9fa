// Package sts exchanges tokens.
package sts

import (
	"context"

	"chainguard.dev/sdk/auth"
	clients "chainguard.dev/sdk/proto/chainguard/platform/clients/v2"
	oidc "chainguard.dev/sdk/proto/platform/oidc/v1"
)

// TokenPair is the result of an exchange.
type TokenPair struct{ AccessToken, RefreshToken string }

// ExchangerOption changes a request.
type ExchangerOption func(*oidc.ExchangeRequest)

// WithCapabilities narrows the token.
func WithCapabilities(names ...string) ExchangerOption {
	return func(request *oidc.ExchangeRequest) { request.Cap = names }
}

// ExchangePair exchanges a token for one with another audience.
func ExchangePair(
	ctx context.Context, issuer, audience, token string, options ...ExchangerOption,
) (TokenPair, error) {
	conn, err := clients.Dial(issuer, "platform-check", auth.NewFromToken(ctx, "Bearer "+token, false))
	if err != nil {
		return TokenPair{}, err
	}
	defer conn.Close()
	request := &oidc.ExchangeRequest{Aud: []string{audience}}
	for _, option := range options {
		option(request)
	}
	reply, err := oidc.NewSecurityTokenServiceClient(conn).Exchange(ctx, request)
	return TokenPair{reply.GetToken(), reply.GetRefreshToken()}, err
}
