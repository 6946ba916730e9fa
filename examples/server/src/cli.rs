//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use platform_core::uid::Uid;
use platform_import::source::Limits;

use crate::config::{self, Config};

/// An open implementation of Platform API v2
///
/// Every option `--some-thing` is also the variable PLATFORM_SOME_THING and the key `some-thing` of the file that
/// --config names. Flags win over variables, variables over the file; an empty variable counts as none. What can be
/// repeated is separated by commas in a variable and an array in the file.
#[derive(Debug, Parser)]
#[command(name = "platform-server", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) config: Config,
}

#[derive(Debug, Default, Subcommand)]
pub(crate) enum Command {
    /// Serve the API, the default
    ///
    /// The first start makes keys, an organisation and its operator in the data directory. The first line of output is
    /// "Listening on " and the URL; the log goes to the standard error stream. SIGTERM and SIGINT let open requests
    /// finish.
    #[default]
    Serve,
    /// Print API, ORG_ID and a fresh TOKEN for `eval "$(platform-server env)"`
    ///
    /// The token is the operator's and good for 12 hours. The server need not run, and may.
    Env,
    /// Print a token for an identity
    Token(Token),
    /// Show or replace the keys of the data directory
    ///
    /// They sign tokens and those of webhooks, authenticate page tokens and seal secrets in the store.
    #[command(subcommand)]
    Keys(Keys),
    /// Prove the store: every row, index entry, counter and key
    ///
    /// No server may run on it. Prints what is wrong; exits with 0 when nothing is.
    Check,
    /// See what waits to be delivered to subscribers and what was given up, and deliver it again
    Events(Events),
    /// Bring data in: advisories, vulnerability records, images, artifacts
    Import(Import),
    /// Take imported data out again
    ///
    /// Out of the store of a stopped server; of a running one by DELETE /import/advisories?parent=UID, and the like.
    #[command(subcommand)]
    Remove(Remove),
    /// Give an organization an owner again
    ///
    /// For an organization of which nobody holds the role owner any longer: its last owner's keys have run out, or its
    /// sign-in no longer works. Binds a registered person, or an identity of the organization, to the role owner at the
    /// organization, as the operator. Changes the store of a stopped server; a running one with --api.
    RepairOwner(RepairOwner),
}

#[derive(Debug, Args)]
pub(crate) struct RepairOwner {
    /// The organization
    #[arg(long, value_name = "UID", value_parser = Uid::parse)]
    pub(crate) organization: Uid,
    /// The registered person or identity that becomes an owner
    #[arg(long, value_name = "UID", value_parser = Uid::parse)]
    pub(crate) identity: Uid,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Remove {
    /// All advisories directly in a group, which can be deleted then
    Advisories {
        /// The group
        #[arg(long, value_name = "UID", value_parser = Uid::parse)]
        group: Uid,
    },
    /// All images of a repo
    Images {
        /// The repo
        #[arg(long, value_name = "UID", value_parser = Uid::parse)]
        repo: Uid,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// List the keys, the newest of each sort first, without their secrets
    List,
    /// Put a new key of each sort in front
    ///
    /// Tokens that the keys before signed are good until they expire, and page tokens for their three days. A server
    /// that runs on the directory goes over to the new keys within seconds.
    Rotate,
}

#[derive(Debug, Args)]
pub(crate) struct Token {
    /// The identity to act as [default: the operator]
    #[arg(long, value_name = "UID", value_parser = Uid::parse)]
    pub(crate) identity: Option<Uid>,
    /// How long the token is good, such as 90s, 15m, 1h or 7d; at most 30d
    #[arg(long, default_value = "1h", value_name = "TIME", value_parser = config::duration)]
    pub(crate) ttl: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    #[command(subcommand)]
    pub(crate) what: EventsCommand,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Prints JSON, a line for each. Asks the running server with --api, and looks into the store of a stopped one without.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum EventsCommand {
    /// Print the events of all organisations as they are committed, until this is interrupted; needs --api
    Tail,
    /// Print what waits, a subscription a line: how many, since when, and how the last try went
    Pending,
    /// Print the events that were given up, and why
    Dead,
    /// Put events that were given up behind those that wait
    Redeliver {
        /// Only those of this subscription, or at and below this group [default: all]
        #[arg(long, value_name = "UID", value_parser = Uid::parse)]
        below: Option<Uid>,
    },
}

/// Which server a command is for.
#[derive(Debug, Clone, Args)]
pub(crate) struct At {
    /// Ask the running server at this URL, as an operator
    #[arg(long, global = true, env = "PLATFORM_API", value_name = "URL")]
    pub(crate) api: Option<String>,
    /// The token for it [default: one for the operator of the data directory]
    #[arg(long, global = true, env = "PLATFORM_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
}

/// What all imports have in common, told once.
const IMPORT: &str = "\
Goes into the store of a stopped server; into a running one with --api. Whatever cannot be written is refused with its
file, its place and the rule that it breaks, and the rest goes on. What stands already is not written again, so that an
import that was interrupted is simply begun again.

Exits with 0 when everything was written or stood already, with 1 when anything was refused or it could not go on, and
with 2 when the command is wrong.";

#[derive(Debug, Args)]
pub(crate) struct Import {
    #[command(subcommand)]
    pub(crate) kind: ImportKind,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportKind {
    /// Advisory documents: YAML, schema 2
    ///
    /// One document a package, as distributions publish them; one advisory for a package and an id.
    #[command(after_long_help = IMPORT)]
    Advisories {
        /// The group that they go to [default: the first organisation]
        #[arg(long, value_name = "UID", value_parser = Uid::parse)]
        group: Option<Uid>,
        /// The distribution that the packages are of, such as wolfi, which documents do not say
        #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
        namespace: String,
        /// YAML files, folders of them, and archives: .tar, .tar.zst, .tar.gz
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        options: ImportOptions,
    },
    /// Vulnerability records: OSV in JSON or YAML
    #[command(after_long_help = IMPORT)]
    Osv {
        /// JSON and YAML files, folders of them, and archives: .tar, .tar.zst, .tar.gz
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        options: ImportOptions,
    },
    /// Images of a repo: OCI image layouts
    ///
    /// Architectures, sizes, and what a bill of materials in SPDX says is installed, where there is one: as a layer, in
    /// a manifest about the image, or in an attestation.
    #[command(after_long_help = IMPORT)]
    Image {
        /// The repo that they are of
        #[arg(long, value_name = "UID", value_parser = Uid::parse)]
        repo: Uid,
        /// Directories with an OCI image layout
        #[arg(required = true, value_name = "DIR")]
        layouts: Vec<PathBuf>,
        #[command(flatten)]
        options: ImportOptions,
    },
    /// Artifacts of language ecosystems with their versions: NDJSON
    ///
    /// One JSON object a line, one artifact each:
    /// {"ecosystem":"python","name":"requests","versions":[{"version":"2.32.5","sizeBytes":64738}]}
    /// Also description, remediated and cudaVersions; and of a version description, createTime and updateTime.
    #[command(after_long_help = IMPORT, verbatim_doc_comment)]
    Artifacts {
        /// Files, which may end with .zst or .gz; - is the standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        options: ImportOptions,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ImportOptions {
    /// Import into the running server at this URL, as an operator
    #[arg(long, env = "PLATFORM_API", value_name = "URL")]
    pub(crate) api: Option<String>,
    /// The token for it [default: one for the operator of the data directory]
    #[arg(long, env = "PLATFORM_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// The most bytes of a document or line, such as 64M
    #[arg(long, value_name = "BYTES", default_value = "16M", value_parser = config::bytes)]
    max_document: u64,
    /// The most bytes that an archive or compressed file unpacks to
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = config::bytes)]
    max_archive: u64,
}

impl ImportKind {
    /// Returns the options and the files.
    pub(crate) fn common(&self) -> (&ImportOptions, &[PathBuf]) {
        match self {
            Self::Advisories { options, files, .. } | Self::Osv { options, files } => (options, files),
            Self::Image { options, layouts: files, .. } | Self::Artifacts { options, files } => (options, files),
        }
    }
}

impl ImportOptions {
    /// Returns the bounds on what is read.
    pub(crate) fn limits(&self) -> Limits {
        Limits { document: self.max_document, archive: self.max_archive, ..Limits::default() }
    }
}
