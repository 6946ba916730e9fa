//! Public advisory documents and vulnerability metadata.

use std::sync::Arc;

use platform_core::resources::{
    advisory::{
        ResolvedVulnsReport, VulnerabilityMetadata,
        document::{self, Documents, Form},
        image_ref,
    },
    data_of,
    vulnerabilities::advisory::event,
};
use platform_engine::{
    conversion::{ActionConversion, Conversion, ListConversion, fields_with},
    kind::{Action, Authorization, Domain, Field, Kind, Registered, Resource, Type},
    platform::ResponseCache,
    request::{ORDER_BY, PAGE_SIZE, PAGE_TOKEN, SKIP},
};

use super::ADVISORY;

/// The service.
pub const SECURITY_ADVISORY: Registered = Registered::service(
    &Kind::service_of("SecurityAdvisoryV1", "securityAdvisories", "SecurityAdvisory", ADVISORY),
    &[
        Action::get_rendered("ListDocuments", "documents", |cx, request| {
            Box::pin(document::list(cx, request, &DOCUMENTS))
        })
        .request(document::REQUEST)
        .response(&[Field::new("items", Type::List(&Type::Message(DOCUMENT)))
            .about("A document for each package, in the order of their names.")])
        .authorization(Authorization::Public),
        Action::page_as::<Metadata>("ListVulnerabilityMetadata", "metadata"),
        Action::action_as::<ResolvedVulns>("ListResolvedVulnsReports", "images/resolved_vulns"),
    ],
);

/// The text of all documents in the form of this version.
#[derive(Debug, Default)]
pub(crate) struct PublicDocuments(ResponseCache<Arc<Documents>>);

/// Documents are not converted for each request, because they have no page and need no token.
const DOCUMENTS: Form =
    Form { list: "items", advisory: Some(DOCUMENT_ADVISORY), cache: |cx| Ok(&data_of::<PublicDocuments>(cx)?.0) };

const DOCUMENT: &[Field] = &[
    Field::string("id").about("The package whose advisories the document has."),
    Field::new("advisories", Type::List(&Type::Message(DOCUMENT_ADVISORY))).about("The advisories of the package."),
];

const DOCUMENT_ADVISORY: &[Field] = &fields_with::<{ document::ADVISORY.len() }>(
    document::ADVISORY,
    &[Field::new("events", Type::List(&Type::Message(EVENT)))
        .about("The approved events of the advisory, oldest first.")],
);

/// The events of version 2, with the names of this version for the types of false positives.
const EVENT: &[Field] = &fields_with::<{ document::EVENT.len() }>(
    document::EVENT,
    &[event::FALSE_POSITIVE_DETERMINATION
        .ty(Type::Message(&[
            Field::enumeration("type", FALSE_POSITIVE).about("Why the artifact is not vulnerable."),
            Field::string("note").about("A note about the event."),
        ]))
        .oneof("data")],
);

const FALSE_POSITIVE: &[&str] = &[
    "FPT_TYPE_UNSPECIFIED",
    "FPT_TYPE_VULNERABILITY_RECORD_ANALYSIS_CONTESTED",
    "FPT_TYPE_COMPONENT_VULNERABILITY_MISMATCH",
    "FPT_TYPE_VULNERABLE_CODE_VERSION_NOT_USED",
    "FPT_TYPE_VULNERABLE_CODE_NOT_INCLUDED_IN_PACKAGE",
    "FPT_TYPE_VULNERABLE_CODE_NOT_IN_EXECUTION_PATH",
    "FPT_TYPE_VULNERABLE_CODE_CANNOT_BE_CONTROLLED_BY_ADVERSARY",
    "FPT_TYPE_INLINE_MITIGATIONS_EXIST",
];

struct Vulnerability;

impl Conversion for Vulnerability {
    type Resource = VulnerabilityMetadata;
    const DOMAIN: Domain = ADVISORY;
    const PATH: &'static str = "metadata";
    const MESSAGE: &'static str = "VulnerabilityMetadata";
    const FIELDS: &'static [Field] = &[
        VulnerabilityMetadata::KIND.show("id"),
        VulnerabilityMetadata::KIND.show("summary"),
        VulnerabilityMetadata::KIND.show("details"),
        VulnerabilityMetadata::KIND.show("references").ty(Type::List(&Type::Message(&[
            Field::enumeration("type", REFERENCE).about("The type of the page."),
            Field::string("url").about("The page's address."),
        ]))),
        VulnerabilityMetadata::KIND.show("severities").named("severity").ty(Type::List(&Type::Message(SEVERITY))),
    ];
}

const REFERENCE: &[&str] = &[
    "UNSPECIFIED",
    "ADVISORY",
    "ARTICLE",
    "DETECTION",
    "DISCUSSION",
    "REPORT",
    "FIX",
    "INTRODUCED",
    "PACKAGE",
    "EVIDENCE",
    "WEB",
];

const SEVERITY: &[Field] = &[
    Field::enumeration("type", &["UNSPECIFIED", "CVSS_V2", "CVSS_V3", "CVSS_V4", "UBUNTU"])
        .about("The scoring system."),
    Field::string("score").about("The score, such as a CVSS vector."),
];

struct Metadata;

impl ListConversion for Metadata {
    type Item = Vulnerability;
    const REQUEST: &'static [Field] = &[
        Field::string("id").about("Only the vulnerability with this identifier."),
        Field::strings("ids")
            .about("Only vulnerabilities with one of these identifiers, at most 1,000.")
            .max_items(1000),
        PAGE_SIZE,
        PAGE_TOKEN,
        ORDER_BY,
        SKIP,
    ];
    const RESPONSE: &'static [Field] = &[
        Field::new("items", Type::List(&Type::Message(Vulnerability::FIELDS)))
            .about("The vulnerabilities of the page."),
        Field::string("nextPageToken").about("Asks for the next page; empty on the last page."),
        Field::new("totalCount", Type::Int64).about("The number of vulnerabilities on all pages."),
        Field::new("skipped", Type::Int32).about("The `skip` of the request."),
    ];
}

struct ResolvedVulns;

impl ActionConversion for ResolvedVulns {
    type Resource = ResolvedVulnsReport;
    const ACTION: &'static str = "ListResolvedVulnsReports";
    const DOMAIN: Domain = ADVISORY;
    const MESSAGE: &'static str = "ResolvedVulnsReportList";
    const REQUEST: &'static [Field] = &[
        Field::new(
            "imageRefs",
            Type::List(&Type::Message(&[
                Field::string("repo").about("The repo, by uid or name."),
                Field::strings("tags").about("The tags of the images; `latest` when empty."),
            ])),
        )
        .about("The images to report on, at most 100. A query string writes each as `repo` or `repo:tag`.")
        .in_query(image_ref),
        Field::timestamp("from").of("startTime").about("The first day of the report."),
        Field::timestamp("to").of("endTime").about("The last day of the report, at most 366 days after the first."),
    ];
    const RESPONSE: &'static [Field] = &[Field::new(
        "items",
        Type::List(&Type::Message(&[
            Field::timestamp("date").about("The day of the report, at midnight UTC."),
            Field::new(
                "resolvedVulns",
                Type::List(&Type::Message(&[
                    Field::string("id").about("The identifier of the advisory."),
                    Field::strings("aliases").about("Other identifiers of the same vulnerability."),
                    Field::new("cvssSeverities", Type::List(&Type::Message(SEVERITY)))
                        .about("The severity of the vulnerability, by one or more scoring systems."),
                ])),
            )
            .about("The vulnerabilities whose fix was approved on that day."),
        ])),
    )
    .of("resolvedVulnsReports")
    .about("A report for each day, in order.")];
}
