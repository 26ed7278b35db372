//! `smig lab`: measurements over emulated links.
//!
//! Owns the list of subcommands. smig-lab, smig-testbed and smig-survey do the work.

mod build;
mod check;
mod compare;
mod control;
mod cross_traffic;
mod httpx;
mod identify;
mod link;
mod matrix;
mod merge;
mod page;
mod probe_senders;
mod profiles;
mod record;
mod reproduce;
mod run;
mod server;
mod survey;
mod timeline;
mod trace;
mod trial;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

pub(crate) use build::identify_build;

/// Measure over emulated links: scenarios, campaigns, comparisons
#[derive(Debug, Args)]
#[command(
    long_about = "Measure over emulated links, all on this machine.\n\nA scenario file describes what \
        to measure: the link, the servers, the clients and their transfers. Servers, clients, TCP \
        and TLS are real; only the link is emulated. It needs Linux, and root or user namespaces."
)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    Run(run::RunArgs),
    Page(page::PageArgs),
    Httpx(httpx::HttpxArgs),
    Reproduce(reproduce::ReproduceArgs),
    Matrix(matrix::MatrixArgs),
    Merge(merge::MergeArgs),
    Compare(compare::CompareArgs),
    Timeline(timeline::TimelineArgs),
    Link(link::LinkArgs),
    Check(check::CheckArgs),
    Profiles(profiles::ProfilesArgs),
    Trace(trace::TraceArgs),
    Record(record::RecordArgs),
    Survey(survey::SurveyArgs),
    Identify(identify::IdentifyArgs),
    CrossTraffic(cross_traffic::CrossTrafficArgs),
    #[command(hide = true)]
    Trial(trial::TrialArgs),
    #[command(hide = true)]
    LinkExec(link::LinkExecArgs),
    #[command(hide = true)]
    ExecChild(trial::ExecChildArgs),
    #[command(hide = true)]
    Hystart(trial::HystartArgs),
    #[command(hide = true)]
    Bpf(trial::BpfArgs),
    #[command(hide = true)]
    Server(server::ServerArgs),
}

pub(crate) fn run(args: LabArgs) -> Result<ExitCode> {
    match args.command {
        LabCommand::Run(args) => run::run(&args),
        LabCommand::Page(args) => page::run(&args),
        LabCommand::Httpx(args) => httpx::run(&args),
        LabCommand::Reproduce(args) => reproduce::run(&args),
        LabCommand::Matrix(args) => matrix::run(&args),
        LabCommand::Merge(args) => merge::run(&args),
        LabCommand::Compare(args) => compare::run(&args),
        LabCommand::Timeline(args) => timeline::run(&args),
        LabCommand::Link(args) => link::run(&args),
        LabCommand::LinkExec(args) => link::run_command(&args),
        LabCommand::Check(args) => check::run(&args),
        LabCommand::Profiles(args) => profiles::run(&args),
        LabCommand::Trace(args) => trace::run(&args),
        LabCommand::Record(args) => record::run(&args),
        LabCommand::Survey(args) => survey::run(&args),
        LabCommand::Identify(args) => identify::run(&args),
        LabCommand::CrossTraffic(args) => cross_traffic::run(&args),
        LabCommand::Trial(args) => trial::run(&args),
        LabCommand::ExecChild(args) => trial::exec_child(&args),
        LabCommand::Hystart(args) => trial::keep_hystart(&args),
        LabCommand::Bpf(args) => trial::keep_bpf(&args),
        LabCommand::Server(args) => server::run(&args),
    }
}
