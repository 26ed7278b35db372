//! What the libraries report, on standard error; `SMIG_LOG` chooses more or less.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// How much is shown unless `SMIG_LOG` says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Errors,
    Warnings,
    Notices,
    Everything,
}

/// Begins to show; `SMIG_LOG=smig=debug` and the like go before `level`.
pub(crate) fn start(level: Level) {
    let default = match level {
        Level::Errors => LevelFilter::ERROR,
        Level::Warnings => LevelFilter::WARN,
        Level::Notices => LevelFilter::INFO,
        Level::Everything => LevelFilter::DEBUG,
    };
    let filter = EnvFilter::builder()
        .with_default_directive(default.into())
        .with_env_var("SMIG_LOG")
        .from_env_lossy();
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_painted = !no_color && std::io::stderr().is_terminal();
    // Fails only where something was installed before, which nothing does.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| crate::stderr::Lines)
        .with_ansi(is_painted)
        .with_target(false)
        .try_init();
}
