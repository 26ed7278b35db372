//! `smig probe`: sends frames by script, valid or not, and prints the frames received.

mod command;
mod frame;
mod peer;
mod runner;
mod script;
mod tokenizer;
mod unverified;
mod wire;

use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use tokio::net::TcpListener;

use crate::exit::{CliError, Exit};
use crate::stderr;
use peer::{ClientAcceptor, Peer, ProbeSecurity};
use runner::{AutoReply, Format, RunOptions, ScriptRunner};
use script::{Action, Step};
use smig_settings::value::parse_time;
use wire::{PREFACE, SETTINGS, ScriptFrame};

/// Default script.
const DEFAULT_SCRIPT: &str = "settings\nwait settings\nping \"smigping\"\nwait ping ack";

/// Send the HTTP/2 frames of a script, valid or not, and print the frames that come back
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(
    long_about = "Send the HTTP/2 frames of a script, valid or not, and print the frames that come \
        back, one per line.\n\nCertificates are not checked. Without a script, it sends SETTINGS and \
        a PING.",
    after_help = "--help describes the script commands and has examples.",
    after_long_help = "\
Script: one command per line; # begins a comment; \"text\" may contain \\n \\r \\t \\0 \\\" \\\\ \\xHH.
The connection preface and SETTINGS are sent first. A script that begins with settings sends its own;
one that begins with preface sends both. SETTINGS and PING are acknowledged. --raw disables all that.

  settings [ack] [NAME=N | 0xID=N]...     headers stream=N [end] [open] [pad=N] NAME=VALUE...
  data stream=N [end] [pad=N] \"text\"      headers stream=N [end] block=HEX      (own HPACK)
  data stream=N size=N | hex=HEX          headers stream=N priority dep=N weight=N ...
  rst stream=N code=CANCEL|0x8            continuation stream=N [open] NAME=VALUE...
  ping [ack] [\"8 bytes\"]                  push_promise stream=N promised=N NAME=VALUE...
  window [stream=N] by=N                  priority stream=N dep=N weight=N [exclusive]
  goaway [last=N] [code=..] [\"debug\"]     priority_update stream=N \"u=1, i\"
  migrate stream=N [ack] [end] cid=HEX to=N
  join [ack] nonce=HEX mac=HEX            join refused=N
  frame type=T [flags=0xFF] [stream=N] [HEX or \"text\"]...
  raw HEX or \"text\"...                    preface
Each frame takes flags=0xFF and length=N, which override the correct values.
+NAME=VALUE is a field whose name is a keyword of the command, such as +stream=1.

  wait TYPE [stream=N] [end] [ack] [code=..] [NAME=VALUE] [\"text\"]   read until it arrives
  expect ...                              the same, but it must be the next frame
  wait end, expect end                    the peer closes the connection
  expect silence 200ms                    nothing arrives
  sleep 100ms
  finish                                  closes the sending side; the peer's frames are still read
  close                                   closes the connection

Examples:
  smig probe localhost:8443
  smig probe localhost:8443 -e 'headers stream=1 end :method=GET :scheme=https :path=/ :authority=localhost' -e 'wait data end'
  smig probe localhost:8443 -e 'data stream=0 \"x\"' -e 'wait goaway code=PROTOCOL_ERROR'
  smig probe --json localhost:8443 script.txt
  smig probe --listen 127.0.0.1:9000 -e 'wait headers' -e 'goaway last=0'      a server for one client

Exit codes: 0 success; 1 an expectation was not met; 2 script or usage error; 7 cannot connect;
28 timeout while connecting; 35 TLS error; 56 the peer had closed the connection"
)]
pub(crate) struct ProbeArgs {
    /// HOST:PORT of a server; with --listen, the address to listen on
    #[arg(value_name = "ADDR")]
    target: String,
    /// Read the script from this file; - is standard input
    script: Option<String>,
    /// A line of the script, may be repeated
    #[arg(short = 'e', long = "line", value_name = "LINE", conflicts_with = "script")]
    lines: Vec<String>,
    /// Listen on ADDR for one client and probe it
    #[arg(long)]
    listen: bool,
    /// Disable TLS
    #[arg(long)]
    cleartext: bool,
    /// Send only the frames of the script: no preface, no acknowledgements
    #[arg(long)]
    raw: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    timeouts: Timeouts,
}

#[derive(Debug, Args)]
struct Timeouts {
    /// Timeout of connecting, wait and expect
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    timeout: Duration,
    /// After the script, exit when nothing has arrived for this long
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_time)]
    linger: Duration,
}

pub(crate) fn run(args: &ProbeArgs) -> Result<ExitCode> {
    let script = read_script(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(probe(args, &script))?;
    Ok(ExitCode::SUCCESS)
}

fn read_script(args: &ProbeArgs) -> Result<Vec<Step>> {
    let (name, text) = match args.script.as_deref() {
        None if args.lines.is_empty() => ("hello", DEFAULT_SCRIPT.to_owned()),
        None => ("-e", args.lines.join("\n")),
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            ("-", text)
        }
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                CliError::new(Exit::Usage, format!("cannot read the script {path}: {error}"))
            })?;
            (path, text)
        }
    };
    Ok(script::parse(name, &text).map_err(|faults| CliError::new(Exit::Usage, faults))?)
}

async fn probe(args: &ProbeArgs, script: &[Step]) -> Result<(), CliError> {
    let security = if args.cleartext { ProbeSecurity::Cleartext } else { ProbeSecurity::Tls };
    let target = address(&args.target)?;
    let options = RunOptions {
        format: if args.json { Format::Json } else { Format::Text },
        auto_reply: if args.raw { AutoReply::Off } else { AutoReply::On },
        timeout: args.timeouts.timeout,
        linger: args.timeouts.linger,
    };
    let peer = if args.listen {
        let listener = TcpListener::bind(target).await.map_err(|error| {
            CliError::new(Exit::Usage, format!("cannot listen on {target}: {error}"))
        })?;
        // The certificate must exist before a client reads the authority's file.
        let acceptor = ClientAcceptor::new(security)?;
        if let Ok(addr) = listener.local_addr() {
            let scheme = if args.cleartext { "http" } else { "https" };
            stderr::print_line(&format!("listening on {scheme}://{addr}"));
        }
        Peer::accept(&listener, &acceptor).await?
    } else {
        Peer::connect(target, security, options.timeout).await?
    };
    let mut runner = ScriptRunner::new(peer, options)?;
    send_opening(args, script, &mut runner).await?;
    runner.run(script).await
}

/// Returns HOST:PORT; `target` may be a URL.
fn address(target: &str) -> Result<&str, CliError> {
    let without_scheme = target.split_once("://").map_or(target, |(_, rest)| rest);
    let host_and_port = without_scheme.split('/').next().unwrap_or_default();
    let has_port =
        host_and_port.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port {
        Ok(host_and_port)
    } else {
        let why = format!("{target}: no port; write HOST:PORT, such as localhost:8443");
        Err(CliError::new(Exit::Usage, why))
    }
}

/// Sends the connection preface and SETTINGS, without what the script begins with; with --raw nothing. A script that
/// begins with the preface sends its own SETTINGS, too.
async fn send_opening(
    args: &ProbeArgs,
    script: &[Step],
    runner: &mut ScriptRunner,
) -> Result<(), CliError> {
    if args.raw {
        return Ok(());
    }
    let first = script.first().filter(|step| matches!(step.action, Action::Send(_)));
    let begins_with = |word: &str| first.is_some_and(|step| step.text.starts_with(word));
    if begins_with("preface") {
        return Ok(());
    }
    if !args.listen {
        runner.send_automatic(PREFACE, "preface").await?;
    }
    if !begins_with("settings") {
        let settings = ScriptFrame { kind: SETTINGS, ..ScriptFrame::default() };
        runner.send_automatic(&settings.encode(), "settings").await?;
    }
    Ok(())
}
