//! See `platform_fuzz::artifacts`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| platform_fuzz::artifacts(data));
