//! Overlays, which customize the images of a repo (`docs/api.md`, Repos).
//!
//! Our choice: every repo may have an overlay, because this installation builds no images.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use platform_engine::{
    error::Violations,
    kind::{Field, Type},
};

/// The packages, environment, annotations, accounts and certificates that are added to a repo's images.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CustomOverlay {
    /// Packages and package repositories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<ImageContents>,
    /// Environment variables; names that begin with `CHAINGUARD_` are reserved.
    pub environment: BTreeMap<String, String>,
    /// Annotations; keys that begin with `dev.chainguard.` or `org.opencontainers.` are reserved.
    pub annotations: BTreeMap<String, String>,
    /// Users and groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accounts: Option<Accounts>,
    /// Certificates that the images trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Certificates>,
}

/// Packages and package repositories of images.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageContents {
    /// Packages to install.
    pub packages: Vec<String>,
    /// Package repositories that replace the default ones.
    pub runtime_repositories: Vec<String>,
    /// Keys that sign packages.
    pub runtime_keyring: Vec<NamedContent>,
}

/// A file's name and content.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamedContent {
    /// The file's name.
    pub name: String,
    /// The content, in PEM.
    pub content: String,
}

/// Users and groups of images.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Accounts {
    /// The user that images run as.
    pub run_as: String,
    /// Users.
    pub users: Vec<User>,
    /// Groups.
    pub groups: Vec<UserGroup>,
}

/// A user of images.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "they are what passwd(5) has")]
pub struct User {
    pub username: String,
    pub uid: i32,
    pub gid: i32,
    pub group_name: String,
    pub shell: String,
    pub home_dir: String,
}

/// A group of users of images.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "they are what group(5) has")]
pub struct UserGroup {
    pub groupname: String,
    pub gid: i32,
    pub members: Vec<String>,
}

/// Certificates that images trust.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Certificates {
    /// Certificates in addition to the default ones.
    pub additional: Vec<NamedContent>,
    /// Packages that provide further certificates.
    pub providers: Vec<String>,
}

const NAMED_CONTENT: &[Field] = &[
    Field::string("name").about("The file's name.").required(),
    Field::string("content").about("The content, in PEM.").required().multiline(),
];

pub(super) const FIELDS: &[Field] = &[
    Field::message(
        "contents",
        &[
            Field::strings("packages").about("Packages to install.").max_items(1000).distinct(),
            Field::strings("runtimeRepositories")
                .about("Package repositories that the image uses at run time.")
                .distinct(),
            Field::new("runtimeKeyring", Type::List(&Type::Message(NAMED_CONTENT)))
                .about("Keys that the image trusts for packages at run time."),
        ],
    )
    .about("Packages and package repositories to add to the image."),
    Field::string_map("environment")
        .about("Environment variables. Names that begin with `CHAINGUARD_` are reserved.")
        .max_len(8 << 10)
        .check(environment),
    Field::string_map("annotations")
        .about(
            "Annotations of the image. Names that begin with `dev.chainguard.` or `org.opencontainers.` are reserved.",
        )
        .max_len(8 << 10)
        .check(annotations),
    Field::message(
        "accounts",
        &[
            Field::string("runAs").about("The user that the image runs as."),
            Field::new(
                "users",
                Type::List(&Type::Message(&[
                    Field::string("username").about("The user's name.").required(),
                    Field::new("uid", Type::Int32).about("The user's numeric Unix identifier."),
                    Field::new("gid", Type::Int32).about("The numeric identifier of the user's primary group."),
                    Field::string("groupName").about("The name of the user's primary group."),
                    Field::string("shell").about("The user's login shell."),
                    Field::string("homeDir").about("The user's home directory."),
                ])),
            )
            .about("Users to add."),
            Field::new(
                "groups",
                Type::List(&Type::Message(&[
                    Field::string("groupname").about("The group's name.").required(),
                    Field::new("gid", Type::Int32).about("The group's numeric Unix identifier."),
                    Field::strings("members").about("The names of the group's members.").distinct(),
                ])),
            )
            .about("Groups to add."),
        ],
    )
    .about("Users and groups of the image."),
    Field::message(
        "certificates",
        &[
            Field::new("additional", Type::List(&Type::Message(NAMED_CONTENT))).about("Certificates to add."),
            Field::strings("providers").about("Packages that provide certificates.").distinct(),
        ],
    )
    .about("Certificates that the image trusts."),
];

impl CustomOverlay {
    pub(super) fn example() -> Self {
        Self {
            contents: Some(ImageContents { packages: vec!["curl".to_owned()], ..ImageContents::default() }),
            environment: BTreeMap::from([("TZ".to_owned(), "UTC".to_owned())]),
            annotations: BTreeMap::from([("team".to_owned(), "web".to_owned())]),
            accounts: Some(Accounts { run_as: "web".to_owned(), ..Accounts::default() }),
            certificates: Some(Certificates { providers: vec!["system".to_owned()], ..Certificates::default() }),
        }
    }

    /// Validates keys and certificates.
    pub(super) fn validate(&self, violations: &mut Violations) {
        let keyring = self.contents.iter().flat_map(|contents| &contents.runtime_keyring).enumerate();
        for (index, entry) in keyring {
            let path = format!("customOverlay.contents.runtimeKeyring[{index}]");
            if entry.name.starts_with('.') || entry.name.contains(['/', '\\', ' ']) {
                violations.add(format!("{path}.name"), "must be a file name that does not begin with a dot");
            }
            if !is_rsa_public_key(&entry.content) {
                violations.add(format!("{path}.content"), "must be an RSA public key in PEM");
            }
        }
        let accounts = self.accounts.iter();
        let users = accounts.clone().flat_map(|accounts| accounts.users.iter().enumerate());
        for (index, user) in users {
            for (field, id) in [("uid", user.uid), ("gid", user.gid)] {
                if id < 0 {
                    violations.add(format!("customOverlay.accounts.users[{index}].{field}"), "must not be negative");
                }
            }
        }
        for (index, group) in accounts.flat_map(|accounts| accounts.groups.iter().enumerate()) {
            if group.gid < 0 {
                violations.add(format!("customOverlay.accounts.groups[{index}].gid"), "must not be negative");
            }
        }
        let additional = self.certificates.iter().flat_map(|certificates| &certificates.additional).enumerate();
        for (index, entry) in additional {
            let certificates = pem::parse_many(&entry.content).unwrap_or_default();
            let all = certificates
                .iter()
                .all(|block| block.tag() == "CERTIFICATE" && block.contents().first() == Some(&0x30));
            if certificates.is_empty() || !all {
                let path = format!("customOverlay.certificates.additional[{index}].content");
                violations.add(path, "must be certificates in PEM");
            }
        }
    }
}

/// Returns whether a text is an RSA public key in PEM. Recognizes RSA in a SubjectPublicKeyInfo by its object
/// identifier, 1.2.840.113549.1.1.1.
fn is_rsa_public_key(text: &str) -> bool {
    const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    pem::parse(text).is_ok_and(|block| match block.tag() {
        "RSA PUBLIC KEY" => block.contents().first() == Some(&0x30),
        "PUBLIC KEY" => block.contents().windows(RSA_ENCRYPTION.len()).any(|part| part == RSA_ENCRYPTION),
        _ => false,
    })
}

fn environment(value: &Value) -> Result<(), String> {
    reject_reserved_keys(value, &["CHAINGUARD_"])
}

fn annotations(value: &Value) -> Result<(), String> {
    reject_reserved_keys(value, &["dev.chainguard.", "org.opencontainers."])
}

fn reject_reserved_keys(value: &Value, reserved: &[&str]) -> Result<(), String> {
    let mut keys = value.as_object().into_iter().flat_map(|map| map.keys());
    match keys.find(|key| reserved.iter().any(|prefix| key.starts_with(prefix))) {
        Some(key) => Err(format!("must not have the reserved key `{key}`")),
        None => Ok(()),
    }
}
