//! The binary `platform-server`: the library of that name with the kinds of Platform API v2.

use std::process::ExitCode;

/// Rendering a page makes many small allocations, for which mimalloc needs half the time of the C library's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    platform_server::main_with(platform_server::Kinds::default())
}
