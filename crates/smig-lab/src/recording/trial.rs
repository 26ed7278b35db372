//! Records a run's timeline: queue, TCP, streams and marks on one clock.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use smig_link::Time;
use smig_testbed::netns::{BoxedLog, Testbed, now};

use super::{HostSide, QueueRecorder, ServerEvents, TcpSampler, TcpSamples, add_observation};
use crate::scenario::{ServerKind, Trial};
use crate::timeline::{Direction, LinkFacts, Timeline};
use crate::workload::Observation;

/// Directory of timelines, next to the results.
pub(crate) const TIMELINES_DIR: &str = "timelines";

const QUEUE_RESOLUTION: Duration = Duration::from_millis(1);
const SERVER_SAMPLE_INTERVAL: Duration = Duration::from_millis(10);
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
        self.client_ip = client.address().into();
        self.samplers = vec![
            TcpSampler::start(server, "server", HostSide::Server, SERVER_SAMPLE_INTERVAL)?,
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
