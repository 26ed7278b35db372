//! The command line of `smig get`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::exit;
use smig_settings::value::{parse_seconds, parse_size};

/// Fetch URLs over one session a host
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(
    long_about = "Fetch URLs, all of one host over one session. A server that speaks SMig moves \
        the big ones to connections of their own while they run.\n\nWithout -o, -O and \
        --output-dir, one URL goes to standard output, unless that is a terminal; otherwise each \
        goes to a file in the current folder, named by its URL. A file is written as NAME.part \
        and gets its name when it is complete.",
    after_help = exit::TABLE,
    after_long_help = concat!("\
Examples:
  smig get https://localhost:8443/big.iso -o big.iso
  smig get https://localhost:8443/{big,small} --output-dir downloads
  smig get -C https://example.org/big.iso            go on where the last try ended
  smig get --json https://localhost:8443/big -o big | jq .ranges
  smig get -X PUT -d @photo.jpg https://example.org/upload -o answer.txt

")
)]
pub(crate) struct GetArgs {
    /// What to fetch
    #[arg(required = true, value_name = "URL")]
    pub(super) urls: Vec<String>,

    /// Write to this file; - is standard output. One URL only
    #[arg(short, long, value_name = "FILE", help_heading = "Output", conflicts_with_all = ["remote_name", "output_dir"])]
    pub(super) output: Option<PathBuf>,
    /// Write each URL to a file in the current folder, named by the end of its path
    #[arg(short = 'O', long, help_heading = "Output")]
    pub(super) remote_name: bool,
    /// The same in this folder, which is made if it is not there
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(super) output_dir: Option<PathBuf>,
    /// Replace files that are there already (-o always does)
    #[arg(long, help_heading = "Output")]
    pub(super) overwrite: bool,
    /// Go on with NAME.part of an earlier try, if the server's file is still the same
    #[arg(short = 'C', long = "continue", help_heading = "Output")]
    pub(super) resume: bool,
    /// Fail unless the content has this SHA-256; once for each URL, in order
    #[arg(long, value_name = "HEX", help_heading = "Output")]
    pub(super) sha256: Vec<String>,
    /// Print one JSON object a URL on standard output: times, protocol, which connection each range came by
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
    /// Say nothing but errors
    #[arg(short, long, visible_alias = "silent", help_heading = "Output")]
    pub(super) quiet: bool,
    /// Say what happens: connections, moves; twice: everything
    #[arg(short, long, action = ArgAction::Count, help_heading = "Output")]
    pub(super) verbose: u8,

    /// The method; GET, or POST with --data
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = "Request")]
    pub(super) request: Option<String>,
    /// Fetch and print the response's head only
    #[arg(short = 'I', long, help_heading = "Request", conflicts_with_all = ["request", "data"])]
    pub(super) head: bool,
    /// A header field, "name: value"
    #[arg(short = 'H', long, value_name = "FIELD", help_heading = "Request")]
    pub(super) header: Vec<String>,
    /// Send this; @FILE sends a file, @- standard input
    #[arg(short, long, value_name = "DATA", help_heading = "Request")]
    pub(super) data: Option<String>,

    /// Trust the authorities in this PEM file and no others
    #[arg(long, value_name = "FILE", help_heading = "Connection", conflicts_with = "insecure")]
    pub(super) cacert: Option<PathBuf>,
    /// Accept every certificate: anybody on the path can read and change everything
    #[arg(short = 'k', long, help_heading = "Connection")]
    pub(super) insecure: bool,
    /// Give up on a URL after this many seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = "Connection")]
    pub(super) max_time: Option<Duration>,
    /// Give up on connecting after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "10", help_heading = "Connection")]
    pub(super) connect_timeout: Duration,
    /// Try again this often after an error that may pass, going on where the last try ended
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Connection")]
    pub(super) retry: u32,
    /// URLs at once
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..), help_heading = "Connection")]
    pub(super) parallel: u16,
    /// For http:// URLs: HTTP/2 without asking
    #[arg(long, help_heading = "Connection")]
    pub(super) http2_prior_knowledge: bool,

    /// Plain HTTP/2: no stream moves
    #[arg(long, help_heading = "Migration")]
    pub(super) no_migrate: bool,
    /// Connections to keep ready for moves
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Migration")]
    pub(super) spares: usize,
    /// Let streams move on cleartext too, if the server does (--trust-cleartext there)
    #[arg(long, help_heading = "Migration", requires = "http2_prior_knowledge")]
    pub(super) trust_cleartext: bool,
    /// For tests: move each stream at these offsets
    #[arg(long, value_name = "OFFSET", value_delimiter = ',', value_parser = parse_size, hide = true)]
    pub(super) migrate_at: Vec<u64>,
}
