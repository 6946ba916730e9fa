//! Writes `proto/`. The numbers of fields that it has are kept.

use std::{error::Error, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    for changed in platform_grpc::proto::update({{crate_name}}::KINDS, &folder)? {
        println!("wrote {}", changed.display());
    }
    Ok(())
}
