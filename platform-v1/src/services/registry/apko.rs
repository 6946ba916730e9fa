//! Builds of images, which this server does not run.

use platform_core::capabilities::cap;
use platform_engine::{
    context::Context,
    error::{Code, Error, Result},
    kind::{Action, Authorization, Field, Kind, Registered, Type},
};
use serde_json::{Map, Value};

use super::super::APKO;

/// The service.
pub const SERVICE: Registered =
    Registered::service(&Kind::service_of("ApkoV1", "apko", "Apko", APKO), &[RESOLVE, BUILD]);

const REPO: Field = Field::string("repoUidp").about("The uid of the repo.").required();

const RESOLVE: Action =
    Action::post("ResolveConfig", "resolve/{repoUidp=**}", |cx, request| Box::pin(refuse(cx, request)))
        .request(&[CONFIG.about("The configuration to resolve."), REPO])
        .response(APKO_CONFIG)
        .authorization(Authorization::At("repoUidp", &[cap("apk.list")]));

const BUILD: Action = Action::post("BuildImage", "build/{repoUidp=**}", |cx, request| Box::pin(refuse(cx, request)))
    .request(&[
        CONFIG.about("The configuration to build."),
        REPO,
        Field::string("mediaType").about("The media type of the image."),
    ])
    .response(&[
        Field::string("digest").about("The digest of the image."),
        Field::timestamp("buildDateEpoch").about("The time in the image."),
        Field::string("userError").about("Why the configuration cannot be built."),
        Field::string("buildReportId").about("The uid of the report of the build."),
    ])
    .authorization(Authorization::At("repoUidp", &[cap("apk.list"), cap("manifest.create"), cap("repo.update")]));

/// The configuration in a request, which is not read.
const CONFIG: Field = Field::message("config", APKO_CONFIG).unread();

#[expect(clippy::unused_async, reason = "an action is asynchronous")]
async fn refuse(_: &Context<'_>, _: Map<String, Value>) -> Result<Value> {
    let reason = "This server does not build images: it never starts other programs on behalf of a caller";
    Err(Error::new(Code::Unimplemented, reason))
}

const APKO_CONFIG: &[Field] = &[
    Field::message(
        "contents",
        &[
            Field::strings("repositories").about("The addresses of package repositories."),
            Field::strings("buildRepositories").about("Package repositories for the build only."),
            Field::strings("runtimeRepositories").about("Package repositories in the image."),
            Field::strings("keyring").about("The keys of package repositories."),
            Field::strings("packages").about("The packages to install."),
        ],
    )
    .about("The packages of the image."),
    Field::string_map("environment").about("The environment of the image's process."),
    Field::message(
        "accounts",
        &[
            Field::new(
                "groups",
                Type::List(&Type::Message(&[
                    Field::new("gid", Type::Int32).about("The number of the group."),
                    Field::string("groupName").about("The name of the group."),
                    Field::strings("members").about("The users in the group."),
                ])),
            )
            .about("The groups of users."),
            Field::new(
                "users",
                Type::List(&Type::Message(&[
                    Field::new("uid", Type::Int32).about("The number of the user."),
                    Field::string("userName").about("The name of the user."),
                    Field::new("gid", Type::Int32).about("The number of the user's group."),
                    Field::string("groupName").about("The name of the user's group."),
                    Field::string("shell").about("The shell of the user."),
                    Field::string("homeDir").about("The home directory of the user."),
                ])),
            )
            .about("The users."),
            Field::string("runAs").about("The user of the image's process."),
        ],
    )
    .about("The users and groups of the image."),
    Field::message(
        "entrypoint",
        &[
            Field::string("type").about("The type of the entrypoint."),
            Field::string("command").about("The command."),
            Field::string("shellFragment").about("A part of a shell script."),
            Field::string_map("services").about("The commands of services."),
        ],
    )
    .about("The program that the image runs."),
    Field::string("cmd").about("The arguments of the entrypoint."),
    Field::string("workDir").about("The working directory."),
    Field::string_map("annotations").about("The annotations of the image."),
    Field::new(
        "paths",
        Type::List(&Type::Message(&[
            Field::string("path").about("The path."),
            Field::string("type").about("What to do at the path, such as `directory`."),
            Field::new("uid", Type::Int32).about("The number of the owner."),
            Field::new("gid", Type::Int32).about("The number of the owner's group."),
            Field::new("permissions", Type::Int32).about("The permissions."),
            Field::string("source").about("The path that a link refers to."),
            Field::bool("recursive").about("Whether everything below the path is changed."),
        ])),
    )
    .about("Changes of the file system."),
    Field::strings("archs").about("The architectures."),
    Field::strings("volumes").about("The volumes."),
    Field::string("include").about("A configuration to include."),
    Field::string("stopSignal").about("The signal that stops the process."),
    Field::string("vcsUrl").about("The address of the source."),
    Field::message(
        "layering",
        &[
            Field::string("strategy").about("How packages are divided into layers."),
            Field::new("budget", Type::Int64).about("The maximum number of layers."),
        ],
    )
    .about("The layers of the image."),
    Field::message(
        "certificates",
        &[
            Field::new(
                "additional",
                Type::List(&Type::Message(&[
                    Field::string("name").about("The name of the certificate."),
                    Field::string("content").about("The certificate in PEM."),
                ])),
            )
            .about("Certificates to trust in addition."),
            Field::strings("providers").about("Sources of certificates."),
        ],
    )
    .about("The certificates that the image trusts."),
];
