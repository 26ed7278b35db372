//! Drives the measurement: each variant is a trial of the lab, run in this process.
//!
//! Owns the order of the runs and their record. The lab owns the testbed, the servers and their files.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PublicKeyData as _};
use sha2::{Digest as _, Sha256};
use smig_lab::servers::is_executable_file;
use smig_lab::trial::{self, Build, Machine, Programs, TrialSetup};
use smig_link::LinkSpec;
use smig_testbed::netns::Privilege;
use tokio_util::sync::CancellationToken;

use super::chromium::{self, BrowserLaunch};
use super::clients::BrowserClients;
use super::data::{BrowserEvent, BrowserResult, BrowserSetup};
use super::error::BrowserError;
use super::mosaic::Mosaic;
use super::scenario::{BIG_FILE, BIG_FILE_BYTES};
use crate::demo::{Variant, start_testbed};

/// Options of the measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct BrowserOptions {
    /// The emulated link.
    pub link: LinkSpec,
    /// The hosts' congestion control.
    pub congestion_control: String,
    /// The variants, in the order of the runs.
    pub variants: Vec<Variant>,
    /// Number of page loads alone, and of those beside the download.
    pub loads: u32,
    /// The `smig` program that runs as gateway, agent and web server.
    pub smig: PathBuf,
    /// The browser; searched in PATH if `None`.
    pub browser: Option<PathBuf>,
}

impl BrowserOptions {
    /// Returns options for plain HTTP/2 and SMig over the demonstration's link.
    #[must_use]
    pub fn new(smig: &Path) -> Self {
        Self {
            link: LinkSpec::paper_wired(),
            congestion_control: "cubic".into(),
            variants: vec![Variant::PlainHttp2, Variant::Smig],
            loads: 5,
            smig: smig.to_owned(),
            browser: None,
        }
    }

    fn find_browser(&self) -> Result<PathBuf, BrowserError> {
        match &self.browser {
            Some(program) if is_executable_file(program) => Ok(program.clone()),
            Some(program) => {
                let text = format!("{} is not an executable file", program.display());
                Err(BrowserError::Browser(text))
            }
            None => chromium::find().ok_or(BrowserError::NoBrowser),
        }
    }

    /// Returns the setup to record, without the browser's name.
    fn setup(&self, mosaic: &Mosaic, program: String) -> BrowserSetup {
        BrowserSetup {
            link: self.link.clone(),
            variants: self.variants.clone(),
            congestion_control: self.congestion_control.clone(),
            loads: self.loads,
            images: mosaic.tiles.len(),
            tiles_bytes: mosaic.tiles_bytes(),
            browser: String::new(),
            program,
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
    program_version(&options.smig)?;
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
    let version = program_version(&options.smig)?;
    let programs = Programs::only_smig(options.smig.clone(), build, &version);
    // Without trials: their big file would be written, not sparse.
    let setup = TrialSetup::create(programs, &[], 1)?;
    let trusted_key = add_files(&setup, &mosaic)?;
    let mut result = BrowserResult { setup: options.setup(&mosaic, version), runs: Vec::new() };
    on_event(&BrowserEvent::Started(Box::new(result.setup.clone())))?;
    for &variant in &options.variants {
        on_event(&BrowserEvent::RunStarted(variant))?;
        let (scratch, request) = setup.request(&options.trial(variant)?, 1)?;
        let (events, received) = mpsc::channel();
        let stop_run = stop.child_token();
        let clients = BrowserClients {
            variant,
            launch: BrowserLaunch {
                program: options.find_browser()?,
                trusted_key: trusted_key.clone(),
                home: scratch.path().to_owned(),
            },
            mosaic: Arc::clone(&mosaic),
            loads: options.loads,
            events,
            stop: stop_run.clone(),
        };
        let (recorded, ended) = thread::scope(|scope| {
            let trial = scope.spawn(|| trial::run(&request, privilege, clients));
            let recorded = received.into_iter().try_for_each(|event| {
                on_event(&event)?;
                match event {
                    BrowserEvent::BrowserStarted(name) => result.setup.browser = name,
                    BrowserEvent::RunFinished(run) => result.runs.push(*run),
                    _ => {}
                }
                Ok(())
            });
            if recorded.is_err() {
                stop_run.cancel();
            }
            (recorded, trial.join())
        });
        recorded.map_err(BrowserError::Io)?;
        if stop.is_cancelled() {
            return Err(BrowserError::Stopped);
        }
        let trial = ended.map_err(|_| BrowserError::Panicked("trial"))??;
        if let Some(run) = result.runs.last_mut() {
            run.add_link(&trial);
        }
    }
    Ok(result)
}

/// Adds the page and the big file, which is sparse, to the files to serve. Returns the SHA-256 of the
/// servers' key in base64.
fn add_files(setup: &TrialSetup, mosaic: &Mosaic) -> io::Result<String> {
    let served = setup.server_files();
    mosaic.write(&served.files)?;
    File::create(served.files.join(BIG_FILE))?.set_len(BIG_FILE_BYTES)?;
    let key = KeyPair::from_pem(&fs::read_to_string(&served.key)?).map_err(io::Error::other)?;
    Ok(STANDARD.encode(Sha256::digest(key.subject_public_key_info())))
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
        let build = Build { commit: None, program: String::new() };
        let programs = Programs::only_smig("/bin/true".into(), build, "a test");
        let setup = TrialSetup::create(programs, &[], 1).unwrap();
        let trusted_key = add_files(&setup, &Mosaic::draw().unwrap()).unwrap();
        assert_eq!(STANDARD.decode(&trusted_key).unwrap().len(), 32);
        let files = setup.server_files().files;
        assert_eq!(fs::metadata(files.join(BIG_FILE)).unwrap().len(), BIG_FILE_BYTES);
        drop(setup);
        assert!(!files.exists());
    }

    #[test]
    fn a_program_that_is_not_smig_is_rejected() {
        let error = program_version(Path::new("/bin/true")).unwrap_err().to_string();
        assert!(error.contains("/bin/true"), "{error}");
    }
}
