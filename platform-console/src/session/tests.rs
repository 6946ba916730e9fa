//! Tests of the contents and the end of a cookie.

use std::sync::Arc;

use platform_engine::store::memory::MemoryStore;
use platform_testkit::{SeededEntropy, TestClock};

use super::*;

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn platform() -> (Platform, TestClock) {
    let clock = TestClock::at(START);
    let builder = platform_core::builder(Arc::new(MemoryStore::new()), clock.clone(), SeededEntropy::new(1));
    (builder.ephemeral_keys().build().expect("a platform"), clock)
}

#[test]
fn a_cookie_is_opened_until_it_ends() {
    let (platform, clock) = platform();
    let until = START.plus_millis(SESSION_SECONDS * 1000);
    let sealed = Cookie::new(&platform, until, 3, "token").seal(&platform).expect("a cookie");
    let (hour, year) = (3_600_000, 365 * 24 * 3_600_000);
    // The cookie has no time at which it begins: the token in it has one, before which it is refused.
    for (millis, is_open) in
        [(0, true), (SESSION_SECONDS * 1000 - 1, true), (SESSION_SECONDS * 1000, false), (-hour, true), (-year, true)]
    {
        clock.set(START.plus_millis(millis));
        let opened = Cookie::open(&platform, &sealed);
        assert_eq!(opened.is_some(), is_open, "{millis}");
        if let Some(opened) = opened {
            assert_eq!((opened.until, opened.generation, opened.token.expose()), (until, 3, "token"));
        }
    }
}

#[test]
fn a_cookie_without_one_of_its_parts_or_of_another_platform_is_not_opened() {
    let (platform, _) = platform();
    let until = START.plus_millis(1000).millis();
    let seal = |text: &str| {
        let sealed = platform.seal_keys().seal(platform.entropy(), PLACE, text.as_bytes()).expect("sealed");
        BASE64_URL_SAFE_NO_PAD.encode(sealed)
    };
    assert!(Cookie::open(&platform, &seal(&format!("{until}\n0\nid\ntoken"))).is_some());
    for text in [String::new(), "\n0\nid\ntoken".to_owned(), format!("{until}\n\nid\ntoken"), format!("{until}\n0\nid")]
    {
        assert!(Cookie::open(&platform, &seal(&text)).is_none(), "{text:?}");
    }
    let elsewhere = platform.seal_keys().seal(platform.entropy(), "elsewhere", b"1\n0\nid\ntoken").expect("sealed");
    assert!(Cookie::open(&platform, &BASE64_URL_SAFE_NO_PAD.encode(elsewhere)).is_none());
}
