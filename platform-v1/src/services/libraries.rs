//! Artifacts of language ecosystems.

use platform_core::resources::libraries::{Artifact, ArtifactVersion};
use platform_engine::{
    conversion::{ActionConversion, Conversion, ListConversion},
    kind::{Action, Domain, Field, Kind, Part, Registered, Resource, Type},
    request::{PAGE_SIZE, PAGE_TOKEN, SKIP},
};

use super::LIBRARIES;
use crate::resources::Entitlement;

/// The service.
pub const ARTIFACTS: Registered = Registered::service(
    &Kind::service_of("ArtifactsV1", "artifacts", "Artifacts", LIBRARIES),
    &[
        Action::page_as::<List>("List", "artifacts"),
        Action::list_as::<ListVersions>("ListVersions", "artifacts/{id=*}/versions"),
        Action::action_as::<Count>("GetArtifactCount", "artifacts/count"),
    ],
);

/// The service of entitlements.
pub const ENTITLEMENTS: Registered = Registered::service(
    &Kind::service_of("EntitlementsV1", "entitlements", "Entitlements", LIBRARIES),
    &[
        Action::create_as::<Entitled>("Create", "entitlements/{parentId=**}").body(Part::Field("ecosystem")),
        Action::list_as::<ListEntitled>("List", "entitlements"),
        Action::delete_as::<Entitled>("Delete", "entitlements/{id=**}"),
    ],
);

/// The names of ecosystems. This installation has artifacts of the first two.
const ECOSYSTEM: &[&str] = &[
    "UNKNOWN",
    "JAVA",
    "PYTHON",
    "JAVASCRIPT",
    "JAVA_ATHENA",
    "PYTHON_ATHENA",
    "JAVASCRIPT_ATHENA",
    "DOTNET",
    "DOTNET_ATHENA",
    "GO",
    "GO_ATHENA",
];

const ECOSYSTEMS: Field =
    Field::new("ecosystems", Type::List(&Type::Enum(ECOSYSTEM))).about("The ecosystems to include; at least one.");

struct Message;

impl Conversion for Message {
    type Resource = Artifact;
    const DOMAIN: Domain = LIBRARIES;
    const PATH: &'static str = "artifacts";
    const MESSAGE: &'static str = "Artifact";
    const FIELDS: &'static [Field] = &[
        Artifact::KIND.show("uid").named("id"),
        Artifact::KIND.show("name"),
        Artifact::KIND.show("description"),
        Artifact::KIND.show("ecosystem").ty(Type::Enum(ECOSYSTEM)),
        Artifact::KIND.show("latestVersion"),
        Artifact::KIND.show("versionCount"),
        Artifact::KIND.show("createTime").named("createdAt"),
        Artifact::KIND.show("updateTime").named("updatedAt"),
    ];
}

struct List;

impl ListConversion for List {
    type Item = Message;
    const REQUEST: &'static [Field] = &[
        ECOSYSTEMS,
        Field::string("query").about("Only artifacts with this text in their names, regardless of case."),
        Field::string("cudaVersion").about("Only artifacts that were built for this CUDA version."),
        Field::bool("remediated").about("Only artifacts that are remediated."),
        INCLUDE_UPSTREAM,
        PAGE_SIZE,
        PAGE_TOKEN,
        SKIP,
    ];
    const RESPONSE: &'static [Field] = &[
        Field::new("items", Type::List(&Type::Message(Message::FIELDS))).about("The artifacts of the page."),
        Field::string("nextPageToken").about("Asks for the next page; empty on the last page."),
        Field::new("totalArtifacts", Type::Int32).of("totalCount").about("The number of artifacts on all pages."),
        Field::new("skipped", Type::Int32).about("The `skip` of the request."),
    ];
}

const INCLUDE_UPSTREAM: Field = Field::bool("includeUpstream")
    .of("")
    .about("Whether to include artifacts of upstream registries, of which this installation has none.");

struct Version;

impl Conversion for Version {
    type Resource = ArtifactVersion;
    const DOMAIN: Domain = LIBRARIES;
    const PATH: &'static str = "artifacts";
    const MESSAGE: &'static str = "ArtifactVersion";
    const FIELDS: &'static [Field] = &[
        ArtifactVersion::KIND.show("uid").named("id"),
        ArtifactVersion::KIND.show("name"),
        ArtifactVersion::KIND.show("version"),
        ArtifactVersion::KIND.show("description"),
        ArtifactVersion::KIND.show("createTime").named("createdAt"),
        ArtifactVersion::KIND.show("updateTime").named("updatedAt"),
        ArtifactVersion::KIND.show("sizeBytes"),
        Field::enumeration(
            "sourceType",
            &[
                "SOURCE_TYPE_UNSPECIFIED",
                "SOURCE_TYPE_INTERNAL",
                "SOURCE_TYPE_INTERNAL_REMEDIATED",
                "SOURCE_TYPE_UPSTREAM_REGISTRY",
            ],
        )
        .of("")
        .about("Not known: imports do not have it."),
        Field::bool("malwareScanned").of("").about("Not known: imports do not have it."),
        Field::bool("malwareMalicious").of("").about("Not known: imports do not have it."),
        Field::timestamp("upstreamPublishedDate").of("").about("Not known: imports do not have it."),
    ];
}

struct ListVersions;

impl ListConversion for ListVersions {
    type Item = Version;
    const ORDER_BY: &'static str = "version desc";
    const REQUEST: &'static [Field] = &[
        Field::string("id").of("artifactId").about("The artifact's uid, such as `python:requests`."),
        INCLUDE_UPSTREAM,
    ];
    const RESPONSE: &'static [Field] =
        &[Field::new("items", Type::List(&Type::Message(Version::FIELDS))).about("The versions, the newest first.")];
}

struct Entitled;

impl Conversion for Entitled {
    type Resource = Entitlement;
    const DOMAIN: Domain = LIBRARIES;
    const PATH: &'static str = "entitlements";
    const MESSAGE: &'static str = "Entitlement";
    const REQUEST: &'static [Field] = &[
        Field::string("parentId").of("").about("The group that is entitled."),
        ENTITLED_ECOSYSTEM,
        POLICY,
        SOURCE,
        Entitlement::KIND.show("cooldownDays"),
    ];
    const FIELDS: &'static [Field] = &[
        Entitlement::KIND.show("uid").named("id"),
        ENTITLED_ECOSYSTEM,
        POLICY,
        SOURCE,
        Entitlement::KIND.show("cooldownDays"),
    ];
}

const ENTITLED_ECOSYSTEM: Field = Entitlement::KIND.show("ecosystem").ty(Type::Enum(ECOSYSTEM));
const POLICY: Field = Entitlement::KIND.show("policy").ty(Type::Enum(&[
    "POLICY_UNKNOWN",
    "POLICY_CHAINGUARD",
    "POLICY_CHAINGUARD_AND_UPSTREAM",
]));
const SOURCE: Field =
    Entitlement::KIND.show("source").ty(Type::Enum(&["SOURCE_UNKNOWN", "SOURCE_TRIAL", "SOURCE_SFDC"]));

struct ListEntitled;

impl ListConversion for ListEntitled {
    type Item = Entitled;
    const REQUEST: &'static [Field] = &[
        Field::string("parentId").of("uidp.childrenOf").required().about("The group whose entitlements to list."),
        Field::new("ecosystems", Type::List(&Type::Enum(ECOSYSTEM)))
            .about("Only entitlements to one of these ecosystems."),
    ];
    const RESPONSE: &'static [Field] = &[Field::new("items", Type::List(&Type::Message(Entitled::FIELDS)))
        .about("The entitlements, in the order of their uids.")];
}

struct Count;

impl ActionConversion for Count {
    type Resource = Artifact;
    const ACTION: &'static str = "GetArtifactCount";
    const DOMAIN: Domain = LIBRARIES;
    const MESSAGE: &'static str = "GetArtifactCountResponse";
    const REQUEST: &'static [Field] = &[ECOSYSTEMS];
    const RESPONSE: &'static [Field] = &[Field::new(
        "counts",
        Type::List(&Type::Message(&[
            Field::enumeration("ecosystem", ECOSYSTEM).about("The ecosystem."),
            Field::new("totalArtifacts", Type::Int32).of("totalCount").about("The number of artifacts."),
        ])),
    )
    .about("A count for each requested ecosystem.")];
}
