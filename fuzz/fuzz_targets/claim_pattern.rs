//! See `platform_fuzz::claim_pattern`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| platform_fuzz::claim_pattern(data));
