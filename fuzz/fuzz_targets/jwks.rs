//! See `platform_fuzz::jwks`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| platform_fuzz::jwks(data));
