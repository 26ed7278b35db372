//! Raw HTTP/2, for requests that no client would send.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::Gateway;

/// How a request on stream 1 ended on the client's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// A response with this status.
    Status(u16),
    /// RST_STREAM with this code.
    Reset(u32),
    /// GOAWAY with this code, or the end of the connection.
    Closed(Option<u32>),
}

impl RequestOutcome {
    /// Returns whether the request was rejected: as malformed (RFC 9113 section 8.1.1), or as one that is not supported.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Status(400 | 417 | 501) | Self::Reset(1) | Self::Closed(Some(1)))
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![len[1], len[2], len[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Encodes literal fields without indexing and without Huffman coding (RFC 7541 section 6.2.2).
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// What follows a request's header section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestContent<'a> {
    /// Nothing: it has END_STREAM.
    End,
    /// One DATA frame with END_STREAM.
    Data(&'a str),
    /// Nothing yet.
    Open,
}

/// Sends a request with these fields on a new connection.
pub(crate) async fn send_request(
    gateway: &Gateway,
    fields: &[(&str, &str)],
    content: RequestContent<'_>,
) -> RequestOutcome {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    let end_headers = 4;
    let flags = end_headers | u8::from(content == RequestContent::End);
    bytes.extend(frame(1, flags, 1, &block(fields)));
    if let RequestContent::Data(body) = content {
        bytes.extend(frame(0, 1, 1, body.as_bytes()));
    }
    read_outcome(gateway.connect(bytes).await).await
}

async fn read_outcome(mut tcp: TcpStream) -> RequestOutcome {
    loop {
        let mut head = [0; 9];
        if tcp.read_exact(&mut head).await.is_err() {
            return RequestOutcome::Closed(None);
        }
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; len];
        tcp.read_exact(&mut payload).await.unwrap();
        let code = |at: usize| payload.get(at..at + 4).map(|code| code.try_into().unwrap());
        match head[3] {
            1 => return RequestOutcome::Status(status(&payload)),
            3 => return RequestOutcome::Reset(u32::from_be_bytes(code(0).unwrap())),
            7 => return RequestOutcome::Closed(code(4).map(u32::from_be_bytes)),
            4 if head[4] == 0 => tcp.write_all(&frame(4, 1, 0, &[])).await.unwrap(),
            _ => {}
        }
    }
}

/// Returns `:status`, which is the first field of a response.
fn status(block: &[u8]) -> u16 {
    let block = match block {
        // A dynamic table size update.
        [0x20..=0x3f, rest @ ..] => rest,
        block => block,
    };
    match block {
        // RFC 7541 appendix A.
        [indexed @ 0x88..=0x8e, ..] => {
            [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)]
        }
        // Digits have five bits each, or six for those above 2 (RFC 7541 appendix B).
        [0x08 | 0x48, len, text @ ..] if len & 0x80 != 0 => {
            decode_huffman_digits(&text[..usize::from(len & 0x7f)])
        }
        [0x08 | 0x48, 3, text @ ..] => std::str::from_utf8(&text[..3]).unwrap().parse().unwrap(),
        block => panic!("not :status: {block:x?}"),
    }
}

fn decode_huffman_digits(text: &[u8]) -> u16 {
    let mut bits =
        text.iter().flat_map(|byte| (0..8).rev().map(move |at| u32::from(byte >> at & 1)));
    let mut number = 0;
    for _ in 0..3 {
        let five = (0..5).fold(0, |bits_so_far, _| bits_so_far << 1 | bits.next().unwrap());
        let digit = match five {
            0..=2 => five,
            five => (five << 1 | bits.next().unwrap()) - 0x19 + 3,
        };
        number = number * 10 + digit;
    }
    u16::try_from(number).unwrap()
}
