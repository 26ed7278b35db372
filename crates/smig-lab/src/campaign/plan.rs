//! Determines which trials are outstanding and whether they can run, before anything runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as ValueError, StrDeserializer};
use smig_testbed::bpf::{UnknownControlError, check_control_name};
use smig_testbed::hystart;

use super::jobs::Jobs;
use super::store::{ResultLine, read_lines, result_files};
use crate::scenario::{Campaign, Filter, ServerKind, Shard, Trial, TrialId};
use crate::servers::{
    build_http3_peer, command_version, find_browser, find_command, find_server_tool,
    install_command, server_version,
};
use crate::trial::{AcceptedBuilds, Build, bpf_controls, congestion_controls};

/// Options for planning and running a campaign.
#[derive(Debug, Clone)]
pub struct CampaignOptions {
    /// Directory for results.
    pub out: PathBuf,
    /// Shard of the campaign to run.
    pub shard: Option<Shard>,
    /// Conditions to run.
    pub filter: Filter,
    /// How many trials run in parallel.
    pub jobs: Jobs,
    /// Path of the `smig` program, which runs each trial.
    pub smig: PathBuf,
    /// Version of this program for the results.
    pub version: String,
    /// Build of this program.
    pub build: Build,
    /// Builds whose results may share a directory.
    pub builds: AcceptedBuilds,
    /// How to treat a run that was disturbed on every attempt.
    pub on_disturbed: OnDisturbed,
}

/// How to treat a run that was disturbed on every attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnDisturbed {
    /// Reject it; a later call tries again.
    #[default]
    Reject,
    /// Keep it as a result, with the reasons of the disturbance.
    Keep,
}

/// A server that is not installed or cannot be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingServer {
    /// Server implementation.
    pub kind: ServerKind,
    /// Number of trials that are skipped because of it.
    pub trials: usize,
    /// Why it could not be built, if it is one that the lab builds.
    pub build_error: Option<String>,
}

impl fmt::Display for MissingServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, trials) = (self.kind, self.trials);
        let runs = if trials == 1 { "run is" } else { "runs are" };
        if let Some(why) = &self.build_error {
            return write!(f, "{kind} cannot be built: {trials} {runs} left out: {why}");
        }
        write!(
            f,
            "{kind} is not installed: {trials} {runs} left out. To install it: {}",
            install_command(kind)
        )
    }
}

/// The trials of a campaign that are to be run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Trials to run, in this order.
    pub trials: Vec<Trial>,
    /// Number of trials that already have results.
    pub done_count: usize,
    /// Servers that are not installed or cannot be built, whose trials are skipped.
    pub missing_servers: Vec<MissingServer>,
    /// Programs of the servers; the `go` command for those that the lab builds.
    pub programs: BTreeMap<ServerKind, PathBuf>,
    /// Versions of `smig`, servers and commands, by kind, configured path or version command.
    pub versions: BTreeMap<String, String>,
}

/// Why a campaign cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// The directory has results of another scenario with this name.
    #[error(
        "{} has results of another scenario named {campaign:?}: its {id} differs. Name another \
         directory with --out, or rename the scenario with name = \"...\"",
        dir.display()
    )]
    OtherScenario {
        /// The directory.
        dir: PathBuf,
        /// Name of the scenario.
        campaign: String,
        /// The first trial that differs.
        id: Box<TrialId>,
    },
    /// The directory has results of another build.
    #[error(
        "{} has results of another build ({existing_build}; this is {current_build}), and a directory is for one \
         build. Name another directory with --out, or continue with --any-build",
        dir.display()
    )]
    OtherBuild {
        /// The directory.
        dir: PathBuf,
        /// Build of the existing results.
        existing_build: String,
        /// Build of this program.
        current_build: Build,
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
    /// Neither the kernel nor the lab has a congestion control of a host or server.
    #[error(transparent)]
    Control(UnknownControlError),
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
pub fn plan(campaign: &Campaign, options: &CampaignOptions) -> Result<Plan, CampaignError> {
    plan_trials(campaign, campaign.trials(), options)
}

/// Plans some trials of a campaign: no others are counted.
///
/// # Errors
/// [`CampaignError`].
pub fn plan_trials(
    campaign: &Campaign,
    mut trials: Vec<Trial>,
    options: &CampaignOptions,
) -> Result<Plan, CampaignError> {
    if let Some(shard) = options.shard {
        trials = shard.select(trials, campaign.repetitions);
    }
    trials.retain(|trial| options.filter.matches(&trial.id.condition));
    let selected_count = trials.len();
    let existing_lines = existing_results(&options.out)?;
    for trial in &trials {
        if existing_lines.get(&trial.id).is_some_and(|line| line.header.hash != trial.hash()) {
            return Err(CampaignError::OtherScenario {
                dir: options.out.clone(),
                campaign: campaign.name.clone(),
                id: Box::new(trial.id.clone()),
            });
        }
    }
    if options.builds == AcceptedBuilds::One {
        check_same_build(&existing_lines, options)?;
    }
    trials.retain(|trial| !existing_lines.contains_key(&trial.id));
    let done_count = selected_count - trials.len();
    let mut plan = Plan {
        trials,
        done_count,
        missing_servers: Vec::new(),
        programs: BTreeMap::new(),
        versions: BTreeMap::new(),
    };
    if plan.trials.iter().any(|trial| trial.scenario.hosts.hystart().is_some()) {
        hystart::check().map_err(|error| CampaignError::Machine(error.to_string()))?;
    }
    let scenarios = plan.trials.iter().map(|trial| &trial.scenario);
    for control in scenarios.flat_map(bpf_controls).collect::<BTreeSet<_>>() {
        control.check().map_err(|error| CampaignError::Machine(error.to_string()))?;
    }
    let scenarios = plan.trials.iter().map(|trial| &trial.scenario);
    for control in scenarios.flat_map(congestion_controls).collect::<BTreeSet<_>>() {
        check_control_name(control).map_err(CampaignError::Control)?;
    }
    plan.versions.insert("smig".into(), options.version.clone());
    plan.find_browser()?;
    plan.resolve_servers(&options.smig)?;
    plan.check_commands(&options.smig)?;
    Ok(plan)
}

/// Rejects a directory with results of another build.
fn check_same_build(
    existing_lines: &BTreeMap<TrialId, ResultLine>,
    options: &CampaignOptions,
) -> Result<(), CampaignError> {
    let builds =
        existing_lines.values().map(|line| line.header.origin.as_ref().map(|origin| &origin.build));
    let Some(other_build) = builds.into_iter().find(|build| *build != Some(&options.build)) else {
        return Ok(());
    };
    Err(CampaignError::OtherBuild {
        dir: options.out.clone(),
        existing_build: other_build.map_or_else(|| "not recorded".into(), ToString::to_string),
        current_build: options.build.clone(),
    })
}

/// Returns the results in a directory by trial.
fn existing_results(dir: &Path) -> Result<BTreeMap<TrialId, ResultLine>, CampaignError> {
    let io_error = |path: &Path| {
        let path = path.to_owned();
        move |cause| CampaignError::Io { path, cause }
    };
    let mut results = BTreeMap::new();
    if !fs::exists(dir).map_err(io_error(dir))? {
        return Ok(results);
    }
    for file in result_files(dir).map_err(io_error(dir))? {
        for line in read_lines(&file).map_err(io_error(&file))? {
            results.insert(line.header.id.clone(), line);
        }
    }
    Ok(results)
}

impl Plan {
    /// Searches for the browser, if a trial needs one.
    fn find_browser(&mut self) -> Result<(), CampaignError> {
        if !self.trials.iter().any(|trial| trial.scenario.browser_pages().next().is_some()) {
            return Ok(());
        }
        let program = find_browser().ok_or_else(|| {
            let what = "there is no Chromium in PATH. Install it: apt-get install --no-install-recommends chromium; \
                        or leave its runs out with --filter";
            CampaignError::Machine(what.into())
        })?;
        let argv = [program.display().to_string(), "--version".to_owned()];
        self.versions.extend(command_version(&argv).map(|version| ("chromium".into(), version)));
        Ok(())
    }

    /// Searches for the programs of commands, and runs their version commands, each once.
    fn check_commands(&mut self, smig: &Path) -> Result<(), CampaignError> {
        let mut checked_commands = BTreeSet::new();
        for trial in &self.trials {
            let servers = trial.scenario.servers.iter().filter_map(|(name, server)| {
                let command = server.command.as_ref()?;
                Some((format!("servers.{name}.command.argv"), &command.argv, &command.version))
            });
            let clients = trial.scenario.clients.iter().filter_map(|(name, client)| {
                let command = client.command.as_ref()?;
                Some((format!("clients.{name}.command.argv"), &command.argv, &command.version))
            });
            for (key, argv, version) in servers.chain(clients) {
                if !checked_commands.insert((argv.first(), version)) {
                    continue;
                }
                if find_command(argv, smig).is_none() {
                    let program = argv.first().cloned().unwrap_or_default();
                    return Err(CampaignError::NoCommand { key, program });
                }
                if let Some(output) = command_version(version) {
                    self.versions.insert(version_key(version), output);
                }
            }
        }
        Ok(())
    }

    /// Searches for the program of each kind of server once, and checks configured paths; skips the trials of kinds that are
    /// not installed or cannot be built.
    fn resolve_servers(&mut self, smig: &Path) -> Result<(), CampaignError> {
        let mut missing_kinds = BTreeMap::new();
        for trial in &self.trials {
            let servers = trial.scenario.servers.iter();
            for (name, server) in servers.filter(|(_, server)| server.command.is_none()) {
                if server.program.is_none()
                    && (self.programs.contains_key(&server.kind)
                        || missing_kinds.contains_key(&server.kind))
                {
                    continue;
                }
                let configured =
                    server.program.as_ref().map(|program| program.display().to_string());
                if configured.is_some_and(|program| self.versions.contains_key(&program)) {
                    continue;
                }
                let found = find_server_tool(server, smig);
                if server.kind == ServerKind::Http3
                    && server.program.is_none()
                    && let Some(go) = &found
                    && let Err(why) = try_http3_build(go)
                {
                    missing_kinds.insert(server.kind, Some(why.to_string()));
                    continue;
                }
                match (found, &server.program) {
                    (Some(program), configured) => {
                        let version = match server.kind {
                            ServerKind::Smig => {
                                self.versions.get("smig").cloned().unwrap_or_default()
                            }
                            _ => server_version(server, &program),
                        };
                        if configured.is_none() {
                            self.programs.insert(server.kind, program);
                            self.versions.insert(server.kind.as_str().into(), version);
                        } else {
                            self.versions.insert(program.display().to_string(), version);
                        }
                    }
                    (None, Some(program)) => {
                        let (server, program) = (name.clone(), program.clone());
                        return Err(CampaignError::NoProgram { server, program });
                    }
                    (None, None) => drop(missing_kinds.insert(server.kind, None)),
                }
            }
        }
        for (kind, build_error) in missing_kinds {
            let count_before = self.trials.len();
            self.trials.retain(|trial| {
                !trial
                    .scenario
                    .servers
                    .values()
                    .any(|server| server.kind == kind && server.program.is_none())
            });
            let trials = count_before - self.trials.len();
            self.missing_servers.push(MissingServer { kind, trials, build_error });
        }
        Ok(())
    }
}

/// Builds the HTTP/3 peer, which may need the network, so that a campaign without it leaves its trials out. Later builds
/// take it from Go's cache.
fn try_http3_build(go: &Path) -> io::Result<()> {
    build_http3_peer(go, tempfile::tempdir()?.path()).map(drop)
}

/// Returns the key of a version command in the results, which never equals a server kind's name.
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
    fn dir_with_result(program: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let trial = smoke().trials().remove(0);
        let build = serde_json::json!({"commit": "c1", "program": program});
        let line = serde_json::json!({
            "format": 2, "id": trial.id, "hash": trial.hash(),
            "origin": {"build": build, "load": [0.0, 0.0]},
        });
        fs::write(dir.path().join("results.jsonl"), format!("{line}\n")).unwrap();
        dir
    }

    fn options(out: &Path, builds: AcceptedBuilds) -> CampaignOptions {
        CampaignOptions {
            out: out.to_owned(),
            shard: None,
            filter: Filter::default(),
            jobs: Jobs::Number(1),
            smig: "/bin/true".into(),
            version: "smig".into(),
            build: Build { commit: Some("c1".into()), program_sha256: "p1".into() },
            builds,
            on_disturbed: OnDisturbed::Reject,
        }
    }

    #[test]
    fn a_version_commands_key_is_never_a_servers_name() {
        let key =
            |words: &[&str]| version_key(&words.iter().map(|&w| w.into()).collect::<Vec<_>>());
        assert_eq!(key(&["smig"]), "smig (command)");
        assert_eq!(key(&["nginx"]), "nginx (command)");
        assert_eq!(key(&["nginx", "-v"]), "nginx -v");
    }

    #[test]
    fn a_configured_http3_peer_is_not_built() {
        let text = "link = 'paper-wired'\nrepetitions = 2\n[servers.s]\nkind = 'http3'\n\
                    program = '/bin/false'\n[clients.c]\nkind = 'http3'\n[workload.transfers.t]\nsize = 1\n";
        let campaign = parse(text, "test", Path::new("/"), &|_| Ok(())).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let plan = plan(&campaign, &options(dir.path(), AcceptedBuilds::One)).unwrap();
        assert_eq!((plan.missing_servers, plan.trials.len()), (vec![], 2));
        assert_eq!(plan.versions["/bin/false"], "unknown");
    }

    #[test]
    fn a_directory_is_continued_only_by_the_same_build() {
        let (dir_of_same_build, dir_of_other_build) =
            (dir_with_result("p1"), dir_with_result("p2"));
        let done =
            |out: &Path, builds| plan(&smoke(), &options(out, builds)).map(|plan| plan.done_count);
        assert_eq!(done(dir_of_same_build.path(), AcceptedBuilds::One).unwrap(), 1);
        let error = done(dir_of_other_build.path(), AcceptedBuilds::One).unwrap_err().to_string();
        assert!(error.contains("another build") && error.contains("program p2"), "{error}");
        assert_eq!(done(dir_of_other_build.path(), AcceptedBuilds::Any).unwrap(), 1);
    }
}
