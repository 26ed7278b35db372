//! Runs a script against a peer: sends, waits, and logs the frames received.

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::frame::{Frame, hex};
use super::peer::{Peer, ProbeEvent};
use super::script::{Action, Step, Wanted};
use super::wire::{ACK, FrameText, PING, SETTINGS};
use crate::exit::{Exit, Failure};

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
}

/// Whether SETTINGS and PING are acknowledged automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AutoReply {
    Polite,
    Raw,
}

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) format: Format,
    pub(super) manners: AutoReply,
    /// Timeout of `wait` and `expect`.
    pub(super) patience: Duration,
    /// Silence after the script that ends the run.
    pub(super) linger: Duration,
}

/// State of a run.
pub(super) struct ScriptRunner {
    peer: Peer,
    rules: Rules,
    began: Instant,
    ended: bool,
}

impl ScriptRunner {
    pub(super) fn new(peer: Peer, rules: Rules) -> Result<Self, Failure> {
        let play = Self { peer, rules, began: Instant::now(), ended: false };
        play.note("=", &play.peer.about.clone(), json!({ "about": play.peer.about }))?;
        Ok(play)
    }

    /// Runs the script, then reads until the peer is silent or closes the connection.
    ///
    /// # Errors
    /// An expectation is not met, or the peer has closed the connection before a send.
    pub(super) async fn run(&mut self, script: &[Step]) -> Result<(), Failure> {
        for step in script {
            self.step(step).await?;
        }
        let linger = self.rules.linger;
        while !self.ended {
            if let ProbeEvent::Silence = self.next(Instant::now() + linger).await? {
                break;
            }
        }
        Ok(())
    }

    /// Sends bytes that the protocol requires and that the script leaves out.
    pub(super) async fn send_unasked(&mut self, bytes: &[u8], what: &str) -> Result<(), Failure> {
        self.note(">", &format!("{what} (automatic)"), json!({ "sent": what, "automatic": true }))?;
        // A closed connection is reported by the next read.
        let _ = self.peer.send(bytes).await;
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), Failure> {
        match &step.action {
            Action::Send(bytes) => {
                let value = json!({ "line": step.line, "sent": step.text, "bytes": hex(bytes) });
                self.note(">", &step.text, value)?;
                self.peer.send(bytes).await.map_err(|error| {
                    let line = step.line;
                    let why = format!(
                        "line {line}: cannot send: {error}; the peer closed the connection"
                    );
                    Failure::new(Exit::Receive, why)
                })
            }
            Action::Sleep(time) => {
                let until = Instant::now() + *time;
                while !matches!(self.next(until).await?, ProbeEvent::Silence | ProbeEvent::End(_)) {
                }
                tokio::time::sleep_until(until).await;
                Ok(())
            }
            Action::Wait(wanted) => self.wait(step, wanted).await,
            Action::Expect(wanted) => self.expect(step, wanted).await,
            Action::Finish => {
                self.note(">", "finish", json!({ "line": step.line, "sent": "finish" }))?;
                let _ = self.peer.finish().await;
                Ok(())
            }
            Action::Close => {
                self.note(">", "close", json!({ "line": step.line, "sent": "close" }))?;
                let _ = self.peer.finish().await;
                self.ended = true;
                Ok(())
            }
        }
    }

    async fn wait(&mut self, step: &Step, wanted: &Wanted) -> Result<(), Failure> {
        if let Wanted::Silence(_) = wanted {
            return self.expect(step, wanted).await;
        }
        let deadline = Instant::now() + self.rules.patience;
        loop {
            match (self.next(deadline).await?, wanted) {
                (ProbeEvent::Frame(frame), Wanted::Frame(pattern)) if frame.matches(pattern) => {
                    return Ok(());
                }
                (ProbeEvent::Frame(_), _) => {}
                (ProbeEvent::End(_), Wanted::End) => return Ok(()),
                (ProbeEvent::End(_), _) => {
                    return Err(unmet(step, "the peer closed the connection first"));
                }
                (ProbeEvent::Silence, _) => {
                    let patience = self.rules.patience;
                    return Err(unmet(step, &format!("it did not arrive within {patience:?}")));
                }
            }
        }
    }

    async fn expect(&mut self, step: &Step, wanted: &Wanted) -> Result<(), Failure> {
        let patience = match wanted {
            Wanted::Silence(time) => *time,
            Wanted::End | Wanted::Frame(_) => self.rules.patience,
        };
        match (self.next(Instant::now() + patience).await?, wanted) {
            (ProbeEvent::Frame(frame), Wanted::Frame(pattern)) if frame.matches(pattern) => Ok(()),
            (ProbeEvent::Silence, Wanted::Silence(_)) | (ProbeEvent::End(_), Wanted::End) => Ok(()),
            (ProbeEvent::Frame(frame), _) => Err(unmet(step, &format!("got {}", frame.line()))),
            (ProbeEvent::End(_), _) => Err(unmet(step, "the peer closed the connection")),
            (ProbeEvent::Silence, _) => {
                Err(unmet(step, &format!("nothing arrived within {patience:?}")))
            }
        }
    }

    /// Returns the next read result; logs it, and acknowledges it where required.
    async fn next(&mut self, deadline: Instant) -> Result<ProbeEvent, Failure> {
        let came = self.peer.next(deadline).await?;
        match &came {
            ProbeEvent::Frame(frame) => {
                self.note("<", &frame.line(), frame.json())?;
                self.answer(frame).await?;
            }
            ProbeEvent::End(_) if self.ended => {}
            ProbeEvent::End(why) => {
                self.ended = true;
                let words =
                    why.as_ref().map_or_else(|| "end".to_owned(), |why| format!("end: {why}"));
                self.note("<", &words, json!({ "type": "end", "error": why }))?;
            }
            ProbeEvent::Silence => {}
        }
        Ok(came)
    }

    async fn answer(&mut self, frame: &Frame) -> Result<(), Failure> {
        let is_due = matches!(frame.kind, SETTINGS | PING) && frame.flags & ACK == 0;
        if self.rules.manners == AutoReply::Raw || !is_due {
            return Ok(());
        }
        let payload = if frame.kind == PING { frame.payload.clone() } else { Vec::new() };
        let answer = FrameText { kind: frame.kind, flags: ACK, payload, ..FrameText::default() };
        let what = if frame.kind == PING { "ping ack" } else { "settings ack" };
        self.send_unasked(&answer.bytes(), what).await
    }

    fn note(&self, mark: &str, words: &str, mut value: Value) -> Result<(), Failure> {
        let millis = self.began.elapsed().as_secs_f64() * 1e3;
        let line = match self.rules.format {
            Format::Text => format!("{millis:8.1} {mark} {words}"),
            Format::Json => {
                value["ms"] = json!((millis * 1e3).round() / 1e3);
                value["direction"] = json!(match mark {
                    ">" => "out",
                    "<" => "in",
                    _ => "note",
                });
                value.to_string()
            }
        };
        writeln!(std::io::stdout(), "{line}").map_err(|error| {
            Failure::new(Exit::Write, format!("cannot write standard output: {error}"))
        })
    }
}

fn unmet(step: &Step, why: &str) -> Failure {
    Failure::new(Exit::Failure, format!("line {}: {}: {why}", step.line, step.text))
}
