//! `smig lab cross-traffic`: the traffic of other users, for commands of scenarios.
//!
//! Owns the command line; smig-lab does the work.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use smig_lab::cross_traffic::{CrossTraffic, run_client, serve};
use smig_link::Rate;
use smig_settings::value::{parse_size, parse_time};

/// Send or receive the traffic of other users, for servers and clients of kind "command"
#[derive(Debug, Args)]
pub(crate) struct CrossTrafficArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send what clients ask for
    Serve {
        /// Address to listen on, TCP and UDP
        address: SocketAddr,
        /// Congestion control of its connections [default: the host's]
        #[arg(long, value_name = "NAME")]
        congestion_control: Option<String>,
    },
    /// Receive one download until the end
    Bulk(ClientArgs),
    /// Receive many short downloads, each on a connection of its own
    Flows {
        #[command(flatten)]
        client: ClientArgs,
        /// New flows a second
        #[arg(long, value_name = "N", default_value_t = 10)]
        per_second: u32,
        /// Bytes of each
        #[arg(long, value_name = "SIZE", default_value = "12kB", value_parser = parse_size)]
        size: u64,
    },
    /// Receive datagrams at a constant rate
    Constant {
        #[command(flatten)]
        client: ClientArgs,
        /// Rate of whole IP packets, such as "3 Mbit/s"
        #[arg(long, value_name = "RATE")]
        rate: Rate,
    },
}

#[derive(Debug, Args)]
struct ClientArgs {
    /// Address of the server
    server: SocketAddr,
    /// How long
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    length: Duration,
}

pub(super) fn run(args: &CrossTrafficArgs) -> Result<ExitCode> {
    let (client, traffic) = match &args.command {
        Command::Serve { address, congestion_control } => {
            serve(*address, congestion_control.as_deref())
                .with_context(|| format!("cannot serve on {address}"))?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Bulk(client) => (client, CrossTraffic::Bulk),
        Command::Flows { client, per_second, size } => {
            (client, CrossTraffic::Flows { per_second: *per_second, size: *size })
        }
        Command::Constant { client, rate } => (client, CrossTraffic::Constant { rate: *rate }),
    };
    run_client(traffic, client.server, client.length, &mut io::stdout().lock())
        .with_context(|| format!("cannot receive from {}", client.server))?;
    Ok(ExitCode::SUCCESS)
}
