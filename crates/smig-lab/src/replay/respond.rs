//! How a request is answered: recorded responses with their bodies in memory.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::entry::{RecordedResponse, ReplayIndex};
use super::host::as_recorded;
use super::matching::{Answers, RequestKey};

/// Recorded responses of one page or of several.
#[derive(Debug, Default)]
pub struct Replay {
    responses: Vec<RecordedResponse>,
    bodies: Vec<Bytes>,
    hosts: BTreeSet<String>,
    answers: Mutex<Answers>,
}

/// What a server knows of a request.
#[derive(Debug, Clone, Copy)]
pub struct ReplayRequest<'a> {
    /// What it asks for.
    pub key: RequestKey<'a>,
    /// The field Origin.
    pub origin: Option<&'a str>,
    /// The field Access-Control-Request-Headers.
    pub requested_headers: Option<&'a str>,
    /// Whether it is for the document of a tab, not of a frame: with it a load begins.
    pub is_navigation: bool,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayResponse {
    /// Status code.
    pub status: u16,
    /// Header fields.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// For how long the server thinks before it answers.
    pub think: Duration,
}

impl Replay {
    /// Reads what [`ReplaySource::prepare`](super::ReplaySource::prepare) has written into these directories.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read<P: AsRef<Path>>(dirs: &[P]) -> io::Result<Self> {
        let mut replay = Self::default();
        for dir in dirs.iter().map(AsRef::as_ref) {
            for response in ReplayIndex::read(dir)?.responses {
                let body = response.body.as_ref().map(|name| std::fs::read(dir.join(name)));
                replay.bodies.push(body.transpose()?.unwrap_or_default().into());
                replay.hosts.insert(response.host.clone());
                replay.responses.push(response);
            }
        }
        Ok(replay)
    }

    /// Returns whether it answers for a host, with a port or without.
    #[must_use]
    pub fn has_host(&self, host: &str) -> bool {
        self.hosts.contains(&*as_recorded(host))
    }

    /// Answers a request: 404 if it is not in the recording.
    #[must_use]
    pub fn respond(&self, request: &ReplayRequest<'_>) -> ReplayResponse {
        let method = request.key.method;
        let mut answer = match self.find(request) {
            Some(index) => {
                let (response, body) = (&self.responses[index], &self.bodies[index]);
                let mut fields = response.fields.clone();
                let is_other_part =
                    response.range.is_some() && response.range.as_deref() != request.key.range;
                if is_other_part {
                    fields.retain(|(name, _)| name != "content-range");
                }
                ReplayResponse {
                    status: if is_other_part { 200 } else { response.status },
                    fields,
                    body: if method == "HEAD" { Bytes::new() } else { body.clone() },
                    think: Duration::from_micros(response.think_us),
                }
            }
            None if method == "OPTIONS" => ReplayResponse {
                status: 204,
                fields: Vec::new(),
                body: Bytes::new(),
                think: Duration::ZERO,
            },
            None => ReplayResponse {
                status: 404,
                fields: vec![("content-type".into(), "text/plain".into())],
                body: Bytes::from_static(b"This was not recorded.\n"),
                think: Duration::ZERO,
            },
        };
        allow_origin(&mut answer, request);
        // The browser says the times of resources of other origins only with this (Resource Timing section 4.5).
        answer.fields.push(("timing-allow-origin".into(), "*".into()));
        answer
    }

    fn find(&self, request: &ReplayRequest<'_>) -> Option<usize> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if request.is_navigation {
            *answers = Answers::default();
        }
        answers.next(&self.responses, &request.key)
    }
}

/// What was recorded was allowed to its page then, with cookies that are not in the recording.
fn allow_origin(answer: &mut ReplayResponse, request: &ReplayRequest<'_>) {
    let Some(origin) = request.origin else { return };
    let mut add = |name: &str, value: &str| answer.fields.push((name.into(), value.into()));
    add("access-control-allow-origin", origin);
    add("access-control-allow-credentials", "true");
    if request.key.method == "OPTIONS" {
        add("access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE");
        add("access-control-allow-headers", request.requested_headers.unwrap_or("*"));
    }
}
