//! Shared by the trials of a campaign: programs, a certificate, and the files to serve.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use smig_testbed::netns::Testbed;
use tempfile::TempDir;

use super::origin::Build;
use super::scratch_dir::ScratchDir;
use crate::scenario::{AddressPlan, ServerKind, Trial};
use crate::servers::{build_go_server, build_http3_peer, find_server_tool, shared_names};
use crate::workload::ServerFiles;

/// The programs that trials use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// Path of the `smig` program.
    pub smig: PathBuf,
    /// Its build.
    pub build: Build,
    /// Programs of the servers; for those that the lab builds, the `go` command until [`TrialSetup::create`].
    pub servers: BTreeMap<ServerKind, PathBuf>,
    /// Versions that `smig`, the servers and the commands report.
    pub versions: BTreeMap<String, String>,
}

impl Programs {
    /// Returns the programs of trials in which `smig` is the only server.
    #[must_use]
    pub fn only_smig(smig: PathBuf, build: Build, version: &str) -> Self {
        let versions = BTreeMap::from([("smig".to_owned(), version.to_owned())]);
        Self { smig, build, servers: BTreeMap::new(), versions }
    }
}

/// The directory and the programs of a campaign. Dropping it removes the directory.
#[derive(Debug)]
pub struct TrialSetup {
    dir: ScratchDir,
    programs: Programs,
    jobs: usize,
}

/// A trial with its setup: the input of [`run`](super::run()), also in another process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialRequest {
    /// Trial to run.
    pub trial: Trial,
    /// Directory with content and certificate ([`ServerFiles`]).
    pub server_files: PathBuf,
    /// Empty directory for this run.
    pub scratch: PathBuf,
    /// Path of the `smig` program.
    pub smig: PathBuf,
    /// Path of each server's program.
    pub programs: BTreeMap<String, PathBuf>,
    /// Versions for the result.
    pub versions: BTreeMap<String, String>,
    /// Build of the measuring program.
    pub build: Build,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Number of trials that run in parallel.
    pub jobs: usize,
    /// Path for the run's timeline, if one is to be recorded.
    pub timeline: Option<PathBuf>,
}

impl TrialRequest {
    /// Returns the file with a server's standard output and standard error.
    #[must_use]
    pub fn server_output(&self, server: &str) -> PathBuf {
        self.scratch.join(format!("server-{server}.out"))
    }
}

/// Returns the servers' address on a link of a testbed.
const fn server_address(link: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, link, 1)
}

/// Returns the addresses that the certificate is for: on each link, and those that servers have besides.
fn certificate_addresses(trials: &[Trial]) -> Vec<Ipv4Addr> {
    let links = trials.iter().map(|trial| trial.scenario.more_links.len()).max().unwrap_or(0);
    let on_links = (0..=u8::MAX).take(links + 1).map(server_address);
    let of_trial = |trial: &Trial| {
        let plan = AddressPlan::of(&trial.scenario);
        trial.scenario.servers.keys().map(|name| plan.address_of(name)).collect::<Vec<_>>()
    };
    // The loopback is for servers on the clients' host.
    let all = on_links
        .chain([Testbed::SHARED_ADDRESS, Ipv4Addr::LOCALHOST])
        .chain(trials.iter().flat_map(of_trial));
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

impl TrialSetup {
    /// Creates the directory with certificate and files for these trials, of which `jobs` will run in
    /// parallel.
    ///
    /// # Errors
    /// The directory for temporary files cannot be written, or the disk is full.
    pub fn create(mut programs: Programs, trials: &[Trial], jobs: usize) -> io::Result<Self> {
        let dir = ScratchDir::create()?;
        let names = trials.iter().flat_map(|trial| shared_names(&trial.scenario)).collect();
        let addresses = certificate_addresses(trials);
        let server_files = ServerFiles::create(dir.path(), &addresses, names)?;
        for trial in trials {
            server_files.create_files(&trial.scenario)?;
        }
        if let Some(go) = programs.servers.get_mut(&ServerKind::Go) {
            *go = build_go_server(go, dir.path())?;
        }
        if let Some(http3) = programs.servers.get_mut(&ServerKind::Http3) {
            *http3 = build_http3_peer(http3, dir.path())?;
        }
        Ok(Self { dir, programs, jobs })
    }

    /// Returns the certificate and the directory of files to serve, to which others may be added.
    #[must_use]
    pub fn server_files(&self) -> ServerFiles {
        ServerFiles::at(self.dir.path())
    }

    /// Creates a run's own directory, which is removed when it is dropped, and the run's request.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn create_request(
        &self,
        trial: &Trial,
        attempt: u32,
    ) -> io::Result<(TempDir, TrialRequest)> {
        let scratch = TempDir::with_prefix_in("trial-", self.dir.path())?;
        let Programs { smig, build, servers, versions } = &self.programs;
        let program = |(name, server): (&String, &crate::scenario::ServerSpec)| {
            let program = match server.kind {
                ServerKind::Command => find_server_tool(server, smig),
                kind => server.program.clone().or_else(|| servers.get(&kind).cloned()),
            };
            Some((name.clone(), program?))
        };
        let request = TrialRequest {
            trial: trial.clone(),
            server_files: self.dir.path().to_owned(),
            scratch: scratch.path().to_owned(),
            smig: smig.clone(),
            programs: trial.scenario.servers.iter().filter_map(program).collect(),
            versions: versions.clone(),
            build: build.clone(),
            attempt,
            jobs: self.jobs,
            timeline: None,
        };
        Ok((scratch, request))
    }
}
