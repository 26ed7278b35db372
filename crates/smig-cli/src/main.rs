//! The `smig` program: command line and output. The libraries do the work.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod agent;
mod allocator;
mod cli;
mod completions;
mod config;
mod demo;
mod dev_cert;
mod exit;
mod gateway;
mod get;
mod hex;
mod interrupt;
mod lab;
mod logging;
mod open_files;
mod paint;
mod probe;
mod serve;
mod settings;
mod stderr;
mod stdout;
mod suffix;
mod trust;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use allocator::Mimalloc;
use cli::{Cli, Command};
use exit::{CliError, Exit};

#[global_allocator]
static ALLOCATOR: Mimalloc = Mimalloc;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Get(args) => get::run(*args),
        Command::Gateway(args) => gateway::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Lab(args) => lab::run(*args),
        Command::Probe(args) => probe::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
    };
    result.unwrap_or_else(|error| {
        stderr::print_line(&format!("{} {error:#}", paint::STDERR.error("error:")));
        stderr::flush();
        let exit = error.downcast_ref::<CliError>().map_or(Exit::Failure, |failure| failure.exit);
        exit.into()
    })
}
