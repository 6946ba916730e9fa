// Creates a group and reads, lists, updates and deletes it, with the client of ogen.
package main

import (
	"context"
	"log"
	"net/http"
	"os"

	"generated/client"
)

type token struct{}

func (token) Bearer(context.Context, client.OperationName) (client.Bearer, error) {
	return client.Bearer{Token: os.Getenv("TOKEN")}, nil
}

func (token) Scim(context.Context, client.OperationName) (client.Scim, error) {
	return client.Scim{}, nil
}

// accept asks for JSON, which the replies to deletes otherwise do not have.
type accept struct{}

func (accept) Do(request *http.Request) (*http.Response, error) {
	request.Header.Set("Accept", "application/json")
	return http.DefaultClient.Do(request)
}

func known[T any](reply any, err error) T {
	value, ok := reply.(T)
	if err != nil || !ok {
		log.Fatalf("%T %v %v", reply, reply, err)
	}
	return value
}

func main() {
	ctx := context.Background()
	calls, err := client.NewClient(os.Getenv("API"), token{}, client.WithClient(accept{}))
	if err != nil {
		log.Fatal(err)
	}
	group := client.NewOptGroupCreate(client.GroupCreate{Name: "generated"})
	created, err := calls.CreateGroup(ctx, group, client.CreateGroupParams{UID: os.Getenv("ORG")})
	uid := known[*client.GroupHeaders](created, err).Response.UID.Value
	found, err := calls.GetGroup(ctx, client.GetGroupParams{UID: uid})
	known[*client.GroupHeaders](found, err)
	page, err := calls.ListGroups(ctx, client.ListGroupsParams{Name: client.NewOptString("generated")})
	change := client.NewOptGroupUpdate(client.GroupUpdate{Description: client.NewOptString("changed")})
	if groups := known[*client.ListGroupsResponse](page, err).Groups; len(groups) != 1 {
		log.Fatal(groups)
	}
	changed, err := calls.UpdateGroup(ctx, change, client.UpdateGroupParams{UID: uid})
	if description := known[*client.GroupHeaders](changed, err).Response.Description.Value; description != "changed" {
		log.Fatal(description)
	}
	deleted, err := calls.DeleteGroup(ctx, client.DeleteGroupParams{UID: uid})
	if err != nil {
		log.Fatal(deleted, err)
	}
}
