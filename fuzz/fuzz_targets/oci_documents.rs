//! See `platform_fuzz::oci_documents`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| platform_fuzz::oci_documents(data));
