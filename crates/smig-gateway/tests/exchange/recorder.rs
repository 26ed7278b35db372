//! An origin that responds to each header section at once, reads the announced body from whatever follows, and
//! records everything. If the gateway announces a wrong length, the origin takes bytes of the next request for the
//! body, which the tests detect.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::support::{Gateway, Origin};

/// The request of another client, and the form in which it must arrive.
const VICTIM: &str = "GET /victim HTTP/1.1\r\nhost: victim\r\n\r\n";

pub(crate) const OK_RESPONSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A request as received by the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) head: String,
    /// In its encoding on the wire.
    pub(crate) body: Vec<u8>,
    /// No more of the message will arrive.
    pub(crate) has_ended: bool,
    pub(crate) is_complete: bool,
    /// Index of its connection.
    pub(crate) connection_index: usize,
}

#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) url: String,
    messages: watch::Receiver<Vec<Message>>,
}

impl Recorder {
    /// Starts an origin that sends `response` to every request but the victim's, which gets
    /// [`OK_RESPONSE`].
    pub(crate) async fn start(response: &'static str) -> Self {
        let mut origin = Origin::start().await;
        let url = origin.url();
        let (sender, messages) = watch::channel(Vec::new());
        tokio::spawn(async move {
            for connection_index in 0.. {
                let tcp = origin.accept().await;
                tokio::spawn(serve(tcp, connection_index, response, sender.clone()));
            }
        });
        Self { url, messages }
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        self.messages.borrow().clone()
    }

    /// Returns the messages once there are `count`, and all of them have ended.
    pub(crate) async fn wait_for(&self, count: usize, case: &str) -> Vec<Message> {
        let mut messages = self.messages.clone();
        let ready = messages.wait_for(|messages| {
            messages.len() >= count && messages.iter().all(|message| message.has_ended)
        });
        let ready = timeout(Duration::from_secs(20), ready).await;
        let ready = ready.unwrap_or_else(|_| panic!("{case}: no {count} messages: {self:?}"));
        ready.unwrap().clone()
    }

    /// Sends another client's request, which must arrive unchanged and get its own response.
    pub(crate) async fn send_victim_request(&self, gateway: &Gateway, case: &str) -> Message {
        let sent = "GET /victim HTTP/1.1\r\nHost: victim\r\nConnection: close\r\n\r\n";
        let response = gateway.send_and_read_to_end(sent).await;
        let messages = self.messages();
        let victims: Vec<_> = messages.iter().filter(|message| message.head == VICTIM).collect();
        assert_eq!(
            victims.len(),
            1,
            "{case}: the victim's request did not arrive once: {messages:#?}"
        );
        for other in messages.iter().filter(|message| message.head != VICTIM) {
            let body = String::from_utf8_lossy(&other.body);
            assert!(
                !other.head.contains("victim") && !body.contains("victim"),
                "{case}: {other:?}"
            );
        }
        assert!(
            response.starts_with("HTTP/1.1 200 ") && response.ends_with("ok"),
            "{case}: {response}"
        );
        victims[0].clone()
    }
}

/// Reads up to and including `end`.
async fn read_until(tcp: &mut TcpStream, bytes: &mut Vec<u8>, end: &[u8]) -> Option<Vec<u8>> {
    loop {
        if let Some(at) = bytes.windows(end.len()).position(|window| window == end) {
            return Some(bytes.drain(..at + end.len()).collect());
        }
        if tcp.read_buf(bytes).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

async fn read_exactly(tcp: &mut TcpStream, bytes: &mut Vec<u8>, count: usize) -> Option<Vec<u8>> {
    while bytes.len() < count {
        if tcp.read_buf(bytes).await.unwrap_or(0) == 0 {
            return None;
        }
    }
    Some(bytes.drain(..count).collect())
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

async fn serve(
    mut tcp: TcpStream,
    connection_index: usize,
    response: &'static str,
    messages: watch::Sender<Vec<Message>>,
) {
    let mut bytes = Vec::new();
    while let Some(head) = read_until(&mut tcp, &mut bytes, b"\r\n\r\n").await {
        let head = String::from_utf8(head).unwrap();
        let mut message = Message {
            head,
            body: Vec::new(),
            has_ended: false,
            is_complete: false,
            connection_index,
        };
        let index = messages.borrow().len();
        messages.send_modify(|messages| messages.push(message.clone()));
        let body = read_body(&mut tcp, &mut bytes, &message.head, response).await;
        (message.has_ended, message.is_complete) = (true, body.is_some());
        message.body = body.unwrap_or_else(|| std::mem::take(&mut bytes));
        let is_complete = message.is_complete;
        messages.send_modify(|messages| messages[index] = message);
        if !is_complete {
            return;
        }
    }
    if !bytes.is_empty() {
        let (head, body) = (String::new(), bytes);
        let broken = Message { head, body, has_ended: true, is_complete: false, connection_index };
        messages.send_modify(|messages| messages.push(broken));
    }
}

/// Responds, and reads the body.
async fn read_body(
    tcp: &mut TcpStream,
    bytes: &mut Vec<u8>,
    head: &str,
    response: &str,
) -> Option<Vec<u8>> {
    let response = if head == VICTIM { OK_RESPONSE } else { response };
    tcp.write_all(response.as_bytes()).await.ok()?;
    if field(head, "transfer-encoding").is_some() {
        // The tests send no trailers.
        return read_until(tcp, bytes, b"0\r\n\r\n").await;
    }
    let length = field(head, "content-length").map_or(0, |length| length.parse().unwrap());
    read_exactly(tcp, bytes, length).await
}
