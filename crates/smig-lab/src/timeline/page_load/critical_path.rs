//! The critical path of a load: what was waited for at each instant, from the navigation to the end.

use crate::timeline::{PageSpan, Span, Timeline};

/// Phase of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// It waits for a connection that other requests occupy.
    Queued,
    /// A connection is opened for it.
    Connecting,
    /// It has been sent, and no byte of the response has arrived.
    Waiting,
    /// The response arrives.
    Receiving,
    /// The response has arrived, and runs or waits for the page's thread.
    Running,
}

/// What a page waits for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StepKind<'a> {
    /// A request.
    Request(&'a Span, Phase),
    /// The client itself: no request that the path needs has been made.
    Client,
}

/// A part of the critical path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step<'a> {
    /// Its beginning in microseconds since the timeline's origin: the end of the step before.
    pub from_us: u64,
    /// Its end.
    pub to_us: u64,
    /// What was waited for.
    pub kind: StepKind<'a>,
}

impl Step<'_> {
    /// Returns its length in microseconds.
    #[must_use]
    pub const fn length_us(&self) -> u64 {
        self.to_us.saturating_sub(self.from_us)
    }
}

/// Returns the requests of a load, in the order in which they were made.
#[must_use]
pub fn requests_of<'a>(timeline: &'a Timeline, page: &PageSpan) -> Vec<&'a Span> {
    let is_own = |span: &&Span| span.part.as_ref().is_some_and(|part| part.page == page.name);
    let mut requests: Vec<&Span> = timeline.spans.iter().filter(is_own).collect();
    requests.sort_by_key(|span| span.from_us);
    requests
}

/// Returns the critical path of a load: the request that ended last, the response that named it, and so on back to the document.
/// Its steps follow each other without gaps from the navigation to the end of the load.
#[must_use]
pub fn critical_path<'a>(timeline: &'a Timeline, page: &PageSpan) -> Vec<Step<'a>> {
    let requests = requests_of(timeline, page);
    let mut path = PathBuilder { begin_us: page.from_us, at_us: page.to_us, steps: Vec::new() };
    let mut next = requests.iter().copied().max_by_key(|span| end_us(span));
    // As many steps as there are requests: a file may name parents in a circle.
    for _ in 0..requests.len() {
        let Some(span) = next else { break };
        path.prepend(end_us(span), StepKind::Client);
        for (phase, from_us) in phases(span).into_iter().rev() {
            path.prepend(from_us, StepKind::Request(span, phase));
        }
        let found_in = span.part.as_ref().and_then(|part| part.found_in.as_ref());
        next = found_in
            .and_then(|name| requests.iter().copied().find(|request| request.name == *name));
    }
    path.prepend(page.from_us, StepKind::Client);
    path.steps.reverse();
    path.steps
}

/// A path that is built from its end.
struct PathBuilder<'a> {
    begin_us: u64,
    /// Beginning of the steps so far.
    at_us: u64,
    steps: Vec<Step<'a>>,
}

impl<'a> PathBuilder<'a> {
    /// Adds what was waited for from `from_us` to the beginning of the path so far, if that is later.
    fn prepend(&mut self, from_us: u64, kind: StepKind<'a>) {
        let from_us = from_us.max(self.begin_us);
        if from_us < self.at_us {
            self.steps.push(Step { from_us, to_us: self.at_us, kind });
            self.at_us = from_us;
        }
    }
}

/// Returns when a request has ended, and what it named could be requested.
pub(in crate::timeline) fn end_us(span: &Span) -> u64 {
    let finished_us = span.part.as_ref().and_then(|part| part.finished_us);
    finished_us.unwrap_or(0).max(span.to_us).max(span.from_us)
}

/// Returns the phases of a request with their beginnings, in order. A phase of which nothing is known has no length.
pub(crate) fn phases(span: &Span) -> [(Phase, u64); 5] {
    let part = span.part.as_ref();
    let to_us = span.to_us.max(span.from_us);
    let first_byte_us = span.first_byte_us.unwrap_or(to_us).clamp(span.from_us, to_us);
    let sent_us = part.and_then(|part| part.sent_us).unwrap_or(span.from_us);
    let sent_us = sent_us.clamp(span.from_us, first_byte_us);
    let connect_us = part.and_then(|part| part.connect_us).unwrap_or(sent_us);
    let connect_us = connect_us.clamp(span.from_us, sent_us);
    [
        (Phase::Queued, span.from_us),
        (Phase::Connecting, connect_us),
        (Phase::Waiting, sent_us),
        (Phase::Receiving, first_byte_us),
        (Phase::Running, to_us),
    ]
}
