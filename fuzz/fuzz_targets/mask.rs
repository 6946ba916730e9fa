//! See `platform_fuzz::mask`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| platform_fuzz::mask(data));
