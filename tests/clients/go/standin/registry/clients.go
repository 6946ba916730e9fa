package v2

import (
	"context"
	"iter"

	"chainguard.dev/sdk/pages"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Clients has the services that the program calls.
type Clients interface {
	ReposService() ReposServiceClient
	ListReposIter(context.Context, *ListReposRequest) iter.Seq2[*Repo, error]
}

type clients struct{ conn *grpc.ClientConn }

// NewClientsFromConnection returns clients that use a connection.
func NewClientsFromConnection(conn *grpc.ClientConn) Clients { return clients{conn} }

func (c clients) ReposService() ReposServiceClient { return NewReposServiceClient(c.conn) }

func (c clients) ListReposIter(ctx context.Context, request *ListReposRequest) iter.Seq2[*Repo, error] {
	request = proto.Clone(request).(*ListReposRequest)
	return pages.Read(ctx, func(ctx context.Context, token string) ([]*Repo, string, error) {
		request.PageToken = token
		page, err := c.ReposService().ListRepos(ctx, request)
		return page.GetRepos(), page.GetNextPageToken(), err
	})
}
