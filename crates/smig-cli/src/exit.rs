//! Exit codes: curl's where curl has one, so that scripts need no new ones.

use std::fmt;
use std::process::ExitCode;

/// Outcome of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// An error that has no code of its own.
    Failure,
    /// The command line or the configuration is wrong.
    Usage,
    MalformedUrl,
    Resolve,
    Connect,
    Partial,
    HttpStatus,
    Write,
    Read,
    Timeout,
    Range,
    Tls,
    Receive,
    Certificate,
    Http2,
    Checksum,
}

impl Exit {
    /// Returns the exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::MalformedUrl => 3,
            Self::Resolve => 6,
            Self::Connect => 7,
            Self::Partial => 18,
            Self::HttpStatus => 22,
            Self::Write => 23,
            Self::Read => 26,
            Self::Timeout => 28,
            Self::Range => 33,
            Self::Tls => 35,
            Self::Receive => 56,
            Self::Certificate => 60,
            Self::Http2 => 92,
            Self::Checksum => 110,
        }
    }
}

/// Table of exit codes for `smig get --help`.
pub(crate) const EXIT_CODES_HELP: &str = "\
Exit codes (as in curl where curl has one; for several URLs, that of the first that failed):
    0  success             26  cannot read a file to send
    1  another error       28  timeout
    2  usage error         33  range error
    3  malformed URL       35  TLS error
    6  host not resolved   56  connection lost before the response
    7  cannot connect      60  the certificate is not trusted
   18  incomplete body     92  HTTP/2 error
   22  HTTP error status   110 wrong checksum
   23  write error";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An error with an exit code.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) exit: Exit,
    message: String,
}

impl CliError {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}
