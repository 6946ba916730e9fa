// Makes the calls of the Terraform provider, in its order and with its fields, and checks what the provider reads from
// the replies. The stubs are generated from our .proto files.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"reflect"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/calls/capabilities"
	"example.com/calls/common"
	"example.com/calls/events"
	iam1 "example.com/calls/iam"
	iam "example.com/calls/iam/v2beta1"
	"example.com/calls/oidc"
	registry1 "example.com/calls/registry"
	registry "example.com/calls/registry/v2beta1"
)

var ctx = context.Background()

// The step that fails, for the log.
var step string

// The number of calls.
var calls int

func at(format string, parts ...any) { step = fmt.Sprintf(format, parts...) }

func fail(format string, parts ...any) { log.Fatalf("%s: %s", step, fmt.Sprintf(format, parts...)) }

// must returns the reply of a call that succeeds.
func must[T any](reply T, err error) T {
	if err != nil {
		fail("%v", err)
	}
	return reply
}

// refused checks the code of a call that fails.
func refused[T any](want codes.Code) func(T, error) {
	return func(_ T, err error) {
		if status.Code(err) != want {
			fail("%v instead of %v", err, want)
		}
	}
}

func same(what string, got, want any) {
	if one, ok := got.(proto.Message); ok && proto.Equal(one, want.(proto.Message)) {
		return
	}
	if !reflect.DeepEqual(got, want) {
		fail("%s is %v instead of %v", what, got, want)
	}
}

func set(what, value string) string {
	if value == "" {
		fail("%s is empty", what)
	}
	return value
}

// only returns the only item of a list by uid.
func only[T any](items []T) T {
	if len(items) != 1 {
		fail("%d items instead of 1", len(items))
	}
	return items[0]
}

func none[T any](items []T) {
	if len(items) != 0 {
		fail("%d items instead of none", len(items))
	}
}

func mask(paths ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }

func parent(uid string) string { return uid[:strings.LastIndex(uid, "/")] }

// connect dials as the provider does, with a bearer token in the metadata.
func connect(api, token string) *grpc.ClientConn {
	authorize := func(
		ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption,
	) error {
		calls++
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
		return repeated(method, reply, func(method string, request, reply any) error {
			return invoke(ctx, method, request, reply, conn, options...)
		}, request)
	}
	return must(grpc.NewClient(
		strings.TrimPrefix(api, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(authorize),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
	))
}

func exchange(api, token, identity string) string {
	at("exchange")
	conn := connect(api, token)
	defer conn.Close()
	request := &oidc.ExchangeRequest{Aud: []string{api}, Identity: identity}
	return set("token", must(oidc.NewSecurityTokenServiceClient(conn).Exchange(ctx, request)).GetToken())
}

func main() {
	var cancel context.CancelFunc
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	api, organization := os.Getenv("API"), os.Getenv("ORG_ID")
	conn := connect(api, exchange(api, os.Getenv("TOKEN"), ""))
	defer conn.Close()

	folder := groups(conn, organization)
	viewer := roles(conn, folder)
	identities(conn, api, organization, folder, viewer)
	identityProvider(conn, folder, viewer)
	accountAssociation(conn, folder)
	subscription(conn, folder)
	imageRepo(conn, folder)
	dataSources(conn, folder)
	apko(conn, folder)

	at("delete the folder")
	client := iam.NewGroupsServiceClient(conn)
	must(client.DeleteGroup(ctx, &iam.DeleteGroupRequest{Uid: folder}))
	refused[*iam.Group](codes.NotFound)(client.GetGroup(ctx, &iam.GetGroupRequest{Uid: folder}))
	missing(conn, folder+"/0123456789abcdef")
	fmt.Printf("%d calls\n", calls)
}

// groups creates an organization, which is then read by version 1, and the folder for the other resources.
func groups(conn *grpc.ClientConn, organization string) string {
	client, v1 := iam.NewGroupsServiceClient(conn), iam1.NewGroupsClient(conn)
	at("organization")
	created := must(client.CreateGroup(ctx, &iam.CreateGroupRequest{Group: &iam.Group{Name: "second"}}))
	found := only(must(v1.List(ctx, &iam1.GroupFilter{Id: created.GetUid()})).GetItems())
	same("id", found.GetId(), created.GetUid())
	must(client.DeleteGroup(ctx, &iam.DeleteGroupRequest{Uid: created.GetUid()}))

	at("folder")
	group := &iam.Group{Name: "folder", Description: "before"}
	folder := must(client.CreateGroup(ctx, &iam.CreateGroupRequest{Parent: organization, Group: group}))
	same("parent", parent(folder.GetUid()), organization)
	read := must(client.GetGroup(ctx, &iam.GetGroupRequest{Uid: folder.GetUid()}))
	same("group", read, folder)
	read.Description = "after"
	update := &iam.UpdateGroupRequest{Group: read, UpdateMask: mask("name", "description", "verified")}
	updated := must(client.UpdateGroup(ctx, update))
	same("description", updated.GetDescription(), "after")
	same("name", updated.GetName(), "folder")
	return folder.GetUid()
}

// roles walks a role and an invite, and returns the built-in role `viewer`.
func roles(conn *grpc.ClientConn, folder string) string {
	client := iam.NewRolesServiceClient(conn)
	at("role")
	held := []capabilities.Capability{capabilities.Capability_CAP_IAM_GROUPS_LIST}
	role := &iam.Role{Name: "reader", Capabilities: held}
	role = must(client.CreateRole(ctx, &iam.CreateRoleRequest{Parent: folder, Role: role}))
	read := must(client.GetRole(ctx, &iam.GetRoleRequest{Uid: role.GetUid()}))
	same("description", read.GetDescription(), "")
	same("capabilities", read.GetCapabilities(), held)
	read.Name = "renamed"
	update := &iam.UpdateRoleRequest{Role: read, UpdateMask: mask("*")}
	same("name", must(client.UpdateRole(ctx, update)).GetName(), "renamed")
	must(client.DeleteRole(ctx, &iam.DeleteRoleRequest{Uid: role.GetUid()}))
	refused[*iam.Role](codes.NotFound)(client.GetRole(ctx, &iam.GetRoleRequest{Uid: role.GetUid()}))

	at("data source role")
	request := &iam.ListRolesRequest{Name: "viewer", Uidp: &common.UIDPFilter{InRoot: true}}
	viewer := only(must(client.ListRoles(ctx, request)).GetRoles()).GetUid()

	at("invite")
	invites := iam.NewGroupInvitesServiceClient(conn)
	invite := &iam.GroupInvite{Ttl: durationpb.New(time.Hour), RoleUid: viewer, Email: "ada@example.com"}
	invite = must(invites.CreateGroupInvite(ctx, &iam.CreateGroupInviteRequest{Parent: folder, GroupInvite: invite}))
	set("code", invite.GetCode())
	must(invites.GetGroupInvite(ctx, &iam.GetGroupInviteRequest{Uid: invite.GetUid()}))
	must(invites.DeleteGroupInvite(ctx, &iam.DeleteGroupInviteRequest{Uid: invite.GetUid()}))
	return viewer
}

// A JWK Set with one RSA key of 2048 bits, the smallest that the server accepts.
var keys = `{"keys":[{"kty":"RSA","n":"` + strings.Repeat("z", 341) + `Q","e":"AQAB"}]}`

func identities(conn *grpc.ClientConn, api, organization, folder, viewer string) {
	client := iam.NewIdentitiesServiceClient(conn)
	claims := func(subject string) *iam.Identity_ClaimMatch_ {
		return &iam.Identity_ClaimMatch_{ClaimMatch: &iam.Identity_ClaimMatch{
			Iss: &iam.Identity_ClaimMatch_Issuer{Issuer: "https://issuer.example.com"},
			Sub: &iam.Identity_ClaimMatch_Subject{Subject: subject},
		}}
	}
	forms := []*iam.Identity{
		{Relationship: claims("repo:a")},
		{Relationship: &iam.Identity_ClaimMatch_{ClaimMatch: &iam.Identity_ClaimMatch{
			Iss: &iam.Identity_ClaimMatch_IssuerPattern{IssuerPattern: "https://.*"},
			Sub: &iam.Identity_ClaimMatch_SubjectPattern{SubjectPattern: "repo:.*"},
			Aud: &iam.Identity_ClaimMatch_AudiencePattern{AudiencePattern: ".*"},
		}}},
		{Relationship: &iam.Identity_StaticKeys_{StaticKeys: &iam.Identity_StaticKeys{
			Issuer: "https://static.example.com", Subject: "s", IssuerKeys: keys,
			ExpirationTime: timestamppb.New(time.Now().Add(time.Hour).Truncate(time.Millisecond)),
		}}},
		{Relationship: &iam.Identity_AwsIdentity{AwsIdentity: &iam.Identity_AWSIdentity{
			AwsAccount: "123456789012",
			AwsArn:     &iam.Identity_AWSIdentity_Arn{Arn: "arn:aws:sts::123456789012:assumed-role/a/b"},
			AwsUserId:  &iam.Identity_AWSIdentity_UserIdPattern{UserIdPattern: "A.*"},
		}}},
		{Relationship: &iam.Identity_ServicePrincipal{ServicePrincipal: iam.ServicePrincipal_SERVICE_PRINCIPAL_COSIGNED}},
	}
	for number, form := range forms {
		at("identity %d", number)
		form.Name = "ci"
		created := must(client.CreateIdentity(ctx, &iam.CreateIdentityRequest{Parent: folder, Identity: form}))
		read := must(client.GetIdentity(ctx, &iam.GetIdentityRequest{Uid: created.GetUid()}))
		same("identity", read, created)
		same("relationship", read.GetRelationship(), created.GetRelationship())
		read.Description = "after"
		updated := must(client.UpdateIdentity(ctx, &iam.UpdateIdentityRequest{Identity: read, UpdateMask: mask("*")}))
		same("description", updated.GetDescription(), "after")
		must(client.DeleteIdentity(ctx, &iam.DeleteIdentityRequest{Uid: created.GetUid()}))
		refused[*iam.Identity](codes.NotFound)(client.GetIdentity(ctx, &iam.GetIdentityRequest{Uid: created.GetUid()}))
	}

	at("role binding")
	identity := &iam.Identity{Name: "bound", Relationship: claims("repo:b")}
	bound := must(client.CreateIdentity(ctx, &iam.CreateIdentityRequest{Parent: folder, Identity: identity})).GetUid()
	bindings := iam.NewRoleBindingsServiceClient(conn)
	binding := &iam.RoleBinding{IdentityUid: bound, RoleUid: viewer}
	binding = must(bindings.CreateRoleBinding(ctx, &iam.CreateRoleBindingRequest{Parent: folder, RoleBinding: binding}))
	read := must(bindings.GetRoleBinding(ctx, &iam.GetRoleBindingRequest{Uid: binding.GetUid()}))
	got := []string{read.GetGroup().GetUid(), read.GetIdentity().GetUid(), read.GetRole().GetUid()}
	same("binding", got, []string{folder, bound, viewer})
	change := &iam.RoleBinding{Uid: binding.GetUid(), IdentityUid: bound, RoleUid: viewer}
	must(bindings.UpdateRoleBinding(ctx, &iam.UpdateRoleBindingRequest{RoleBinding: change, UpdateMask: mask("*")}))
	must(bindings.DeleteRoleBinding(ctx, &iam.DeleteRoleBindingRequest{Uid: binding.GetUid()}))

	at("data source identity")
	v1 := iam1.NewIdentitiesClient(conn)
	lookup := &iam1.LookupRequest{Issuer: "https://issuer.example.com", Subject: "repo:b"}
	same("id", must(v1.Lookup(ctx, lookup)).GetId(), bound)
	lookup.Subject = "repo:c"
	refused[*iam1.Identity](codes.NotFound)(v1.Lookup(ctx, lookup))
	must(client.DeleteIdentity(ctx, &iam.DeleteIdentityRequest{Uid: bound}))

	at("assumed identity")
	self := must(iam1.NewRoleBindingsClient(conn).List(ctx, &iam1.RoleBindingFilter{}))
	operator := self.GetItems()[0].GetIdentity()
	matching := &iam.Identity{Name: "terraform", Relationship: &iam.Identity_ClaimMatch_{
		ClaimMatch: &iam.Identity_ClaimMatch{
			Iss: &iam.Identity_ClaimMatch_Issuer{Issuer: api},
			Sub: &iam.Identity_ClaimMatch_Subject{Subject: operator},
		},
	}}
	request := &iam.CreateIdentityRequest{Parent: organization, Identity: matching}
	assumed := must(client.CreateIdentity(ctx, request)).GetUid()
	give := &iam.RoleBinding{IdentityUid: assumed, RoleUid: viewer}
	must(bindings.CreateRoleBinding(ctx, &iam.CreateRoleBindingRequest{Parent: organization, RoleBinding: give}))
	as := connect(api, exchange(api, os.Getenv("TOKEN"), assumed))
	defer as.Close()
	first := must(iam1.NewGroupsClient(as).List(ctx, &iam1.GroupFilter{})).GetItems()[0]
	same("first group", first.GetId(), organization)
	must(client.DeleteIdentity(ctx, &iam.DeleteIdentityRequest{Uid: assumed}))
}

func identityProvider(conn *grpc.ClientConn, folder, viewer string) {
	at("identity provider")
	client := iam.NewIdentityProvidersServiceClient(conn)
	provider := &iam.IdentityProvider{
		Name: "provider", DefaultRole: viewer,
		Configuration: &iam.IdentityProvider_Oidc{Oidc: &iam.IdentityProvider_OIDC{
			Issuer: "https://login.example.com", ClientId: "client", ClientSecret: "secret",
			AdditionalScopes: []string{"email", "profile"},
		}},
	}
	request := &iam.CreateIdentityProviderRequest{Parent: folder, IdentityProvider: provider}
	uid := must(client.CreateIdentityProvider(ctx, request)).GetUid()
	read := must(client.GetIdentityProvider(ctx, &iam.GetIdentityProviderRequest{Uid: uid}))
	same("secret", read.GetOidc().GetClientSecret(), "")
	same("scopes", read.GetOidc().GetAdditionalScopes(), []string{"email", "profile"})
	provider.Uid, provider.Description = uid, "after"
	update := &iam.UpdateIdentityProviderRequest{IdentityProvider: provider, UpdateMask: mask("*")}
	same("description", must(client.UpdateIdentityProvider(ctx, update)).GetDescription(), "after")
	must(client.DeleteIdentityProvider(ctx, &iam.DeleteIdentityProviderRequest{Uid: uid}))
	get := &iam.GetIdentityProviderRequest{Uid: uid}
	refused[*iam.IdentityProvider](codes.NotFound)(client.GetIdentityProvider(ctx, get))
}

func accountAssociation(conn *grpc.ClientConn, folder string) {
	at("account association")
	client := iam.NewAccountAssociationsServiceClient(conn)
	association := &iam.AccountAssociation{
		Name:   "accounts",
		Amazon: &iam.AccountAssociation_Amazon{Account: "123456789012"},
		Google: &iam.AccountAssociation_Google{ProjectId: "project-a", ProjectNumber: "1"},
	}
	request := &iam.CreateAccountAssociationRequest{Parent: folder, AccountAssociation: association}
	same("uid", must(client.CreateAccountAssociation(ctx, request)).GetUid(), folder)
	read := must(client.GetAccountAssociation(ctx, &iam.GetAccountAssociationRequest{Uid: folder}))
	same("account", read.GetAmazon().GetAccount(), "123456789012")
	read.Description = "after"
	update := &iam.UpdateAccountAssociationRequest{AccountAssociation: read, UpdateMask: mask("*")}
	same("description", must(client.UpdateAccountAssociation(ctx, update)).GetDescription(), "after")
	must(client.DeleteAccountAssociation(ctx, &iam.DeleteAccountAssociationRequest{Uid: folder}))
	get := &iam.GetAccountAssociationRequest{Uid: folder}
	refused[*iam.AccountAssociation](codes.NotFound)(client.GetAccountAssociation(ctx, get))
}

func subscription(conn *grpc.ClientConn, folder string) {
	at("subscription")
	client := events.NewSubscriptionsClient(conn)
	sink := "https://receiver.example.com/events"
	request := &events.CreateSubscriptionRequest{ParentId: folder, Subscription: &events.Subscription{Sink: sink}}
	id := set("id", must(client.Create(ctx, request)).GetId())
	same("parent", parent(id), folder)
	found := only(must(client.List(ctx, &events.SubscriptionFilter{Id: id})).GetItems())
	same("subscription", []string{found.GetId(), found.GetSink()}, []string{id, sink})
	_, err := client.Delete(ctx, &events.DeleteSubscriptionRequest{Id: id})
	must(id, err)
	none(must(client.List(ctx, &events.SubscriptionFilter{Id: id})).GetItems())
	_, err = client.Delete(ctx, &events.DeleteSubscriptionRequest{Id: id})
	refused[string](codes.NotFound)(id, err)
}

// imageRepo walks a repo, a tag in it and its deployment.
func imageRepo(conn *grpc.ClientConn, folder string) {
	client := registry1.NewRegistryClient(conn)
	at("image repo")
	source := must(client.CreateRepo(ctx, &registry1.CreateRepoRequest{
		ParentId: folder, Repo: &registry1.Repo{Name: "source"},
	})).GetId()
	expiration := timestamppb.New(time.Now().AddDate(0, 0, 30).UTC().Truncate(24 * time.Hour))
	repo := &registry1.Repo{
		Name: "nginx", Readme: "# nginx\n", CatalogTier: registry1.CatalogTier_FIPS,
		Bundles: []string{"base"}, Aliases: []string{"nginx:latest"}, ActiveTags: []string{"latest"},
		SyncConfig: &registry1.SyncConfig{
			Source: source, Expiration: expiration, Amazon: "a", Google: "g", Azure: "z", GracePeriod: true,
		},
	}
	created := must(client.CreateRepo(ctx, &registry1.CreateRepoRequest{ParentId: folder, Repo: repo}))
	id := set("id", created.GetId())
	same("expiration", created.GetSyncConfig().GetExpiration().AsTime(), expiration.AsTime())
	same("grace period", created.GetSyncConfig().GetGracePeriod(), true)
	if created.GetCreateTime() == nil {
		fail("create_time is missing")
	}
	read := only(must(client.ListRepos(ctx, &registry1.RepoFilter{Id: id})).GetItems())
	same("readme", read.GetReadme(), "# nginx\n")
	same("tier", read.GetCatalogTier(), registry1.CatalogTier_FIPS)
	same("bundles", read.GetBundles(), repo.GetBundles())
	same("aliases", read.GetAliases(), repo.GetAliases())
	same("active tags", read.GetActiveTags(), repo.GetActiveTags())
	same("source", read.GetSyncConfig().GetSource(), source)

	at("update an image repo")
	repo.Id, repo.Readme, repo.CatalogTier = id, "# changed\n", registry1.CatalogTier_BASE
	updated := must(client.UpdateRepo(ctx, repo))
	same("id", updated.GetId(), id)
	same("readme", updated.GetReadme(), "# changed\n")
	same("tier", updated.GetCatalogTier(), registry1.CatalogTier_BASE)
	same("expiration", updated.GetSyncConfig().GetExpiration().AsTime(), expiration.AsTime())

	at("create an existing image repo")
	again := &registry1.CreateRepoRequest{ParentId: folder, Repo: &registry1.Repo{Name: "source"}}
	same("id", must(client.CreateRepo(ctx, again)).GetId(), source)
	again.PreventExisting = true
	refused[*registry1.Repo](codes.AlreadyExists)(client.CreateRepo(ctx, again))

	tag(client, id)
	deployment(client, id)

	at("delete an image repo")
	for _, one := range []string{id, source} {
		_, err := client.DeleteRepo(ctx, &registry1.DeleteRepoRequest{Id: one})
		must(one, err)
	}
	none(must(client.ListRepos(ctx, &registry1.RepoFilter{Id: id})).GetItems())
	_, err := client.DeleteRepo(ctx, &registry1.DeleteRepoRequest{Id: id})
	refused[string](codes.NotFound)(id, err)
}

func tag(client registry1.RegistryClient, repo string) {
	at("image tag")
	request := &registry1.CreateTagRequest{RepoId: repo, Tag: &registry1.Tag{Name: "1", Bundles: []string{"base"}}}
	created := must(client.CreateTag(ctx, request))
	id := set("id", created.GetId())
	same("digest", created.GetDigest(), "")
	if created.GetLastUpdated() == nil {
		fail("last_updated is missing")
	}
	read := only(must(client.ListTags(ctx, &registry1.TagFilter{Id: id})).GetItems())
	same("tag", []any{read.GetName(), read.GetDigest(), read.GetBundles()}, []any{"1", "", []string{"base"}})
	updated := must(client.UpdateTag(ctx, &registry1.Tag{Id: id, Name: "2", Deprecated: true}))
	same("tag", []any{updated.GetId(), updated.GetName(), updated.GetDeprecated()}, []any{id, "2", true})
	_, err := client.DeleteTag(ctx, &registry1.DeleteTagRequest{Id: id})
	must(id, err)
	none(must(client.ListTags(ctx, &registry1.TagFilter{Id: id})).GetItems())
	_, err = client.DeleteTag(ctx, &registry1.DeleteTagRequest{Id: id})
	refused[string](codes.NotFound)(id, err)
}

func deployment(client registry1.RegistryClient, repo string) {
	at("deployment")
	chart := "nginx"
	charts := []*registry1.HelmChart{{Repo: "https://charts.example.com", Chart: &chart}, {Repo: "oci://registry.example.com/c"}}
	create := &registry1.CreateDeploymentRequest{ParentId: repo, Charts: charts}
	created := must(client.CreateDeployment(ctx, create))
	same("id", created.GetId(), repo)
	refused[*registry1.Deployment](codes.AlreadyExists)(client.CreateDeployment(ctx, create))
	charts[0], charts[1] = charts[1], charts[0]
	must(client.UpdateDeployment(ctx, &registry1.UpdateDeploymentRequest{RepoId: repo, Charts: charts}))
	read := must(client.GetDeployment(ctx, &registry1.GetDeploymentRequest{RepoId: repo})).GetCharts()
	same("charts", len(read), 2)
	same("first chart", read[0], charts[0])
	same("second chart", read[1], charts[1])
	must(client.UpdateDeployment(ctx, &registry1.UpdateDeploymentRequest{RepoId: repo}))
	none(must(client.GetDeployment(ctx, &registry1.GetDeploymentRequest{RepoId: repo})).GetCharts())
}

// dataSources reads repos with their readmes, groups and package versions.
func dataSources(conn *grpc.ClientConn, folder string) {
	at("data source group")
	groups := iam.NewGroupsServiceClient(conn)
	list := &iam.ListGroupsRequest{Uidp: &common.UIDPFilter{ChildrenOf: parent(folder)}, Name: "folder", PageSize: 50}
	same("group", only(must(groups.ListGroups(ctx, list)).GetGroups()).GetUid(), folder)

	at("data source image repos")
	v1, client := registry1.NewRegistryClient(conn), registry.NewReposServiceClient(conn)
	for _, name := range []string{"a", "b"} {
		repo := &registry1.Repo{Name: name, Readme: "# " + name}
		must(v1.CreateRepo(ctx, &registry1.CreateRepoRequest{ParentId: folder, Repo: repo}))
	}
	all := &registry.ListReposRequest{Uidp: &common.UIDPFilter{ChildrenOf: folder}}
	for _, repo := range must(client.ListRepos(ctx, all)).GetRepos() {
		same("repo", must(client.GetRepo(ctx, &registry.GetRepoRequest{Uid: repo.GetUid()})).GetName(), repo.GetName())
		read := only(must(v1.ListRepos(ctx, &registry1.RepoFilter{Id: repo.GetUid()})).GetItems())
		same("readme", read.GetReadme(), "# "+repo.GetName())
		_, err := v1.DeleteRepo(ctx, &registry1.DeleteRepoRequest{Id: repo.GetUid()})
		must(repo, err)
	}

	at("data source versions")
	request := &registry1.PackageVersionMetadataRequest{Package: "unknown-package"}
	// For the provider, NOT_FOUND means a package without versions.
	refused[*registry1.PackageVersionMetadata](codes.NotFound)(v1.GetPackageVersionMetadata(ctx, request))
}

// apko checks that builds are refused: the server starts no other programs.
func apko(conn *grpc.ClientConn, folder string) {
	at("apko build")
	client := registry1.NewApkoClient(conn)
	build := &registry1.BuildImageRequest{RepoUidp: folder}
	refused[*registry1.BuildImageResponse](codes.Unimplemented)(client.BuildImage(ctx, build))
	resolve := &registry1.ResolveConfigRequest{RepoUidp: folder}
	refused[*registry1.ApkoConfig](codes.Unimplemented)(client.ResolveConfig(ctx, resolve))
}

// missing lists resources by the uid of one that does not exist, as acceptance tests do at the end.
func missing(conn *grpc.ClientConn, id string) {
	at("list what does not exist")
	none(must(iam1.NewGroupsClient(conn).List(ctx, &iam1.GroupFilter{Id: id})).GetItems())
	none(must(iam1.NewIdentitiesClient(conn).List(ctx, &iam1.IdentityFilter{Id: id})).GetItems())
	none(must(iam1.NewIdentityProvidersClient(conn).List(ctx, &iam1.IdentityProviderFilter{Id: id})).GetItems())
	none(must(iam1.NewRolesClient(conn).List(ctx, &iam1.RoleFilter{Id: id})).GetItems())
	none(must(iam1.NewRoleBindingsClient(conn).List(ctx, &iam1.RoleBindingFilter{Id: id})).GetItems())
	none(must(iam1.NewGroupInvitesClient(conn).List(ctx, &iam1.GroupInviteFilter{Id: id})).GetItems())
	associations := iam1.NewGroupAccountAssociationsClient(conn)
	none(must(associations.List(ctx, &iam1.AccountAssociationsFilter{Group: id})).GetItems())
	none(must(events.NewSubscriptionsClient(conn).List(ctx, &events.SubscriptionFilter{Id: id})).GetItems())
	none(must(registry1.NewRegistryClient(conn).ListRepos(ctx, &registry1.RepoFilter{Id: id})).GetItems())
	none(must(registry1.NewRegistryClient(conn).ListTags(ctx, &registry1.TagFilter{Id: id})).GetItems())
}
