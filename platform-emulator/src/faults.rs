//! Faults: errors and delays that a test injects.

use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use platform_engine::{
    access::Capabilities,
    error::{Code, Detail, Error, Result},
    fields,
    kind::{Field, Type},
};
use serde_json::{Map, Value, json};

use crate::input::{duration, number, text};

/// The maximum number of faults of a tenant. Our choice.
const MAX_FAULTS: usize = 100;

/// The maximum delay. Our choice.
const MAX_DELAY: Duration = Duration::from_secs(60);

const CODES: [Code; 16] = [
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

/// An error or a delay, or both, for calls of some methods.
///
/// Write a value as `Fault { …, ..Fault::of("ReposService.ListRepos") }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The methods: a name such as `ReposService.ListRepos`, in which `*` matches any text.
    pub method: String,
    /// The code of the error; `None` for a delay alone.
    pub code: Option<Code>,
    /// The message of the error.
    pub message: String,
    /// The time after which clients may retry, which errors then name.
    pub retry_delay: Option<Duration>,
    /// The delay before the call; at most 60 seconds.
    pub delay: Duration,
    /// The percentage of the calls that the fault applies to, from 1 to 100.
    pub percent: u8,
    /// The seed of the choice of those calls.
    pub seed: u64,
    /// The number of calls that the fault applies to; `None` for any number.
    pub times: Option<u32>,
    /// Whether the call runs and its reply is lost, instead of the call being rejected.
    pub after: bool,
}

impl Fault {
    pub(crate) const FIELDS: &'static [Field] = &[
        Field::string("method"),
        Field::new("code", Type::String),
        Field::string("message"),
        Field::new("retryDelay", Type::Duration),
        Field::new("delay", Type::Duration),
        Field::new("percent", Type::Int32),
        Field::new("seed", Type::Int32),
        Field::new("times", Type::Int32),
        Field::bool("after"),
    ];

    /// Returns a fault without an effect, for calls of these methods.
    pub fn of(method: &str) -> Self {
        Self {
            method: method.to_owned(),
            code: None,
            message: "Injected fault".to_owned(),
            retry_delay: None,
            delay: Duration::ZERO,
            percent: 100,
            seed: 0,
            times: None,
            after: false,
        }
    }

    /// Reads a fault from JSON.
    pub(crate) fn read(object: Map<String, Value>) -> Result<Self> {
        let mut input = fields::read(Self::FIELDS, &Capabilities::default(), object, None);
        let none = Self::of("*");
        let code = text(&input, "code").map(|name| (CODES.into_iter().find(|code| code.reason() == name), name));
        if let Some((None, _)) = code {
            input.violations.add("code", "must be the name of a google.rpc.Code other than OK, such as UNAVAILABLE");
        }
        let percent = number(&mut input, "percent", 1, 100).unwrap_or(100);
        let seed = number(&mut input, "seed", 0, i32::MAX).unwrap_or_default();
        let times = number(&mut input, "times", 1, i32::MAX);
        let delay = duration(&mut input, "delay", MAX_DELAY).unwrap_or_default();
        let retry_delay = duration(&mut input, "retryDelay", MAX_DELAY * 60);
        let fault = Self {
            method: text(&input, "method").unwrap_or(none.method),
            code: code.and_then(|(code, _)| code),
            message: text(&input, "message").unwrap_or(none.message),
            retry_delay,
            delay,
            percent: u8::try_from(percent).unwrap_or(100),
            seed: u64::try_from(seed).unwrap_or_default(),
            times: times.and_then(|times| u32::try_from(times).ok()),
            after: input.value("after").and_then(Value::as_bool).unwrap_or_default(),
        };
        if input.violations.is_empty() && fault.code.is_none() && fault.delay.is_zero() {
            input.violations.add("code", "is required without a delay");
        }
        input.checked()?;
        Ok(fault)
    }

    /// Returns the fault in JSON.
    pub(crate) fn to_json(&self) -> Value {
        let seconds = |duration: Duration| format!("{}.{:03}s", duration.as_secs(), duration.subsec_millis());
        json!({
            "method": self.method,
            "code": self.code.map(Code::reason),
            "message": self.message,
            "retryDelay": self.retry_delay.map(seconds),
            "delay": seconds(self.delay),
            "percent": self.percent,
            "seed": self.seed,
            "times": self.times,
            "after": self.after,
        })
    }

    /// Returns the error; `None` for a delay alone.
    pub(crate) fn error(&self) -> Option<Error> {
        let error = Error::new(self.code?, self.message.clone());
        let millis = self.retry_delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        Some(millis.into_iter().fold(error, |error, millis| error.with(Detail::RetryInfo { millis })))
    }
}

/// The faults of a tenant.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<(Fault, Rng)>>);

impl Faults {
    /// Adds a fault after the others.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when there are too many.
    pub(crate) fn add(&self, fault: Fault) -> Result<()> {
        let mut faults = self.0.lock();
        if faults.len() >= MAX_FAULTS {
            let error = format!("A tenant has at most {MAX_FAULTS} faults; delete them first");
            return Err(Error::new(Code::ResourceExhausted, error));
        }
        let rng = Rng::with_seed(fault.seed);
        faults.push((fault, rng));
        Ok(())
    }

    /// Returns the faults that still apply to calls, with the number of calls that each has left.
    pub(crate) fn all(&self) -> Vec<Fault> {
        self.0.lock().iter().map(|(fault, _)| fault.clone()).collect()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Returns the first fault that applies to a call of this method, and counts it.
    pub(crate) fn next(&self, method: &str) -> Option<Fault> {
        let mut faults = self.0.lock();
        let applies =
            |(fault, rng): &mut (Fault, Rng)| matches(&fault.method, method) && rng.u8(0..100) < fault.percent;
        let at = faults.iter_mut().position(applies)?;
        let (fault, _) = faults.get_mut(at)?;
        let found = fault.clone();
        match &mut fault.times {
            Some(times) if *times > 1 => *times -= 1,
            Some(_) => drop(faults.remove(at)),
            None => {}
        }
        Some(found)
    }
}

/// Returns whether a name matches a pattern, in which `*` matches any text.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let mut parts = rest.split('*').collect::<Vec<_>>();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = name.find(part) else { return false };
        name = name.get(at + part.len()..).unwrap_or_default();
    }
    name.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<Fault> {
        Fault::read(value.as_object().unwrap().clone())
    }

    #[test]
    fn a_star_in_a_pattern_stands_for_any_text() {
        for (pattern, name, is_match) in [
            ("*", "ReposService.ListRepos", true),
            ("ReposService.*", "ReposService.ListRepos", true),
            ("*.List*", "ReposService.ListRepos", true),
            ("Repos*List*s", "ReposService.ListRepos", true),
            ("ReposService.ListRepos", "ReposService.ListRepos", true),
            ("ReposService.List", "ReposService.ListRepos", false),
            ("*.Get*", "ReposService.ListRepos", false),
            ("TagsService.*", "ReposService.ListRepos", false),
            ("a*a", "a", false),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, name), is_match, "{pattern} {name}");
        }
    }

    #[test]
    fn an_invalid_fault_is_rejected_with_each_field_and_rule() {
        for (fault, fields) in [
            (json!({}), &["code"][..]),
            (json!({"code": "OK"}), &["code"]),
            (json!({"code": "UNAVAILABLE", "percent": 0}), &["percent"]),
            (
                json!({"code": "UNAVAILABLE", "percent": 101, "times": -1, "delay": "61s"}),
                &["percent", "times", "delay"],
            ),
            (json!({"delay": "-1s"}), &["delay"]),
            (json!({"delay": 1}), &["delay"]),
            (json!({"methods": "*", "code": "ABORTED"}), &["methods"]),
        ] {
            let found = read(fault.clone()).map_err(|error| {
                error.violations().iter().map(|violation| violation.field.clone()).collect::<Vec<_>>()
            });
            assert_eq!(found.err().unwrap_or_default(), fields, "{fault}");
        }
        let fault = read(json!({"delay": "0.25s"})).unwrap();
        assert_eq!((fault.delay, fault.code, &*fault.method), (Duration::from_millis(250), None, "*"));
    }

    #[test]
    fn the_first_matching_fault_applies_as_often_as_it_says() {
        let faults = Faults::default();
        faults.add(Fault { times: Some(2), code: Some(Code::Aborted), ..Fault::of("A.*") }).unwrap();
        faults.add(Fault { code: Some(Code::Internal), ..Fault::of("A.B") }).unwrap();
        let codes = || faults.next("A.B").and_then(|fault| fault.code);
        assert_eq!([codes(), codes(), codes()], [Some(Code::Aborted), Some(Code::Aborted), Some(Code::Internal)]);
        assert_eq!(faults.next("B.A"), None);
        faults.clear();
        assert_eq!(faults.next("A.B"), None);
    }

    #[test]
    fn a_percentage_selects_the_same_calls_for_the_same_seed() {
        let chosen = |seed, percent| {
            let faults = Faults::default();
            faults.add(Fault { seed, percent, ..Fault::of("*") }).unwrap();
            (0..1000).map(|_| faults.next("A.B").is_some()).collect::<Vec<_>>()
        };
        let hits = |seed, percent| chosen(seed, percent).into_iter().filter(|hit| *hit).count();
        assert_eq!(chosen(7, 30), chosen(7, 30));
        assert_ne!(chosen(7, 30), chosen(8, 30));
        assert!((200..400).contains(&hits(7, 30)));
        assert_eq!(hits(7, 100), 1000);
    }

    #[test]
    fn the_number_of_faults_is_bounded() {
        let faults = Faults::default();
        let added = (0..=MAX_FAULTS).map(|_| faults.add(Fault::of("*"))).filter(Result::is_ok).count();
        assert_eq!(added, MAX_FAULTS);
    }
}
