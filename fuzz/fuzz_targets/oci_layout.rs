//! See `platform_fuzz::oci_layout`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| platform_fuzz::oci_layout(data));
