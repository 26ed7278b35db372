//! Runs a script against a peer: sends, waits, and logs the frames received.

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::frame::{Frame, to_hex};
use super::peer::{Peer, ProbeEvent};
use super::script::{Action, Expectation, Step};
use super::wire::{ACK, PING, SETTINGS, ScriptFrame};
use crate::exit::{CliError, Exit};

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
}

/// Whether SETTINGS and PING are acknowledged automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AutoReply {
    On,
    Off,
}

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunOptions {
    pub(super) format: Format,
    pub(super) auto_reply: AutoReply,
    /// Timeout of connecting, `wait` and `expect`.
    pub(super) timeout: Duration,
    /// The run ends when nothing has arrived for this long after the script.
    pub(super) linger: Duration,
}

/// State of a run.
pub(super) struct ScriptRunner {
    peer: Peer,
    options: RunOptions,
    started_at: Instant,
    /// The script has closed the sending side.
    is_finished: bool,
    /// Either side has closed the connection.
    is_ended: bool,
}

impl ScriptRunner {
    pub(super) fn new(peer: Peer, options: RunOptions) -> Result<Self, CliError> {
        let runner =
            Self { peer, options, started_at: Instant::now(), is_finished: false, is_ended: false };
        runner.print_event(
            "=",
            &runner.peer.description.clone(),
            json!({ "about": runner.peer.description }),
        )?;
        Ok(runner)
    }

    /// Runs the script, then reads until the peer is silent or closes the connection.
    ///
    /// # Errors
    /// An expectation is not met, or the peer has closed the connection before a send.
    pub(super) async fn run(&mut self, script: &[Step]) -> Result<(), CliError> {
        for step in script {
            self.run_step(step).await?;
        }
        let linger = self.options.linger;
        while !self.is_ended {
            if let ProbeEvent::Silence = self.next(Instant::now() + linger).await? {
                break;
            }
        }
        Ok(())
    }

    /// Sends bytes that the protocol requires and that the script leaves out.
    pub(super) async fn send_automatic(
        &mut self,
        bytes: &[u8],
        name: &str,
    ) -> Result<(), CliError> {
        self.print_event(
            ">",
            &format!("{name} (automatic)"),
            json!({ "sent": name, "automatic": true }),
        )?;
        // A closed connection is reported by the next read.
        let _ = self.peer.send(bytes).await;
        Ok(())
    }

    async fn run_step(&mut self, step: &Step) -> Result<(), CliError> {
        match &step.action {
            Action::Send(bytes) => {
                let value = json!({ "line": step.line, "sent": step.text, "bytes": to_hex(bytes) });
                self.print_event(">", &step.text, value)?;
                self.peer.send(bytes).await.map_err(|error| {
                    let line = step.line;
                    let why = format!(
                        "line {line}: cannot send: {error}; the peer closed the connection"
                    );
                    CliError::new(Exit::Receive, why)
                })
            }
            Action::Sleep(time) => {
                let deadline = Instant::now() + *time;
                while !matches!(
                    self.next(deadline).await?,
                    ProbeEvent::Silence | ProbeEvent::End(_)
                ) {}
                tokio::time::sleep_until(deadline).await;
                Ok(())
            }
            Action::Wait(wanted) => self.wait(step, wanted).await,
            Action::Expect(wanted) => self.expect(step, wanted).await,
            Action::Finish => {
                self.print_event(">", "finish", json!({ "line": step.line, "sent": "finish" }))?;
                let _ = self.peer.finish().await;
                self.is_finished = true;
                Ok(())
            }
            Action::Close => {
                self.print_event(">", "close", json!({ "line": step.line, "sent": "close" }))?;
                let _ = self.peer.close().await;
                self.is_ended = true;
                Ok(())
            }
        }
    }

    async fn wait(&mut self, step: &Step, expectation: &Expectation) -> Result<(), CliError> {
        if let Expectation::Silence(_) = expectation {
            return self.expect(step, expectation).await;
        }
        let deadline = Instant::now() + self.options.timeout;
        loop {
            match (self.next(deadline).await?, expectation) {
                (ProbeEvent::Frame(frame), Expectation::Frame(pattern))
                    if frame.matches(pattern) =>
                {
                    return Ok(());
                }
                (ProbeEvent::Frame(_), _) => {}
                (ProbeEvent::End(_), Expectation::End) => return Ok(()),
                (ProbeEvent::End(_), _) => {
                    return Err(unmet_expectation(step, "the peer closed the connection first"));
                }
                (ProbeEvent::Silence, _) => {
                    let timeout = self.options.timeout;
                    return Err(unmet_expectation(
                        step,
                        &format!("it did not arrive within {timeout:?}"),
                    ));
                }
            }
        }
    }

    async fn expect(&mut self, step: &Step, expectation: &Expectation) -> Result<(), CliError> {
        let timeout = match expectation {
            Expectation::Silence(time) => *time,
            Expectation::End | Expectation::Frame(_) => self.options.timeout,
        };
        match (self.next(Instant::now() + timeout).await?, expectation) {
            (ProbeEvent::Frame(frame), Expectation::Frame(pattern)) if frame.matches(pattern) => {
                Ok(())
            }
            (ProbeEvent::Silence, Expectation::Silence(_))
            | (ProbeEvent::End(_), Expectation::End) => Ok(()),
            (ProbeEvent::Frame(frame), _) => {
                Err(unmet_expectation(step, &format!("got {}", frame.to_line())))
            }
            (ProbeEvent::End(_), _) => {
                Err(unmet_expectation(step, "the peer closed the connection"))
            }
            (ProbeEvent::Silence, _) => {
                Err(unmet_expectation(step, &format!("nothing arrived within {timeout:?}")))
            }
        }
    }

    /// Returns the next read result; logs it, and acknowledges it where required.
    async fn next(&mut self, deadline: Instant) -> Result<ProbeEvent, CliError> {
        let event = self.peer.next(deadline).await?;
        match &event {
            ProbeEvent::Frame(frame) => {
                self.print_event("<", &frame.to_line(), frame.to_json())?;
                self.acknowledge(frame).await?;
            }
            ProbeEvent::End(_) if self.is_ended => {}
            ProbeEvent::End(why) => {
                self.is_ended = true;
                let text =
                    why.as_ref().map_or_else(|| "end".to_owned(), |why| format!("end: {why}"));
                self.print_event("<", &text, json!({ "type": "end", "error": why }))?;
            }
            ProbeEvent::Silence => {}
        }
        Ok(event)
    }

    async fn acknowledge(&mut self, frame: &Frame) -> Result<(), CliError> {
        let needs_ack = matches!(frame.kind, SETTINGS | PING) && frame.flags & ACK == 0;
        if self.options.auto_reply == AutoReply::Off || !needs_ack || self.is_finished {
            return Ok(());
        }
        let payload = if frame.kind == PING { frame.payload.clone() } else { Vec::new() };
        let ack = ScriptFrame { kind: frame.kind, flags: ACK, payload, ..ScriptFrame::default() };
        let name = if frame.kind == PING { "ping ack" } else { "settings ack" };
        self.send_automatic(&ack.encode(), name).await
    }

    fn print_event(&self, direction: &str, text: &str, mut value: Value) -> Result<(), CliError> {
        let millis = self.started_at.elapsed().as_secs_f64() * 1e3;
        let line = match self.options.format {
            Format::Text => format!("{millis:8.1} {direction} {text}"),
            Format::Json => {
                value["ms"] = json!((millis * 1e3).round() / 1e3);
                value["direction"] = json!(match direction {
                    ">" => "out",
                    "<" => "in",
                    _ => "note",
                });
                value.to_string()
            }
        };
        writeln!(std::io::stdout(), "{line}").map_err(|error| {
            CliError::new(Exit::Write, format!("cannot write standard output: {error}"))
        })
    }
}

fn unmet_expectation(step: &Step, why: &str) -> CliError {
    CliError::new(Exit::Failure, format!("line {}: {}: {why}", step.line, step.text))
}
