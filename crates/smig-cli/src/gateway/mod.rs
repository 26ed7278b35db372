//! `smig gateway`: a reverse and forward proxy whose clients' streams can migrate.

mod signals;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use smig_admin::access_log::AccessLogFormat;
use smig_admin::telemetry::TelemetrySpec;
use smig_gateway::config::{Config, ListenSecurity, ListenSpec};
use smig_gateway::upstream::ServerUrl;
use smig_gateway::{Gateway, GatewayError};
use smig_settings::value::{parse_addresses, parse_time};

use crate::dev_cert::{self, AuthorityState, DevCert};
use crate::exit::{CliError, Exit};
use crate::open_files::OpenFilesLimit;
use crate::paint;
use crate::stderr;
use signals::{SignalAction, Signals};

/// Run a reverse and forward proxy whose streams can migrate
#[derive(Debug, Args)]
#[command(
    long_about = "Run a reverse proxy for HTTP/2 and HTTP/1.1 and, if the configuration file has one, \
        a forward proxy.\n\nFor clients that support SMig (smig agent, smig get), large responses \
        migrate to a separate connection while they are being sent, so that small ones are not \
        delayed. Other clients get plain HTTP. Upstream servers need no support for SMig.\n\nWith \
        --to, all requests go to one server; without a certificate, a development certificate is \
        created. Everything else is set in a configuration file: smig config example gateway.",
    after_help = "\
Examples:
  smig gateway --to http://127.0.0.1:8080                 on https://localhost:8443
  smig gateway --to h2c://127.0.0.1:50051 --listen [::]:8443 --cert chain.pem --key key.pem
  smig gateway --to unix:/run/app.sock --access-log=json
  smig config example gateway > gateway.toml
  smig config check gateway.toml
  smig gateway --config gateway.toml

Upstream URLs: http:// (HTTP/1.1), h2c:// (HTTP/2 without TLS), https:// (HTTP/2 or HTTP/1.1 with
TLS), smig:// (HTTP/2 with migration), unix:/path (HTTP/1.1).

Signals: SIGHUP reloads the configuration file without dropping connections; if the file has errors,
they are logged and the old configuration stays in effect. SIGTERM or SIGINT shuts the gateway down
gracefully: running streams finish. A second signal stops it at once. The gateway stays in the
foreground and logs to standard error (systemd: Type=exec, ExecReload=kill -HUP $MAINPID).

Exit codes:
    0  stopped by a signal
    1  another error
    2  usage error, invalid configuration file, or address in use
  130, 143  stopped at once by a second SIGINT or SIGTERM"
)]
pub(crate) struct GatewayArgs {
    /// The upstream server for all requests
    #[arg(long, value_name = "URL", conflicts_with = "config", required_unless_present = "config")]
    to: Option<ServerUrl>,
    /// Read the configuration from this file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Address to listen on, may be repeated [default: localhost:8443]
    #[arg(long, value_name = "ADDR:PORT", requires = "to", help_heading = "With --to")]
    listen: Vec<String>,
    /// Certificate chain, PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "key",
        requires = "to",
        help_heading = "With --to"
    )]
    cert: Option<PathBuf>,
    /// The certificate's private key, PEM
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "With --to")]
    key: Option<PathBuf>,
    /// Additional name for the development certificate, may be repeated
    #[arg(long, value_name = "NAME", requires = "to", help_heading = "With --to")]
    host: Vec<String>,
    /// Disable TLS: HTTP/1.1, and HTTP/2 with prior knowledge; streams do not migrate
    #[arg(long, requires = "to", conflicts_with = "cert", help_heading = "With --to")]
    cleartext: bool,
    /// Log each request to standard output: text, combined or json
    #[arg(
        long,
        value_name = "FORMAT",
        value_parser = parse_format,
        requires = "to",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "text",
        help_heading = "With --to"
    )]
    access_log: Option<AccessLogFormat>,
    /// How long running streams may take to finish after SIGTERM or SIGINT
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "to", help_heading = "With --to")]
    drain_timeout: Option<Duration>,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
}

fn parse_format(text: &str) -> Result<AccessLogFormat, String> {
    smig_settings::value::parse_word(text, &crate::settings::ACCESS_LOG_VALUES)
}

pub(crate) fn run(args: &GatewayArgs) -> Result<ExitCode> {
    let level =
        if args.quiet { crate::logging::Level::Errors } else { crate::logging::Level::Info };
    let print_line = |text: &str| {
        if !args.quiet {
            stderr::print_line(text);
        }
    };
    let _stderr_guard = stderr::spawn_writer();
    crate::logging::start(level);
    let open_files = OpenFilesLimit::raise();
    let config = load_config(args, &print_line)?;
    let mut drain_timeout = config.server.drain_timeout;
    let collector = config.telemetry.as_ref().map(TelemetrySpec::traces_url);
    // Signal handlers are installed before the gateway starts. A signal before that ends the process.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let mut signals = Signals::new()?;
        // A client's connection takes a descriptor, and its upstream connection another.
        print_line(&paint::STDERR.dim(&open_files.describe(config.server.max_connections, 2)));
        let mut gateway = Gateway::start(config).map_err(to_cli_error)?;
        for line in listener_lines(&gateway) {
            print_line(&line);
        }
        if let Some(address) = gateway.admin_addr() {
            print_line(&format!(
                "live page, metrics: {}",
                paint::STDERR.bold(&format!("http://{address}"))
            ));
        }
        if let Some(collector) = collector {
            print_line(&format!("sending traces to {}", paint::STDERR.bold(&collector)));
        }
        let (name, _) = loop {
            match signals.next().await {
                SignalAction::Stop(name, number) => break (name, number),
                SignalAction::Reload => {
                    if let Some(new) = reload(args, &mut gateway, &print_line) {
                        drain_timeout = new;
                    }
                }
            }
        };
        print_line(&format!(
            "{name}: waiting up to {} s for running streams; a second signal stops at once",
            drain_timeout.as_secs()
        ));
        let view = gateway.view();
        tokio::select! {
            ended = gateway.drain(drain_timeout) => ended?,
            (name, number) = signals.next_stop() => {
                print_line(&format!("{name}: stopped at once"));
                return Ok(ExitCode::from(128 + number));
            }
        }
        let stats = view.stats();
        print_line(&format!(
            "stopped after {} connections, {} streams, {} migrations",
            stats.connections_opened, stats.streams_opened, stats.migrations
        ));
        Ok(ExitCode::SUCCESS)
    });
    // Threads that are still blocked end with the process.
    runtime.shutdown_background();
    result
}

/// Returns the configuration of the command line, or of the file. Obtains the development certificate if
/// TLS has no other.
fn load_config(args: &GatewayArgs, print_line: &dyn Fn(&str)) -> Result<Config> {
    let usage = |what: String| CliError::new(Exit::Usage, what);
    let mut config = match (&args.config, &args.to) {
        (Some(file), _) => Config::load(file).map_err(|errors| usage(errors.to_string()))?,
        (None, Some(server)) => Config::for_server(server.clone()),
        (None, None) => {
            return Err(usage("no upstream server; use --to URL or --config FILE".into()).into());
        }
    };
    if config.telemetry.is_none() {
        config.telemetry = TelemetrySpec::from_environment().map_err(usage)?;
    }
    if let Some(drain_timeout) = args.drain_timeout {
        config.server.drain_timeout = drain_timeout;
    }
    if let Some(format) = args.access_log {
        config.access_log.format = format;
    }
    if let (Some(chain), Some(key)) = (&args.cert, &args.key) {
        config.add_certificate(chain, key);
    }
    let addresses: &[String] = match &*args.listen {
        [] if args.to.is_some() || config.listen.is_empty() => &["localhost:8443".to_owned()],
        texts => texts,
    };
    for text in addresses {
        let protocol = if args.cleartext { ListenSecurity::Cleartext } else { ListenSecurity::Tls };
        let address = parse_addresses(text).map_err(|why| usage(format!("--listen: {why}")))?;
        config.listen.push(ListenSpec { address, protocol, redirect_to_https: None });
    }
    let needs_tls = config.listen.iter().any(|listen| listen.protocol == ListenSecurity::Tls);
    if config.certificates.is_empty() && needs_tls {
        let mut hosts = config.hosts();
        hosts.extend(args.host.iter().cloned());
        let cert = dev_cert::obtain(&hosts)?;
        print_dev_cert(&cert, print_line);
        config.development_certificate = Some((cert.certificate, cert.key));
    }
    Ok(config)
}

fn print_dev_cert(cert: &DevCert, print_line: &dyn Fn(&str)) {
    let path = cert.authority_path.display();
    match cert.authority_state {
        AuthorityState::Created => print_line(&format!(
            "created a development certificate authority for this machine: {path}\n\
             \x20 `smig get` and `smig agent` trust it for localhost; for other clients: \
             curl --cacert {path}"
        )),
        AuthorityState::Existing => {
            print_line(
                &paint::STDERR
                    .dim(&format!("development certificate; for clients: --cacert {path}")),
            );
        }
    }
}

fn listener_lines(gateway: &Gateway) -> Vec<String> {
    let line = |(address, protocol)| {
        let scheme = if protocol == ListenSecurity::Tls { "https" } else { "http" };
        format!("listening on {}", paint::STDERR.bold(&format!("{scheme}://{address}")))
    };
    gateway.listeners().map(line).collect()
}

/// Reloads the configuration file and returns the new drain timeout; prints errors.
fn reload(
    args: &GatewayArgs,
    gateway: &mut Gateway,
    print_line: &dyn Fn(&str),
) -> Option<Duration> {
    let lines_before = listener_lines(gateway);
    let discard_line = |_: &str| {};
    let result = load_config(args, &discard_line).and_then(|config| {
        let drain_timeout = config.server.drain_timeout;
        gateway.reload(config).map(|keys| (keys, drain_timeout)).map_err(to_cli_error)
    });
    match result {
        Ok((unapplied_keys, drain_timeout)) => {
            print_line("SIGHUP: the configuration was reloaded");
            let unapplied_keys: Vec<_> =
                unapplied_keys.into_iter().filter(|key| *key != "server.drain_timeout").collect();
            if !unapplied_keys.is_empty() {
                print_line(&format!("  these need a restart: {}", unapplied_keys.join(", ")));
            }
            for line in listener_lines(gateway).iter().filter(|line| !lines_before.contains(line)) {
                print_line(line);
            }
            Some(drain_timeout)
        }
        Err(error) => {
            let error =
                format!("SIGHUP: not reloaded, the old configuration stays in effect: {error:#}");
            stderr::print_line(&format!("{} {error}", paint::STDERR.error("error:")));
            None
        }
    }
}

fn to_cli_error(error: GatewayError) -> anyhow::Error {
    match error {
        GatewayError::Config(faults) => CliError::new(Exit::Usage, faults.to_string()).into(),
        GatewayError::Server(error) => CliError::new(Exit::Usage, error.to_string()).into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_help_are_accepted() {
        let command = GatewayArgs::augment_args(clap::Command::new("gateway"));
        let help = command.get_after_help().unwrap().to_string();
        let examples = help.lines().filter_map(|line| line.trim().strip_prefix("smig gateway "));
        for example in examples {
            let arguments = example.split("  ").next().unwrap();
            let words = ["gateway"].into_iter().chain(arguments.split(' '));
            command.clone().try_get_matches_from(words).unwrap();
        }
    }
}
