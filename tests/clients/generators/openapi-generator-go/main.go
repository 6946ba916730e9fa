// Creates a group and reads, lists, updates and deletes it, with the client of openapi-generator.
package main

import (
	"context"
	"log"
	"os"

	client "generated/client"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	configuration := client.NewConfiguration()
	configuration.Servers = client.ServerConfigurations{{URL: os.Getenv("API")}}
	groups := client.NewAPIClient(configuration).GroupsServiceAPI
	ctx := context.WithValue(context.Background(), client.ContextAccessToken, os.Getenv("TOKEN"))
	created, _, err := groups.CreateGroup(ctx, os.Getenv("ORG")).GroupCreate(*client.NewGroupCreate("generated")).Execute()
	check(err)
	uid := created.GetUid()
	_, _, err = groups.GetGroup(ctx, uid).Execute()
	check(err)
	page, _, err := groups.ListGroups(ctx).Name("generated").Execute()
	check(err)
	description := "changed"
	changed, _, err := groups.UpdateGroup(ctx, uid).GroupUpdate(client.GroupUpdate{Description: &description}).Execute()
	check(err)
	_, _, err = groups.DeleteGroup(ctx, uid).Execute()
	check(err)
	if len(page.Groups) != 1 || changed.GetDescription() != description {
		log.Fatal(page.Groups, changed)
	}
}
