//! Role bindings. Lists show the group and the role of each binding as a whole.

use platform_core::resources::iam::RoleBinding;
use platform_engine::{
    BoxFuture,
    context::Context,
    conversion::{self, ActionConversion, Conversion, ListConversion},
    error::Result,
    kind::{Action, Domain, Field, Kind, Registered, Resource, Type},
    uid::{self, Uid},
};
use serde_json::{Map, Value};

use super::{
    super::{IAM, UIDP},
    groups, roles,
};

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("RoleBindingsV1", "rolebindings", "RoleBindings", IAM),
    &[
        Action::create_as::<Message>("Create", "rolebindings/{parent=**}"),
        Action::action_as::<Batch>("CreateBatch", "rolebindings/batch/{parent=**}")
            .body(platform_engine::kind::Part::Field("roleBindings")),
        Action::replace_as::<Message>("Update", "rolebindings/{id=**}"),
        Action::list_as::<Filter>("List", "rolebindings"),
        Action::delete_as::<Message>("Delete", "rolebindings/{id=**}"),
    ],
);

struct Message;

impl Conversion for Message {
    type Resource = RoleBinding;
    const DOMAIN: Domain = IAM;
    const PATH: &'static str = "rolebindings";
    const MESSAGE: &'static str = "RoleBinding";
    const PARENT: &'static str = "parent";
    const ITEM: &'static str = "roleBinding";
    const CREATED_AS_REQUEST: bool = true;
    const FIELDS: &'static [Field] = &[
        RoleBinding::KIND.show("uid").named("id"),
        RoleBinding::KIND.show("identityUid").named("identity"),
        // The parent in the uid; not set by requests.
        Field::string("group").of("").about("The group where the identity has the role."),
        RoleBinding::KIND.show("roleUid").named("role"),
    ];

    fn complete<'a>(_: &'a Context<'a>, messages: &'a mut [Map<String, Value>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for message in messages {
                let group = uid::parent(text(message, "id")).unwrap_or_default().to_owned();
                message.insert("group".to_owned(), group.into());
            }
            Ok(())
        })
    }
}

/// A binding in a list.
struct Binding;

impl Conversion for Binding {
    type Resource = RoleBinding;
    const DOMAIN: Domain = IAM;
    const PATH: &'static str = "rolebindings";
    const MESSAGE: &'static str = "RoleBindingList.Binding";
    const FIELDS: &'static [Field] = &[
        RoleBinding::KIND.show("uid").named("id"),
        Field::message("group", groups::Message::FIELDS).of("").about("The group where the identity has the role."),
        Field::string("identity").of("identity.uid").about("The identity."),
        Field::message("role", roles::Message::FIELDS).of("").about("The role."),
        Field::string("email").of("identity.email").about("The person's verified email address."),
        Field::string("claimMatchIssuer")
            .of("identity.issuer")
            .about("The issuer of the tokens that assume the identity."),
        Field::string("claimMatchSubject")
            .of("identity.subject")
            .about("The subject of the tokens that assume the identity."),
        RoleBinding::KIND.show("createTime").named("createdAt"),
        Field::string("emailUnverified")
            .of("")
            .about("The person's email address, when the issuer has not verified it."),
    ];

    fn complete<'a>(cx: &'a Context<'a>, messages: &'a mut [Map<String, Value>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let ids: Vec<_> = messages.iter().map(|message| text(message, "id").to_owned()).collect();
            let bindings = cx.read_all::<RoleBinding>(ids.iter().map(|id| Uid::opaque(&**id))).await?;
            let roles: Vec<_> = bindings.into_iter().map(|binding| binding.unwrap_or_default().role_uid).collect();
            let groups: Vec<_> = ids.iter().map(|id| Uid::opaque(uid::parent(id).unwrap_or_default())).collect();
            let roles = conversion::shown_all::<roles::Message>(cx, roles).await?;
            let groups = conversion::shown_all::<groups::Message>(cx, groups).await?;
            for ((message, role), group) in messages.iter_mut().zip(roles).zip(groups) {
                group.into_iter().for_each(|group| drop(message.insert("group".to_owned(), group.into())));
                role.into_iter().for_each(|role| drop(message.insert("role".to_owned(), role.into())));
            }
            Ok(())
        })
    }
}

struct Filter;

impl ListConversion for Filter {
    type Item = Binding;
    const REQUEST: &'static [Field] =
        &[Field::string("id").of("uidp.ids").about("Only the binding with this uid."), UIDP];
    const RESPONSE: &'static [Field] = &[Field::new("items", Type::List(&Type::Message(Binding::FIELDS)))
        .about("The bindings, in the order of their uids.")];
}

struct Batch;

impl ActionConversion for Batch {
    type Resource = RoleBinding;
    const ACTION: &'static str = "BatchCreateRoleBindings";
    const DOMAIN: Domain = IAM;
    const MESSAGE: &'static str = "RoleBindingBatch";
    const PATH: &'static str = "rolebindings/batch";
    const SUBJECTS: &'static str = "roleBindings";
    const REQUEST: &'static [Field] = &[
        Field::string("parent").about("The group where the roles are given."),
        Field::new(
            "roleBindings",
            Type::List(&Type::Message(&[
                Field::string("id").of("").about("Ignored."),
                Field::string("identity").of("roleBinding.identityUid").about("The identity that is given the role."),
                Field::string("group").of("").about("Ignored."),
                Field::string("role").of("roleBinding.roleUid").about("The role."),
            ])),
        )
        .of("requests")
        .about("The bindings to create, 1 to 25. Either all are created or none."),
    ];
    const RESPONSE: &'static [Field] = &[Field::new(
        "roleBindings",
        Type::List(&Type::Message(&[
            Field::string("id").of("uid").about("The uid."),
            Field::string("identity").of("identityUid").about("The identity."),
            Field::string("group").of("group.uid").about("The group."),
            Field::string("role").of("roleUid").about("The role."),
        ])),
    )
    .about("The bindings, in the order of the request.")];
}

fn text<'m>(message: &'m Map<String, Value>, name: &str) -> &'m str {
    message.get(name).and_then(Value::as_str).unwrap_or_default()
}
