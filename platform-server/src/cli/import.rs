//! The commands that import data.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use platform_core::resources::registry::Digest;
use platform_engine::uid::Uid;
use platform_import::source::Limits;

use crate::{cli::At, config};

/// Help text common to all imports. Each paragraph is one line, which clap wraps.
const IMPORT: &str = "\
    Writes to the store of a stopped server, or with --api to a running server. Reports each rejected resource with its \
    file, the position in the file and the violated rule, and imports the rest. Unchanged resources are not written \
    again, so that an interrupted import can simply be run again.\n\n\
    Exits with 0 if all resources were written or unchanged, with 1 if any was rejected or the import was not completed, \
    and with 2 if the command line is invalid.";

#[derive(Debug, Args)]
pub(crate) struct Import {
    #[command(subcommand)]
    pub(crate) what: ImportCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    #[command(flatten)]
    Data(ImportKind),
    /// A whole store, as `export` has written it
    ///
    /// Writes into an empty store that no server has open, with the uids, times and revisions of the exported one. The
    /// whole file is verified before anything is written. If the import is interrupted, no server starts on the store,
    /// and the same command continues it.
    Store {
        /// File of `export`; - is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportKind {
    /// Advisory documents: YAML, schema 2
    ///
    /// One document per package, as distributions publish them. Creates one advisory per package and advisory id.
    #[command(after_long_help = IMPORT)]
    Advisories {
        /// The group to import into [default: the first organization]
        #[arg(long, value_name = "UID", value_parser = Uid::parse)]
        group: Option<Uid>,
        /// The distribution of the packages, such as wolfi, which the documents do not name
        #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
        namespace: String,
        /// YAML files, directories of them, and archives: .tar, .tar.zst, .tar.gz
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        options: ImportOptions,
    },
    /// Vulnerability records: OSV in JSON or YAML
    #[command(after_long_help = IMPORT)]
    Osv {
        /// JSON and YAML files, directories of them, and archives: .tar, .tar.zst, .tar.gz
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        options: ImportOptions,
    },
    /// Images and Helm charts of a repo: OCI image layouts
    ///
    /// Imports architectures, sizes, configurations and, if there is an SPDX bill of materials, the installed packages.
    /// The SPDX document may be a layer, in a manifest that refers to the image, or in an attestation. Creates or moves
    /// the tags that the layout names.
    #[command(after_long_help = IMPORT)]
    Image {
        /// The repo of the images
        #[arg(long, value_name = "UID", value_parser = Uid::parse)]
        repo: Uid,
        /// Tag of the only image or chart of each layout, instead of those that the layout names; may be repeated
        #[arg(long, value_name = "TAG")]
        tag: Vec<String>,
        /// Directories in OCI image layout
        #[arg(required = true, value_name = "DIR")]
        layouts: Vec<PathBuf>,
        #[command(flatten)]
        options: ImportOptions,
    },
    /// Artifacts of language ecosystems with their versions: NDJSON
    ///
    /// One JSON object per line, one artifact each:
    /// {"ecosystem":"python","name":"requests","versions":[{"version":"2.32.5","sizeBytes":64738}]}
    /// Optional keys of an artifact: description, remediated, cudaVersions.
    /// Optional keys of a version: description, createTime, updateTime.
    #[command(after_long_help = IMPORT, verbatim_doc_comment)]
    Artifacts {
        /// Files, optionally compressed (.zst, .gz); - is standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        options: ImportOptions,
    },
    /// Versions of packages with the ends of their lives: JSON
    ///
    /// In our own format, described in docs/api.md, or as endoflife.date publishes them: the cycles of a product
    /// (/api/python.json) or the newer form (/api/v1/products/python).
    #[command(after_long_help = IMPORT)]
    Versions {
        /// The package, for documents that do not name it [default: the name of the file without .json]
        #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
        package: String,
        /// Months of the grace period after the end of a life, for documents of endoflife.date
        #[arg(long, value_name = "MONTHS", default_value_t = 6, value_parser = clap::value_parser!(i32).range(0..=1200))]
        grace_period_months: i32,
        /// JSON files, directories of them, and archives: .tar, .tar.zst, .tar.gz
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        options: ImportOptions,
    },
    /// Vulnerability reports of scanners: the JSON of Grype or Trivy
    ///
    /// One report per image, which is found by the digest in it. The report is kept as it is, too, if it is not too
    /// long.
    #[command(after_long_help = IMPORT)]
    Scans {
        /// The repo of the images
        #[arg(long, value_name = "UID", value_parser = Uid::parse)]
        repo: Uid,
        /// The digest of the image, for reports that do not contain it; replaces the one in the reports
        #[arg(long, value_name = "DIGEST", value_parser = Digest::parse)]
        digest: Option<Digest>,
        /// JSON files, directories of them, and archives: .tar, .tar.zst, .tar.gz
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        options: ImportOptions,
    },
    /// Build reports: JSON
    ///
    /// An object or an array of objects per file:
    /// {"repo":"UID","buildId":"42","result":"Success","startedAt":"2026-01-02T03:04:05Z"}
    /// Optional keys: completedAt, digest, mediaType, config, lockedConfig, warnings, log, apkoVersion.
    #[command(after_long_help = IMPORT, verbatim_doc_comment)]
    Builds {
        /// JSON files, directories of them, and archives: .tar, .tar.zst, .tar.gz
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        options: ImportOptions,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ImportOptions {
    #[command(flatten)]
    pub(crate) at: At,
    /// Maximum size of a document or line, such as 64M
    #[arg(long, value_name = "BYTES", default_value = "16M", value_parser = config::bytes)]
    max_document: u64,
    /// Maximum unpacked size of an archive or compressed file
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = config::bytes)]
    max_archive: u64,
}

impl ImportKind {
    /// Returns the common options and the input paths.
    pub(crate) fn common(&self) -> (&ImportOptions, &[PathBuf]) {
        match self {
            Self::Advisories { options, files, .. }
            | Self::Osv { options, files }
            | Self::Image { options, layouts: files, .. }
            | Self::Artifacts { options, files }
            | Self::Versions { options, files, .. }
            | Self::Scans { options, files, .. }
            | Self::Builds { options, files } => (options, files),
        }
    }
}

impl ImportOptions {
    /// Returns the limits on the size of the input.
    pub(crate) fn limits(&self) -> Limits {
        Limits { document: self.max_document, archive: self.max_archive, ..Limits::default() }
    }
}
