//! Writes to standard output. `println!` panics when the reader has closed it, as in `smig lab
//! compare a b | head`.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};

use crate::exit::{CliError, Exit};

/// Writes to standard output. A broken pipe is not an error.
pub(crate) fn write(text: fmt::Arguments<'_>) -> Result<(), CliError> {
    match io::stdout().lock().write_fmt(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::new(Exit::Write, format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// `print!` for a function that returns a `Result`.
macro_rules! out {
    ($($text:tt)*) => { $crate::stdout::write(format_args!($($text)*))? };
}

/// `println!` for a function that returns a `Result`.
macro_rules! outln {
    ($($text:tt)*) => { $crate::stdout::write(format_args!("{}\n", format_args!($($text)*)))? };
}

pub(crate) use {out, outln};
