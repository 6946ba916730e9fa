//! Which requests and parts of them are accepted.

use std::convert::Infallible;

use futures_util::stream;
use http::{HeaderValue, Request};
use http_body::Frame;
use http_body_util::{Empty, Full, StreamBody};

use super::*;

#[test]
fn a_token_is_accepted_with_its_scheme_or_bare_but_only_once() {
    for (values, token) in [
        (&[][..], Ok(None)),
        (&["Bearer abc"], Ok(Some("abc"))),
        (&["bEARER   abc "], Ok(Some("abc"))),
        (&["abc"], Ok(Some("abc"))),
        (&["Bearer"], Err(())),
        (&["Bearer "], Err(())),
        (&[""], Err(())),
        (&["Bearer a b"], Err(())),
        (&["Basic YTpi"], Err(())),
        (&["Bearer abc", "Bearer abc"], Err(())),
    ] {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_static(value));
        }
        assert_eq!(bearer(&headers).map_err(drop), token, "{values:?}");
    }
}

#[test]
fn a_query_is_decoded_once_and_strictly() {
    let pairs = pairs("order_by=name%20desc&a+b=c+d&uidp.ids=%2525&&x&=y&e=a=b").unwrap();
    let expected = [("order_by", "name desc"), ("a b", "c d"), ("uidp.ids", "%25"), ("x", ""), ("", "y"), ("e", "a=b")];
    assert_eq!(pairs, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    for query in ["a=%", "a=%4", "a=%4g", "a=%ff", "%c3=1", "a=%+1"] {
        assert!(super::pairs(query).is_err(), "{query}");
    }
}

/// Returns the value of a parameter, or the first field of the error.
fn value_or_field(read: &Result<Option<String>>) -> Result<Option<&str>, &str> {
    read.as_ref().map(|read| read.as_deref()).map_err(|error| error.violations()[0].field.as_str())
}

#[test]
fn a_mask_is_accepted_once_in_either_spelling() {
    for (query, mask) in [
        ("", Ok(None)),
        ("updateMask=", Ok(None)),
        ("updateMask=name,description", Ok(Some("name,description"))),
        ("update_mask=*", Ok(Some("*"))),
        ("updateMask=a&update_mask=a", Err("update_mask")),
        ("updateMask=a&updateMask=b", Err("update_mask")),
        ("mask=a", Err("mask")),
    ] {
        assert_eq!(value_or_field(&super::mask(UPDATE_MASK, pairs(query).unwrap())), mask, "{query}");
    }
}

#[test]
fn an_endpoint_with_one_parameter_takes_it_once_and_no_other() {
    for (query, value) in [
        ("", Ok(None)),
        ("parent=", Ok(Some(""))),
        ("parent=a%2Fb", Ok(Some("a/b"))),
        ("parent=a&parent=a", Err("parent")),
        ("parent=a&x=b", Err("x")),
        ("Parent=a", Err("Parent")),
        ("parent=%2", Err("parent")),
    ] {
        assert_eq!(value_or_field(&parameter("parent", query)), value, "{query}");
    }
}

#[test]
fn a_path_variable_can_be_repeated_in_the_body_with_the_same_value() {
    for (body, fits) in [
        (serde_json::json!({}), true),
        (serde_json::json!({ "groupUid": "a" }), true),
        (serde_json::json!({ "group_uid": "a" }), true),
        (serde_json::json!({ "groupUid": "b" }), false),
        (serde_json::json!({ "group_uid": null }), false),
    ] {
        let mut request = body.as_object().unwrap().clone();
        assert_eq!(bind(&mut request, "groupUid", "a".to_owned()).is_ok(), fits, "{body}");
    }
}

#[test]
fn a_path_variable_is_decoded_once_and_keeps_its_plus() {
    assert_eq!(variable("name", "a+b%20%2525").unwrap(), "a+b %25");
    assert!(variable("name", "%f").is_err());
}

fn head(method: &str, headers: &[(&'static str, &'static str)]) -> Parts {
    let request =
        headers.iter().fold(Request::builder().method(method), |request, (name, value)| request.header(*name, *value));
    request.body(()).unwrap().into_parts().0
}

#[test]
fn a_path_and_a_query_are_at_most_as_long_as_the_limits() {
    let limits = Limits { path: 4, query: 3, ..Limits::default() };
    let target = |uri: &'static str| {
        let mut head = head("GET", &[]);
        head.uri = http::Uri::from_static(uri);
        let refused = |refusal: Refusal| refusal.status_and_message().0.as_u16();
        target(&head, &limits).map(|(path, query)| format!("{path} {query}")).map_err(refused)
    };
    assert_eq!(target("/abc?a=b"), Ok("/abc a=b".to_owned()));
    assert_eq!(target("/abcd"), Err(414));
    assert_eq!(target("/abc?a=bc"), Err(414));
}

#[test]
fn a_large_body_is_refused_before_it_is_sent_only_if_the_client_waits() {
    let limits = Limits { body: 3, ..Limits::default() };
    let refused =
        |headers, body: &'static [u8]| check_expect(&head("POST", headers), &Full::new(body), &limits).is_err();
    assert!(refused(&[("expect", "100-continue")], b"abcd"));
    assert!(!refused(&[("expect", "100-continue")], b"abc"));
    assert!(!refused(&[], b"abcd"));
}

#[tokio::test]
async fn a_small_body_is_discarded_unless_the_client_waits_for_permission_to_send_it() {
    let drained =
        async |headers, len: usize| drain(&head("POST", headers), pin!(Full::new(vec![0; len].as_slice()))).await;
    assert!(drained(&[], 100).await);
    assert!(!drained(&[], DRAIN_BYTES + 1).await);
    assert!(!drained(&[("expect", "100-continue")], 100).await);
    let none = Empty::<Bytes>::new();
    assert!(drain(&head("POST", &[("expect", "100-continue")]), pin!(none)).await, "there is nothing to wait for");
}

#[test]
fn preconditions_that_an_endpoint_does_not_check_are_refused_on_writes() {
    for (method, headers, accepted) in [
        ("GET", &[("if-match", "\"a\"")][..], true),
        ("POST", &[], true),
        ("POST", &[("if-match", "\"a\"")], false),
        ("POST", &[("if-match", "*")], true),
        ("POST", &[("if-match", "*"), ("if-match", "\"a\"")], false),
        ("POST", &[("if-match", "*"), ("if-unmodified-since", "Thu, 01 Jan 2026 00:00:00 GMT")], true),
        ("POST", &[("if-unmodified-since", "Thu, 01 Jan 2026 00:00:00 GMT")], false),
        ("POST", &[("if-none-match", "*")], false),
    ] {
        assert_eq!(reject_preconditions(&head(method, headers)).is_ok(), accepted, "{method} {headers:?}");
    }
}

#[test]
fn a_method_of_a_kind_checks_no_times() {
    for (method, headers, accepted) in [
        ("GET", &[("if-unmodified-since", "Thu, 01 Jan 2026 00:00:00 GMT")][..], true),
        ("PATCH", &[("if-unmodified-since", "Thu, 01 Jan 2026 00:00:00 GMT")], false),
        ("PATCH", &[("if-unmodified-since", "Thu, 01 Jan 2026 00:00:00 GMT"), ("if-match", "*")], true),
    ] {
        assert_eq!(options(&head(method, headers), &mut Vec::new()).is_ok(), accepted, "{method} {headers:?}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_read_to_twice_the_limit() {
    let read = async |frames: usize, most: usize| {
        let mut left = 0..frames;
        let frames = left.by_ref().map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"abc"))));
        let read = collect(StreamBody::new(stream::iter(frames)), most).await;
        (read.ok().map(|read| read.len()), left.len())
    };
    assert_eq!(read(4, 12).await, (Some(12), 0));
    assert_eq!(read(1, 3).await, (Some(3), 0));
    assert_eq!(read(4, 11).await, (None, 0));
    assert_eq!(read(100, 6).await, (None, 95));
}
