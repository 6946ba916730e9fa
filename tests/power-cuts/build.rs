//! Compiles the recorder, a shared library that is preloaded into the program under test.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=src/recorder.c");
    println!("cargo::rustc-check-cfg=cfg(recorder)");
    // The recorder needs LD_PRELOAD and Linux system calls, and is loaded on the host.
    let supported = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux")
        && env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu")
        && env::var("TARGET") == env::var("HOST");
    let Ok(out_dir) = env::var("OUT_DIR") else { return };
    if !supported {
        println!("cargo::warning=power cuts are tested on Linux with glibc only");
        return;
    }
    let library = Path::new(&out_dir).join("librecorder.so");
    let mut command: Command = cc::Build::new().get_compiler().to_command();
    command.args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "src/recorder.c", "-o"]).arg(&library);
    command.args(["-ldl", "-lpthread"]);
    assert!(command.status().is_ok_and(|status| status.success()), "cannot compile the recorder");
    println!("cargo::rustc-cfg=recorder");
    println!("cargo::rustc-env=RECORDER={}", library.display());
}
