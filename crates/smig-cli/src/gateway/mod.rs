//! `smig gateway`: a reverse and forward proxy whose clients' streams can migrate.

mod signals;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use smig_admin::access_log::Format;
use smig_admin::telemetry::TelemetrySpec;
use smig_gateway::config::{Config, ListenProtocol, ListenSpec};
use smig_gateway::upstream::ServerUrl;
use smig_gateway::{Gateway, GatewayError};
use smig_settings::value::{parse_addresses, parse_time};

use crate::dev_cert::{self, DevCert, Freshness};
use crate::exit::{Exit, Failure};
use crate::open_files::OpenFiles;
use crate::paint;
use crate::stderr;
use signals::{Cause, Signals};

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
  smig gateway --to unix:/run/app.sock --access-log json
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
    access_log: Option<Format>,
    /// How long running streams may take to finish after SIGTERM or SIGINT
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "to", help_heading = "With --to")]
    drain_timeout: Option<Duration>,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
}

fn parse_format(text: &str) -> Result<Format, String> {
    smig_settings::value::parse_word(text, &crate::settings::ACCESS_LOG)
}

pub(crate) fn run(args: &GatewayArgs) -> Result<ExitCode> {
    let level = if args.quiet { crate::trace::Level::Errors } else { crate::trace::Level::Info };
    let say = |text: &str| {
        if !args.quiet {
            stderr::say(text);
        }
    };
    let _apart = stderr::apart();
    crate::trace::start(level);
    let open_files = OpenFiles::raise();
    let config = config(args, &say)?;
    let mut limit = config.server.drain_timeout;
    let collector = config.telemetry.as_ref().map(TelemetrySpec::traces_url);
    // Installed before other threads start, so that no signal during startup is lost.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::new()?;
        // A client's connection takes a descriptor, and its upstream connection another.
        say(&paint::faint(&open_files.report(config.server.max_connections, 2)));
        let mut gateway = Gateway::start(config).map_err(explain)?;
        for line in listeners(&gateway) {
            say(&line);
        }
        if let Some(address) = gateway.admin_addr() {
            say(&format!("live page, metrics: {}", paint::strong(&format!("http://{address}"))));
        }
        if let Some(collector) = collector {
            say(&format!("sending traces to {}", paint::strong(&collector)));
        }
        let (name, _) = loop {
            match signals.next().await {
                Cause::Stop(name, number) => break (name, number),
                Cause::Reload => {
                    if let Some(new) = reload(args, &mut gateway, &say) {
                        limit = new;
                    }
                }
            }
        };
        say(&format!(
            "{name}: waiting up to {} s for running streams; a second signal stops at once",
            limit.as_secs()
        ));
        let stats = gateway.stats();
        tokio::select! {
            ended = gateway.drain(limit) => ended?,
            (name, number) = signals.stop() => {
                say(&format!("{name}: stopped at once"));
                return Ok(ExitCode::from(128 + number));
            }
        }
        say(&format!(
            "stopped after {} connections, {} streams, {} migrations",
            stats.connections_opened, stats.streams_opened, stats.migrations
        ));
        Ok(ExitCode::SUCCESS)
    });
    // A thread that still blocks ends with the process.
    runtime.shutdown_background();
    ended
}

/// Returns the configuration of the command line, or of the file.
fn config(args: &GatewayArgs, say: &dyn Fn(&str)) -> Result<Config> {
    let usage = |what: String| Failure::new(Exit::Usage, what);
    let mut config = match (&args.config, &args.to) {
        (Some(file), _) => Config::load(file).map_err(|faults| usage(faults.to_string()))?,
        (None, Some(server)) => Config::for_server(server.clone()),
        (None, None) => {
            return Err(usage("no upstream server; use --to URL or --config FILE".into()).into());
        }
    };
    if config.telemetry.is_none() {
        config.telemetry = TelemetrySpec::from_environment().map_err(usage)?;
    }
    if let Some(limit) = args.drain_timeout {
        config.server.drain_timeout = limit;
    }
    if let Some(format) = args.access_log {
        config.access_log.format = format;
    }
    if let (Some(chain), Some(key)) = (&args.cert, &args.key) {
        config.add_certificate(chain, key);
    }
    let texts: &[String] = match &*args.listen {
        [] if args.to.is_some() || config.listen.is_empty() => &["localhost:8443".to_owned()],
        texts => texts,
    };
    for text in texts {
        let protocol = if args.cleartext { ListenProtocol::Cleartext } else { ListenProtocol::Tls };
        let address = parse_addresses(text).map_err(|why| usage(format!("--listen: {why}")))?;
        config.listen.push(ListenSpec { address, protocol, redirect_to_https: None });
    }
    let by_tls = config.listen.iter().any(|listen| listen.protocol == ListenProtocol::Tls);
    if config.certificates.is_empty() && by_tls {
        let mut hosts = config.hosts();
        hosts.extend(args.host.iter().cloned());
        let made = dev_cert::obtain(&hosts)?;
        introduce(&made, say);
        config.development = Some((made.certificate, made.key));
    }
    Ok(config)
}

fn introduce(made: &DevCert, say: &dyn Fn(&str)) {
    let path = made.authority.display();
    match made.freshness {
        Freshness::New => say(&format!(
            "created a development certificate authority for this machine: {path}\n\
             \x20 `smig get` and `smig agent` trust it for localhost; for other clients: \
             curl --cacert {path}"
        )),
        Freshness::Old => {
            say(&paint::faint(&format!("development certificate; for clients: --cacert {path}")));
        }
    }
}

fn listeners(gateway: &Gateway) -> Vec<String> {
    let line = |(address, protocol)| {
        let scheme = if protocol == ListenProtocol::Tls { "https" } else { "http" };
        format!("listening on {}", paint::strong(&format!("{scheme}://{address}")))
    };
    gateway.listeners().map(line).collect()
}

/// Reloads the configuration file and returns the new drain timeout; prints errors.
fn reload(args: &GatewayArgs, gateway: &mut Gateway, say: &dyn Fn(&str)) -> Option<Duration> {
    let before = listeners(gateway);
    let quiet = |_: &str| {};
    let result = config(args, &quiet).and_then(|config| {
        let limit = config.server.drain_timeout;
        gateway.reload(config).map(|changed| (changed, limit)).map_err(explain)
    });
    match result {
        Ok((changed, limit)) => {
            say("SIGHUP: the configuration was read again");
            let changed: Vec<_> =
                changed.into_iter().filter(|key| *key != "server.drain_timeout").collect();
            if !changed.is_empty() {
                say(&format!("  these need a restart: {}", changed.join(", ")));
            }
            for line in listeners(gateway).iter().filter(|line| !before.contains(line)) {
                say(line);
            }
            Some(limit)
        }
        Err(error) => {
            let error =
                format!("SIGHUP: not reloaded, the configuration stays as it was: {error:#}");
            stderr::say(&format!("{} {error}", paint::bad("error:")));
            None
        }
    }
}

fn explain(error: GatewayError) -> anyhow::Error {
    match error {
        GatewayError::Config(faults) => Failure::new(Exit::Usage, faults.to_string()).into(),
        GatewayError::Server(error) => Failure::new(Exit::Usage, error.to_string()).into(),
        other => other.into(),
    }
}
