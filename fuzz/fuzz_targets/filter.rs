//! See `platform_fuzz::filter_text`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| platform_fuzz::filter_text(data));
