//! Drives the demonstration: each variant is a trial of the lab, run in this process.
//!
//! Owns the order of the runs, and converts the events of a trial's clients and its [`TrialResult`] to
//! [`DemoEvent`]s. The lab owns the testbed, the server, the files and the clients.

mod convert;
mod error;
mod scenario;

use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::Duration;

use smig_lab::scenario::Trial;
use smig_lab::trial::{self, Machine, Programs, TrialResult, TrialSetup};
use smig_lab::workload::{Outcome, ScenarioClients, WorkloadEvent};
use smig_link::LinkSpec;
use smig_testbed::netns::{HostSpec, Privilege, Testbed, TestbedError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use error::DemoError;
pub(crate) use scenario::parse_scenario;

use super::data::{ConnectionBytes, ConnectionId, DemoSetup, Variant};
use super::recorder::DemoEvent;
use convert::EventConverter;
use scenario::SMALL_TRANSFER;

/// Options of the demonstration.
#[derive(Debug, Clone, PartialEq)]
pub struct DemoOptions {
    /// The emulated link.
    pub link: LinkSpec,
    /// The hosts' congestion control, except for [`DemoOptions::bulk_congestion_control`].
    pub congestion_control: String,
    /// SMig's congestion control for connections that carry migrated streams; the other one if `None`
    /// or if the kernel lacks it.
    pub bulk_congestion_control: Option<String>,
    /// Most small objects, as time on the path, for which the big file of SMig's server still has to make room.
    pub max_bulk_deferral: Duration,
    /// Size of a small object in bytes.
    pub object_bytes: u64,
    /// Interval between requests for small objects.
    pub object_interval: Duration,
    /// Number of small objects before the big file is requested.
    pub unloaded_objects: u32,
    /// Size of the big file in bytes.
    pub big_file_bytes: u64,
    /// The variants, in the order of the runs.
    pub variants: Vec<Variant>,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self {
            link: LinkSpec::paper_wired(),
            congestion_control: "cubic".into(),
            bulk_congestion_control: None,
            max_bulk_deferral: Duration::from_millis(25),
            object_bytes: 10_000,
            object_interval: Duration::from_millis(500),
            unloaded_objects: 6,
            big_file_bytes: 30_000_000,
            variants: Variant::ALL.to_vec(),
        }
    }
}

impl DemoOptions {
    /// Returns the setup to record. `program` is the name and version to record.
    #[must_use]
    pub fn setup(&self, program: &str) -> DemoSetup {
        DemoSetup {
            link: self.link.clone(),
            variants: self.variants.clone(),
            congestion_control: self.congestion_control.clone(),
            bulk_congestion_control: self.bulk_congestion_control.clone(),
            max_bulk_deferral: self.max_bulk_deferral,
            object_bytes: self.object_bytes,
            object_interval: self.object_interval,
            big_file_bytes: self.big_file_bytes,
            sample_interval: self.object_interval,
            program: program.to_owned(),
            kernel: Machine::current(1).kernel,
        }
    }
}

/// Checks quickly whether the link can be set up on this machine.
///
/// # Errors
/// What the machine lacks, and what to do about it; see [`smig_testbed::netns::TestbedError`].
pub fn check(options: &DemoOptions) -> Result<(), DemoError> {
    start_testbed(&options.link, &options.congestion_control)?;
    Ok(())
}

/// Builds the two hosts and the link between them.
pub(crate) fn start_testbed(
    link: &LinkSpec,
    congestion_control: &str,
) -> Result<Testbed, TestbedError> {
    let host = || HostSpec::default().congestion_control(congestion_control);
    Testbed::builder(link.clone()).server(host()).client(host()).start()
}

type OnEvent<'a> = &'a mut dyn FnMut(&DemoEvent) -> io::Result<()>;

/// Runs all variants and passes on their events as they occur.
///
/// [`smig_testbed::netns::enter_user_namespace`] must have been called before the process had a second
/// thread; `privilege` is its result. `programs` needs only `smig`, which is started as the server.
///
/// # Errors
/// The failure, with a remedy; [`DemoError::Stopped`] soon after `stop` is cancelled. Events passed
/// on before an error remain valid. Hosts, processes and files are removed in any case.
pub fn drive(
    options: &DemoOptions,
    programs: Programs,
    privilege: Privilege,
    stop: &CancellationToken,
    on_event: OnEvent<'_>,
) -> Result<(), DemoError> {
    let trials = options.trials()?;
    let all: Vec<_> = trials.iter().map(|(_, trial)| trial.clone()).collect();
    let trial_setup = TrialSetup::create(programs, &all, 1)?;
    let driver = DemoDriver { options, trial_setup, privilege, stop };
    for (variant, trial) in &trials {
        on_event(&DemoEvent::RunStarted(*variant))?;
        driver.run(*variant, trial, on_event)?;
    }
    Ok(())
}

/// State that all runs share.
struct DemoDriver<'a> {
    options: &'a DemoOptions,
    trial_setup: TrialSetup,
    privilege: Privilege,
    stop: &'a CancellationToken,
}

impl DemoDriver<'_> {
    fn run(&self, variant: Variant, trial: &Trial, on_event: OnEvent<'_>) -> Result<(), DemoError> {
        if let (Variant::Smig, Some(name)) = (variant, &self.options.bulk_congestion_control)
            && !start_testbed(&self.options.link, &self.options.congestion_control)?
                .server()
                .has_congestion_control(name)?
        {
            on_event(&DemoEvent::Problem(format!(
                "This kernel has no congestion control {name}; the big file used {}. \
                 `sudo modprobe tcp_{name}` may load it.",
                self.options.congestion_control
            )))?;
            on_event(&DemoEvent::BulkCongestionControlMissing)?;
        }
        let (_scratch, request) = self.trial_setup.create_request(trial, 1)?;
        let (event_sender, workload_events) = mpsc::unbounded_channel();
        let (forward_result, result) = thread::scope(|scope| {
            let clients = ScenarioClients { events: Some(event_sender) };
            let trial_thread = scope.spawn(|| trial::run(&request, self.privilege, clients));
            let forward_result = self.forward_events(workload_events, on_event);
            (forward_result, trial_thread.join())
        });
        forward_result?;
        if self.stop.is_cancelled() {
            return Err(DemoError::Stopped);
        }
        emit_final_events(&result.map_err(|_| DemoError::Panicked("trial"))??, on_event)
    }

    /// Passes on the events of a run until it ends, an error occurs, or it is cancelled. The last
    /// two close the receiver, which stops the trial.
    fn forward_events(
        &self,
        mut workload_events: mpsc::UnboundedReceiver<WorkloadEvent>,
        on_event: OnEvent<'_>,
    ) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let mut converter = EventConverter::default();
        loop {
            let next = self.stop.run_until_cancelled(workload_events.recv());
            let Some(event) = runtime.block_on(next).flatten() else { return Ok(()) };
            for event in converter.convert(event) {
                on_event(&event)?;
            }
        }
    }
}

/// Emits the events of a finished trial.
fn emit_final_events(result: &TrialResult, on_event: OnEvent<'_>) -> Result<(), DemoError> {
    let mut totals = BTreeMap::<_, u64>::new();
    for transfer in &result.observation.objects {
        let name = transfer.name.clone();
        match &transfer.outcome {
            Outcome::Complete | Outcome::Cancelled => {}
            // Reported as a problem of the run when it occurred.
            Outcome::TimedOut if name == SMALL_TRANSFER => {}
            Outcome::TimedOut => {
                let why = "it did not arrive in time".to_owned();
                return Err(DemoError::Transfer { name, why });
            }
            Outcome::Damaged => return Err(DemoError::Corrupted(name)),
            Outcome::Failed(why) => return Err(DemoError::Transfer { name, why: why.clone() }),
        }
        for entry in &transfer.connections {
            *totals.entry(entry.connection).or_default() += entry.bytes;
        }
    }
    let drops = result.device_drops;
    if drops > 0 {
        on_event(&DemoEvent::Problem(format!(
            "The hosts' network devices dropped {drops} packets: the machine was overloaded."
        )))?;
    }
    let total = |(number, bytes)| ConnectionBytes { connection: ConnectionId(number), bytes };
    let connections = totals.into_iter().map(total).collect();
    on_event(&DemoEvent::RunFinished { connections, link: Some(Box::new(result.link)) })?;
    Ok(())
}
