//! `platform-server dev`: the emulator for tests.

use std::{
    fs,
    io::{Write, stdout},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use platform_emulator::{Emulator, Preset, Tenant};

use crate::{
    cli::Dev,
    config::Config,
    log,
    server::socket::{bind, listen},
    signals,
};

pub(crate) fn run(config: &Config, dev: &Dev) -> Result<ExitCode> {
    log::to_stderr(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(serve(config, dev))?;
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(ExitCode::SUCCESS)
}

async fn serve(config: &Config, dev: &Dev) -> Result<()> {
    let stopped = signals::stopped()?;
    let socket = bind(config.listen())?;
    let address = socket.local_addr().context("cannot determine the listen address")?;
    let local = if address.ip().is_unspecified() {
        // Of a container, for example, whose port is published on this machine.
        format!("http://localhost:{}", address.port())
    } else {
        format!("http://{address}")
    };
    let url = config.public_url.clone().unwrap_or(local);
    let emulator = Emulator::new(&url).await?;
    let tenant = emulator.default_tenant();
    if let Some(seed) = dev.seed.as_deref().or(dev.demo.then_some(Path::new("demo"))) {
        let seeded = create(tenant, seed).await;
        seeded.with_context(|| format!("cannot create the resources of {}", seed.display()))?;
    }
    let listener = listen(socket, address)?;
    announce(tenant, &format!("http://{address}"))?;
    // Open connections are dropped: the clients of an emulator are tests that have ended.
    tokio::select! {
        served = emulator.serve(listener, std::future::pending()) => served.context("cannot serve"),
        () = stopped => Ok(()),
    }
}

/// Creates the resources of a preset or a file.
async fn create(tenant: &Tenant, seed: &Path) -> Result<()> {
    let preset = seed.to_str().and_then(|name| name.parse::<Preset>().ok());
    match preset {
        Some(preset) => tenant.seed_preset(preset).await?,
        None => tenant.seed(&fs::read_to_string(seed)?).await?,
    };
    Ok(())
}

/// Prints the URL of the emulator and the commands to try next. Scripts that wait for it read the first line.
fn announce(tenant: &Tenant, address: &str) -> Result<()> {
    let (url, organization, token) = (tenant.url(), tenant.organization(), tenant.token()?);
    let link = tenant.console_link()?;
    // A closed standard output must not stop the emulator.
    let _ = writeln!(
        stdout(),
        "Listening on {address}\n  emulator: in memory, lost when it stops; /_emulator controls it\n  docs:     \
         {url}/docs\n  console:  {link} (signs you in once, within 15 minutes)\n\nIn another terminal, paste:\n\n  export API={url} ORG_ID={organization}\n  export \
         TOKEN={token}\n  curl -s -H \"Authorization: Bearer $TOKEN\" -d '{{\"name\":\"my repo\"}}' \
         \"$API/registry/v2/repos/$ORG_ID\"\n  curl -s -X POST \"$API/_emulator/reset\"\n"
    );
    Ok(())
}
