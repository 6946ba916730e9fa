//! See `platform_fuzz::page_token`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| platform_fuzz::page_token(data));
