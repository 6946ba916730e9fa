//! See `platform_fuzz::osv_yaml`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| platform_fuzz::osv_yaml(data));
