//! Maps errors to gRPC statuses: the one place that knows which status belongs to which code.

use std::{collections::HashMap, sync::Arc};

use platform_engine::error::{self, Error};
use prost::Message;
use prost_reflect::DescriptorPool;
use serde_json::Value;
use tonic::{Code, Status};
use tonic_types::pb;

use crate::encode::Plan;

/// The maximum size of an error's details, in bytes. They travel in a header, and common clients accept 8 KiB of
/// headers (our choice).
const MAX_DETAILS: usize = 4 << 10;

/// The maximum size of an error's message, in bytes.
const MAX_MESSAGE: usize = 1 << 10;

/// Returns the gRPC code of an error code. Both have the same number.
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

/// Encodes errors as statuses.
#[derive(Debug)]
pub(crate) struct Statuses {
    service_domain: String,
    /// The encoding plan of each type of detail, by type URL.
    details: HashMap<String, Arc<Plan>>,
}

impl Statuses {
    /// Builds the plans of the types of details in the descriptors.
    pub(crate) fn new(service_domain: &str, pools: &[&DescriptorPool]) -> Result<Self, crate::BadContract> {
        let mut details = HashMap::new();
        for message in pools.iter().flat_map(|pool| pool.all_messages()) {
            let name = message.full_name();
            if message.package_name() == "google.rpc" && name != "google.rpc.Status" || name.ends_with("Detail") {
                details.insert(format!("type.googleapis.com/{name}"), Plan::of(&message, &[])?);
            }
        }
        Ok(Self { service_domain: service_domain.to_owned(), details })
    }

    /// Returns an error as a status with the same details as over REST. Drops violations when there are too many to
    /// fit. Logs internal errors with their causes.
    pub(crate) fn of(&self, error: &Error) -> Status {
        platform_http::log_fault(error);
        let mut status = error.status(&self.service_domain);
        let code = of(error.code());
        truncate_text(&mut status.message);
        let mut message =
            pb::Status { code: status.code, message: status.message.clone(), details: self.any(&status.details) };
        while message.encoded_len() > MAX_DETAILS && shrink(&mut status.details) {
            message.details = self.any(&status.details);
        }
        Status::with_details(code, status.message, message.encode_to_vec().into())
    }

    fn any(&self, details: &[Value]) -> Vec<prost_types::Any> {
        details.iter().filter_map(|detail| self.detail(detail)).collect()
    }

    /// Encodes a detail; None when no descriptor contains its type.
    fn detail(&self, detail: &Value) -> Option<prost_types::Any> {
        let type_url = detail.get("@type")?.as_str()?;
        let value = self.details.get(type_url)?.encode_value(detail).ok()?;
        Some(prost_types::Any { type_url: type_url.to_owned(), value })
    }
}

/// Truncates a text that is too long, at a character boundary.
fn truncate_text(text: &mut String) {
    if text.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
    }
}

/// Removes half of the violations, or the last detail. Returns whether there was anything to remove.
fn shrink(details: &mut Vec<Value>) -> bool {
    for violations in details.iter_mut().filter_map(|detail| detail.get_mut("fieldViolations")?.as_array_mut()) {
        if violations.len() > 1 {
            violations.truncate(violations.len() / 2);
            return true;
        }
    }
    details.pop().is_some()
}
