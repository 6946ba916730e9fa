//! The other processes of a case: this program again, with a role, which reports its work to its parent in lines.

use std::{
    env,
    io::{self, BufRead as _, BufReader, Lines, Write as _},
    process::{self, ChildStdout, Command, Stdio},
    thread,
};

use platform_store_kv::{Backend, backend::Space};

use super::{
    BackendSuite, Outcome,
    fixture::{Fixture, failed, snapshot, write},
    numbered,
};

const ROLE: &str = "PLATFORM_BACKEND_ROLE";
const DIRECTORY: &str = "PLATFORM_BACKEND_DIRECTORY";

/// The beginning of the lines for the parent, which are among those of a test harness.
const LINE: &str = "backend suite: ";

/// The task of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Opens the backend, and says so.
    Open,
    /// Writes batches until it is killed, and says the number of each that was acknowledged.
    Write,
    /// The same, while another thread says the number of each batch that it sees.
    Watch,
    /// Writes batches, of which each fifth is synced, says the numbers of these, and ends at once after the second.
    Abort,
}

impl Role {
    const ALL: [Self; 4] = [Self::Open, Self::Write, Self::Watch, Self::Abort];

    const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Write => "write",
            Self::Watch => "watch",
            Self::Abort => "abort",
        }
    }
}

/// Plays the role of this process, if it has one.
pub(super) fn run<B: Backend>(suite: &BackendSuite<B>) -> bool {
    let (Ok(role), Some(directory)) = (env::var(ROLE), env::var_os(DIRECTORY)) else { return false };
    let Some(role) = Role::ALL.into_iter().find(|known| known.name() == role) else { return false };
    let opened = (suite.open)(directory.as_ref()).map_err(|error| failed("the backend does not open", error));
    let played = opened.and_then(|backend| match role {
        Role::Open => {
            say("opened 0");
            Ok(())
        }
        Role::Write => write_all(&backend, true),
        Role::Watch => thread::scope(|scope| {
            scope.spawn(|| write_all(&backend, false).unwrap_or_else(|error| give_up(&error)));
            watch(&backend)
        }),
        Role::Abort => abort(&backend),
    });
    played.unwrap_or_else(|error| give_up(&error));
    true
}

fn say(line: &str) {
    // A parent that does not read any more has seen enough.
    let _ = writeln!(io::stdout(), "\n{LINE}{line}").and_then(|()| io::stdout().flush());
}

fn give_up(error: &str) -> ! {
    say(&format!("failed {error}"));
    process::exit(1);
}

fn write_all<B: Backend>(backend: &B, is_said: bool) -> Outcome {
    let last = numbered::last_of(&snapshot(backend)?, Space::State)?;
    for number in last + 1.. {
        write(backend, &numbered::batch(number), true)?;
        if is_said {
            say(&format!("acknowledged {number}"));
        }
    }
    Ok(())
}

fn watch<B: Backend>(backend: &B) -> Outcome {
    let mut seen = 0;
    loop {
        let number = numbered::last_of(&snapshot(backend)?, Space::State)?;
        if number > seen {
            seen = number;
            say(&format!("seen {number}"));
        }
    }
}

fn abort<B: Backend>(backend: &B) -> Outcome {
    let last = numbered::last_of(&snapshot(backend)?, Space::State)?;
    for number in last + 1..=last + 10 {
        let sync = number.is_multiple_of(5);
        write(backend, &numbered::batch(number), sync)?;
        if sync {
            say(&format!("acknowledged {number}"));
        }
    }
    // Nothing is dropped, as in a process that is killed.
    process::abort()
}

/// A process with a role, which is killed when this is dropped.
pub(super) struct Running {
    child: process::Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    pub(super) fn start<B: Backend>(fixture: &Fixture<'_, B>, role: Role) -> Result<Self, String> {
        let start = || {
            let mut command: Command = (fixture.suite.command)()?;
            command.env(ROLE, role.name()).env(DIRECTORY, fixture.directory()).stdout(Stdio::piped());
            let mut child = command.spawn()?;
            let stdout = child.stdout.take().ok_or("it has no output")?;
            Ok::<_, platform_engine::store::Cause>(Self { child, lines: BufReader::new(stdout).lines() })
        };
        start().map_err(|error| failed("a process does not start", error))
    }

    /// Returns the number of the next line; `None` after the end of the process.
    ///
    /// # Errors
    /// The message of the process when it failed.
    pub(super) fn next(&mut self) -> Result<Option<u64>, String> {
        for line in self.lines.by_ref() {
            let line = line.map_err(|error| failed("the output of a process", error))?;
            let Some(said) = line.strip_prefix(LINE) else { continue };
            return match said.split_once(' ') {
                Some(("failed", why)) => Err(format!("another process: {why}")),
                Some((_, number)) => Ok(number.parse().ok()),
                None => Err(format!("another process said `{said}`")),
            };
        }
        Ok(None)
    }

    pub(super) fn kill(&mut self) -> Outcome {
        self.child.kill().map_err(|error| failed("a process cannot be killed", error))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets processes with a role write to the backend, kills each while it writes, and calls the function with the opened
/// backend and the last number that the process said.
pub(super) fn kill_each<B: Backend>(
    fixture: &Fixture<'_, B>,
    role: Role,
    mut look: impl FnMut(&B, u64) -> Outcome,
) -> Outcome {
    for cycle in 0..fixture.suite.kills {
        let (mut running, mut lines, mut said) = (Running::start(fixture, role)?, 0, 0);
        while let Some(number) = running.next()? {
            (lines, said) = (lines + 1, number);
            if role != Role::Abort && lines == cycle * 7 % 20 + 1 {
                running.kill()?;
            }
        }
        drop(running);
        if said == 0 {
            return Err("another process ended before it had written anything".to_owned());
        }
        look(&fixture.open()?, said).map_err(|error| format!("after kill {}: {error}", cycle + 1))?;
    }
    Ok(())
}
