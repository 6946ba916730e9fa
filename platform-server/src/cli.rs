//! The command line.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Parser, Subcommand};
use platform_engine::{timestamp::Timestamp, uid::Uid};
use platform_feeds::Format;

use crate::config::{self, Config};

mod import;

pub(crate) use self::import::{Import, ImportCommand, ImportKind};

/// An open implementation of Platform API v2
///
/// Every option `--some-option` can also be set by the environment variable PLATFORM_SOME_OPTION and by the key
/// `some-option` of the TOML file given with --config. Flags override variables, variables override the file; an empty
/// variable counts as unset. The values of a repeatable option are separated by commas in a variable (by semicolons for
/// --terms-document) and form an array in the file.
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
    /// Serve the API (the default command)
    ///
    /// The first start creates keys, an organization and its operator, in the data directory or in the database that
    /// several servers share. The first line of output is "Listening on " followed by the URL; the log goes to standard
    /// error. On SIGTERM or SIGINT the server drains: open requests may finish. A second signal ends it at once.
    #[default]
    Serve,
    /// Serve the API in memory for tests, with endpoints that reset, seed and control it
    ///
    /// An emulator: nothing is stored, no other service is used, and everyone who can connect may do everything. Its
    /// endpoints under /_emulator are described in docs/how-to/emulator.md. Prints the commands to try next; the first
    /// line of output is "Listening on " followed by the URL. Of the options, --listen, --public-url, --log and
    /// --log-format apply.
    #[cfg(feature = "dev")]
    Dev(Dev),
    /// Print API, ORG_ID and a new TOKEN for `eval "$(platform-server env)"`
    ///
    /// The token acts as the operator and is valid for 12 hours. Works whether or not the server is running.
    Env,
    /// Print an access token for an identity, or revoke tokens
    Token(Token),
    /// Show the options of the server and where their values come from, or the format of the configuration file
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a link that signs you in to the console of the running server as the operator
    ///
    /// The link is good for 15 minutes and can be opened once. Of servers that share a database, it must reach the one
    /// that made it: name that server with --api.
    Console {
        #[command(flatten)]
        at: At,
    },
    /// List or rotate the keys of the installation
    ///
    /// The keys sign access tokens and webhook tokens, authenticate page tokens and encrypt secrets in the store.
    #[command(subcommand)]
    Keys(Keys),
    /// Verify the store: every row, index entry, counter and key
    ///
    /// A server that runs on a SQLite store is found by the data directory or by --api, and checks a copy, for which the
    /// disk needs space. The server of a sled store must be stopped. Prints each finding; exits with 0 if there are none.
    Check {
        #[command(flatten)]
        at: At,
    },
    /// Give the space of deleted records in a SQLite file back to the file system
    ///
    /// The server must be stopped. Writes a new file, which replaces the old one when it is complete, so the disk needs
    /// free space for it. Without this, new records use the space again.
    Compact,
    /// Change a store to the layout of this release, or create the tables of a PostgreSQL database
    ///
    /// Servers refuse a database with another layout: run it once before the first server of a release starts; servers of
    /// the release before may be running. Does nothing if the layout is up to date. SQLite and sled have one layout only.
    Migrate {
        /// Rewrite the stored resources of the kinds that this program adds, where their tables need it
        ///
        /// All servers of the store must be stopped. First all resources are checked, and nothing is written if one does
        /// not fit. A rewrite that was interrupted is continued by the same command.
        #[arg(long)]
        kinds: bool,
        /// Print the layout of the store and what would be done, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// List pending events and dead letters, redeliver dead letters, and follow new events
    Events(Events),
    /// Back up an installation, while its server runs or not: store, blobs, uids and keys, in one file
    ///
    /// Finds the running server by its data directory, or by --api, and works on the store of a stopped one. Anyone who has
    /// the file can issue tokens for every identity, unless it is made with --without-keys. Not for a PostgreSQL store.
    #[command(args_conflicts_with_subcommands = true)]
    Backup(Backup),
    /// Restore a backup into an empty data directory
    ///
    /// Writes nothing if the backup is damaged or of another version. The restored installation has new keys that sign
    /// tokens, so that access tokens and page tokens that were issued before are invalid.
    Restore(Restore),
    /// Write a store to a file, from which `import store` makes the same store elsewhere, or advisories for scanners
    ///
    /// Writes one JSON object per line: a header, one line for each resource with its uid, times and revision, and a
    /// last line with counts and a checksum. No server may be running on the store. The blobs of images are not part of
    /// it: copy their directory too.
    #[command(args_conflicts_with_subcommands = true)]
    Export(Export),
    /// Import data: advisories, vulnerability records, images, artifacts, or a whole store
    Import(Import),
    /// Remove imported data
    ///
    /// Removes it from the store of a stopped server. On a running server, use DELETE /import/advisories?parent=UID or
    /// DELETE /import/images?parent=UID instead.
    #[command(subcommand)]
    Remove(Remove),
    /// Limit how many resources of a kind an organization can have
    ///
    /// A limit applies to all resources at or below the organization. Where there are more already, only creates are
    /// rejected. Kinds without a limit are unlimited. Changes a stopped server's store, or with --api a running server.
    Quota(Quota),
    /// Give an organization an owner again
    ///
    /// For an organization that nobody can act for as its owner any longer, because the last owner's keys have expired
    /// or its sign-in no longer works. As the operator, binds a registered person or an identity of the organization to
    /// the role owner at the organization. Changes the store of a stopped server, or with --api a running server.
    RepairOwner(RepairOwner),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print each option with its value and its source: default, file, environment or flag
    ///
    /// Reads the same flags, variables and file as `serve`. Secrets are not printed. Also reports variables with the
    /// prefix PLATFORM_ that belong to no option.
    Explain {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a JSON Schema of the configuration file, for editors
    Schema,
}

#[cfg(feature = "dev")]
#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// Create resources before listening: small, large, demo, or a YAML file
    #[arg(long, env = "PLATFORM_SEED", value_name = "PRESET|FILE")]
    pub(crate) seed: Option<PathBuf>,
    /// Start with images and advisories to look at in the console; the same as --seed demo
    #[arg(long, conflicts_with = "seed")]
    pub(crate) demo: bool,
}

impl Cli {
    /// Returns whether the command is the emulator, whose tokens are for tests on this machine.
    pub(crate) const fn is_emulator(&self) -> bool {
        #[cfg(feature = "dev")]
        return matches!(self.command, Some(Command::Dev(_)));
        #[cfg(not(feature = "dev"))]
        return false;
    }
}

#[derive(Debug, Args)]
pub(crate) struct Quota {
    #[command(subcommand)]
    pub(crate) command: QuotaCommand,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QuotaCommand {
    /// Set a limit
    Set {
        /// The organization
        #[arg(value_name = "ORG", value_parser = Uid::parse)]
        organization: Uid,
        /// The name of the kind, such as Repo
        kind: String,
        /// The maximum number of resources; 0 for none
        #[arg(value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
        limit: i32,
    },
    /// Remove a limit
    Unset {
        /// The organization
        #[arg(value_name = "ORG", value_parser = Uid::parse)]
        organization: Uid,
        /// The name of the kind
        kind: String,
    },
    /// Print the limits of an organization: the kind, the limit, and the number of resources
    List {
        /// The organization
        #[arg(value_name = "ORG", value_parser = Uid::parse)]
        organization: Uid,
    },
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
    /// Remove all advisories directly in a group, after which the group can be deleted
    Advisories {
        /// The group
        #[arg(long, value_name = "UID", value_parser = Uid::parse)]
        group: Uid,
    },
    /// Remove all images and charts of a repo
    Images {
        /// The repo
        #[arg(long, value_name = "UID", value_parser = Uid::parse)]
        repo: Uid,
    },
    /// Remove all imported vulnerability reports of a repo
    Scans {
        /// The repo
        #[arg(long, value_name = "UID", value_parser = Uid::parse)]
        repo: Uid,
    },
    /// Remove all build reports of a repo
    Builds {
        /// The repo
        #[arg(long, value_name = "UID", value_parser = Uid::parse)]
        repo: Uid,
    },
    /// Remove the blobs that no image or chart has named for a day
    ///
    /// A running server does so once a day.
    Blobs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// List the keys without their secrets, newest first for each use
    List,
    /// Create a new key for each use; the previous keys remain for verification and decryption
    ///
    /// Tokens signed by the previous keys stay valid until they expire, page tokens for their three days. A server that
    /// is running on the directory switches to the new keys within seconds. Servers that share a database accept the new
    /// keys within seconds, and use them after 15 seconds, when all have read them; rotating also encrypts what the
    /// database or the data directory has with the first of several key-encryption keys.
    Rotate,
    /// Revoke a key that was replaced: what was signed with it is rejected from then on
    ///
    /// Rotate the keys first if it is in use. With --api, that server rejects its tokens when the command returns; other
    /// running servers do within a second. Keys that seal secrets cannot be revoked.
    Revoke {
        /// The last column of `keys list`
        #[arg(value_name = "KEY", allow_hyphen_values = true)]
        id: String,
        #[command(flatten)]
        at: At,
    },
    /// Write the keys of the installation to a file, to move them to another one
    ///
    /// Anyone who has the file can issue tokens for every identity.
    Export {
        /// New file, which only its owner can read; - is standard output
        #[arg(long, value_name = "FILE", default_value = "-")]
        to: PathBuf,
    },
    /// Give an installation without keys those of another one, before its first start and before `import store`
    Import {
        /// File of `keys export`, or keys.json of a data directory; - is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    #[command(subcommand)]
    pub(crate) command: Option<BackupCommand>,
    /// New file, which only its owner can read; - is standard output [default: platform- and the time, with .tar]
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Leave out the keys. A server does not start without them, and only they can read the secrets in the store
    #[arg(long)]
    pub(crate) without_keys: bool,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Verify a backup: its checksums, that it can be restored, and the restored store as `check` does
    ///
    /// Restores it to a temporary directory, which the variable TMPDIR chooses.
    Verify {
        /// The backup; - is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The backup; - is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) from: PathBuf,
    /// File of `keys export`, for a backup without keys
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: Option<PathBuf>,
    /// Restore the backup although it is damaged in a way that `backup verify` prints
    #[arg(long)]
    pub(crate) accept_damage: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(subcommand)]
    pub(crate) command: Option<ExportCommand>,
    /// New file, which only its owner can read; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    to: PathBuf,
    /// Keep secrets, sealed or hashed as they are in the store: client secrets, tokens of directories, sign-ins and
    /// invites. The importing installation needs the keys of this one (`keys export`)
    #[arg(long)]
    pub(crate) with_private: bool,
}

impl Export {
    /// Returns the file; `None` for standard output.
    pub(crate) fn file(&self) -> Option<&Path> {
        file(&self.to)
    }
}

fn file(path: &Path) -> Option<&Path> {
    Some(path).filter(|path| path.as_os_str() != "-")
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExportCommand {
    /// Write the advisories of a group in a form that scanners read
    ///
    /// Reads the store of a stopped server, and that of a PostgreSQL database while its servers run; a running server has
    /// the same feeds at /feeds/. Has the advisories at and below the group, and prints what the form cannot say. The
    /// temporary files of a large feed are where TMPDIR says. docs/how-to/feeds.md describes the forms.
    Advisories(ExportAdvisories),
}

#[derive(Debug, Args)]
pub(crate) struct ExportAdvisories {
    /// The form: osv (a zip archive of OSV records), secdb (the security database of Alpine and Wolfi) or openvex
    #[arg(long, value_name = "FORMAT", value_parser = <Format as std::str::FromStr>::from_str)]
    pub(crate) format: Format,
    /// The group
    #[arg(long, value_name = "UID", value_parser = Uid::parse)]
    pub(crate) of: Uid,
    /// The distribution, such as wolfi, of packages whose advisories name none; leaves out those of other distributions
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) namespace: String,
    /// File, which is replaced when the feed is complete; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    to: PathBuf,
}

impl ExportAdvisories {
    /// Returns the file; `None` for standard output.
    pub(crate) fn file(&self) -> Option<&Path> {
        file(&self.to)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Token {
    #[command(subcommand)]
    pub(crate) command: Option<TokenCommand>,
    /// The identity to act as [default: the operator]
    #[arg(long, value_name = "UID", value_parser = Uid::parse)]
    pub(crate) identity: Option<Uid>,
    /// Lifetime of the token, such as 90s, 15m, 1h or 7d; at most 30d
    #[arg(long, default_value = "1h", value_name = "TIME", value_parser = config::duration)]
    pub(crate) ttl: Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Revoke tokens of an identity: all that were issued so far, or some
    ///
    /// Applies to access tokens, refresh tokens and sign-ins, and to the tokens of other issuers with which they are
    /// obtained. Holds at once on every server of the store, for requests in flight too. Changes the store of a stopped
    /// server, or with --api a running server.
    Revoke(RevokeTokens),
}

#[derive(Debug, Args)]
pub(crate) struct RevokeTokens {
    /// The identity whose tokens are revoked
    #[arg(long, value_name = "UID", value_parser = Uid::parse)]
    pub(crate) identity: Uid,
    /// Revoke only the token with this id, its claim `jti`
    #[arg(long, value_name = "ID", conflicts_with = "before")]
    pub(crate) id: Option<String>,
    /// Revoke only tokens that were issued at this time or before, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse)]
    pub(crate) before: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    #[command(subcommand)]
    pub(crate) command: EventsCommand,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Prints one line of JSON per item, from a running server with --api, or else from the store of a stopped server.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum EventsCommand {
    /// Print the events of all organizations as they are committed, until interrupted; needs --api
    ///
    /// Of servers that share a database, prints the events of changes by the server that answers.
    Tail,
    /// Print the backlog of each subscription: number of events, age, and result of the last attempt
    Pending,
    /// Print the dead letters: undeliverable events and the reason
    Dead,
    /// Append dead letters to the pending events, so that they are delivered again
    Redeliver {
        /// Only dead letters of this subscription, or at and below this group [default: all]
        #[arg(long, value_name = "UID", value_parser = Uid::parse)]
        below: Option<Uid>,
    },
}

/// Selects the running server that a command uses.
#[derive(Debug, Clone, Args)]
pub(crate) struct At {
    /// Use the running server at this URL, as an operator
    #[arg(long, global = true, env = "PLATFORM_API", value_name = "URL")]
    pub(crate) api: Option<String>,
    /// Access token for that server [default: one issued to the operator of the data directory]
    #[arg(long, global = true, env = "PLATFORM_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Verify that server's certificate by these PEM certificates only [default: by the public authorities]
    #[arg(long, global = true, env = "PLATFORM_CA_FILE", value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

impl At {
    /// Returns the URL, if one is given, without a slash at its end.
    pub(crate) fn url(&self) -> Option<&str> {
        self.api.as_deref().map(|url| url.trim_end_matches('/')).filter(|url| !url.is_empty())
    }
}
