//! See `platform_fuzz::uid`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| platform_fuzz::uid(data));
