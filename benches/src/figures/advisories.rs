//! A page of 50 advisories of twenty artifacts whose latest event is a fix, with the exact total, compared with
//! hand-written rusqlite.

use std::{path::Path, sync::Arc};

use platform_core::resources::{
    advisory::VulnerabilityMetadata,
    vulnerabilities::{
        Advisory, AdvisoryEvent, Severity,
        advisory::event::{Detection, Fixed, Manual, Note, ReviewState},
        severity::SeverityType,
    },
};
use platform_engine::{
    kind::{Imported, Resource},
    store::{Put, Store},
    timestamp::Timestamp,
    uid::Uid,
};
use platform_store_sqlite::SqliteStore;
use pollster::block_on;
use rusqlite::{Connection, OpenFlags, params_from_iter};

use super::{count, large};
use crate::{
    data::{cached, fill, mix, organization, put},
    measure::{Goal, Line, Times, compare},
    world::World,
};

/// Number of advisories per artifact, about as many as a package of a distribution has.
const PER_ARTIFACT: u64 = 20;
/// Number of artifacts in a request.
const NAMES: u64 = 20;
/// Number of vulnerabilities, each with its metadata.
const VULNERABILITIES: u64 = 50_000;
/// Number of different requests, which are repeated.
const REQUESTS: u64 = 16;

fn artifact(number: u64) -> String {
    format!("{}-{number:05}", ["openssl", "python", "glibc", "nodejs", "curl"][(mix(number) % 5) as usize])
}

fn vulnerability(number: u64) -> String {
    format!("CVE-{}-{:05}", 2015 + number % 10, number)
}

/// Returns an advisory by its number: a detection, followed by a fix, an analysis or nothing.
pub fn advisory(number: u64) -> Advisory {
    let of = number / PER_ARTIFACT;
    let created = Timestamp::from_millis(1_700_000_000_000 + (number * 7_919 % 1_000_003).cast_signed() * 1_000);
    let event = |days: i64| AdvisoryEvent {
        create_time: Some(created.plus_millis(days * 86_400_000)),
        author: "scanner@example.com".to_owned(),
        review_state: ReviewState::ReviewStateApproved,
        ..AdvisoryEvent::default()
    };
    let detection = Detection { manual: Some(Manual {}), ..Detection::default() };
    let mut events = vec![AdvisoryEvent { detection: Some(detection), ..event(0) }];
    let note = Note { note: "the code is not reached".to_owned() };
    match number % 3 {
        0 => {
            let fixed = Fixed { fixed_version: format!("3.{}.0-r0", number % 40), ..Fixed::default() };
            events.push(AdvisoryEvent { fixed: Some(fixed), ..event(1) });
        }
        1 => events.push(AdvisoryEvent { analysis_not_planned: Some(note), ..event(1) }),
        _ => {}
    }
    let mut advisory = Advisory {
        advisory_id: format!("CGA-{number:012x}"),
        create_time: Some(created),
        update_time: Some(created.plus_millis(86_400_000)),
        artifact_name: artifact(of),
        artifact_type: "apk".to_owned(),
        component_name: artifact(of),
        aliases: vec![vulnerability(mix(number) % VULNERABILITIES)],
        events,
        package_namespace: "wolfi".to_owned(),
        ..Advisory::default()
    };
    complete(&mut advisory, &organization(0));
    advisory
}

fn metadata(number: u64) -> VulnerabilityMetadata {
    let mut metadata = VulnerabilityMetadata {
        id: vulnerability(number),
        summary: "A read buffer overrun".to_owned(),
        severities: vec![Severity {
            scale: SeverityType::TypeCvssV3,
            score: format!("CVSS:3.1/AV:N/AC:H/PR:N/UI:R/S:U/C:{}/I:N/A:H", ["N", "L", "H"][(number % 3) as usize]),
        }],
        create_time: Some(Timestamp::from_millis(1_700_000_000_000)),
        update_time: Some(Timestamp::from_millis(1_700_000_000_000)),
        ..VulnerabilityMetadata::default()
    };
    complete(&mut metadata, &Uid::default());
    metadata
}

fn complete<R: Imported>(resource: &mut R, group: &Uid) {
    let uid = resource.uid_in(group);
    resource.complete(uid, &mut platform_engine::error::Violations::default());
}

fn puts() -> impl Iterator<Item = Put> {
    let known = (0..VULNERABILITIES).map(metadata).map(|metadata| put(&metadata, &metadata.uid));
    known.chain((0..large()).map(advisory).map(|advisory| put(&advisory, &advisory.uid)))
}

/// A file with the same advisories, and the list operation.
#[derive(Debug)]
struct Hand(Connection);

const SCHEMA: &str = "
    CREATE TABLE advisory (
        uid TEXT PRIMARY KEY, advisory_id TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL,
        artifact TEXT NOT NULL, type TEXT NOT NULL, component TEXT NOT NULL, latest TEXT NOT NULL,
        aliases TEXT NOT NULL, events TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE severity (name TEXT PRIMARY KEY, severities TEXT NOT NULL) WITHOUT ROWID;
";

impl Hand {
    fn open() -> Self {
        let path = cached(&format!("advisories-{}.hand", large()), Self::make);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).unwrap();
        connection.pragma_update(None, "mmap_size", 1_i64 << 32).unwrap();
        Self(connection)
    }

    fn make(path: &Path) {
        let mut connection = Connection::open(path).unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        let transaction = connection.transaction().unwrap();
        for number in 0..VULNERABILITIES {
            let body = serde_json::to_value(metadata(number)).unwrap();
            let mut insert = transaction.prepare_cached("INSERT INTO severity VALUES (?, ?)").unwrap();
            insert.execute([vulnerability(number), body["severities"].to_string()]).unwrap();
        }
        for number in 0..large() {
            let advisory = advisory(number);
            let latest = advisory.latest_event().and_then(AdvisoryEvent::event_type).unwrap().filter_name();
            let stored = put(&advisory, &advisory.uid);
            let body: serde_json::Value = serde_json::from_slice(&stored.body).unwrap();
            let text = |field: &str| body[field].as_str().unwrap().to_owned();
            let json = |field: &str| body[field].to_string();
            let insert = "INSERT INTO advisory VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
            let columns = [
                text("uid"),
                text("advisoryId"),
                text("createTime"),
                text("updateTime"),
                text("artifactName"),
                text("artifactType"),
                text("componentName"),
                latest.to_owned(),
                json("aliases"),
                json("events"),
            ];
            transaction.prepare_cached(insert).unwrap().execute(params_from_iter(columns)).unwrap();
        }
        transaction.execute_batch("CREATE INDEX by_artifact ON advisory (artifact, latest, uid)").unwrap();
        transaction.commit().unwrap();
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); ANALYZE").unwrap();
    }

    /// Returns the first page of 50 by uid as JSON, with the total.
    fn list(&self, artifacts: &[String], latest: &str) -> Vec<u8> {
        let execute = |sql| self.0.prepare_cached(sql).unwrap().execute([]).unwrap();
        execute("BEGIN");
        let places = vec!["?"; artifacts.len()].join(",");
        let matching = format!("FROM advisory WHERE artifact IN ({places}) AND latest = ?");
        let values = || params_from_iter(artifacts.iter().map(String::as_str).chain([latest]));
        let mut count = self.0.prepare_cached(&format!("SELECT count(*) {matching}")).unwrap();
        let total: i64 = count.query_row(values(), |row| row.get(0)).unwrap();
        let select = format!(
            "SELECT uid, advisory_id, created, updated, artifact, type, component, aliases, events {matching} \
             ORDER BY uid LIMIT 51"
        );
        let mut select = self.0.prepare_cached(&select).unwrap();
        let mut severities = self.0.prepare_cached("SELECT severities FROM severity WHERE name = ?").unwrap();
        let mut rows = select.query(values()).unwrap();
        let mut json = b"{\"advisories\":[".to_vec();
        let (mut count, mut more) = (0, false);
        while let Some(row) = rows.next().unwrap() {
            if count == 50 {
                more = true;
                break;
            }
            if count > 0 {
                json.push(b',');
            }
            count += 1;
            let text = |column| row.get_ref(column).unwrap().as_str().unwrap();
            let fields =
                ["uid", "advisoryId", "createTime", "updateTime", "artifactName", "artifactType", "componentName"];
            for (column, field) in fields.into_iter().enumerate() {
                json.extend_from_slice(if column == 0 { b"{\"" } else { b",\"" });
                json.extend_from_slice(field.as_bytes());
                json.extend_from_slice(b"\":");
                serde_json::to_writer(&mut json, text(column)).unwrap();
            }
            json.extend_from_slice(b",\"aliases\":");
            json.extend_from_slice(text(7).as_bytes());
            json.extend_from_slice(b",\"events\":");
            json.extend_from_slice(text(8).as_bytes());
            let names: Vec<String> = serde_json::from_str(text(7)).unwrap();
            json.extend_from_slice(b",\"severities\":");
            let found = severities.query_row([&names[0]], |row| {
                json.extend_from_slice(row.get_ref(0)?.as_str()?.as_bytes());
                Ok(())
            });
            found.unwrap();
            // Fields that are always there, and have no columns because no advisory has a value.
            let empty =
                "\"author\":\"\",\"artifactArchitecture\":\"\",\"componentLocation\":\"\",\"componentType\":\"\"";
            json.push(b',');
            json.extend_from_slice(empty.as_bytes());
            json.push(b'}');
        }
        drop((rows, severities));
        execute("COMMIT");
        let next = if more { "\"nextPageToken\":\"more\"," } else { "" };
        json.extend_from_slice(format!("],{next}\"totalCount\":\"{total}\",\"skipped\":0}}").as_bytes());
        json
    }
}

/// The parameters of a request, and the artifacts in them.
type Request = (Vec<(String, String)>, Vec<String>);

/// Both sides over the same advisories.
#[derive(Debug)]
pub struct Sides {
    world: World,
    hand: Hand,
    requests: Vec<Request>,
}

const LATEST: &str = "EVENT_TYPE_FILTER_FIXED";

impl Sides {
    /// Opens both, and checks that they return the same pages.
    pub fn open() -> Self {
        let path = cached(&format!("advisories-{}.sqlite", large()), |path| {
            block_on(fill(Arc::new(SqliteStore::open(path).unwrap()), 1, puts()));
        });
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path).unwrap());
        let request = |request: u64| {
            let named = (0..NAMES).map(|name| artifact(mix(request * NAMES + name) % (large() / PER_ARTIFACT)));
            let names: Vec<_> = named.collect();
            let named = names.iter().map(|name| ("artifactNames".to_owned(), name.clone()));
            (named.chain([("latestEventType".to_owned(), LATEST.to_owned())]).collect(), names)
        };
        let requests = (0..REQUESTS).map(request).collect();
        let sides = Self { world: World::listing(store, Advisory::KIND), hand: Hand::open(), requests };
        for round in 0..REQUESTS as usize {
            assert_eq!(parsed(&sides.page(round)), parsed(&sides.hand_page(round)));
        }
        sides
    }

    /// Reads a page with the platform.
    pub fn page(&self, round: usize) -> Vec<u8> {
        self.world.page(&self.requests[round % self.requests.len()].0)
    }

    /// Reads a page with the hand-written program.
    pub fn hand_page(&self, round: usize) -> Vec<u8> {
        self.hand.list(&self.requests[round % self.requests.len()].1, LATEST)
    }
}

fn parsed(page: &[u8]) -> serde_json::Value {
    let mut page: serde_json::Value = serde_json::from_slice(page).unwrap();
    page.as_object_mut().unwrap().remove("nextPageToken");
    page
}

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let sides = Sides::open();
    let times = Times::of(300);
    let compared = compare(times, |round| drop(sides.page(round)), |round| drop(sides.hand_page(round)));
    vec![Line::ratio(
        format!("advisories: of 20 artifacts, SQLite / hand, {}", count(large())),
        compared,
        Goal::AtMost(2.0, 1.0),
    )]
}
