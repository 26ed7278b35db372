//! `smig agent`: a local proxy whose traffic travels in one session to a gateway.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{ArgAction, Args};
use http::Uri;
use smig::Speaks;
use smig_gateway::admin::AdminSpec;
use smig_gateway::agent::{
    self, Agent, AgentFile, AgentSpec, Credentials, EntranceSpec, GatewaySpec, LimitSpec, Link,
    PortForward,
};
use smig_gateway::telemetry::TelemetrySpec;
use tokio::sync::watch;

use crate::exit::{Exit, Failure};
use crate::serve::stop::Signals;
use crate::{paint, stderr, trust};
use smig_settings::value::parse_seconds;

/// Where a token is looked for, if no file is named.
const TOKEN: &str = "SMIG_AGENT_TOKEN";

/// Have other programs use a gateway: a local HTTP and SOCKS proxy
#[derive(Debug, Args)]
#[command(
    long_about = "Have other programs use a gateway: a local HTTP proxy, SOCKS5 proxy and forwarded \
        ports, whose traffic travels in one session to the gateway. Tunnels and requests that turn \
        out to be big move to a connection of their own while they run, so that small ones are not \
        delayed. TLS of the programs is not opened.\n\nNames are resolved by the gateway. If it \
        goes away, what runs is reset, and the agent connects again by itself; until then it says \
        why nothing works. A gateway that speaks plain HTTP/2 does as well; then nothing moves.",
    after_help = "\
Examples:
  smig agent --via https://gateway.example:8443
  curl -x http://127.0.0.1:8118 https://example.org/          (while it runs)
  smig agent --via https://gateway.example --token-file ~/.config/smig/token --socks 127.0.0.1:1080
  curl --socks5-hostname 127.0.0.1:1080 https://example.org/
  smig agent --via https://localhost:8443 --forward 127.0.0.1:50051=grpc.internal:50051
  smig agent --via https://localhost:8443 --forward 127.0.0.1:2222=tcp://db.internal:22
  smig config example agent > agent.toml; smig agent --config agent.toml

Browsers: automatic proxy configuration, http://127.0.0.1:8118/proxy.pac

The token is read from --token-file, or from the environment: SMIG_AGENT_TOKEN.

SIGINT (Ctrl-C) or SIGTERM ends it: what runs has a few seconds to finish; a second one ends it at once.

Exit codes:
    0  ended by a signal     2  wrong usage, or an address in use
    1  another error        26  the token could not be read"
)]
pub(crate) struct AgentArgs {
    /// The gateway
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    via: Option<Uri>,
    /// Everything, from a file
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "via", "listen", "socks", "forward", "admin", "token_file", "user", "cacert", "insecure",
        "connect_timeout", "no_migrate", "spares", "max_connections", "tunnel_idle", "drain_timeout",
    ])]
    config: Option<PathBuf>,
    /// Where the HTTP proxy listens; none: nowhere
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8118", value_parser = parse_listen)]
    listen: Vec<Listen>,
    /// Where a SOCKS5 proxy listens
    #[arg(long, value_name = "ADDRESS")]
    socks: Vec<SocketAddr>,
    /// A local port that leads to one destination: LOCAL=HOST:PORT. HTTP/2 without TLS (gRPC) is found
    /// out by itself; tcp:// or h2c:// before the host says what it is
    #[arg(long, value_name = "LOCAL=HOST:PORT")]
    forward: Vec<PortForward>,

    /// A live page, metrics and health for operators: a loopback address
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,

    /// A file with the token that the gateway wants
    #[arg(long, value_name = "FILE", help_heading = "Gateway")]
    token_file: Option<PathBuf>,
    /// Basic authentication as this user; the token is the password
    #[arg(long, value_name = "NAME", help_heading = "Gateway")]
    user: Option<String>,
    /// Trust the authorities in this PEM file and no others
    #[arg(long, value_name = "FILE", help_heading = "Gateway", conflicts_with = "insecure")]
    cacert: Option<PathBuf>,
    /// Accept every certificate: anybody on the path can read and change everything
    #[arg(short = 'k', long, help_heading = "Gateway")]
    insecure: bool,
    /// Give up on one attempt to connect after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "10", help_heading = "Gateway")]
    connect_timeout: Duration,
    /// Plain HTTP/2: no stream moves
    #[arg(long, help_heading = "Gateway")]
    no_migrate: bool,
    /// Connections to keep ready for moves
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Gateway")]
    spares: usize,

    /// Local connections at once; further ones wait
    #[arg(long, value_name = "N", default_value_t = 4096, help_heading = "Limits")]
    max_connections: usize,
    /// Reset a tunnel in which nothing moved for this many seconds; 0: never
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "3600", help_heading = "Limits")]
    tunnel_idle: Duration,
    /// What runs has this many seconds to finish when the agent ends
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "5", help_heading = "Limits")]
    drain_timeout: Duration,

    /// Say nothing but errors
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Say why requests fail; twice: everything
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
}

/// Where to listen, or not at all.
#[derive(Clone, Copy, Debug)]
enum Listen {
    At(SocketAddr),
    Nowhere,
}

fn parse_listen(text: &str) -> Result<Listen, String> {
    if text == "none" {
        return Ok(Listen::Nowhere);
    }
    text.parse()
        .map(Listen::At)
        .map_err(|_| "write ADDRESS:PORT, such as 127.0.0.1:8118".to_owned())
}

pub(crate) fn run(args: &AgentArgs) -> Result<ExitCode> {
    let _apart = stderr::apart();
    crate::trace::start(match args.verbose {
        0 => crate::trace::Level::Warnings,
        _ => crate::trace::Level::Everything,
    });
    let AgentFile { gateway, listen, limits, admin, telemetry } = described(args)?;
    let telemetry = match telemetry {
        None => TelemetrySpec::from_environment().map_err(usage)?,
        said => said,
    };
    let collector = telemetry.as_ref().map(TelemetrySpec::traces);
    let via = gateway.url.to_string();
    let trust = trust::of(gateway.ca.as_deref(), gateway.insecure, gateway.url.host())?;
    let mut engine = agent::engine();
    if !gateway.migrate {
        engine.smig = None;
    }
    let client = agent::client()
        .trust(trust)
        .engine(engine)
        .spares(gateway.spares)
        .connect_timeout(gateway.connect_timeout)
        .handshake_timeout(gateway.connect_timeout);
    let spec = AgentSpec {
        via: gateway.url.clone(),
        credentials: credentials(&gateway)?,
        listen: listen.http.clone(),
        socks: listen.socks.clone(),
        forwards: listen.forward.clone(),
        max_connections: limits.max_connections,
        tunnel_idle: limits.tunnel_idle,
        admin,
        telemetry,
    };
    crate::open_files::OpenFiles::raise();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let say = |text: String| {
            if !args.quiet {
                stderr::say(&text);
            }
        };
        let agent = Agent::start(spec, client).await.map_err(|error| usage(error.to_string()))?;
        announce(&agent, &listen.forward, say);
        if let Some(collector) = &collector {
            say(format!("traces go to {}", paint::strong(collector)));
        }
        let name = tokio::select! {
            (name, _) = signals.next() => name,
            () = tell(agent.link(), &via, say) => "the gateway's task ended",
        };
        say(format!(
            "{name}: what runs has {} s to finish; once more ends at once",
            limits.drain_timeout.as_secs()
        ));
        let stats = agent.stats();
        tokio::select! {
            () = agent.shutdown(limits.drain_timeout) => {}
            (name, number) = signals.next() => {
                say(format!("{name}: ended at once"));
                return Ok(ExitCode::from(128 + number));
            }
        }
        say(format!("ended; {} streams, {} moves", stats.streams_opened, stats.moves));
        Ok(ExitCode::SUCCESS)
    });
    // Whatever still blocks a thread, such as a name that is looked up, ends with the process.
    runtime.shutdown_background();
    ended
}

fn usage(message: impl Into<String>) -> anyhow::Error {
    Failure::new(Exit::Usage, message).into()
}

/// The file, or what the flags say.
fn described(args: &AgentArgs) -> Result<AgentFile> {
    if let Some(path) = &args.config {
        return AgentFile::load(path).map_err(|faults| usage(faults.to_string()));
    }
    let via =
        args.via.as_ref().ok_or_else(|| usage("by which gateway? Write --via or --config"))?;
    let url = GatewaySpec::origin(via).map_err(|why| usage(format!("--via: {why}")))?;
    let http = args.listen.iter().filter_map(|listen| match listen {
        Listen::At(addr) => Some(*addr),
        Listen::Nowhere => None,
    });
    let listen = EntranceSpec {
        http: http.collect(),
        socks: args.socks.clone(),
        forward: args.forward.clone(),
    };
    if listen.http.is_empty() && listen.socks.is_empty() && listen.forward.is_empty() {
        return Err(usage("the agent listens nowhere; give --listen, --socks or --forward"));
    }
    Ok(AgentFile {
        gateway: GatewaySpec {
            url,
            token_file: args.token_file.clone(),
            user: args.user.clone(),
            ca: args.cacert.clone(),
            insecure: args.insecure,
            connect_timeout: args.connect_timeout,
            migrate: !args.no_migrate,
            spares: args.spares,
        },
        listen,
        limits: LimitSpec {
            max_connections: args.max_connections,
            tunnel_idle: Some(args.tunnel_idle).filter(|idle| !idle.is_zero()),
            drain_timeout: args.drain_timeout,
        },
        admin: args.admin.map(|listen| AdminSpec { listen }),
        telemetry: None,
    })
}

fn credentials(gateway: &GatewaySpec) -> Result<Option<Credentials>> {
    let unreadable = |why: String| Failure::new(Exit::Read, why);
    let (token, place) = match &gateway.token_file {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                unreadable(format!("cannot read the token {}: {error}", path.display()))
            })?;
            (text, path.display().to_string())
        }
        None => match std::env::var(TOKEN) {
            Ok(text) => (text, TOKEN.to_owned()),
            Err(std::env::VarError::NotPresent) if gateway.user.is_none() => return Ok(None),
            Err(std::env::VarError::NotPresent) => {
                return Err(usage(format!("--user needs its password: --token-file or {TOKEN}")));
            }
            Err(error) => return Err(unreadable(format!("{TOKEN}: {error}")).into()),
        },
    };
    let token = token.trim();
    let made = match &gateway.user {
        Some(user) => Credentials::basic(user, token),
        None => Credentials::bearer(token),
    };
    let bad = || unreadable(format!("{place}: a token is one word of visible characters")).into();
    made.map(Some).ok_or_else(bad)
}

/// Says where the agent listens, and who can reach it.
fn announce(agent: &Agent, forwards: &[PortForward], say: impl Fn(String)) {
    for addr in agent.http_addrs() {
        say(format!(
            "HTTP proxy on {} (browsers: http://{addr}/proxy.pac)",
            paint::strong(&format!("http://{addr}"))
        ));
    }
    for addr in agent.socks_addrs() {
        say(format!("SOCKS5 proxy on {}", paint::strong(&addr.to_string())));
    }
    for (addr, forward) in agent.forward_addrs().iter().zip(forwards) {
        say(format!("{} leads to {}", paint::strong(&addr.to_string()), forward.target));
    }
    if let Some(addr) = agent.admin() {
        say(format!("live page, metrics: {}", paint::strong(&format!("http://{addr}"))));
    }
    let all = [agent.http_addrs(), agent.socks_addrs(), agent.forward_addrs()].concat();
    for addr in all.iter().filter(|addr| !addr.ip().is_loopback()) {
        stderr::say(&format!(
            "{} whoever reaches {addr} can use the gateway as you; listen on 127.0.0.1 unless that is meant",
            paint::bad("warning:")
        ));
    }
}

/// Says how things stand with the gateway, whenever that changes.
async fn tell(mut link: watch::Receiver<Link>, via: &str, say: impl Fn(String)) {
    let mut said = None;
    loop {
        let now = link.borrow_and_update().clone();
        let news = match &now {
            Link::Connecting => None,
            _ if said.as_ref() == Some(&now) => None,
            Link::Up(Speaks::Smig) => Some(format!("gateway {via}: SMig, big streams move")),
            Link::Up(_) => {
                Some(format!("gateway {via}: plain HTTP/2; everything works, but no stream moves"))
            }
            Link::Away(why) => {
                Some(format!("{} gateway {via}: {why}; trying again", paint::bad("away:")))
            }
        };
        if let Some(news) = news {
            say(news);
            said = Some(now);
        }
        if link.changed().await.is_err() {
            return;
        }
    }
}
