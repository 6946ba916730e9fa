//! See `platform_fuzz::spdx`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| platform_fuzz::spdx(data));
