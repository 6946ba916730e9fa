//! Measures and prints the figures, with both sides alternating: `ratio [figure...]`, by default all.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a measuring program")]

use std::process::ExitCode;

use platform_benches::{
    figures::{self, ALL},
    measure::Line,
};

fn main() -> ExitCode {
    if let Ok(which) = std::env::var(figures::CHILD) {
        figures::child(&which);
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let known = |name: &String| ALL.iter().any(|(figure, _)| figure == name);
    if let Some(unknown) = wanted.iter().find(|name| !known(name)) {
        let names: Vec<_> = ALL.iter().map(|(name, _)| *name).collect();
        eprintln!("unknown figure `{unknown}`; known figures: {}", names.join(", "));
        return ExitCode::FAILURE;
    }
    println!("{}", Line::header());
    for (name, lines) in ALL {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            lines().iter().for_each(|line| println!("{line}"));
        }
    }
    ExitCode::SUCCESS
}
