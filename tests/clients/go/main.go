// Walks the API with the published Go SDK, as any program of it does: nothing here knows which server answers.
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
	api, organisation, token := os.Getenv("API"), os.Getenv("ORG_ID"), os.Getenv("TOKEN")
	if err := walk(ctx, api, organisation, token); err != nil {
		log.Fatal(err)
	}
	if err := exchange(ctx, api, organisation, token); err != nil {
		log.Fatal(err)
	}
}

func connect(ctx context.Context, api, token string) (clients.Clients, error) {
	return clients.NewClients(ctx, api, "platform-check", auth.NewFromToken(ctx, "Bearer "+token, false))
}

func walk(ctx context.Context, api, organisation, token string) error {
	c, err := connect(ctx, api, token)
	if err != nil {
		return err
	}
	defer c.Close()

	group, err := c.IAM().GroupsService().CreateGroup(ctx, &iam.CreateGroupRequest{
		Parent: organisation,
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
		return fmt.Errorf("the mask was not kept to: %v", updated)
	}

	_, err = c.IAM().IdentitiesService().CreateIdentity(ctx, &iam.CreateIdentityRequest{
		Parent:   organisation,
		Identity: &iam.Identity{Name: "Bad Name"},
	})
	if err := refused(err, codes.InvalidArgument, "INVALID_ARGUMENT", "name"); err != nil {
		return err
	}
	_, err = c.IAM().GroupsService().DeleteGroup(ctx, &iam.DeleteGroupRequest{Uid: group.GetUid()})
	if err := refused(err, codes.FailedPrecondition, "FAILED_PRECONDITION", "RESOURCE_NOT_EMPTY"); err != nil {
		return err
	}
	missing := organisation + "/" + strings.Repeat("0", 16)
	_, err = c.Registry().ReposService().GetRepo(ctx, &registry.GetRepoRequest{Uid: missing})
	return refused(err, codes.NotFound, "NOT_FOUND", missing)
}

// refused checks a refusal's code, its reason, and that a further detail tells of a thing.
func refused(err error, code codes.Code, reason, thing string) error {
	if err == nil {
		return errors.New("it was not refused")
	}
	refusal, _ := status.FromError(err)
	told := false
	for _, detail := range refusal.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetReason() != reason || !strings.Contains(detail.GetDomain(), ".") {
				return fmt.Errorf("%v instead of %s", detail, reason)
			}
		case *errdetails.BadRequest:
			told = detail.GetFieldViolations()[0].GetField() == thing
		case *errdetails.PreconditionFailure:
			told = detail.GetViolations()[0].GetType() == thing
		case *errdetails.ResourceInfo:
			told = detail.GetResourceName() == thing
		}
	}
	if refusal.Code() != code || !told {
		return fmt.Errorf("%w with %v, instead of %v for %s", err, refusal.Details(), code, thing)
	}
	return nil
}

// exchange gets a token that may list groups and no more.
func exchange(ctx context.Context, api, organisation, token string) error {
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
		return fmt.Errorf("list by the new token: %w", err)
	}
	if len(groups) < 2 {
		return fmt.Errorf("%d groups", len(groups))
	}
	request := &registry.CreateRepoRequest{Parent: organisation, Repo: &registry.Repo{Name: "no"}}
	_, err = c.Registry().ReposService().CreateRepo(ctx, request)
	if status.Code(err) != codes.PermissionDenied {
		return fmt.Errorf("%v instead of a denial", err)
	}
	return nil
}
