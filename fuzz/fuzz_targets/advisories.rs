//! See `platform_fuzz::advisories`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| platform_fuzz::advisories(data));
