package v2

import (
	"context"

	"chainguard.dev/sdk/pages"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Clients has the services that the program calls.
type Clients interface {
	GroupsService() GroupsServiceClient
	IdentitiesService() IdentitiesServiceClient
	ListGroupsAll(context.Context, *ListGroupsRequest) ([]*Group, error)
}

type clients struct{ conn *grpc.ClientConn }

// NewClientsFromConnection returns clients that use a connection.
func NewClientsFromConnection(conn *grpc.ClientConn) Clients { return clients{conn} }

func (c clients) GroupsService() GroupsServiceClient { return NewGroupsServiceClient(c.conn) }
func (c clients) IdentitiesService() IdentitiesServiceClient {
	return NewIdentitiesServiceClient(c.conn)
}

func (c clients) ListGroupsAll(ctx context.Context, request *ListGroupsRequest) ([]*Group, error) {
	request = proto.Clone(request).(*ListGroupsRequest)
	return pages.All(pages.Read(ctx, func(ctx context.Context, token string) ([]*Group, string, error) {
		request.PageToken = token
		page, err := c.GroupsService().ListGroups(ctx, request)
		return page.GetGroups(), page.GetNextPageToken(), err
	}))
}
