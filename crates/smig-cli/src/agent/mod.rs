//! `smig agent`: a local proxy whose traffic travels in one session to a gateway.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{ArgAction, Args};
use http::Uri;
use smig::NegotiatedProtocol;
use smig_admin::AdminSpec;
use smig_admin::telemetry::TelemetrySpec;
use smig_agent::{
    Agent, AgentConfig, AgentLimits, AgentOptions, Credentials, GatewaySpec, LocalListeners,
    PortForward, UplinkState,
};
use tokio::sync::watch;

use crate::exit::{CliError, Exit};
use crate::serve::stop::StopSignals;
use crate::{paint, stderr, trust};
use smig_settings::value::parse_seconds;

/// Environment variable with the token, if `--token-file` is not given.
const TOKEN_VARIABLE: &str = "SMIG_AGENT_TOKEN";

/// Run a local HTTP and SOCKS proxy that forwards to a gateway
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(
    long_about = "Run a local HTTP proxy, SOCKS5 proxy and forwarded ports, whose traffic goes to a \
        gateway over one session. Tunnels and requests that turn out to be large are sent at the rate of \
        the path, or migrate to a separate connection while they run, so that small ones are not delayed. The agent does not decrypt \
        the TLS connections of its clients.\n\nThe gateway resolves host names. If the gateway \
        becomes unreachable, running transfers are reset and the agent reconnects; until then, \
        requests fail with the reason. A gateway with plain HTTP/2 works too, but no stream migrates: new \
        tunnels and requests avoid a connection that carries bulk, by a second connection.",
    after_help = "\
Examples:
  smig agent --via https://gateway.example:8443
  curl -x http://127.0.0.1:8118 https://example.org/          (while the agent runs)
  smig agent --via https://gateway.example --token-file ~/.config/smig/token --socks 127.0.0.1:1080
  curl --socks5-hostname 127.0.0.1:1080 https://example.org/
  smig agent --via https://localhost:8443 --forward 127.0.0.1:50051=grpc.internal:50051
  smig agent --via https://localhost:8443 --forward 127.0.0.1:2222=tcp://db.internal:22
  smig config example agent > agent.toml; smig agent --config agent.toml

Browsers: use http://127.0.0.1:8118/proxy.pac for automatic proxy configuration. Only names and addresses of
the browser's own machine are not sent through the agent.

The token is read from --token-file, or from the environment variable SMIG_AGENT_TOKEN.

SIGINT (Ctrl-C) or SIGTERM shuts the agent down: running streams have --drain-timeout to finish. A
second signal stops it at once.

Exit codes:
    0  stopped by a signal   2  usage error, or address in use
    1  another error        26  cannot read the token
  130, 143  stopped at once by a second SIGINT or SIGTERM"
)]
pub(crate) struct AgentArgs {
    /// The gateway's URL
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    via: Option<Uri>,
    /// Read the configuration from this file
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "via", "listen", "socks", "forward", "admin", "token_file", "user", "cacert", "insecure",
        "connect_timeout", "no_migrate", "spares", "plain_connections", "receive_pacing", "max_connections", "tunnel_idle_timeout", "drain_timeout",
    ])]
    config: Option<PathBuf>,
    /// Address of the HTTP proxy, may be repeated; none disables it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8118", value_parser = parse_listen)]
    listen: Vec<HttpListen>,
    /// Address of a SOCKS5 proxy, may be repeated
    #[arg(long, value_name = "ADDRESS")]
    socks: Vec<SocketAddr>,
    /// Forward a local port to one destination, may be repeated. HTTP/2 without TLS (gRPC) is detected
    /// automatically; tcp:// or h2c:// before the host overrides that
    #[arg(long, value_name = "LOCAL=HOST:PORT")]
    forward: Vec<PortForward>,

    /// Loopback address of the admin page, metrics and health checks
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,

    /// Read the token for the gateway from this file
    #[arg(long, value_name = "FILE", help_heading = "Gateway")]
    token_file: Option<PathBuf>,
    /// Use Basic authentication as this user, with the token as the password
    #[arg(long, value_name = "NAME", help_heading = "Gateway")]
    user: Option<String>,
    /// Trust only the certificate authorities in this PEM file
    #[arg(long, value_name = "FILE", help_heading = "Gateway", conflicts_with = "insecure")]
    cacert: Option<PathBuf>,
    /// Accept every certificate: anyone on the path can read and change the traffic
    #[arg(short = 'k', long, help_heading = "Gateway")]
    insecure: bool,
    /// Timeout of connecting by TCP, and again of the TLS handshake
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "10", help_heading = "Gateway")]
    connect_timeout: Duration,
    /// Use plain HTTP/2: streams do not migrate; over one connection unless --plain-connections says otherwise
    #[arg(long, help_heading = "Gateway")]
    no_migrate: bool,
    /// Maximum number of connections with a gateway that speaks plain HTTP/2 [default: 2; 1 with --no-migrate]
    #[arg(long, value_name = "N", help_heading = "Gateway")]
    plain_connections: Option<NonZeroUsize>,
    /// Pace bulk of such a gateway by the receive window: the path's queue stays short, but other users of the path get
    /// more than their share
    #[arg(long, help_heading = "Gateway")]
    receive_pacing: bool,
    /// Number of spare connections to keep ready for migrations
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Gateway")]
    spares: usize,

    /// Maximum number of local connections; further ones wait
    #[arg(long, value_name = "N", default_value_t = 4096, help_heading = "Limits")]
    max_connections: usize,
    /// Reset a tunnel that has been idle for this many seconds; 0: never
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "3600", help_heading = "Limits")]
    tunnel_idle_timeout: Duration,
    /// How many seconds running streams may take to finish at shutdown
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "5", help_heading = "Limits")]
    drain_timeout: Duration,

    /// Print errors only
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Log debug output, such as why requests fail
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
}

/// Value of `--listen`: an address, or `none`.
#[derive(Clone, Copy, Debug)]
enum HttpListen {
    At(SocketAddr),
    Disabled,
}

fn parse_listen(text: &str) -> Result<HttpListen, String> {
    if text == "none" {
        return Ok(HttpListen::Disabled);
    }
    text.parse()
        .map(HttpListen::At)
        .map_err(|_| "write ADDRESS:PORT, such as 127.0.0.1:8118".to_owned())
}

pub(crate) fn run(args: &AgentArgs) -> Result<ExitCode> {
    let _stderr_guard = stderr::spawn_writer();
    crate::logging::start(match args.verbose {
        0 if args.quiet => crate::logging::Level::Errors,
        0 => crate::logging::Level::Warnings,
        _ => crate::logging::Level::Debug,
    });
    let AgentConfig { gateway, listen, limits, admin, telemetry } = configuration(args)?;
    let telemetry = match telemetry {
        None => TelemetrySpec::from_environment().map_err(usage_error)?,
        configured => configured,
    };
    let collector = telemetry.as_ref().map(TelemetrySpec::traces_url);
    let via = gateway.url.to_string();
    let trust = trust::anchors_for(gateway.ca.as_deref(), gateway.insecure, gateway.url.host())?;
    let mut engine = smig_agent::engine_config();
    if !gateway.migrate {
        engine.smig = None;
    }
    let client = smig_agent::client_builder()
        .trust(trust)
        .engine(engine)
        .spares(gateway.spares)
        .plain_connections(gateway.max_plain_connections())
        .receive_pacing(gateway.receive_pacing)
        .connect_timeout(gateway.connect_timeout)
        .handshake_timeout(gateway.connect_timeout);
    let options = AgentOptions {
        gateway: gateway.url.clone(),
        credentials: credentials(&gateway)?,
        http: listen.http.clone(),
        socks: listen.socks.clone(),
        forwards: listen.forward.clone(),
        max_connections: limits.max_connections,
        tunnel_idle_timeout: limits.tunnel_idle_timeout,
        admin,
        telemetry,
    };
    crate::open_files::OpenFilesLimit::raise();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let mut signals = StopSignals::new()?;
        let print_line = |text: String| {
            if !args.quiet {
                stderr::print_line(&text);
            }
        };
        let agent = Agent::start(options, client).await.map_err(|error| usage_error(error.to_string()))?;
        print_listeners(&agent, &listen.forward, print_line);
        if let Some(collector) = &collector {
            print_line(format!("sending traces to {}", paint::STDERR.bold(collector)));
        }
        let name = tokio::select! {
            (name, _) = signals.next() => name,
            () = print_uplink_changes(agent.uplink_state(), &via, print_line) => "the gateway task ended",
        };
        print_line(format!(
            "{name}: waiting up to {} s for running streams; a second signal stops at once",
            limits.drain_timeout.as_secs()
        ));
        let stats = tokio::select! {
            stats = agent.shutdown(limits.drain_timeout) => stats,
            (name, number) = signals.next() => {
                print_line(format!("{name}: stopped at once"));
                return Ok(ExitCode::from(128 + number));
            }
        };
        print_line(format!(
            "stopped after {} streams, {} migrations",
            stats.streams_opened, stats.migrations
        ));
        Ok(ExitCode::SUCCESS)
    });
    // Threads that are still blocked end with the process.
    runtime.shutdown_background();
    result
}

fn usage_error(message: impl Into<String>) -> anyhow::Error {
    CliError::new(Exit::Usage, message).into()
}

/// Returns the configuration of the file, or of the flags.
fn configuration(args: &AgentArgs) -> Result<AgentConfig> {
    if let Some(path) = &args.config {
        return AgentConfig::load(path).map_err(|faults| usage_error(faults.to_string()));
    }
    let via = args
        .via
        .as_ref()
        .ok_or_else(|| usage_error("no gateway; use --via URL or --config FILE"))?;
    let url =
        GatewaySpec::origin_from_uri(via).map_err(|why| usage_error(format!("--via: {why}")))?;
    let http = args.listen.iter().filter_map(|listen| match listen {
        HttpListen::At(addr) => Some(*addr),
        HttpListen::Disabled => None,
    });
    let listen = LocalListeners {
        http: http.collect(),
        socks: args.socks.clone(),
        forward: args.forward.clone(),
    };
    if listen.http.is_empty() && listen.socks.is_empty() && listen.forward.is_empty() {
        return Err(usage_error("no address to listen on; use --listen, --socks or --forward"));
    }
    Ok(AgentConfig {
        gateway: GatewaySpec {
            url,
            token_file: args.token_file.clone(),
            user: args.user.clone(),
            ca: args.cacert.clone(),
            insecure: args.insecure,
            connect_timeout: args.connect_timeout,
            migrate: !args.no_migrate,
            spares: args.spares,
            plain_connections: args.plain_connections,
            receive_pacing: args.receive_pacing,
        },
        listen,
        limits: AgentLimits {
            max_connections: args.max_connections,
            tunnel_idle_timeout: Some(args.tunnel_idle_timeout).filter(|idle| !idle.is_zero()),
            drain_timeout: args.drain_timeout,
        },
        admin: args.admin.map(|listen| AdminSpec { listen }),
        telemetry: None,
    })
}

fn credentials(gateway: &GatewaySpec) -> Result<Option<Credentials>> {
    let unreadable = |why: String| CliError::new(Exit::Read, why);
    let (token, source) = match &gateway.token_file {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                unreadable(format!("cannot read the token file {}: {error}", path.display()))
            })?;
            (text, path.display().to_string())
        }
        None => match std::env::var(TOKEN_VARIABLE) {
            Ok(text) => (text, TOKEN_VARIABLE.to_owned()),
            Err(std::env::VarError::NotPresent) if gateway.user.is_none() => return Ok(None),
            Err(std::env::VarError::NotPresent) => {
                return Err(usage_error(format!(
                    "--user requires a password; use --token-file or {TOKEN_VARIABLE}"
                )));
            }
            Err(error) => return Err(unreadable(format!("{TOKEN_VARIABLE}: {error}")).into()),
        },
    };
    let token = token.trim();
    let credentials = match &gateway.user {
        Some(user) => Credentials::basic(user, token),
        None => Credentials::bearer(token),
    };
    let bad = || match &gateway.user {
        Some(user) => unreadable(format!("{user:?}: a user name cannot contain a colon")).into(),
        None => unreadable(format!("{source}: a token is one word of visible characters")).into(),
    };
    credentials.map(Some).ok_or_else(bad)
}

/// Prints the addresses that the agent listens on, and warns of those that other machines can reach.
fn print_listeners(agent: &Agent, forwards: &[PortForward], print_line: impl Fn(String)) {
    for addr in agent.http_addrs() {
        print_line(format!(
            "HTTP proxy on {} (browsers: http://{addr}/proxy.pac)",
            paint::STDERR.bold(&format!("http://{addr}"))
        ));
    }
    for addr in agent.socks_addrs() {
        print_line(format!("SOCKS5 proxy on {}", paint::STDERR.bold(&addr.to_string())));
    }
    for (addr, forward) in agent.forward_addrs().iter().zip(forwards) {
        print_line(format!(
            "forwarding {} to {}",
            paint::STDERR.bold(&addr.to_string()),
            forward.target
        ));
    }
    if let Some(addr) = agent.admin_addr() {
        print_line(format!(
            "live page, metrics: {}",
            paint::STDERR.bold(&format!("http://{addr}"))
        ));
    }
    let all = [agent.http_addrs(), agent.socks_addrs(), agent.forward_addrs()].concat();
    for addr in all.iter().filter(|addr| !addr.ip().is_loopback()) {
        print_line(format!(
            "{} anyone who can reach {addr} can use the gateway as you; listen on 127.0.0.1 unless you intend that",
            paint::STDERR.error("warning:")
        ));
    }
}

/// Prints that the gateway is connected or unreachable, if that was not printed last.
async fn print_uplink_changes(
    mut uplink: watch::Receiver<UplinkState>,
    via: &str,
    print_line: impl Fn(String),
) {
    let mut printed_state = None;
    loop {
        let state = uplink.borrow_and_update().clone();
        let message = match &state {
            UplinkState::Connecting => None,
            _ if printed_state.as_ref() == Some(&state) => None,
            UplinkState::Up(NegotiatedProtocol::Smig) => {
                Some(format!("gateway {via}: SMig, large streams migrate where that helps"))
            }
            UplinkState::Up(_) => Some(format!(
                "gateway {via}: plain HTTP/2; everything works, but no stream migrates"
            )),
            UplinkState::Unreachable(why) => Some(format!(
                "{} gateway {via}: {why}; retrying",
                paint::STDERR.error("unreachable:")
            )),
        };
        if let Some(message) = message {
            print_line(message);
            printed_state = Some(state);
        }
        if uplink.changed().await.is_err() {
            return;
        }
    }
}
