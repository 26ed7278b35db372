//! The DevTools protocol over a pair of pipes: JSON messages, each terminated by a zero byte.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::error::BrowserError;

/// Timeout of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Poll interval of the cancellation token.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A notification from the browser.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DevToolsEvent {
    /// Its domain and name, such as `Page.loadEventFired`.
    pub method: String,
    /// Its parameters.
    #[serde(default)]
    pub params: Value,
    /// The tab's session; empty for the browser itself.
    #[serde(default)]
    pub session_id: String,
}

/// A DevTools connection to a browser. What waits fails soon after `stop` is cancelled.
#[derive(Debug)]
pub struct DevTools<W> {
    writer: W,
    messages: Receiver<Value>,
    last_id: u64,
    events: VecDeque<DevToolsEvent>,
    stop: CancellationToken,
}

impl<W: Write> DevTools<W> {
    /// Writes to `writer`; a thread reads `reader` until its end.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn new(
        writer: W,
        reader: impl Read + Send + 'static,
        stop: CancellationToken,
    ) -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        thread::Builder::new()
            .name("devtools".into())
            .spawn(move || read_messages(reader, &sender))?;
        Ok(Self { writer, messages: receiver, last_id: 0, events: VecDeque::new(), stop })
    }

    /// Sends a command without waiting for the response. `session_id` is a page's; it is empty for the
    /// browser itself.
    ///
    /// # Errors
    /// The browser has exited.
    pub fn send(
        &mut self,
        session_id: &str,
        method: &str,
        params: Value,
    ) -> Result<u64, BrowserError> {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": params});
        if !session_id.is_empty() {
            message["sessionId"] = session_id.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.writer.write_all(&bytes).and_then(|()| self.writer.flush()).map_err(exit_error)?;
        Ok(self.last_id)
    }

    /// Sends a command and waits for the response; events that arrive before it are buffered.
    ///
    /// # Errors
    /// The browser returned an error, or nothing within a minute, or has exited.
    pub fn call(
        &mut self,
        session_id: &str,
        method: &str,
        params: Value,
    ) -> Result<Value, BrowserError> {
        self.call_before(Instant::now() + RESPONSE_TIMEOUT, session_id, method, params)
    }

    /// Like [`Self::call`], with another deadline.
    ///
    /// # Errors
    /// The same.
    pub fn call_before(
        &mut self,
        deadline: Instant,
        session_id: &str,
        method: &str,
        params: Value,
    ) -> Result<Value, BrowserError> {
        let id = self.send(session_id, method, params)?;
        loop {
            let Some(mut message) = self.receive(deadline)? else {
                return Err(BrowserError::Browser(format!("no response to {method}")));
            };
            if message["id"] != id {
                self.buffer_event(message);
            } else if let Some(error) = message["error"]["message"].as_str() {
                return Err(BrowserError::Browser(format!("{method}: {error}")));
            } else {
                return Ok(message["result"].take());
            }
        }
    }

    /// Returns the next event, or `None` after `timeout`.
    ///
    /// # Errors
    /// The browser has exited, or was stopped.
    pub fn next_event(&mut self, timeout: Duration) -> Result<Option<DevToolsEvent>, BrowserError> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let Some(message) = self.receive(deadline)? else { return Ok(None) };
            self.buffer_event(message);
        }
    }

    /// Buffers events; discards responses that no call awaits.
    fn buffer_event(&mut self, message: Value) {
        if let Ok(event) = serde_json::from_value(message) {
            self.events.push_back(event);
        }
    }

    /// Returns an error if the measurement is to stop.
    ///
    /// # Errors
    /// [`BrowserError::Stopped`].
    pub fn check_stop(&self) -> Result<(), BrowserError> {
        if self.stop.is_cancelled() { Err(BrowserError::Stopped) } else { Ok(()) }
    }

    fn receive(&self, deadline: Instant) -> Result<Option<Value>, BrowserError> {
        loop {
            self.check_stop()?;
            let remaining = deadline.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(remaining.min(POLL_INTERVAL)) {
                Ok(message) => return Ok(Some(message)),
                Err(RecvTimeoutError::Timeout) if remaining <= POLL_INTERVAL => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    // What stops this program may have stopped the browser first.
                    self.check_stop()?;
                    return Err(exit_error("the pipe is closed"));
                }
            }
        }
    }
}

fn exit_error(why: impl std::fmt::Display) -> BrowserError {
    BrowserError::Browser(format!("exited ({why})"))
}

fn read_messages(mut reader: impl Read, sender: &mpsc::Sender<Value>) {
    let mut decoder = MessageDecoder::default();
    let mut chunk = vec![0; 64 << 10];
    // End of file and an error mean the same: the browser has exited.
    while let Ok(count @ 1..) = reader.read(&mut chunk) {
        for message in decoder.decode(&chunk[..count]) {
            if sender.send(message).is_err() {
                return;
            }
        }
    }
}

/// Reassembles messages from chunks.
#[derive(Debug, Default)]
struct MessageDecoder {
    partial_message: Vec<u8>,
}

impl MessageDecoder {
    /// Returns the messages that a chunk completes. Data that is not JSON is dropped: no call
    /// awaits it.
    fn decode(&mut self, chunk: &[u8]) -> Vec<Value> {
        let mut messages = Vec::new();
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|&byte| byte == 0) {
            self.partial_message.extend_from_slice(&rest[..end]);
            messages.extend(serde_json::from_slice::<Value>(&self.partial_message));
            self.partial_message.clear();
            rest = &rest[end + 1..];
        }
        self.partial_message.extend_from_slice(rest);
        messages
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn messages_are_reassembled_from_any_chunks() {
        let stream = b"{\"a\":1}\0{\"b\":\"\xc3\xa9\"}\0nonsense\0{\"c\":3}\0";
        let expected = [json!({"a": 1}), json!({"b": "é"}), json!({"c": 3})];
        for size in 1..=stream.len() {
            let mut decoder = MessageDecoder::default();
            let all: Vec<_> = stream.chunks(size).flat_map(|chunk| decoder.decode(chunk)).collect();
            assert_eq!(all, expected, "chunks of {size}");
            assert!(decoder.partial_message.is_empty());
        }
    }

    fn devtools_with_input(input: &'static [u8]) -> DevTools<Vec<u8>> {
        DevTools::new(Vec::new(), Cursor::new(input), CancellationToken::default()).unwrap()
    }

    #[test]
    fn a_response_is_found_between_events() {
        let mut devtools = devtools_with_input(
            b"{\"method\":\"Page.x\",\"params\":{\"n\":1},\"sessionId\":\"S\"}\0\
              {\"id\":1,\"result\":{\"ok\":true}}\0{\"method\":\"Page.y\"}\0",
        );
        let response = devtools.call("S", "Page.enable", json!({})).unwrap();
        assert_eq!(response, json!({"ok": true}));
        let sent =
            serde_json::from_slice::<Value>(&devtools.writer[..devtools.writer.len() - 1]).unwrap();
        assert_eq!(sent, json!({"id": 1, "method": "Page.enable", "params": {}, "sessionId": "S"}));
        assert_eq!(devtools.writer.last(), Some(&0));
        let event = devtools.next_event(RESPONSE_TIMEOUT).unwrap().unwrap();
        assert_eq!((event.method.as_str(), event.session_id.as_str()), ("Page.x", "S"));
        assert_eq!(devtools.next_event(RESPONSE_TIMEOUT).unwrap().unwrap().method, "Page.y");
        assert!(devtools.next_event(RESPONSE_TIMEOUT).is_err(), "the browser has exited");
    }

    #[test]
    fn whoever_waits_for_a_silent_browser_can_be_stopped() {
        let (silent, _keep_open) = std::io::pipe().unwrap();
        let stop = CancellationToken::default();
        let mut devtools = DevTools::new(Vec::new(), silent, stop.clone()).unwrap();
        assert_eq!(devtools.next_event(Duration::ZERO).unwrap(), None);
        stop.cancel();
        let is_stopped = |result| matches!(result, Err(BrowserError::Stopped));
        assert!(is_stopped(devtools.call("", "Page.enable", json!({})).map(|_| ())));
        assert!(is_stopped(devtools.next_event(RESPONSE_TIMEOUT).map(|_| ())));
    }

    #[test]
    fn an_error_response_keeps_its_text() {
        let mut devtools = devtools_with_input(
            b"{\"id\":1,\"error\":{\"code\":-32000,\"message\":\"no such page\"}}\0",
        );
        let error = devtools.call("", "Page.navigate", json!({})).unwrap_err().to_string();
        assert_eq!(error, "browser: Page.navigate: no such page");
    }
}
