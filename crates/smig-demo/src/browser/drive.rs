//! Drives the measurement: each variant is a trial of the lab, run in this process.
//!
//! Owns the order of the runs and their record. The lab owns the testbed, the servers and their files.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;

use smig_browser::{BrowserLaunch, trusted_key_sha256};
use smig_lab::servers::{find_browser, find_in_path, is_executable_file};
use smig_lab::trial::{self, Build, Machine, Programs, TrialSetup};
use smig_link::LinkSpec;
use smig_testbed::netns::Privilege;
use tokio_util::sync::CancellationToken;

use super::clients::BrowserClients;
use super::data::{BrowserEvent, BrowserResult, BrowserSetup};
use super::direct::{DOWNLOAD_PAGE_NAME, download_page};
use super::error::BrowserError;
use super::mosaic::{Mosaic, PAGE_SIZE};
use super::scenario::{BIG_FILE_BYTES, BIG_FILE_NAME, WEB_SERVER};
use super::variant::{BrowserVariant, Route};
use crate::demo::start_testbed;

/// Options of the measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct BrowserOptions {
    /// The route from the browser to the server.
    pub route: Route,
    /// The emulated link.
    pub link: LinkSpec,
    /// The hosts' congestion control.
    pub congestion_control: String,
    /// The variants, in the order of the runs; all must exist on the route.
    pub variants: Vec<BrowserVariant>,
    /// Number of page loads alone, and of those beside the download.
    pub loads_per_background: u32,
    /// The `smig` program that runs as web server, gateway and agent.
    pub smig_program: PathBuf,
    /// The browser; searched in PATH if `None`.
    pub browser: Option<PathBuf>,
}

impl BrowserOptions {
    /// Returns options for the route's default variants over the demonstration's link.
    #[must_use]
    pub fn new(smig: &Path, route: Route) -> Self {
        Self {
            route,
            link: LinkSpec::paper_wired(),
            congestion_control: "cubic".into(),
            variants: route.default_variants().to_vec(),
            loads_per_background: 5,
            smig_program: smig.to_owned(),
            browser: None,
        }
    }

    fn find_browser(&self) -> Result<PathBuf, BrowserError> {
        match &self.browser {
            Some(program) if is_executable_file(program) => Ok(program.clone()),
            Some(program) => {
                let text = format!("{} is not an executable file", program.display());
                Err(BrowserError::Browser(smig_browser::BrowserError::Browser(text)))
            }
            None => find_browser().ok_or(BrowserError::NoBrowser),
        }
    }

    /// Returns the version of nginx if it is to be measured.
    fn nginx_version(&self) -> Result<Option<String>, BrowserError> {
        if !self.variants.contains(&BrowserVariant::Nginx) {
            return Ok(None);
        }
        let program = find_in_path("nginx").ok_or(BrowserError::NoNginx)?;
        let output = Command::new(program).arg("-v").stdin(Stdio::null()).output()?;
        let line = String::from_utf8_lossy(&output.stderr);
        Ok(Some(line.trim().trim_start_matches("nginx version: ").to_owned()))
    }

    /// Returns the setup to record, without the browser's name.
    fn setup(&self, mosaic: &Mosaic, program: String, nginx: Option<String>) -> BrowserSetup {
        BrowserSetup {
            route: self.route,
            link: self.link.clone(),
            variants: self.variants.clone(),
            congestion_control: self.congestion_control.clone(),
            loads: self.loads_per_background,
            tile_count: mosaic.tiles.len(),
            tiles_bytes: mosaic.tiles_bytes(),
            browser: String::new(),
            program,
            nginx,
            kernel: Machine::current(1).kernel,
        }
    }
}

/// Checks quickly whether this machine meets the requirements.
///
/// # Errors
/// A missing requirement; the message includes a remedy.
pub fn check(options: &BrowserOptions) -> Result<(), BrowserError> {
    options.find_browser()?;
    program_version(&options.smig_program)?;
    options.nginx_version()?;
    start_testbed(&options.link, &options.congestion_control)?;
    Ok(())
}

/// Executes all runs and reports events as they occur.
///
/// [`smig_testbed::netns::enter_user_namespace`] must have been called before the process had a second
/// thread; `privilege` is its result. `build` is that of the calling program.
///
/// # Errors
/// The failure, with a remedy; [`BrowserError::Stopped`] soon after `stop` is cancelled. Hosts,
/// processes and files are removed in any case.
pub fn drive(
    options: &BrowserOptions,
    build: Build,
    privilege: Privilege,
    stop: &CancellationToken,
    on_event: &mut dyn FnMut(&BrowserEvent) -> io::Result<()>,
) -> Result<BrowserResult, BrowserError> {
    let mosaic = Arc::new(Mosaic::draw()?);
    let version = program_version(&options.smig_program)?;
    let programs = Programs::only_smig(options.smig_program.clone(), build, &version);
    // Without trials: their big file would be written, not sparse.
    let trial_setup = TrialSetup::create(programs, &[], 1)?;
    let trusted_key_sha256 = add_files(&trial_setup, &mosaic)?;
    let setup = options.setup(&mosaic, version, options.nginx_version()?);
    let mut result = BrowserResult { setup, runs: Vec::new() };
    on_event(&BrowserEvent::Started(Box::new(result.setup.clone())))?;
    for &variant in &options.variants {
        on_event(&BrowserEvent::RunStarted(variant))?;
        let (scratch, request) = trial_setup.create_request(&options.trial(variant)?, 1)?;
        let (event_sender, event_receiver) = mpsc::channel();
        let stop_run = stop.child_token();
        let clients = BrowserClients {
            route: options.route,
            variant,
            launch: BrowserLaunch {
                resolver_rules: None,
                logs_sockets: false,
                program: options.find_browser()?,
                trusted_key_sha256: trusted_key_sha256.clone(),
                // It loads only our own pages, perhaps as root.
                sandbox: false,
                home: scratch.path().to_owned(),
                window: PAGE_SIZE,
                http2: true,
                stop: stop_run.clone(),
            },
            mosaic: Arc::clone(&mosaic),
            loads_per_background: options.loads_per_background,
            server_output: request.server_output(WEB_SERVER),
            event_sender,
            stop: stop_run.clone(),
        };
        let (record_result, trial_result) = thread::scope(|scope| {
            let trial_thread = scope.spawn(|| trial::run(&request, privilege, clients));
            let record_result = event_receiver.into_iter().try_for_each(|event| {
                on_event(&event)?;
                match event {
                    BrowserEvent::BrowserStarted(name) => result.setup.browser = name,
                    BrowserEvent::RunFinished(run) => result.runs.push(*run),
                    _ => {}
                }
                Ok(())
            });
            if record_result.is_err() {
                stop_run.cancel();
            }
            (record_result, trial_thread.join())
        });
        record_result.map_err(BrowserError::Io)?;
        if stop.is_cancelled() {
            return Err(BrowserError::Stopped);
        }
        let trial = trial_result.map_err(|_| BrowserError::Panicked("trial"))??;
        if let Some(run) = result.runs.last_mut() {
            run.add_link(&trial);
        }
    }
    Ok(result)
}

/// Adds the page, the page that downloads, and the big file, which is sparse, to the files to serve. Returns
/// the SHA-256 of the servers' key in base64.
fn add_files(trial_setup: &TrialSetup, mosaic: &Mosaic) -> io::Result<String> {
    let server_files = trial_setup.server_files();
    mosaic.write(&server_files.files_dir)?;
    fs::write(server_files.files_dir.join(DOWNLOAD_PAGE_NAME), download_page())?;
    File::create(server_files.files_dir.join(BIG_FILE_NAME))?.set_len(BIG_FILE_BYTES)?;
    let certificate = fs::read_to_string(&server_files.certificate)?;
    trusted_key_sha256(&certificate).map_err(io::Error::other)
}

/// Returns the version that the program reports.
fn program_version(smig: &Path) -> Result<String, BrowserError> {
    let output = Command::new(smig).arg("--version").stdin(Stdio::null()).output();
    let stdout = output.ok().filter(|output| output.status.success());
    let stdout = stdout.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let version = stdout.filter(|version| version.starts_with("smig"));
    version.ok_or_else(|| BrowserError::NotSmig(smig.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_removed_with_the_setup() {
        let build = Build { commit: None, program_sha256: String::new() };
        let programs = Programs::only_smig("/bin/true".into(), build, "a test");
        let trial_setup = TrialSetup::create(programs, &[], 1).unwrap();
        let trusted_key_sha256 = add_files(&trial_setup, &Mosaic::draw().unwrap()).unwrap();
        assert_eq!(trusted_key_sha256.len(), 44);
        let files = trial_setup.server_files().files_dir;
        assert_eq!(fs::metadata(files.join(BIG_FILE_NAME)).unwrap().len(), BIG_FILE_BYTES);
        drop(trial_setup);
        assert!(!files.exists());
    }

    #[test]
    fn a_program_that_is_not_smig_is_rejected() {
        let error = program_version(Path::new("/bin/true")).unwrap_err().to_string();
        assert!(error.contains("/bin/true"), "{error}");
    }
}
