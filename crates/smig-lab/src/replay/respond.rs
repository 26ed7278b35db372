//! How a request is answered: recorded responses with their bodies in memory.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use super::entry::{RecordedResponse, ReplayIndex};
use super::matching;

/// Recorded responses of one page or of several.
#[derive(Debug, Clone, Default)]
pub struct Replay {
    responses: Vec<RecordedResponse>,
    bodies: Vec<Bytes>,
    hosts: BTreeSet<String>,
}

/// What counts of a request.
#[derive(Debug, Clone, Copy)]
pub struct ReplayRequest<'a> {
    /// Its method.
    pub method: &'a str,
    /// Its host, with a port or without.
    pub host: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The field Origin.
    pub origin: Option<&'a str>,
    /// The field Access-Control-Request-Headers.
    pub requested_headers: Option<&'a str>,
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
    /// Reads what [`prepare`](super::prepare) has written into these directories.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read<P: AsRef<Path>>(dirs: &[P]) -> io::Result<Self> {
        let mut replay = Self::default();
        for dir in dirs.iter().map(AsRef::as_ref) {
            for response in ReplayIndex::read(dir)?.responses {
                let body = response.body.as_ref().map(|name| std::fs::read(dir.join(name)));
                replay.bodies.push(body.transpose()?.unwrap_or_default().into());
                replay.hosts.insert(response.host.to_ascii_lowercase());
                replay.responses.push(response);
            }
        }
        Ok(replay)
    }

    /// Returns whether it answers for a host, with a port or without.
    #[must_use]
    pub fn has_host(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        self.hosts.contains(host.strip_suffix(":443").unwrap_or(&host))
    }

    /// Answers a request: 404 if it is not in the recording.
    #[must_use]
    pub fn respond(&self, request: &ReplayRequest<'_>) -> ReplayResponse {
        let ReplayRequest { method, host, target, .. } = *request;
        let found = matching::find(&self.responses, method, host, target);
        let mut answer = match found {
            Some(index) => {
                let (response, body) = (&self.responses[index], &self.bodies[index]);
                ReplayResponse {
                    status: response.status,
                    fields: response.fields.clone(),
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
}

/// What was recorded was allowed to its page then, with cookies that are not in the recording.
fn allow_origin(answer: &mut ReplayResponse, request: &ReplayRequest<'_>) {
    let Some(origin) = request.origin else { return };
    let mut add = |name: &str, value: &str| answer.fields.push((name.into(), value.into()));
    add("access-control-allow-origin", origin);
    add("access-control-allow-credentials", "true");
    if request.method == "OPTIONS" {
        add("access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE");
        add("access-control-allow-headers", request.requested_headers.unwrap_or("*"));
    }
}
