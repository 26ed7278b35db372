//! Turns what happens into a [`DemoResult`].

use super::data::{
    BulkSample, ConnectionBytes, DemoResult, DemoRun, DemoSetup, Move, SmallObject, Variant,
};
use crate::link::LinkReport;
use std::time::Duration;

/// Something happened in the demonstration. Times count from the start of the run.
#[derive(Debug, Clone, PartialEq)]
pub enum DemoEvent {
    /// A run begins; what follows belongs to it.
    RunStarted(Variant),
    /// A small object is complete.
    Object(SmallObject),
    /// The big file was asked for.
    BulkStarted(Duration),
    /// An interval of the big file on one connection is over.
    Bulk(BulkSample),
    /// The big file is complete.
    BulkFinished(Duration),
    /// The big file went to another connection.
    Moved(Move),
    /// Something went wrong, in a whole sentence. The run may go on.
    Problem(String),
    /// The run is over.
    RunFinished {
        /// What each connection brought.
        connections: Vec<ConnectionBytes>,
        /// What the link counted.
        link: Option<LinkReport>,
    },
}

/// Keeps every event in its place.
#[derive(Debug, Clone)]
pub struct DemoRecorder {
    result: DemoResult,
}

impl DemoRecorder {
    /// Nothing has happened yet.
    #[must_use]
    pub const fn new(setup: DemoSetup) -> Self {
        Self { result: DemoResult { setup, runs: Vec::new() } }
    }

    /// Takes one event. Those that come before the first run have no place and
    /// are dropped.
    pub fn apply(&mut self, event: &DemoEvent) {
        if let DemoEvent::RunStarted(variant) = event {
            self.result.runs.push(DemoRun::new(*variant));
            return;
        }
        let Some(run) = self.result.runs.last_mut() else { return };
        match event {
            DemoEvent::RunStarted(_) => {}
            DemoEvent::Object(object) => {
                // They complete in any order.
                let at = run.objects.partition_point(|earlier| earlier.at <= object.at);
                run.objects.insert(at, *object);
            }
            DemoEvent::BulkStarted(at) => run.bulk_started = Some(*at),
            DemoEvent::Bulk(sample) => run.bulk.push(*sample),
            DemoEvent::BulkFinished(at) => run.bulk_finished = Some(*at),
            DemoEvent::Moved(moved) => run.moves.push(*moved),
            DemoEvent::Problem(problem) => run.problems.push(problem.clone()),
            DemoEvent::RunFinished { connections, link } => {
                run.connections.clone_from(connections);
                run.link = *link;
            }
        }
    }

    /// What is known so far.
    #[must_use]
    pub const fn result(&self) -> &DemoResult {
        &self.result
    }

    /// What is known in the end.
    #[must_use]
    pub fn finish(self) -> DemoResult {
        self.result
    }
}
