//! See `platform_fuzz::jwt`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| platform_fuzz::jwt(data));
