//! Records a run's timeline: queue, TCP, streams and marks on one clock.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use smig_link::Time;
use smig_testbed::netns::{BoxedLog, Testbed, now};

use super::{
    HostSide, QueueRecorder, ServerEvents, TcpSampler, TcpSamples, add_observation, add_page_loads,
};
use crate::scenario::{Page, ServerKind, Trial};
use crate::timeline::{Direction, LinkFacts, Timeline};
use crate::workload::Observation;

/// Directory of timelines, next to the results.
pub(crate) const TIMELINES_DIR: &str = "timelines";

const QUEUE_RESOLUTION: Duration = Duration::from_millis(1);
const SERVER_SAMPLE_INTERVAL: Duration = Duration::from_millis(10);
/// Small pages are loaded in a tenth of a second.
const PAGE_SERVER_SAMPLE_INTERVAL: Duration = Duration::from_millis(4);
const CLIENT_SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// Recorder of one run.
#[derive(Debug)]
pub(crate) struct TrialRecorder {
    path: PathBuf,
    title: String,
    link: LinkFacts,
    facts: Vec<(&'static str, String)>,
    /// Names of our own servers, which log events.
    smig_server_names: Vec<String>,
    pages: BTreeMap<String, Page>,
    queue_recorder: QueueRecorder,
    /// Address of the client host on the link whose queue is recorded.
    client_ip: IpAddr,
    origin: Time,
    samplers: Vec<TcpSampler>,
    samples: Vec<TcpSamples>,
}

impl TrialRecorder {
    pub(crate) fn new(trial: &Trial, path: &Path) -> Self {
        let smig_servers =
            trial.scenario.servers.iter().filter(|(_, server)| server.kind == ServerKind::Smig);
        Self {
            path: path.to_owned(),
            title: format!("{}: {}", trial.id.campaign, trial.id),
            link: LinkFacts::of(&trial.scenario.link),
            facts: vec![("hash", trial.hash().to_owned()), ("seed", trial.seed.to_string())],
            smig_server_names: smig_servers.map(|(name, _)| name.clone()).collect(),
            pages: trial.scenario.workload.pages.clone(),
            queue_recorder: QueueRecorder::new(Direction::ToClient, QUEUE_RESOLUTION),
            client_ip: Ipv4Addr::UNSPECIFIED.into(),
            origin: now(),
            samplers: Vec::new(),
            samples: Vec::new(),
        }
    }

    /// Returns the sink for the link's log.
    pub(crate) fn queue_log(&self) -> BoxedLog {
        self.queue_recorder.log()
    }

    /// Starts the TCP samplers when the clients start.
    pub(crate) fn start_samplers(&mut self, testbed: &Testbed) -> io::Result<()> {
        self.origin = now();
        let (server, client) = (testbed.server(), testbed.client());
        let server_interval = if self.pages.is_empty() {
            SERVER_SAMPLE_INTERVAL
        } else {
            PAGE_SERVER_SAMPLE_INTERVAL
        };
        self.client_ip = client.address().into();
        self.samplers = vec![
            TcpSampler::start(server, "server", HostSide::Server, server_interval)?,
            // `Column::ReceivedBytes` is read from the receiver's samples.
            TcpSampler::start(client, "client", HostSide::Client, CLIENT_SAMPLE_INTERVAL)?,
        ];
        Ok(())
    }

    /// Stops the samplers when the clients have finished and their connections are still open.
    pub(crate) fn stop_samplers(&mut self) -> io::Result<()> {
        for sampler in self.samplers.drain(..) {
            self.samples.push(sampler.stop()?);
        }
        Ok(())
    }

    /// Writes the file. `scratch` contains the servers' output.
    pub(crate) fn write(self, observation: &Observation, scratch: &Path) -> io::Result<()> {
        let mut timeline = Timeline::new(&self.title, self.origin);
        timeline.head.link = Some(self.link);
        let facts = self.facts.into_iter().map(|(name, fact)| (name.to_owned(), fact));
        timeline.head.facts = facts.collect();
        timeline.tracks.extend(self.queue_recorder.flush_to_tracks(self.origin, self.client_ip));
        for samples in &self.samples {
            samples.append_to(&mut timeline);
        }
        add_observation(&mut timeline, observation);
        add_page_loads(&mut timeline, observation, &self.pages);
        for name in &self.smig_server_names {
            let output = File::open(scratch.join(format!("server-{name}.out")))?;
            ServerEvents::read(&mut BufReader::new(output))?.append_to(&mut timeline, "server");
        }
        if let Some(dir) = self.path.parent() {
            fs::create_dir_all(dir)?;
        }
        timeline.write_to(&mut BufWriter::new(File::create(&self.path)?))
    }
}
