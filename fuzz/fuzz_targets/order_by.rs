//! See `platform_fuzz::order_by_text`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| platform_fuzz::order_by_text(data));
