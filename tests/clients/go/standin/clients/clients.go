// Package v2 connects to a server by its URL.
package v2

import (
	"context"
	"net/url"

	iam "chainguard.dev/sdk/proto/chainguard/platform/iam/v2"
	registry "chainguard.dev/sdk/proto/chainguard/platform/registry/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

const maxMessageBytes = 100 << 20

// Clients has the domains that the program calls.
type Clients interface {
	IAM() iam.Clients
	Registry() registry.Clients
	Close() error
}

type clients struct{ conn *grpc.ClientConn }

// NewClients connects at the first call.
func NewClients(_ context.Context, api, agent string, cred credentials.PerRPCCredentials) (Clients, error) {
	conn, err := Dial(api, agent, cred)
	if err != nil {
		return nil, err
	}
	return clients{conn}, nil
}

// Dial uses cleartext HTTP/2 for http and TLS for https, waits until the server is ready, and accepts large messages.
func Dial(api, agent string, cred credentials.PerRPCCredentials) (*grpc.ClientConn, error) {
	at, err := url.Parse(api)
	if err != nil {
		return nil, err
	}
	transport := insecure.NewCredentials()
	if at.Scheme == "https" {
		transport = credentials.NewTLS(nil)
	}
	return grpc.NewClient(at.Host,
		grpc.WithTransportCredentials(transport),
		grpc.WithPerRPCCredentials(cred),
		grpc.WithUserAgent(agent),
		grpc.WithDefaultCallOptions(
			grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes),
		),
	)
}

func (c clients) IAM() iam.Clients           { return iam.NewClientsFromConnection(c.conn) }
func (c clients) Registry() registry.Clients { return registry.NewClientsFromConnection(c.conn) }
func (c clients) Close() error               { return c.conn.Close() }
