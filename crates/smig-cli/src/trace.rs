//! What the libraries report, on standard error; `SMIG_LOG` chooses more or less. What a gateway or an
//! agent reports to a collector.

use std::io::IsTerminal as _;

use smig_gateway::telemetry::TelemetrySpec;
use tracing::Subscriber;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

/// How much is shown unless `SMIG_LOG` says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Errors,
    Warnings,
    Notices,
    Everything,
}

/// Shows; `SMIG_LOG=smig=debug` and the like go before `level`.
fn shown<S>(level: Level) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
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
    fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(is_painted)
        .with_target(false)
        .with_filter(filter)
}

/// Begins to show.
pub(crate) fn start(level: Level) {
    // Fails only where something was installed before, which nothing does.
    let _ = registry().with(shown(level)).try_init();
}

/// Spans go to a collector while this is there.
#[derive(Debug)]
pub(crate) struct Exporting {
    #[cfg(feature = "otlp")]
    exporter: Option<smig_gateway::telemetry::Exporter>,
}

/// Begins to show, and to send spans if somebody wants them. To be called inside of a runtime.
///
/// # Errors
/// What is wrong with the description, or with the environment.
#[cfg(feature = "otlp")]
pub(crate) fn start_exporting(
    level: Level,
    spec: &TelemetrySpec,
    service: &str,
) -> anyhow::Result<Exporting> {
    use crate::exit::{Exit, Failure};
    if !spec.is_wanted() {
        start(level);
        return Ok(Exporting { exporter: None });
    }
    let exporter = smig_gateway::telemetry::Exporter::start(spec, service)
        .map_err(|error| Failure::new(Exit::Usage, format!("telemetry: {error}")))?;
    let _ = registry().with(shown(level)).with(exporter.layer()).try_init();
    Ok(Exporting { exporter: Some(exporter) })
}

/// Begins to show: this program was built without a way to a collector.
#[cfg(not(feature = "otlp"))]
pub(crate) fn start_exporting(
    level: Level,
    spec: &TelemetrySpec,
    _: &str,
) -> anyhow::Result<Exporting> {
    start(level);
    if spec.is_wanted() {
        tracing::warn!("spans are not sent: this program was built without the feature otlp");
    }
    Ok(Exporting {})
}

impl Exporting {
    /// Sends what is left.
    pub(crate) async fn finish(self) {
        #[cfg(feature = "otlp")]
        if let Some(exporter) = self.exporter {
            // Why it could not be sent was said when it failed.
            let _ = exporter.shutdown().await;
        }
    }
}
