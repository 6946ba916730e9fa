// Calls the API with the published Go SDK, like any other program: nothing here is specific to this server.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"chainguard.dev/sdk/auth"
	clients "chainguard.dev/sdk/proto/chainguard/platform/clients/v2"
	iam "chainguard.dev/sdk/proto/chainguard/platform/iam/v2"
	registry "chainguard.dev/sdk/proto/chainguard/platform/registry/v2"
	common "chainguard.dev/sdk/proto/platform/common/v1"
	"chainguard.dev/sdk/sts"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

const repos = 120

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	api, organization, token := os.Getenv("API"), os.Getenv("ORG_ID"), os.Getenv("TOKEN")
	if err := walk(ctx, api, organization, token); err != nil {
		log.Fatal(err)
	}
	if err := exchange(ctx, api, organization, token); err != nil {
		log.Fatal(err)
	}
}

func connect(ctx context.Context, api, token string) (clients.Clients, error) {
	return clients.NewClients(ctx, api, "platform-check", auth.NewFromToken(ctx, "Bearer "+token, false))
}

func walk(ctx context.Context, api, organization, token string) error {
	c, err := connect(ctx, api, token)
	if err != nil {
		return err
	}
	defer c.Close()

	group, err := c.IAM().GroupsService().CreateGroup(ctx, &iam.CreateGroupRequest{
		Parent: organization,
		Group:  &iam.Group{Name: "sdk"},
	})
	if err != nil {
		return fmt.Errorf("create a group: %w", err)
	}
	for number := range repos {
		repo := &registry.Repo{Name: fmt.Sprintf("repo-%03d", number)}
		request := &registry.CreateRepoRequest{Parent: group.GetUid(), Repo: repo}
		if _, err := c.Registry().ReposService().CreateRepo(ctx, request); err != nil {
			return fmt.Errorf("create a repo: %w", err)
		}
	}

	var last *registry.Repo
	read := 0
	list := &registry.ListReposRequest{Uidp: &common.UIDPFilter{DescendantsOf: group.GetUid()}, OrderBy: "name"}
	for repo, err := range c.Registry().ListReposIter(ctx, list) {
		if err != nil {
			return fmt.Errorf("page %d: %w", read, err)
		}
		if want := fmt.Sprintf("repo-%03d", read); repo.GetName() != want {
			return fmt.Errorf("%q instead of %q", repo.GetName(), want)
		}
		last, read = repo, read+1
	}
	if read != repos {
		return fmt.Errorf("%d of %d repos", read, repos)
	}

	updated, err := c.Registry().ReposService().UpdateRepo(ctx, &registry.UpdateRepoRequest{
		Repo:       &registry.Repo{Uid: last.GetUid(), Name: "ignored", Description: "a web server"},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"description"}},
	})
	if err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if updated.GetName() != last.GetName() || updated.GetDescription() != "a web server" {
		return fmt.Errorf("fields outside the mask were updated: %v", updated)
	}

	_, err = c.IAM().IdentitiesService().CreateIdentity(ctx, &iam.CreateIdentityRequest{
		Parent:   organization,
		Identity: &iam.Identity{Name: "Bad Name"},
	})
	if err := checkError(err, codes.InvalidArgument, "INVALID_ARGUMENT", "name"); err != nil {
		return err
	}
	_, err = c.IAM().GroupsService().DeleteGroup(ctx, &iam.DeleteGroupRequest{Uid: group.GetUid()})
	if err := checkError(err, codes.FailedPrecondition, "FAILED_PRECONDITION", "RESOURCE_NOT_EMPTY"); err != nil {
		return err
	}
	missing := organization + "/" + strings.Repeat("0", 16)
	_, err = c.Registry().ReposService().GetRepo(ctx, &registry.GetRepoRequest{Uid: missing})
	return checkError(err, codes.NotFound, "NOT_FOUND", missing)
}

// checkError checks the code and reason of an error, and that another detail contains a value.
func checkError(err error, code codes.Code, reason, value string) error {
	if err == nil {
		return errors.New("the call did not fail")
	}
	failure, _ := status.FromError(err)
	found := false
	for _, detail := range failure.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetReason() != reason || !strings.Contains(detail.GetDomain(), ".") {
				return fmt.Errorf("%v instead of %s", detail, reason)
			}
		case *errdetails.BadRequest:
			found = detail.GetFieldViolations()[0].GetField() == value
		case *errdetails.PreconditionFailure:
			found = detail.GetViolations()[0].GetType() == value
		case *errdetails.ResourceInfo:
			found = detail.GetResourceName() == value
		}
	}
	if failure.Code() != code || !found {
		return fmt.Errorf("%w with %v, instead of %v for %s", err, failure.Details(), code, value)
	}
	return nil
}

// exchange gets a token that is restricted to listing groups.
func exchange(ctx context.Context, api, organization, token string) error {
	pair, err := sts.ExchangePair(ctx, api, api, token, sts.WithCapabilities("groups.list"))
	if err != nil {
		return fmt.Errorf("exchange: %w", err)
	}
	c, err := connect(ctx, api, pair.AccessToken)
	if err != nil {
		return err
	}
	defer c.Close()
	groups, err := c.IAM().ListGroupsAll(ctx, &iam.ListGroupsRequest{})
	if err != nil {
		return fmt.Errorf("list with the new token: %w", err)
	}
	if len(groups) < 2 {
		return fmt.Errorf("%d groups", len(groups))
	}
	request := &registry.CreateRepoRequest{Parent: organization, Repo: &registry.Repo{Name: "no"}}
	_, err = c.Registry().ReposService().CreateRepo(ctx, request)
	if status.Code(err) != codes.PermissionDenied {
		return fmt.Errorf("%v instead of a denial", err)
	}
	return nil
}
