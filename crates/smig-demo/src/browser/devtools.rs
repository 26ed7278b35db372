//! The DevTools protocol over a pair of pipes: JSON messages, each terminated by a zero byte.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::error::BrowserError;

/// Timeout of a response; a browser that exceeds it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A notification from the browser.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    pub(super) method: String,
    #[serde(default)]
    pub(super) params: Value,
    #[serde(default)]
    pub(super) session_id: String,
}

/// A DevTools connection to a browser.
pub(super) struct DevTools<W> {
    to: W,
    from: Receiver<Value>,
    asked: u64,
    events: VecDeque<Event>,
}

impl<W: Write> DevTools<W> {
    /// Writes to `to`; a thread reads `from` until its end.
    pub(super) fn new(to: W, from: impl Read + Send + 'static) -> std::io::Result<Self> {
        let (tell, heard) = mpsc::channel();
        thread::Builder::new().name("devtools".into()).spawn(move || read(from, &tell))?;
        Ok(Self { to, from: heard, asked: 0, events: VecDeque::new() })
    }

    /// Sends a command without waiting for the response. `session` is a page's, empty for the browser itself.
    pub(super) fn send(
        &mut self,
        session: &str,
        method: &str,
        params: Value,
    ) -> Result<u64, BrowserError> {
        self.asked += 1;
        let mut message = json!({"id": self.asked, "method": method, "params": params});
        if !session.is_empty() {
            message["sessionId"] = session.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).and_then(|()| self.to.flush()).map_err(gone)?;
        Ok(self.asked)
    }

    /// Sends a command and waits for the response; events that arrive before it are buffered.
    pub(super) fn call(
        &mut self,
        session: &str,
        method: &str,
        params: Value,
    ) -> Result<Value, BrowserError> {
        let id = self.send(session, method, params)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let Some(mut message) = self.hear(until)? else {
                return Err(BrowserError::Browser(format!("no response to {method}")));
            };
            if message["id"] != id {
                self.keep(message);
            } else if let Some(error) = message["error"]["message"].as_str() {
                return Err(BrowserError::Browser(format!("{method}: {error}")));
            } else {
                return Ok(message["result"].take());
            }
        }
    }

    /// Returns the next event, or `None` after `wait`.
    pub(super) fn next_event(&mut self, wait: Duration) -> Result<Option<Event>, BrowserError> {
        let until = Instant::now() + wait;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let Some(message) = self.hear(until)? else { return Ok(None) };
            self.keep(message);
        }
    }

    /// Buffers events; discards responses that no call awaits.
    fn keep(&mut self, message: Value) {
        if let Ok(event) = serde_json::from_value(message) {
            self.events.push_back(event);
        }
    }

    fn hear(&self, until: Instant) -> Result<Option<Value>, BrowserError> {
        match self.from.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(gone("the pipe is closed")),
        }
    }
}

fn gone(why: impl std::fmt::Display) -> BrowserError {
    BrowserError::Browser(format!("exited ({why})"))
}

fn read(mut from: impl Read, tell: &mpsc::Sender<Value>) {
    let mut messages = Messages::default();
    let mut piece = vec![0; 64 << 10];
    // The end and an error mean the same: the browser has exited.
    while let Ok(count @ 1..) = from.read(&mut piece) {
        for message in messages.take(&piece[..count]) {
            if tell.send(message).is_err() {
                return;
            }
        }
    }
}

/// Reassembles messages from chunks.
#[derive(Debug, Default)]
struct Messages {
    begun: Vec<u8>,
}

impl Messages {
    /// Returns the messages that are complete now. Data that is not JSON is dropped: no call awaits it.
    fn take(&mut self, piece: &[u8]) -> Vec<Value> {
        let mut complete = Vec::new();
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|&byte| byte == 0) {
            self.begun.extend_from_slice(&rest[..end]);
            complete.extend(serde_json::from_slice::<Value>(&self.begun));
            self.begun.clear();
            rest = &rest[end + 1..];
        }
        self.begun.extend_from_slice(rest);
        complete
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn messages_come_in_any_pieces() {
        let stream = b"{\"a\":1}\0{\"b\":\"\xc3\xa9\"}\0nonsense\0{\"c\":3}\0";
        let expected = [json!({"a": 1}), json!({"b": "é"}), json!({"c": 3})];
        for size in 1..=stream.len() {
            let mut messages = Messages::default();
            let all: Vec<_> = stream.chunks(size).flat_map(|piece| messages.take(piece)).collect();
            assert_eq!(all, expected, "pieces of {size}");
            assert!(messages.begun.is_empty());
        }
    }

    fn talk(answers: &'static [u8]) -> DevTools<Vec<u8>> {
        DevTools::new(Vec::new(), Cursor::new(answers)).unwrap()
    }

    #[test]
    fn an_answer_is_found_between_events() {
        let mut talk = talk(
            b"{\"method\":\"Page.x\",\"params\":{\"n\":1},\"sessionId\":\"S\"}\0\
              {\"id\":1,\"result\":{\"ok\":true}}\0{\"method\":\"Page.y\"}\0",
        );
        let answer = talk.call("S", "Page.enable", json!({})).unwrap();
        assert_eq!(answer, json!({"ok": true}));
        let sent = serde_json::from_slice::<Value>(&talk.to[..talk.to.len() - 1]).unwrap();
        assert_eq!(sent, json!({"id": 1, "method": "Page.enable", "params": {}, "sessionId": "S"}));
        assert_eq!(talk.to.last(), Some(&0));
        let event = talk.next_event(PATIENCE).unwrap().unwrap();
        assert_eq!((event.method.as_str(), event.session_id.as_str()), ("Page.x", "S"));
        assert_eq!(talk.next_event(PATIENCE).unwrap().unwrap().method, "Page.y");
        assert!(talk.next_event(PATIENCE).is_err(), "the browser is gone");
    }

    #[test]
    fn a_refusal_is_an_error_with_its_words() {
        let mut talk =
            talk(b"{\"id\":1,\"error\":{\"code\":-32000,\"message\":\"no such page\"}}\0");
        let error = talk.call("", "Page.navigate", json!({})).unwrap_err().to_string();
        assert_eq!(error, "browser: Page.navigate: no such page");
    }
}
