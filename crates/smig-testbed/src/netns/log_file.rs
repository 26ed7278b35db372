//! The log of a direction in a file, written while the link runs.
//!
//! Comma-separated values, one line per event: time in nanoseconds of
//! `CLOCK_MONOTONIC`, the event's name (see [`LinkEventKind::name`]), bytes of
//! the packet, the queue's packets and bytes after the event, and the packet's
//! ports (0 if it has none).

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;

use smig_link::{LinkEvent, LinkEventKind, LinkLog, Ports, Time};

use super::spool::{Spool, WriterResult};

const HEADER: &str =
    "nanoseconds,event,bytes,queue_packets,queue_bytes,source_port,destination_port";

/// Writes a link's log to a file. The file is complete once this is dropped,
/// which the testbed does when its links stop.
#[derive(Debug)]
pub struct LogFile(Spool<LinkEvent>);

/// The result of writing a [`LogFile`].
#[derive(Debug, Clone)]
pub struct LogFileOutcome(WriterResult);

impl LogFileOutcome {
    /// Checks for write errors. All of them are known once the [`LogFile`] has been dropped.
    ///
    /// # Errors
    /// The writer's error, if there is one; returned once.
    pub fn check(&self) -> io::Result<()> {
        self.0.take()
    }
}

impl LogFile {
    /// Creates a file, or truncates an existing one.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(path: &Path) -> io::Result<(Self, LogFileOutcome)> {
        let format = |events: &[LinkEvent], output: &mut Vec<u8>| {
            for event in events {
                let LinkEvent { at, kind, bytes, ports, queue_packets, queue_bytes } = event;
                let (at, name) = (at.as_nanos(), kind.name());
                let Ports { source, destination } = ports;
                // Writing to memory does not fail.
                let _ = writeln!(
                    output,
                    "{at},{name},{bytes},{queue_packets},{queue_bytes},{source},{destination}"
                );
            }
        };
        let (spool, outcome) = Spool::create(path, format!("{HEADER}\n").as_bytes(), format)?;
        Ok((Self(spool), LogFileOutcome(outcome)))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or a line is not in this format; the error names the line.
    pub fn read(path: &Path) -> io::Result<Vec<LinkEvent>> {
        let mut events = Vec::new();
        for (index, line) in BufReader::new(File::open(path)?).lines().enumerate() {
            let line = line?;
            if index == 0 && line == HEADER {
                continue;
            }
            let event = parse(&line).ok_or_else(|| {
                let location = format!("{}: line {}", path.display(), index + 1);
                let text = format!("{location}: {line:?} is not a link event");
                io::Error::new(io::ErrorKind::InvalidData, text)
            })?;
            events.push(event);
        }
        Ok(events)
    }
}

impl LinkLog for LogFile {
    fn record(&mut self, event: LinkEvent) {
        self.0.push(event);
    }
}

fn parse(line: &str) -> Option<LinkEvent> {
    let mut fields = line.split(',');
    let event = LinkEvent {
        at: Time::from_nanos(fields.next()?.parse().ok()?),
        kind: LinkEventKind::from_name(fields.next()?)?,
        bytes: fields.next()?.parse().ok()?,
        queue_packets: fields.next()?.parse().ok()?,
        queue_bytes: fields.next()?.parse().ok()?,
        ports: Ports {
            source: fields.next()?.parse().ok()?,
            destination: fields.next()?.parse().ok()?,
        },
    };
    fields.next().is_none().then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use smig_link::DropReason;

    #[test]
    fn a_log_file_round_trips() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.csv");
        let kinds = [LinkEventKind::Enqueue, LinkEventKind::Dequeue]
            .into_iter()
            .chain(DropReason::ALL.map(LinkEventKind::Drop));
        let events: Vec<_> = kinds
            .cycle()
            .take(10_000)
            .zip(0_u64..)
            .map(|(kind, number)| LinkEvent {
                at: Time::from_nanos(number * 7),
                kind,
                bytes: 1_500 + number,
                ports: Ports { source: 443, destination: number as u16 },
                queue_packets: number as usize % 75,
                queue_bytes: number * 2,
            })
            .collect();
        let (mut log, outcome) = LogFile::create(&path).unwrap();
        events.iter().for_each(|event| log.record(*event));
        drop(log);
        outcome.check().unwrap();
        assert_eq!(LogFile::read(&path).unwrap(), events);
    }

    #[test]
    fn an_invalid_line_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.csv");
        std::fs::write(&path, format!("{HEADER}\n1,enqueue,1,1,1,443,2\n1,lost,1\n")).unwrap();
        let error = LogFile::read(&path).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("1,lost,1"), "{error}");
        assert!(LogFile::create(&directory.path().join("no/such/directory")).is_err());
    }
}
