//! The command line of `smig get`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::exit;
use smig_settings::value::{parse_seconds, parse_size};

/// Fetch URLs over one session per host
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(
    long_about = "Fetch URLs, all of one host over one session. A server that supports SMig migrates \
        large responses to separate connections while they are being sent. With other servers over HTTP/2, \
        requests avoid a connection that carries a large response, by a second connection; if requests \
        still wait on the first one, the rest of the large response is requested on the second by a range \
        request, and verified. --json and -v show which connection each range of bytes took, and \
        why.\n\nWithout -o, -O, \
        --output-dir and --json, a single URL is written to standard output, unless that is a terminal; \
        otherwise each URL is written to a file in the current directory, named after the end of \
        its path. A file is written as NAME.part and renamed when it is complete.",
    after_help = exit::EXIT_CODES_HELP,
    after_long_help = concat!("\
Examples:
  smig get https://localhost:8443/big.iso -o big.iso
  smig get https://localhost:8443/{big,small} --output-dir downloads
  smig get -C https://example.org/big.iso            resume a partial download
  smig get --json https://localhost:8443/big -o big | jq .ranges
  smig get -X PUT -d @photo.jpg https://example.org/upload -o answer.txt

")
)]
pub(crate) struct GetArgs {
    /// URLs to fetch
    #[arg(required = true, value_name = "URL")]
    pub(super) urls: Vec<String>,

    /// Write to this file, or to standard output with -; for a single URL
    #[arg(short, long, value_name = "FILE", help_heading = "Output", conflicts_with_all = ["remote_name", "output_dir"])]
    pub(super) output: Option<PathBuf>,
    /// Write each URL to a file in the current directory, named after the end of its path
    #[arg(short = 'O', long, help_heading = "Output")]
    pub(super) remote_name: bool,
    /// Write each URL to a file in this directory, which is created if it does not exist
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(super) output_dir: Option<PathBuf>,
    /// Replace existing files (-o always does)
    #[arg(long, help_heading = "Output")]
    pub(super) overwrite: bool,
    /// Resume from NAME.part of an earlier attempt, if the server's file has not changed
    #[arg(short = 'C', long = "continue", help_heading = "Output")]
    pub(super) resume: bool,
    /// Fail unless the content has this SHA-256 digest; once for each URL, in order
    #[arg(long, value_name = "HEX", help_heading = "Output")]
    pub(super) sha256: Vec<String>,
    /// Print one JSON object per URL on standard output: times, protocol, the connection of each byte range
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
    /// Print errors only
    #[arg(short, long, visible_alias = "silent", help_heading = "Output")]
    pub(super) quiet: bool,
    /// Print connections and migrations; twice: debug output too
    #[arg(short, long, action = ArgAction::Count, help_heading = "Output")]
    pub(super) verbose: u8,

    /// Request method [default: GET, with --data POST]
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = "Request")]
    pub(super) request: Option<String>,
    /// Send a HEAD request and print the header section of the response
    #[arg(short = 'I', long, help_heading = "Request", conflicts_with_all = ["request", "data"])]
    pub(super) head: bool,
    /// Send this header field, "name: value"
    #[arg(short = 'H', long, value_name = "FIELD", help_heading = "Request")]
    pub(super) header: Vec<String>,
    /// Send this as the request body; @FILE sends a file, @- standard input
    #[arg(short, long, value_name = "DATA", help_heading = "Request")]
    pub(super) data: Option<String>,

    /// Trust only the certificate authorities in this PEM file
    #[arg(long, value_name = "FILE", help_heading = "Connection", conflicts_with = "insecure")]
    pub(super) cacert: Option<PathBuf>,
    /// Accept every certificate: anyone on the path can read and change the traffic
    #[arg(short = 'k', long, help_heading = "Connection")]
    pub(super) insecure: bool,
    /// Give up on a URL after this many seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = "Connection")]
    pub(super) max_time: Option<Duration>,
    /// Give up on a TCP connection after this many seconds, and on its TLS handshake after as many more
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "10", help_heading = "Connection")]
    pub(super) connect_timeout: Duration,
    /// Retry this many times after a transient error, and resume where the last attempt ended. A retry waits as long as
    /// the server's Retry-After says
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Connection")]
    pub(super) retry: u32,
    /// Number of URLs to fetch at once
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..), help_heading = "Connection")]
    pub(super) parallel: u16,
    /// Use HTTP/2 with prior knowledge for http:// URLs
    #[arg(long, help_heading = "Connection")]
    pub(super) http2_prior_knowledge: bool,

    /// Use plain HTTP/2: streams do not migrate; over one connection unless --plain-connections says otherwise
    #[arg(long, help_heading = "Migration")]
    pub(super) no_migrate: bool,
    /// Maximum number of connections with a server over HTTP/2 that does not support SMig [default: 2; 1 with --no-migrate]
    #[arg(long, value_name = "N", help_heading = "Migration", value_parser = clap::value_parser!(u8).range(1..=6))]
    pub(super) plain_connections: Option<u8>,
    /// Pace large responses of such a server by the receive window: the path's queue stays short, but other users of the
    /// path get more than their share
    #[arg(long, help_heading = "Migration")]
    pub(super) receive_pacing: bool,
    /// Never request the rest of a large response on another connection: each request is sent once
    #[arg(long, help_heading = "Migration")]
    pub(super) no_range_continuation: bool,
    /// Number of spare connections to keep ready for migrations
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Migration")]
    pub(super) spares: usize,
    /// Let streams migrate over cleartext connections too; the server needs --trust-cleartext as well
    #[arg(long, help_heading = "Migration", requires = "http2_prior_knowledge")]
    pub(super) trust_cleartext: bool,
    /// For tests: migrate each stream at these offsets
    #[arg(long, value_name = "OFFSET", value_delimiter = ',', value_parser = parse_size, hide = true)]
    pub(super) migrate_at: Vec<u64>,
}
