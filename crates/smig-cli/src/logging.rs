//! Logs of the libraries on standard error, filtered by `SMIG_LOG`.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Log level, unless `SMIG_LOG` sets another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Errors,
    Warnings,
    Info,
    Debug,
}

/// Starts logging; `SMIG_LOG`, such as `SMIG_LOG=smig=debug`, takes precedence over `level`.
pub(crate) fn start(level: Level) {
    let default = match level {
        Level::Errors => LevelFilter::ERROR,
        Level::Warnings => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    };
    let filter = EnvFilter::builder()
        .with_default_directive(default.into())
        .with_env_var("SMIG_LOG")
        .from_env_lossy();
    // Fails only if a subscriber is installed already, which does not happen.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| crate::stderr::StderrLines)
        .with_ansi(crate::paint::STDERR.uses_color())
        .with_target(false)
        .try_init();
}
