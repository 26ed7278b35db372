//! Determines which cells are outstanding and whether they can run, before anything runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as ValueError, StrDeserializer};
use smig_testbed::hystart;

use super::store::{Line, lines, results_in};
use crate::peer::{install_command, program_named, program_of, version_by, version_of};
use crate::scenario::{Campaign, Filter, ServerKind, Shard, Trial, TrialId};
use crate::trial::{Build, Builds};

/// Options of a campaign.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory for results.
    pub out: PathBuf,
    /// Share of the campaign to run.
    pub share: Option<Shard>,
    /// Variants to run.
    pub filter: Filter,
    /// Number of cells to run in parallel.
    pub jobs: usize,
    /// Path of the `smig` program, which runs each cell.
    pub smig: PathBuf,
    /// Version of this program for the results.
    pub version: String,
    /// Build of this program.
    pub build: Build,
    /// Whether results may be added to a directory with results of another build.
    pub builds: Builds,
    /// How to treat a run that was disturbed on every attempt.
    pub disturbed: Disturbed,
}

/// How to treat a run that was disturbed on every attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Disturbed {
    /// Reject it; a later call tries again.
    #[default]
    Reject,
    /// Keep it as a result, with the reasons of the disturbance.
    Keep,
}

/// A server that is not installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Server implementation.
    pub kind: ServerKind,
    /// Number of cells that are skipped for it.
    pub cells: usize,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, cells) = (self.kind, self.cells);
        let runs = if cells == 1 { "run is" } else { "runs are" };
        write!(
            f,
            "{kind} is not installed: {cells} {runs} left out. To install it: {}",
            install_command(kind)
        )
    }
}

/// A plan of cells to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Cells to run, in this order.
    pub cells: Vec<Trial>,
    /// Number of cells that already have results.
    pub done: usize,
    /// Servers that are not installed, whose cells are skipped.
    pub missing: Vec<Missing>,
    /// Programs of the servers.
    pub programs: BTreeMap<ServerKind, PathBuf>,
    /// Versions that they report.
    pub versions: BTreeMap<String, String>,
}

/// Why a campaign cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// The directory has results of another scenario with this name.
    #[error(
        "{} has results of another scenario named {campaign:?}: its {id} differs. Name another \
         directory with --out, or rename the scenario with name = \"...\"",
        folder.display()
    )]
    OtherScenario {
        /// The directory.
        folder: PathBuf,
        /// Name of the scenario.
        campaign: String,
        /// The first cell that differs.
        id: Box<TrialId>,
    },
    /// The directory has results of another build.
    #[error(
        "{} has results of another build ({theirs}; this is {ours}), and a directory is for one \
         build. Name another directory with --out, or continue with --any-build",
        folder.display()
    )]
    OtherBuild {
        /// The directory.
        folder: PathBuf,
        /// Build of the existing results.
        theirs: String,
        /// Build of this program.
        ours: Build,
    },
    /// The configured path of a server is not a program.
    #[error("servers.{server}.program: {} is not an executable file", program.display())]
    NoProgram {
        /// Name of the server.
        server: String,
        /// The path.
        program: PathBuf,
    },
    /// The program of a command is not installed.
    #[error("{key}: there is no program {program:?}; install it, or name its path")]
    NoCommand {
        /// The key in the scenario.
        key: String,
        /// The program, as the scenario names it.
        program: String,
    },
    /// The machine lacks a prerequisite; the text explains what to do.
    #[error("{0}")]
    Machine(String),
    /// A file could not be read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        cause: io::Error,
    },
}

/// Plans a campaign.
///
/// # Errors
/// [`CampaignError`].
pub fn plan(campaign: &Campaign, options: &Options) -> Result<Plan, CampaignError> {
    let mut cells = campaign.cells();
    if let Some(share) = options.share {
        cells = share.of_cells(cells, campaign.repetitions);
    }
    cells.retain(|cell| options.filter.takes(&cell.id.variant));
    let before = cells.len();
    let known = known(&options.out)?;
    for cell in &cells {
        if known.get(&cell.id).is_some_and(|line| line.stub.hash != cell.hash()) {
            return Err(CampaignError::OtherScenario {
                folder: options.out.clone(),
                campaign: campaign.name.clone(),
                id: Box::new(cell.id.clone()),
            });
        }
    }
    if options.builds == Builds::One {
        same_build(&known, options)?;
    }
    cells.retain(|cell| !known.contains_key(&cell.id));
    let done = before - cells.len();
    let mut plan = Plan {
        cells,
        done,
        missing: Vec::new(),
        programs: BTreeMap::new(),
        versions: BTreeMap::new(),
    };
    if plan.cells.iter().any(|cell| cell.scenario.hosts.hystart().is_some()) {
        hystart::check().map_err(|error| CampaignError::Machine(error.to_string()))?;
    }
    plan.versions.insert("smig".into(), options.version.clone());
    plan.find_servers(&options.smig)?;
    plan.find_commands()?;
    Ok(plan)
}

/// Rejects a directory with results of another build.
fn same_build(known: &BTreeMap<TrialId, Line>, options: &Options) -> Result<(), CampaignError> {
    let theirs = known.values().map(|line| line.stub.origin.as_ref().map(|origin| &origin.build));
    let Some(other) = theirs.into_iter().find(|build| *build != Some(&options.build)) else {
        return Ok(());
    };
    Err(CampaignError::OtherBuild {
        folder: options.out.clone(),
        theirs: other.map_or_else(|| "not recorded".into(), ToString::to_string),
        ours: options.build.clone(),
    })
}

/// Returns the cells that have results in a directory.
fn known(folder: &Path) -> Result<BTreeMap<TrialId, Line>, CampaignError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |cause| CampaignError::Io { path, cause }
    };
    let mut known = BTreeMap::new();
    if !fs::exists(folder).map_err(io(folder))? {
        return Ok(known);
    }
    for file in results_in(folder).map_err(io(folder))? {
        for line in lines(&file).map_err(io(&file))? {
            known.insert(line.stub.id.clone(), line);
        }
    }
    Ok(known)
}

impl Plan {
    /// Searches for the programs of commands, and runs their version commands, each once.
    fn find_commands(&mut self) -> Result<(), CampaignError> {
        let mut found = BTreeSet::new();
        for cell in &self.cells {
            let servers = cell.scenario.servers.iter().filter_map(|(name, server)| {
                let command = server.command.as_ref()?;
                Some((format!("servers.{name}.command.argv"), &command.argv, &command.version))
            });
            let clients = cell.scenario.clients.iter().filter_map(|(name, client)| {
                let command = client.command.as_ref()?;
                Some((format!("clients.{name}.command.argv"), &command.argv, &command.version))
            });
            for (key, argv, version) in servers.chain(clients) {
                if !found.insert((argv.first(), version)) {
                    continue;
                }
                let program = argv.first().cloned().unwrap_or_default();
                if program_named(&program).is_none() {
                    return Err(CampaignError::NoCommand { key, program });
                }
                if let Some(words) = version_by(version) {
                    self.versions.insert(version_key(version), words);
                }
            }
        }
        Ok(())
    }

    /// Searches for each server once; skips the cells of servers that are not installed.
    fn find_servers(&mut self, smig: &Path) -> Result<(), CampaignError> {
        let mut absent = BTreeSet::new();
        for cell in &self.cells {
            let servers = cell.scenario.servers.iter();
            for (name, server) in servers.filter(|(_, server)| server.command.is_none()) {
                if server.program.is_none()
                    && (self.programs.contains_key(&server.kind) || absent.contains(&server.kind))
                {
                    continue;
                }
                match (program_of(server, smig), &server.program) {
                    (Some(program), named) => {
                        let version = match server.kind {
                            ServerKind::Smig => {
                                self.versions.get("smig").cloned().unwrap_or_default()
                            }
                            kind => version_of(kind, &program),
                        };
                        if named.is_none() {
                            self.programs.insert(server.kind, program);
                            self.versions.insert(server.kind.word().into(), version);
                        } else {
                            self.versions.insert(program.display().to_string(), version);
                        }
                    }
                    (None, Some(program)) => {
                        let (server, program) = (name.clone(), program.clone());
                        return Err(CampaignError::NoProgram { server, program });
                    }
                    (None, None) => drop(absent.insert(server.kind)),
                }
            }
        }
        for kind in absent {
            let before = self.cells.len();
            self.cells.retain(|cell| {
                !cell
                    .scenario
                    .servers
                    .values()
                    .any(|server| server.kind == kind && server.program.is_none())
            });
            self.missing.push(Missing { kind, cells: before - self.cells.len() });
        }
        Ok(())
    }
}

/// Returns the key of a version command in the results. The names of the lab's own servers are theirs.
fn version_key(command: &[String]) -> String {
    let key = command.join(" ");
    let name: StrDeserializer<'_, ValueError> = key.as_str().into_deserializer();
    if ServerKind::deserialize(name).is_ok() { format!("{key} (command)") } else { key }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::parse;

    fn smoke() -> Campaign {
        let text = include_str!("../../../../scenarios/smoke.toml");
        parse(text, "smoke", Path::new("."), &|_| Ok(())).unwrap()
    }

    /// Creates a directory with one result of a program.
    fn folder(program: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let cell = smoke().cells().remove(0);
        let build = serde_json::json!({"commit": "c1", "program": program});
        let line = serde_json::json!({
            "format": 2, "id": cell.id, "hash": cell.hash(),
            "origin": {"build": build, "load": [0.0, 0.0]},
        });
        fs::write(folder.path().join("results.jsonl"), format!("{line}\n")).unwrap();
        folder
    }

    fn options(out: &Path, builds: Builds) -> Options {
        Options {
            out: out.to_owned(),
            share: None,
            filter: Filter::default(),
            jobs: 1,
            smig: "/bin/true".into(),
            version: "smig".into(),
            build: Build { commit: Some("c1".into()), program: "p1".into() },
            builds,
            disturbed: Disturbed::Reject,
        }
    }

    #[test]
    fn a_version_command_does_not_take_the_name_of_a_server() {
        let key =
            |words: &[&str]| version_key(&words.iter().map(|&w| w.into()).collect::<Vec<_>>());
        assert_eq!(key(&["smig"]), "smig (command)");
        assert_eq!(key(&["nginx"]), "nginx (command)");
        assert_eq!(key(&["nginx", "-v"]), "nginx -v");
    }

    #[test]
    fn a_folder_is_gone_on_with_by_the_build_that_began_it() {
        let (same, other) = (folder("p1"), folder("p2"));
        let done = |out: &Path, builds| plan(&smoke(), &options(out, builds)).map(|plan| plan.done);
        assert_eq!(done(same.path(), Builds::One).unwrap(), 1);
        let refused = done(other.path(), Builds::One).unwrap_err().to_string();
        assert!(refused.contains("another build") && refused.contains("program p2"), "{refused}");
        assert_eq!(done(other.path(), Builds::Any).unwrap(), 1);
    }
}
