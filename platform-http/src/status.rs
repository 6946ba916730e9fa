//! Maps error codes to HTTP statuses. No other module does this.

use http::StatusCode;
use platform_engine::error::Code;

/// Returns the HTTP status of a code, as `google.rpc.Code` documents it (`docs/api.md`, Errors).
///
/// FAILED_PRECONDITION is 400 and not 412, which is reserved for HTTP preconditions.
pub const fn of(code: Code) -> StatusCode {
    match code {
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Cancelled => CLIENT_CLOSED_REQUEST,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
    }
}

/// Returns the code of a response that is not in the format of AIP-193; `None` for a success. For metrics alone: several
/// codes have the same status.
pub(crate) fn code_of(status: StatusCode) -> Option<Code> {
    Some(match status.as_u16() {
        ..=399 => return None,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::NotFound,
        405 | 501 => Code::Unimplemented,
        408 | 504 => Code::DeadlineExceeded,
        409 => Code::Aborted,
        429 => Code::ResourceExhausted,
        499 => Code::Cancelled,
        503 => Code::Unavailable,
        400..=499 => Code::InvalidArgument,
        _ => Code::Internal,
    })
}

/// Returns the code with this number, which a `grpc-status` header has.
pub(crate) fn code_of_grpc(number: &[u8]) -> Code {
    match number {
        b"1" => Code::Cancelled,
        b"3" => Code::InvalidArgument,
        b"4" => Code::DeadlineExceeded,
        b"5" => Code::NotFound,
        b"6" => Code::AlreadyExists,
        b"7" => Code::PermissionDenied,
        b"8" => Code::ResourceExhausted,
        b"9" => Code::FailedPrecondition,
        b"10" => Code::Aborted,
        b"11" => Code::OutOfRange,
        b"12" => Code::Unimplemented,
        b"13" => Code::Internal,
        b"14" => Code::Unavailable,
        b"15" => Code::DataLoss,
        b"16" => Code::Unauthenticated,
        _ => Code::Unknown,
    }
}

/// Status 499, which is not in any standard, but is what gateways for this kind of API use.
const CLIENT_CLOSED_REQUEST: StatusCode = match StatusCode::from_u16(499) {
    Ok(status) => status,
    Err(_) => StatusCode::BAD_REQUEST,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_the_status_that_google_rpc_documents() {
        for (code, status) in [
            (Code::Cancelled, 499),
            (Code::Unknown, 500),
            (Code::InvalidArgument, 400),
            (Code::DeadlineExceeded, 504),
            (Code::NotFound, 404),
            (Code::AlreadyExists, 409),
            (Code::PermissionDenied, 403),
            (Code::ResourceExhausted, 429),
            (Code::FailedPrecondition, 400),
            (Code::Aborted, 409),
            (Code::OutOfRange, 400),
            (Code::Unimplemented, 501),
            (Code::Internal, 500),
            (Code::Unavailable, 503),
            (Code::DataLoss, 500),
            (Code::Unauthenticated, 401),
        ] {
            assert_eq!(of(code).as_u16(), status, "{code:?}");
            assert_eq!(code_of_grpc((code as u8).to_string().as_bytes()), code);
            let back = code_of(of(code)).unwrap();
            assert_eq!(of(back), of(code), "{code:?} and {back:?} have the same status");
        }
    }
}
