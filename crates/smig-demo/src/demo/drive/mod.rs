//! Drives the demonstration: real servers and clients in the hosts of a [`Testbed`].
//!
//! Owns the order of events of a run. Each run has its own testbed, so that no state (queues, TCP
//! metrics, buffers) carries over to the next.

mod error;
mod fetch;
mod host;
mod material;

use std::io;
use std::time::Duration;

use smig_link::LinkSpec;
use smig_testbed::netns::{HostSpec, Testbed};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use error::DriveError;

use super::data::{DemoSetup, Variant};
use super::recorder::DemoEvent;
use fetch::Plan;
use material::DemoFiles;

/// Options of the demonstration.
#[derive(Debug, Clone, PartialEq)]
pub struct DemoOptions {
    /// The emulated link.
    pub link: LinkSpec,
    /// The servers' congestion control, except for [`DemoOptions::bulk_congestion_control`].
    pub congestion_control: String,
    /// SMig's congestion control for connections that carry migrated streams; the other one if `None`
    /// or if the kernel lacks it.
    pub bulk_congestion_control: Option<String>,
    /// The longest time that SMig's server may hold the big file back for one small object.
    pub max_hold: Duration,
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
            max_hold: Duration::from_millis(25),
            object_bytes: 10_000,
            object_interval: Duration::from_millis(500),
            unloaded_objects: 6,
            big_file_bytes: 36_000_000,
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
            max_hold: self.max_hold,
            object_bytes: self.object_bytes,
            object_interval: self.object_interval,
            big_file_bytes: self.big_file_bytes,
            sample_interval: self.object_interval,
            program: program.to_owned(),
            kernel: kernel(),
        }
    }
}

/// Returns the running kernel's name and version.
pub(crate) fn kernel() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy())
}

/// Checks quickly whether the link can be set up on this machine.
///
/// # Errors
/// What the machine lacks, and what to do about it; see [`smig_testbed::netns::LabError`].
pub fn check(options: &DemoOptions) -> Result<(), DriveError> {
    hosts(options)?;
    Ok(())
}

/// Builds the two hosts and the link between them.
fn hosts(options: &DemoOptions) -> Result<Testbed, DriveError> {
    let host = || HostSpec::default().congestion_control(&options.congestion_control);
    Ok(Testbed::builder(options.link.clone()).server(host()).client(host()).start()?)
}

/// Runs all variants and passes on their events as they occur.
///
/// Without root, [`smig_testbed::netns::enter_user_namespace`] must have been called before the process had
/// a second thread.
///
/// # Errors
/// [`DriveError`]: the failure, and what to do; [`DriveError::Stopped`] soon after `stop` is set.
/// Events passed on before an error remain valid. Nothing is left behind either way.
pub fn drive(
    options: &DemoOptions,
    stop: &CancellationToken,
    on_event: &mut dyn FnMut(&DemoEvent) -> io::Result<()>,
) -> Result<(), DriveError> {
    let material = DemoFiles::make(options.object_bytes, options.big_file_bytes)?;
    for &variant in &options.variants {
        on_event(&DemoEvent::RunStarted(variant))?;
        run(options, stop, variant, &material, on_event)?;
    }
    Ok(())
}

fn run(
    options: &DemoOptions,
    stop: &CancellationToken,
    variant: Variant,
    material: &DemoFiles,
    on_event: &mut dyn FnMut(&DemoEvent) -> io::Result<()>,
) -> Result<(), DriveError> {
    let testbed = hosts(options)?;
    let address = (testbed.server().address(), host::PORT).into();
    let server = host::serve(testbed.server(), variant, options, material)?;
    if let (Variant::Smig, Some(name)) = (variant, &options.bulk_congestion_control)
        && !testbed.server().has_congestion_control(name)?
    {
        on_event(&DemoEvent::Problem(format!(
            "This kernel has no congestion control {name}; the big file used {}, which fills the \
             link's queue. `sudo modprobe tcp_{name}` may load it.",
            options.congestion_control
        )))?;
    }
    let (events, mut received) = mpsc::unbounded_channel();
    let plan = Plan {
        server: address,
        variant,
        ca: material.certificate.clone(),
        big_file_digest: material.big_file_digest,
        object_bytes: options.object_bytes,
        object_interval: options.object_interval,
        unloaded_objects: options.unloaded_objects,
    };
    let stop = stop.clone();
    let client = testbed.client().run(move || fetch::run(plan, &stop, &events))?;
    let mut shown = Ok(());
    while let Some(event) = received.blocking_recv() {
        shown = on_event(&event);
        if shown.is_err() {
            // The client notices that the receiver is closed, and ends.
            break;
        }
    }
    drop(received);
    let fetched = client.join().map_err(|_| DriveError::Panicked("client"))?;
    shown?;
    let connections = fetched?;
    let drops = testbed.device_drops()?;
    if drops > 0 {
        on_event(&DemoEvent::Problem(format!(
            "The hosts' network devices dropped {drops} packets: the machine was overloaded."
        )))?;
    }
    let link = Some(testbed.report());
    server.stop()?;
    on_event(&DemoEvent::RunFinished { connections, link })?;
    Ok(())
}
