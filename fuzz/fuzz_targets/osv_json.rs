//! See `platform_fuzz::osv_json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| platform_fuzz::osv_json(data));
