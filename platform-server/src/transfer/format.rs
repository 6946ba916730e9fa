//! The lines of a file, and the rules that it must satisfy.

use std::{
    collections::BTreeMap,
    io::{BufRead, Read, Write},
    sync::mpsc::{SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result, anyhow, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use platform_engine::{
    kind::Registered,
    store::{Key, Put, Record},
    uid::Uid,
    write::CURRENT_RENDERING,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::NeedSecrets;
use crate::Kinds;

/// The name of the format.
const FORMAT: &str = "platform-store";
/// The version of the format that this release writes and reads.
pub(crate) const VERSION: u32 = 1;
/// The maximum length of a line in bytes: a record is far shorter.
const MAX_LINE: u64 = 64 << 20;
/// The maximum length of a uid in bytes, as everywhere.
const MAX_UID: usize = 600;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Header {
    format: String,
    version: u32,
    /// The greatest rendering of bodies that the release knew.
    rendering: u16,
    /// Whether the records have their secrets.
    pub(super) private: bool,
    /// The first organization of the installation.
    pub(super) organization: Uid,
    /// The operator of the installation.
    pub(super) operator: Uid,
    /// The keys with which secrets are sealed, if the file has secrets.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) seal_keys: Vec<String>,
}

impl Header {
    pub(crate) fn new(organization: Uid, operator: Uid, seal_keys: Option<Vec<String>>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            rendering: CURRENT_RENDERING,
            private: seal_keys.is_some(),
            organization,
            operator,
            seal_keys: seal_keys.unwrap_or_default(),
        }
    }

    fn parse(line: &[u8]) -> Result<Self> {
        /// The keys that the header of every version has.
        #[derive(Deserialize)]
        struct Any {
            format: String,
            version: u32,
        }
        let is_other = || format!("must be the first line of an export, with \"format\":\"{FORMAT}\"");
        let any: Any = serde_json::from_slice(line).with_context(is_other)?;
        if any.format != FORMAT {
            bail!(is_other());
        }
        if any.version != VERSION {
            bail!(
                "has version {}, and this release reads version {VERSION}: use the release that wrote the file",
                any.version
            );
        }
        let header: Self = serde_json::from_slice(line).context("is not a valid header")?;
        if header.rendering > CURRENT_RENDERING {
            bail!("was written by a later release: use that release");
        }
        for (name, uid) in [("organization", &header.organization), ("operator", &header.operator)] {
            if Uid::parse(uid).is_err() || !uid.is_root() {
                bail!("{name} must be a uid of one segment");
            }
        }
        Ok(header)
    }
}

/// Returns whether a body can be a part of a line. The store has verified its checksum.
fn is_line(body: &[u8]) -> bool {
    body.starts_with(b"{") && body.ends_with(b"}") && !body.contains(&b'\n')
}

/// A line with a record.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    uid: std::borrow::Cow<'a, str>,
    revision: u64,
    rendering: u16,
    #[serde(borrow)]
    body: &'a RawValue,
    /// The private part in base64.
    #[serde(default)]
    private: String,
    /// Whether secrets were removed from the private part.
    #[serde(default)]
    needs_secrets: bool,
}

/// The last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Last {
    end: End,
}

/// The contents of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct End {
    /// The number of records of each kind that has any.
    pub(super) records: BTreeMap<String, u64>,
    /// The SHA-256 of all lines before, in hex.
    pub(super) sha256: String,
}

/// How the last line begins, and no other.
const END: &[u8] = b"{\"end\":";

/// The number of bytes that are hashed and written together.
const BUFFER: usize = 1 << 20;

/// Writes a file.
pub(super) struct Writer<W> {
    out: W,
    hasher: Hasher,
    /// Complete lines that are not written yet.
    lines: Vec<u8>,
    pub(super) records: BTreeMap<String, u64>,
    pub(super) need_secrets: NeedSecrets,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W, header: &Header) -> Result<Self> {
        let lines = line_of(header)?;
        let (hasher, need_secrets) = (Hasher::start(), NeedSecrets::default());
        Ok(Self { out, hasher, lines, records: BTreeMap::new(), need_secrets })
    }

    fn write(&mut self) -> Result<()> {
        self.out.write_all(&self.lines).context("cannot write the export")?;
        self.hasher.add(std::mem::replace(&mut self.lines, Vec::with_capacity(BUFFER + BUFFER / 8)))
    }

    /// Adds a record, without its secrets unless `with_private`.
    pub(super) fn add(&mut self, registered: &Registered, record: &Record, with_private: bool) -> Result<()> {
        let Record { key, revision, rendering, body, private } = record;
        let kept = if with_private { private.clone() } else { registered.without_secrets(private.clone())? };
        let needs_secrets = kept != *private;
        if needs_secrets {
            self.need_secrets.add(key.kind, &key.uid);
        }
        if !is_line(body) {
            bail!("the {} {} is not a JSON object on one line", key.kind, key.uid);
        }
        // The form of `Line`. Most of a line is the body, which is copied and not parsed.
        let line = &mut self.lines;
        write!(line, r#"{{"kind":"{}","uid":"#, key.kind)?;
        serde_json::to_writer(&mut *line, key.uid.as_str())?;
        write!(line, r#","revision":{revision},"rendering":{rendering},"body":"#)?;
        line.extend_from_slice(body);
        if !kept.is_empty() {
            write!(line, r#","private":"{}""#, STANDARD.encode(&kept))?;
        }
        if needs_secrets {
            line.extend_from_slice(br#","needsSecrets":true"#);
        }
        line.extend_from_slice(b"}\n");
        match self.records.get_mut(key.kind) {
            Some(records) => *records += 1,
            None => drop(self.records.insert(key.kind.to_owned(), 1)),
        }
        if self.lines.len() >= BUFFER { self.write() } else { Ok(()) }
    }

    /// Writes the last line.
    pub(super) fn finish(mut self) -> Result<(W, NeedSecrets)> {
        self.write()?;
        let Self { mut out, hasher, records, need_secrets, .. } = self;
        let last = line_of(&Last { end: End { records, sha256: hex(&hasher.finish()?) } })?;
        out.write_all(&last).and_then(|()| out.flush()).context("cannot write the export")?;
        Ok((out, need_secrets))
    }
}

/// Computes the checksum of an export on a thread of its own, because that takes as long as all other work of the writer.
struct Hasher {
    lines: SyncSender<Vec<u8>>,
    thread: JoinHandle<Sha256>,
}

impl Hasher {
    fn start() -> Self {
        let (sender, lines) = sync_channel::<Vec<u8>>(2);
        let hash = move || lines.into_iter().fold(Sha256::new(), |hash, lines| hash.chain_update(lines));
        Self { lines: sender, thread: thread::spawn(hash) }
    }

    fn add(&mut self, lines: Vec<u8>) -> Result<()> {
        self.lines.send(lines).context("the checksum cannot be computed")
    }

    fn finish(self) -> Result<Vec<u8>> {
        drop(self.lines);
        let hash = self.thread.join().map_err(|_| anyhow!("the checksum cannot be computed"))?;
        Ok(hash.finalize().to_vec())
    }
}

fn line_of(contents: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(contents)?;
    line.push(b'\n');
    Ok(line)
}

/// A record of a file, as it is put.
pub(super) struct Entry {
    pub(super) put: Put,
    pub(super) needs_secrets: bool,
}

/// Reads a file, and rejects one that breaks a rule with the number of the line.
pub(super) struct Reader<R> {
    input: R,
    place: String,
    number: u64,
    hash: Sha256,
    line: Vec<u8>,
    kinds: Vec<&'static Registered>,
    /// The last record.
    last: Option<(&'static str, Uid)>,
    records: BTreeMap<String, u64>,
    pub(super) header: Header,
    /// The last line, once it was read.
    pub(super) end: Option<End>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header. `place` names the file in messages.
    pub(super) fn new(kinds: Kinds, input: R, place: &str) -> Result<Self> {
        let mut reader = Self {
            input,
            place: place.to_owned(),
            number: 0,
            hash: Sha256::new(),
            line: Vec::new(),
            kinds: kinds.by_name(),
            last: None,
            records: BTreeMap::new(),
            header: Header::new(Uid::opaque(""), Uid::opaque(""), None),
            end: None,
        };
        if !reader.read()? {
            bail!("{place} is empty: it must be an export");
        }
        reader.header = Header::parse(&reader.line).with_context(|| reader.at())?;
        Ok(reader)
    }

    /// Returns the next record; `None` after the last line, which is correct then.
    pub(super) fn next(&mut self) -> Result<Option<Entry>> {
        if !self.read()? {
            bail!("{} is truncated: it ends after line {} without the line of the counts", self.place, self.number);
        }
        let line = std::mem::take(&mut self.line);
        let parsed = self.parse(&line);
        self.line = line;
        parsed.with_context(|| self.at())
    }

    fn at(&self) -> String {
        format!("{}, line {}", self.place, self.number)
    }

    /// Reads a line; `false` at the end.
    fn read(&mut self) -> Result<bool> {
        self.line.clear();
        let read = (&mut self.input).take(MAX_LINE).read_until(b'\n', &mut self.line);
        if read.with_context(|| format!("cannot read {}", self.place))? == 0 {
            return Ok(false);
        }
        self.number += 1;
        match self.line.last() {
            Some(b'\n') => {}
            _ if self.line.len() as u64 >= MAX_LINE => bail!("{}: must have at most {MAX_LINE} bytes", self.at()),
            _ => bail!("{}: is truncated", self.at()),
        }
        if !self.line.starts_with(END) {
            self.hash.update(&self.line);
        }
        Ok(true)
    }

    fn parse(&mut self, line: &[u8]) -> Result<Option<Entry>> {
        if line.starts_with(END) {
            return self.finish(line).map(|()| None);
        }
        let line: Line<'_> = serde_json::from_slice(line).context("is not a valid record")?;
        let known = self.kinds.iter().find(|registered| registered.kind.name == line.kind);
        let registered = known.with_context(|| format!("this release has no kind {}", line.kind))?;
        let kind = registered.kind.name;
        let is_segment = |segment: &str| !segment.is_empty() && !segment.contains(char::is_control);
        if line.uid.len() > MAX_UID || !line.uid.split('/').all(is_segment) {
            bail!("uid must be the path of a resource");
        }
        if line.rendering > CURRENT_RENDERING {
            bail!("rendering must be at most {CURRENT_RENDERING}: the record is of a later release, so use that one");
        }
        let uid = Uid::opaque(&*line.uid);
        match &self.last {
            Some((last, before)) if (*last, before) == (kind, &uid) => {
                bail!("is a second record of the {kind} {uid}");
            }
            Some((last, before)) if (*last, before) > (kind, &uid) => {
                bail!("must come before the {last} {before}: records are sorted by kind and uid");
            }
            _ => {}
        }
        let private = STANDARD.decode(&line.private).context("private must be base64")?;
        let record = Record {
            key: Key::new(kind, uid.clone()),
            revision: line.revision,
            rendering: line.rendering,
            body: line.body.get().as_bytes().to_vec().into(),
            private: private.into(),
        };
        let put = registered.restored(record).map_err(|error| {
            let violations = error.violations().iter().map(|one| format!("{} {}", one.field, one.description));
            anyhow::Error::msg(violations.collect::<Vec<_>>().join("; "))
        })?;
        self.last = Some((kind, uid));
        match self.records.get_mut(kind) {
            Some(records) => *records += 1,
            None => drop(self.records.insert(kind.to_owned(), 1)),
        }
        Ok(Some(Entry { put, needs_secrets: line.needs_secrets }))
    }

    fn finish(&mut self, line: &[u8]) -> Result<()> {
        let Last { end } = serde_json::from_slice(line).context("is not a valid last line")?;
        if end.records != self.records {
            bail!("the counts must be those of the records: a part of the file is missing or was added");
        }
        if end.sha256 != hex(&std::mem::take(&mut self.hash).finalize()) {
            bail!("the checksum must be that of the lines before: the file was changed or damaged");
        }
        if !self.input.fill_buf().with_context(|| format!("cannot read {}", self.place))?.is_empty() {
            bail!("must be the last line");
        }
        self.end = Some(end);
        Ok(())
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
