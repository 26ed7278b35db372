//! Records a run's timeline: queue, TCP, streams and marks on one clock.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use smig_link::Time;
use smig_testbed::netns::{BoxedLog, Testbed, now};

use super::{HostSide, QueueRecorder, ServerEvents, TcpSampler, TcpSamples, put_observation};
use crate::scenario::{ServerKind, Trial};
use crate::timeline::{Direction, LinkFacts, Timeline};
use crate::workload::Observation;

/// Directory of timelines, next to the results.
pub(crate) const TIMELINES: &str = "timelines";

const QUEUE_EVERY: Duration = Duration::from_millis(1);
const SERVER_EVERY: Duration = Duration::from_millis(10);
const CLIENT_EVERY: Duration = Duration::from_millis(50);

/// Recorder of one run.
#[derive(Debug)]
pub(crate) struct TrialRecorder {
    path: PathBuf,
    title: String,
    link: LinkFacts,
    facts: Vec<(&'static str, String)>,
    /// Names of our own servers, which log events.
    servers: Vec<String>,
    queue: QueueRecorder,
    /// Address of the client host on the link whose queue is recorded.
    client: IpAddr,
    origin: Time,
    running: Vec<TcpSampler>,
    samples: Vec<TcpSamples>,
}

impl TrialRecorder {
    pub(crate) fn new(cell: &Trial, path: &Path) -> Self {
        let ours =
            cell.scenario.servers.iter().filter(|(_, server)| server.kind == ServerKind::Smig);
        Self {
            path: path.to_owned(),
            title: format!("{}: {}", cell.id.campaign, cell.id),
            link: LinkFacts::of(&cell.scenario.link),
            facts: vec![("hash", cell.hash().to_owned()), ("seed", cell.seed.to_string())],
            servers: ours.map(|(name, _)| name.clone()).collect(),
            queue: QueueRecorder::new(Direction::ToClient, QUEUE_EVERY),
            client: Ipv4Addr::UNSPECIFIED.into(),
            origin: now(),
            running: Vec::new(),
            samples: Vec::new(),
        }
    }

    /// Returns the sink for the link's log.
    pub(crate) fn queue_log(&self) -> BoxedLog {
        self.queue.log()
    }

    /// Starts the TCP samplers when the clients start.
    pub(crate) fn begin(&mut self, testbed: &Testbed) -> io::Result<()> {
        self.origin = now();
        let (server, client) = (testbed.server(), testbed.client());
        self.client = client.address().into();
        self.running = vec![
            TcpSampler::start(server, "server", HostSide::Server, SERVER_EVERY)?,
            // Received bytes are sampled at the receiver.
            TcpSampler::start(client, "client", HostSide::Client, CLIENT_EVERY)?,
        ];
        Ok(())
    }

    /// Stops the samplers when the clients have finished, before their connections are closed.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        for sampler in self.running.drain(..) {
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
        timeline.tracks.extend(self.queue.tracks(self.origin, self.client));
        for samples in &self.samples {
            samples.append_to(&mut timeline);
        }
        put_observation(&mut timeline, observation);
        for name in &self.servers {
            let said = File::open(scratch.join(format!("server-{name}.out")))?;
            ServerEvents::read(&mut BufReader::new(said))?.put_on(&mut timeline, "server");
        }
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        timeline.write_to(&mut BufWriter::new(File::create(&self.path)?))
    }
}
