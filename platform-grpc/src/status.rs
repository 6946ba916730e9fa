//! Statuses: the one place that knows which belongs to which code, and how errors go over the wire.

use std::{collections::HashMap, sync::Arc};

use platform_core::error::{self, Error};
use prost::Message;
use prost_reflect::DescriptorPool;
use serde_json::Value;
use tonic::{Code, Status};
use tonic_types::pb;

use crate::encode::Plan;

/// The most bytes of an error's details. They travel as a header, of which common clients take 8 KiB (our choice).
const MOST: usize = 4 << 10;

/// The most bytes of an error's message.
const MESSAGE: usize = 1 << 10;

/// Returns gRPC's name for a code. The numbers are the same.
pub const fn of(code: error::Code) -> Code {
    match code {
        error::Code::Cancelled => Code::Cancelled,
        error::Code::Unknown => Code::Unknown,
        error::Code::InvalidArgument => Code::InvalidArgument,
        error::Code::DeadlineExceeded => Code::DeadlineExceeded,
        error::Code::NotFound => Code::NotFound,
        error::Code::AlreadyExists => Code::AlreadyExists,
        error::Code::PermissionDenied => Code::PermissionDenied,
        error::Code::ResourceExhausted => Code::ResourceExhausted,
        error::Code::FailedPrecondition => Code::FailedPrecondition,
        error::Code::Aborted => Code::Aborted,
        error::Code::OutOfRange => Code::OutOfRange,
        error::Code::Unimplemented => Code::Unimplemented,
        error::Code::Internal => Code::Internal,
        error::Code::Unavailable => Code::Unavailable,
        error::Code::DataLoss => Code::DataLoss,
        error::Code::Unauthenticated => Code::Unauthenticated,
    }
}

/// Writes errors as they go over the wire.
#[derive(Debug)]
pub(crate) struct Statuses {
    service_domain: String,
    /// How each type of detail is written, by its URL.
    details: HashMap<String, Arc<Plan>>,
}

impl Statuses {
    /// Learns the types of details from descriptors.
    pub(crate) fn new(service_domain: &str, pools: &[&DescriptorPool]) -> Result<Self, crate::BadContract> {
        let mut details = HashMap::new();
        for message in pools.iter().flat_map(|pool| pool.all_messages()) {
            let name = message.full_name();
            if message.package_name() == "google.rpc" && name != "google.rpc.Status" || name.ends_with("Detail") {
                details.insert(format!("type.googleapis.com/{name}"), Plan::of(&message)?);
            }
        }
        Ok(Self { service_domain: service_domain.to_owned(), details })
    }

    /// Returns an error as its status, with the details that REST shows; of a request that is wrong in very many
    /// places, as many violations as there is room for. Faults of ours are logged with their causes.
    pub(crate) fn of(&self, error: &Error) -> Status {
        platform_http::log_fault(error);
        let mut status = error.status(&self.service_domain);
        let code = of(error.code());
        cut(&mut status.message);
        let mut message =
            pb::Status { code: status.code, message: status.message.clone(), details: self.any(&status.details) };
        while message.encoded_len() > MOST && halve(&mut status.details) {
            message.details = self.any(&status.details);
        }
        Status::with_details(code, status.message, message.encode_to_vec().into())
    }

    fn any(&self, details: &[Value]) -> Vec<prost_types::Any> {
        details.iter().filter_map(|detail| self.detail(detail)).collect()
    }

    /// Returns a detail; none for a type that no descriptor tells of.
    fn detail(&self, detail: &Value) -> Option<prost_types::Any> {
        let type_url = detail.get("@type")?.as_str()?;
        let value = self.details.get(type_url)?.encode_value(detail).ok()?;
        Some(prost_types::Any { type_url: type_url.to_owned(), value })
    }
}

/// Cuts a text that is too long at the end of a character.
fn cut(text: &mut String) {
    if text.len() > MESSAGE {
        let end = (0..=MESSAGE).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
    }
}

/// Takes away half of the violations, or the last detail; tells whether there was anything to take.
fn halve(details: &mut Vec<Value>) -> bool {
    for violations in details.iter_mut().filter_map(|detail| detail.get_mut("fieldViolations")?.as_array_mut()) {
        if violations.len() > 1 {
            violations.truncate(violations.len() / 2);
            return true;
        }
    }
    details.pop().is_some()
}
