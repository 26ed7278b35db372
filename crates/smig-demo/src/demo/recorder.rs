//! Converts events to a [`DemoResult`].

use smig_link::LinkReport;

use super::data::{
    BigFileSample, ConnectionBytes, DemoResult, DemoRun, DemoSetup, Migration, SmallObject, Variant,
};
use std::time::Duration;

/// An event of the demonstration. Times count from the start of the run.
#[derive(Debug, Clone, PartialEq)]
pub enum DemoEvent {
    /// A run begins; the following events belong to it.
    RunStarted(Variant),
    /// A small object is complete.
    Object(SmallObject),
    /// The big file was requested.
    BigFileStarted(Duration),
    /// An interval of the big file on one connection is over.
    BigFileBytes(BigFileSample),
    /// The big file is complete.
    BigFileFinished(Duration),
    /// The big file migrated to another connection.
    Migrated(Migration),
    /// The kernel lacks [`DemoSetup::bulk_congestion_control`]: SMig's connections for big files use the hosts'.
    BulkCongestionControlMissing,
    /// A problem, in a complete sentence. The run may continue.
    Problem(String),
    /// The run is over.
    RunFinished {
        /// Bytes of each connection.
        connections: Vec<ConnectionBytes>,
        /// Counters of the link.
        link: Option<Box<LinkReport>>,
    },
}

/// Records events as a result.
#[derive(Debug, Clone)]
pub struct DemoRecorder {
    result: DemoResult,
}

impl DemoRecorder {
    /// Creates an empty recorder.
    #[must_use]
    pub const fn new(setup: DemoSetup) -> Self {
        Self { result: DemoResult { setup, runs: Vec::new() } }
    }

    /// Records one event. Events before the first run are dropped.
    pub fn apply(&mut self, event: &DemoEvent) {
        if let DemoEvent::RunStarted(variant) = event {
            self.result.runs.push(DemoRun::new(*variant));
            return;
        }
        let Some(run) = self.result.runs.last_mut() else { return };
        match event {
            DemoEvent::RunStarted(_) => {}
            DemoEvent::Object(object) => {
                // Objects complete in any order.
                let index = run
                    .objects
                    .partition_point(|earlier| earlier.requested_at <= object.requested_at);
                run.objects.insert(index, *object);
            }
            DemoEvent::BigFileStarted(at) => run.big_file_started_at = Some(*at),
            DemoEvent::BigFileBytes(sample) => run.big_file_samples.push(*sample),
            DemoEvent::BigFileFinished(at) => run.big_file_finished_at = Some(*at),
            DemoEvent::Migrated(migration) => run.migrations.push(*migration),
            DemoEvent::BulkCongestionControlMissing => {
                self.result.setup.bulk_congestion_control = None;
            }
            DemoEvent::Problem(problem) => run.problems.push(problem.clone()),
            DemoEvent::RunFinished { connections, link } => {
                run.connections.clone_from(connections);
                run.link = link.as_deref().copied();
            }
        }
    }

    /// Returns the result so far.
    #[must_use]
    pub const fn result(&self) -> &DemoResult {
        &self.result
    }

    /// Returns the final result.
    #[must_use]
    pub fn finish(self) -> DemoResult {
        self.result
    }
}
