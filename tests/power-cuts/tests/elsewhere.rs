//! Says where power cuts are not simulated.

#![cfg(not(recorder))]

#[test]
fn power_cuts_are_simulated_on_linux_with_glibc_only() {
    platform_testkit::not_run("power cuts", "the recorder needs Linux with glibc, on the host");
}
