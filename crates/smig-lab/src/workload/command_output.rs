//! Output of a client's command, read as it arrives and within limits.

use std::io;

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::result::{ObjectResult, Outcome};

/// Maximum size of a command's standard output, in MiB.
const MAX_OUTPUT_MIB: usize = 64;
/// Maximum number of a command's objects.
const MAX_OBJECTS: usize = 100_000;
/// Number of last bytes of standard error that are retained.
const MAX_STDERR_TAIL_BYTES: usize = 4 << 10;
/// Maximum size of a read.
const READ_CHUNK_BYTES: usize = 64 << 10;
/// How far a command's times, which are rounded, may be ahead of our clock.
const CLOCK_TOLERANCE_NS: u64 = 10_000_000;

/// One object, as a command reports it. Times are milliseconds since the start of the command.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectLine {
    /// Time of the request.
    #[serde(default)]
    start_ms: f64,
    /// Arrival of the response's header section.
    head_ms: Option<f64>,
    /// Arrival of the first bytes of the body.
    first_byte_ms: Option<f64>,
    /// The end of the transfer.
    end_ms: f64,
    /// Transferred bytes of the body.
    bytes: u64,
    /// Expected size of the body; the transfer's if absent.
    size: Option<u64>,
    /// Why the request failed.
    error: Option<String>,
}

/// The objects that a command has printed, up to the first invalid line.
#[derive(Debug)]
pub(super) struct ObjectLines {
    /// The result of a request that starts with the command.
    initial: ObjectResult,
    pub(super) objects: Vec<ObjectResult>,
    /// The first invalid line, and why.
    pub(super) fault: Option<String>,
    /// Complete lines so far.
    line_count: usize,
    output_bytes: usize,
    /// The beginning of a line.
    partial_line: Vec<u8>,
}

impl ObjectLines {
    pub(super) const fn new(initial: ObjectResult) -> Self {
        Self {
            initial,
            objects: Vec::new(),
            fault: None,
            line_count: 0,
            output_bytes: 0,
            partial_line: Vec::new(),
        }
    }

    /// Reads the output to EOF. `now_ns` is the clock of the objects' times. Dropping the future loses
    /// only the beginning of a line.
    ///
    /// # Errors
    /// An I/O error, or the limit that the output exceeds.
    pub(super) async fn read(
        &mut self,
        mut output: impl AsyncRead + Unpin,
        now_ns: impl Fn() -> u64,
    ) -> Result<(), String> {
        let mut chunk = vec![0; READ_CHUNK_BYTES];
        loop {
            let read = output.read(&mut chunk).await.map_err(|error| error.to_string())?;
            if read == 0 {
                self.end_line(now_ns());
                return Ok(());
            }
            self.add(&chunk[..read], now_ns())?;
        }
    }

    fn add(&mut self, bytes: &[u8], now_ns: u64) -> Result<(), String> {
        self.output_bytes += bytes.len();
        if self.output_bytes > MAX_OUTPUT_MIB << 20 {
            return Err(format!("its output is more than {MAX_OUTPUT_MIB} MiB"));
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.fault.is_some() {
                break;
            }
            self.partial_line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_line(now_ns);
            }
            if self.objects.len() > MAX_OBJECTS {
                return Err(format!("its output is more than {MAX_OBJECTS} objects"));
            }
        }
        Ok(())
    }

    /// Parses the current line, which is complete.
    fn end_line(&mut self, now_ns: u64) {
        self.line_count += 1;
        let line = std::mem::take(&mut self.partial_line);
        let line = String::from_utf8_lossy(&line);
        if self.fault.is_some() || line.trim().is_empty() {
            return;
        }
        let read = serde_json::from_str::<ObjectLine>(&line).map_err(|error| error.to_string());
        match read.and_then(|line| line.into_object(&self.initial, now_ns)) {
            Ok(object) => self.objects.push(object),
            Err(why) => self.fault = Some(format!("line {} of its output: {why}", self.line_count)),
        }
    }
}

impl ObjectLine {
    /// Returns the object of a line that was read at `now_ns`.
    fn into_object(self, initial: &ObjectResult, now_ns: u64) -> Result<ObjectResult, String> {
        let times = [Some(self.start_ms), self.head_ms, self.first_byte_ms, Some(self.end_ms)];
        let times: Vec<f64> = times.into_iter().flatten().collect();
        if !times.iter().all(|time| time.is_finite() && *time >= 0.0) || !times.is_sorted() {
            return Err("start_ms, head_ms, first_byte_ms and end_ms must be numbers of \
                        milliseconds from 0 on that do not decrease"
                .into());
        }
        let to_run_ns = |ms: f64| initial.started_ns.saturating_add((ms * 1e6) as u64);
        if to_run_ns(self.end_ms) > now_ns.saturating_add(CLOCK_TOLERANCE_NS) {
            let now_ms = now_ns.saturating_sub(initial.started_ns) as f64 / 1e6;
            return Err(format!(
                "end_ms is {} and thus in the future: the line was read at {now_ms:.1}",
                self.end_ms
            ));
        }
        let size = self.size.unwrap_or(initial.size);
        Ok(ObjectResult {
            size,
            started_ns: to_run_ns(self.start_ms),
            head_ns: self.head_ms.map(to_run_ns),
            first_byte_ns: self.first_byte_ms.map(to_run_ns),
            ended_ns: to_run_ns(self.end_ms),
            bytes: self.bytes,
            outcome: match self.error {
                Some(why) => Outcome::Failed(why),
                None if self.bytes == size => Outcome::Complete,
                None => Outcome::Damaged,
            },
            ..initial.clone()
        })
    }
}

/// The last bytes of a command's standard error.
#[derive(Debug, Default)]
pub(super) struct StderrTail(Vec<u8>);

impl StderrTail {
    /// Reads to EOF.
    ///
    /// # Errors
    /// An I/O error.
    pub(super) async fn read(&mut self, mut output: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut chunk = vec![0; MAX_STDERR_TAIL_BYTES];
        loop {
            let read = output.read(&mut chunk).await?;
            if read == 0 {
                return Ok(());
            }
            self.0.extend_from_slice(&chunk[..read]);
            self.0.drain(..self.0.len().saturating_sub(MAX_STDERR_TAIL_BYTES));
        }
    }

    /// Returns the last line that is not blank.
    pub(super) fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.0);
        text.lines().rfind(|line| !line.trim().is_empty()).map(|line| line.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::RequestPhases;
    use super::*;
    use crate::scenario::{SizeClass, TransferDirection};

    fn object_lines() -> ObjectLines {
        ObjectLines::new(ObjectResult {
            name: "small".into(),
            number: 0,
            client: "load".into(),
            size_class: SizeClass::Small,
            direction: TransferDirection::Download,
            size: 1_000,
            started_ns: 5_000_000,
            phases: RequestPhases::default(),
            head_ns: None,
            first_byte_ns: None,
            ended_ns: 0,
            bytes: 0,
            connections: Vec::new(),
            migrations: Vec::new(),
            outcome: Outcome::TimedOut,
            cancel: None,
            progress: Vec::new(),
        })
    }

    /// Parses an output that is read 100 ms after the command's start.
    fn read(output: &[u8]) -> ObjectLines {
        let mut lines = object_lines();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(lines.read(output, || 105_000_000)).unwrap();
        lines
    }

    #[test]
    fn lines_are_objects() {
        let ObjectLines { objects, fault, .. } = read(
            b"{\"end_ms\": 61.5, \"bytes\": 1000}\n\n\
            {\"start_ms\": 1, \"first_byte_ms\": 2, \"end_ms\": 3, \"bytes\": 7, \"size\": 8}\n\
            {\"end_ms\": 4, \"bytes\": 0, \"error\": \"refused\"}",
        );
        assert_eq!(fault, None);
        let [complete_object, damaged_object, failed_object] = &objects[..] else {
            panic!("{objects:?}")
        };
        assert_eq!((complete_object.started_ns, complete_object.ended_ns), (5_000_000, 66_500_000));
        assert_eq!((&complete_object.outcome, complete_object.bytes), (&Outcome::Complete, 1_000));
        assert_eq!(
            (damaged_object.started_ns, damaged_object.first_byte_ns),
            (6_000_000, Some(7_000_000))
        );
        assert_eq!((&damaged_object.outcome, damaged_object.size), (&Outcome::Damaged, 8));
        assert_eq!(failed_object.outcome, Outcome::Failed("refused".into()));
    }

    #[test]
    fn an_invalid_line_is_reported_and_the_objects_before_it_count() {
        let valid_line = "{\"end_ms\": 1, \"bytes\": 1000}\n";
        for (line, expected_fault) in [
            ("hello", "line 2 of its output: expected value"),
            ("{\"bytes\": 1}", "missing field `end_ms`"),
            ("{\"end_ms\": 1, \"bytes\": 1, \"ms\": 1}", "unknown field `ms`"),
            ("{\"end_ms\": -1, \"bytes\": 1}", "must be numbers of milliseconds from 0 on"),
            ("{\"start_ms\": 2, \"end_ms\": 1, \"bytes\": 1}", "that do not decrease"),
            ("{\"end_ms\": 1e300, \"bytes\": 1}", "in the future: the line was read at 100.0"),
            ("{\"end_ms\": 111, \"bytes\": 1}", "end_ms is 111 and thus in the future"),
        ] {
            let lines = read(format!("{valid_line}{line}\n").as_bytes());
            assert_eq!(lines.objects.len(), 1, "{line}");
            let fault = lines.fault;
            assert!(
                fault.as_ref().is_some_and(|fault| fault.contains(expected_fault)),
                "{line}: {fault:?}"
            );
        }
    }

    #[test]
    fn output_limits_are_enforced() {
        let mut lines = object_lines();
        let object = b"{\"end_ms\": 1, \"bytes\": 1000}\n".repeat(1_000);
        let too_many = (0..200).find_map(|_| lines.add(&object, 5_000_000).err());
        assert_eq!(too_many.unwrap(), "its output is more than 100000 objects");
        let mut lines = object_lines();
        let too_long =
            (0..2_000).find_map(|_| lines.add(&[b'x'; READ_CHUNK_BYTES], 5_000_000).err());
        assert_eq!(too_long.unwrap(), "its output is more than 64 MiB");
    }

    #[test]
    fn the_last_stderr_line_is_kept() {
        let mut stderr_tail = StderrTail::default();
        let output = [b"x".repeat(1 << 20), b"\nno licence\n\n".to_vec()].concat();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(stderr_tail.read(&output[..])).unwrap();
        assert_eq!(stderr_tail.0.len(), MAX_STDERR_TAIL_BYTES);
        assert_eq!(stderr_tail.last_line().unwrap(), "no licence");
    }
}
