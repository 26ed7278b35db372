//! Detects message boundaries on an HTTP/1.1 connection (RFC 9112 sections 2 to 7), before hyper parses the
//! bytes.
//!
//! hyper accepts input that two parsers may interpret differently: of content-length and transfer-encoding it
//! uses one and hides the other, of equal lengths it reports one, and it accepts lines without CR. And bytes
//! after a request that switches protocols cannot be attributed to a protocol before the response.
//!
//! This filter rejects and never repairs; hyper parses what it passes on. It parses only what it needs to
//! find heads and content. It buffers no message, only the start of a line that arrives in parts.

/// Length of a line's prefix that suffices to classify it.
const MAX_LINE_PREFIX_BYTES: usize = 128;

/// Limit of empty lines before a request (RFC 9112 section 2.2). For each new one, hyper parses all of them
/// again.
pub(in crate::server) const MAX_EMPTY_LINES: u8 = 8;

const BARE_LF: &str = "a line ends without CR";

/// Parser state of one connection's requests.
#[derive(Debug)]
pub(super) struct MessageBoundaries {
    state: State,
    head: HeadFraming,
    line: PartialLine,
    /// Number of empty lines since the last request.
    empty_lines: u8,
    /// Number of complete heads.
    heads: u64,
}

/// Why bytes are not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanStop {
    /// The last request may switch protocols: the bytes after it wait for its response.
    AwaitingResponse,
    /// The bytes violate the protocol.
    Malformed(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before or within a request line.
    Start,
    Fields,
    /// Remaining bytes of content.
    Content(u64),
    ChunkSize,
    Chunk(u64),
    /// The CRLF after a chunk.
    ChunkEnd,
    Trailers,
    AwaitingResponse,
}

/// Parsed properties of a head.
#[derive(Clone, Copy, Debug, Default)]
struct HeadFraming {
    length: Option<u64>,
    chunked: bool,
    /// The request is a CONNECT or has an Upgrade field.
    may_switch: bool,
}

/// An incomplete line.
#[derive(Debug, Default)]
struct PartialLine {
    start: Vec<u8>,
    len: usize,
    last_byte: u8,
}

impl PartialLine {
    fn add(&mut self, piece: &[u8]) {
        let room = MAX_LINE_PREFIX_BYTES.saturating_sub(self.start.len());
        self.start.extend_from_slice(piece.get(..room).unwrap_or(piece));
        self.len += piece.len();
        self.last_byte = piece.last().copied().unwrap_or(self.last_byte);
    }
}

impl MessageBoundaries {
    pub(super) const fn new() -> Self {
        let head = HeadFraming { length: None, chunked: false, may_switch: false };
        let line = PartialLine { start: Vec::new(), len: 0, last_byte: 0 };
        Self { state: State::Start, head, line, empty_lines: 0, heads: 0 }
    }

    /// Parses the next bytes. Returns how many of them may be passed on, and why not more.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> (usize, Option<ScanStop>) {
        let mut passed_len = 0;
        loop {
            let rest = bytes.get(passed_len..).unwrap_or_default();
            if self.state == State::AwaitingResponse && !rest.is_empty() {
                return (passed_len, Some(ScanStop::AwaitingResponse));
            }
            if rest.is_empty() {
                return (passed_len, None);
            }
            passed_len += match self.state {
                State::Content(remaining) => {
                    let (step, remaining) = skip(rest, remaining);
                    self.state = if remaining == 0 {
                        self.state_after_message()
                    } else {
                        State::Content(remaining)
                    };
                    step
                }
                State::Chunk(remaining) => {
                    let (step, remaining) = skip(rest, remaining);
                    self.state =
                        if remaining == 0 { State::ChunkEnd } else { State::Chunk(remaining) };
                    step
                }
                _ => match self.consume_line(rest) {
                    Ok(step) => step,
                    Err(why) => return (passed_len, Some(ScanStop::Malformed(why))),
                },
            };
        }
    }

    /// Returns the number of complete heads so far.
    pub(super) const fn heads(&self) -> u64 {
        self.heads
    }

    /// Returns whether the last request is complete and no other has begun.
    pub(super) const fn is_between_requests(&self) -> bool {
        matches!(self.state, State::Start | State::AwaitingResponse) && self.line.len == 0
    }

    /// Continues after a response that did not switch the protocol.
    pub(super) fn resume(&mut self) {
        if self.state == State::AwaitingResponse {
            self.state = State::Start;
        }
    }

    /// Consumes bytes up to the end of a line.
    fn consume_line(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let piece = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        // A request target has no fragment, and some URI parsers drop it silently.
        if self.state == State::Start && piece.contains(&b'#') {
            return Err("a fragment in the request line");
        }
        if end.is_none() {
            self.line.add(piece);
            return Ok(piece.len());
        }
        // Fast path: the buffer contains the complete line.
        if self.line.len == 0 {
            let line = piece.strip_suffix(b"\r").ok_or(BARE_LF)?;
            self.state = self
                .state_after_line(line.get(..MAX_LINE_PREFIX_BYTES).unwrap_or(line), line.len())?;
            return Ok(piece.len() + 1);
        }
        self.line.add(piece);
        let line = std::mem::take(&mut self.line);
        let len = line.len - 1;
        if line.last_byte != b'\r' {
            return Err(BARE_LF);
        }
        self.state = self.state_after_line(line.start.get(..len).unwrap_or(&line.start), len)?;
        Ok(piece.len() + 1)
    }

    /// Returns the state after a line, of which at least the prefix is given.
    fn state_after_line(&mut self, line: &[u8], len: usize) -> Result<State, &'static str> {
        match self.state {
            State::Start if len == 0 && self.empty_lines == MAX_EMPTY_LINES => {
                Err("too many empty lines before a request")
            }
            State::Start if len == 0 => {
                self.empty_lines += 1;
                Ok(State::Start)
            }
            State::Start => {
                self.empty_lines = 0;
                let may_switch = line.starts_with(b"CONNECT ");
                self.head = HeadFraming { may_switch, ..HeadFraming::default() };
                Ok(State::Fields)
            }
            State::Fields if len == 0 => {
                self.heads += 1;
                Ok(match self.head {
                    HeadFraming { chunked: true, .. } => State::ChunkSize,
                    HeadFraming { length: Some(length @ 1..), .. } => State::Content(length),
                    HeadFraming { .. } => self.state_after_message(),
                })
            }
            State::Fields => self.head.parse_field(line, len).map(|()| State::Fields),
            State::ChunkSize => match parse_chunk_size(line, len)? {
                0 => Ok(State::Trailers),
                size => Ok(State::Chunk(size)),
            },
            State::ChunkEnd if len == 0 => Ok(State::ChunkSize),
            State::ChunkEnd => Err("a chunk is longer than its size"),
            State::Trailers if len == 0 => Ok(self.state_after_message()),
            State::Trailers => Ok(State::Trailers),
            State::Content(_) | State::Chunk(_) | State::AwaitingResponse => Err("unexpected line"),
        }
    }

    const fn state_after_message(&self) -> State {
        if self.head.may_switch { State::AwaitingResponse } else { State::Start }
    }
}

impl HeadFraming {
    fn parse_field(&mut self, line: &[u8], len: usize) -> Result<(), &'static str> {
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            return Err("a folded line");
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            // No name of this length matters here.
            return if len > line.len() { Ok(()) } else { Err("a field without a colon") };
        };
        let (name, value) = line.split_at(colon);
        match colon {
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.may_switch = true,
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                if self.length.is_some() {
                    return Err("more than one content-length");
                }
                let value = value.get(1..).unwrap_or_default().trim_ascii();
                // A larger value is negative for parsers with signed lengths.
                let length =
                    parse_number(value, 10).filter(|length| i64::try_from(*length).is_ok());
                self.length = Some(length.ok_or("content-length is not a single number")?);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.chunked {
                    return Err("more than one transfer-encoding");
                }
                let value = value.get(1..).unwrap_or_default();
                let last = value.rsplit(|byte| *byte == b',').next();
                let last_coding = last.unwrap_or_default().trim_ascii();
                if !last_coding.eq_ignore_ascii_case(b"chunked") || len > line.len() {
                    return Err("a transfer-encoding that does not end in chunked");
                }
                self.chunked = true;
            }
            _ => return Ok(()),
        }
        if self.chunked && self.length.is_some() {
            return Err("both transfer-encoding and content-length");
        }
        if len > line.len() {
            return Err("a framing field is too long");
        }
        Ok(())
    }
}

/// Skips up to `remaining` bytes; returns how many were skipped and how many remain.
fn skip(bytes: &[u8], remaining: u64) -> (usize, u64) {
    let step = usize::try_from(remaining).map_or(bytes.len(), |left| left.min(bytes.len()));
    (step, remaining - step as u64)
}

/// Parses the size in a chunk's first line. Chunk extensions are ignored (RFC 9112 section 7.1.1).
fn parse_chunk_size(line: &[u8], len: usize) -> Result<u64, &'static str> {
    const INVALID_SIZE: &str = "a chunk's size is not a number";
    let end = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let (digits, rest) = line.split_at(end);
    match rest.trim_ascii_start() {
        [] if len > line.len() => Err(INVALID_SIZE),
        [] | [b';', ..] => parse_number(digits, 16).ok_or(INVALID_SIZE),
        _ => Err(INVALID_SIZE),
    }
}

/// Parses a number that consists only of digits.
fn parse_number(digits: &[u8], radix: u32) -> Option<u64> {
    // `from_str_radix` also accepts a sign.
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses these bytes in parts of several sizes, which must all give the same result.
    fn outcome(bytes: &str) -> Result<u64, &'static str> {
        let bytes = bytes.as_bytes();
        let mut outcomes = Vec::new();
        for size in [1, 2, 3, 7, bytes.len().max(1)] {
            let mut boundaries = MessageBoundaries::new();
            let stop = bytes.chunks(size).find_map(|piece| match boundaries.scan(piece) {
                (passed, None) => {
                    assert_eq!(passed, piece.len());
                    None
                }
                (_, stop) => stop,
            });
            outcomes.push(match stop {
                None => {
                    assert_eq!(boundaries.state, State::Start, "within a request");
                    Ok(boundaries.heads())
                }
                Some(ScanStop::AwaitingResponse) => Ok(boundaries.heads()),
                Some(ScanStop::Malformed(why)) => Err(why),
            });
        }
        outcomes.dedup();
        let [outcome] = outcomes[..] else { panic!("it depends on the pieces: {outcomes:?}") };
        outcome
    }

    fn post(fields: &str, content: &str) -> String {
        format!("POST /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n{content}")
    }

    const NEXT_REQUEST: &str = "GET /b HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn complete_requests_are_counted() {
        for (case, bytes, heads) in [
            ("two", format!("{NEXT_REQUEST}{NEXT_REQUEST}"), 2),
            ("empty lines", format!("\r\n\r\n{NEXT_REQUEST}\r\n{NEXT_REQUEST}"), 2),
            ("a length", post("Content-Length: 5\r\n", "hello"), 1),
            ("none", post("Content-Length: 0\r\n", NEXT_REQUEST), 2),
            ("zeros in front", post("content-length:005\r\n", "hello"), 1),
            ("space around", post("CONTENT-LENGTH: \t 5 \t\r\n", "hello"), 1),
            (
                "a request as content",
                post("Content-Length: 28\r\n", NEXT_REQUEST) + NEXT_REQUEST,
                2,
            ),
            ("chunks", post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"), 1),
            ("capitals", post("TRANSFER-ENCODING:Chunked\r\n", "A\r\n0123456789\r\n00\r\n\r\n"), 1),
            ("gzip, too", post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), 1),
            (
                "extensions",
                post("Transfer-Encoding: chunked\r\n", "5;a=\"b;c\"\r\nhello\r\n0 ;x\r\n\r\n"),
                1,
            ),
            (
                "a request in a chunk",
                post(
                    "Transfer-Encoding: chunked\r\n",
                    &format!("1c\r\n{NEXT_REQUEST}\r\n0\r\n\r\n"),
                ),
                1,
            ),
            (
                "trailers",
                post("Transfer-Encoding: chunked\r\n", "0\r\nContent-Length: 5\r\nX: 1\r\n\r\n")
                    + NEXT_REQUEST,
                2,
            ),
            ("a long line", format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(5000)), 1),
            ("a long name", format!("GET / HTTP/1.1\r\n{}: 1\r\n\r\n", "y".repeat(5000)), 1),
            ("a long target", format!("GET /{} HTTP/1.1\r\n\r\n", "y".repeat(5000)), 1),
            (
                "a name in a value",
                format!("GET / HTTP/1.1\r\nX: content-length: 5\r\n\r\n{NEXT_REQUEST}"),
                2,
            ),
            (
                "a longer name",
                format!("GET / HTTP/1.1\r\nX-Content-Length: 5\r\n\r\n{NEXT_REQUEST}"),
                2,
            ),
        ] {
            assert_eq!(outcome(&bytes), Ok(heads), "{case}");
        }
    }

    #[test]
    fn ambiguous_input_is_refused() {
        let long_field = format!("Content-Length: {}5\r\n", " ".repeat(200));
        let chunked = |content: &str| post("Transfer-Encoding: chunked\r\n", content);
        for (case, bytes) in [
            ("both", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")),
            (
                "both, the other way",
                post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", ""),
            ),
            ("both, and none", post("Transfer-Encoding: chunked\r\ncontent-length: 0\r\n", "")),
            ("equal lengths", post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello")),
            ("unequal lengths", post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello")),
            ("a list", post("Content-Length: 5, 5\r\n", "hello")),
            ("a sign", post("Content-Length: +5\r\n", "hello")),
            ("a minus", post("Content-Length: -5\r\n", "hello")),
            ("hexadecimal", post("Content-Length: 0x5\r\n", "hello")),
            ("no digits", post("Content-Length:\r\n", "")),
            ("too big", post("Content-Length: 18446744073709551616\r\n", "")),
            ("too big with a sign", post("Content-Length: 9223372036854775808\r\n", "")),
            ("far away", post(&long_field, "hello")),
            ("identity", post("Transfer-Encoding: identity\r\n", "")),
            ("chunked before", post("Transfer-Encoding: chunked, identity\r\n", "")),
            ("another name", post("Transfer-Encoding: xchunked\r\n", "")),
            ("a parameter", post("Transfer-Encoding: chunked;q=1\r\n", "")),
            ("quoted", post("Transfer-Encoding: \"chunked\"\r\n", "")),
            ("empty", post("Transfer-Encoding:\r\n", "")),
            (
                "chunked twice",
                post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", ""),
            ),
            ("folded", post("X: 1\r\n Content-Length: 5\r\n", "")),
            ("folded coding", post("Transfer-Encoding:\r\n chunked\r\n", "")),
            ("no colon", post("Content-Length\r\n", "")),
            ("LF alone", post("X: 1\nContent-Length: 5\r\n", "hello")),
            ("LF alone at the end", "GET / HTTP/1.1\r\nHost: a\r\n\n".to_owned()),
            ("LF alone before", format!("\n{NEXT_REQUEST}")),
            ("LF alone in the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n".to_owned()),
            ("a fragment", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
            ("no size", chunked("\r\n")),
            ("a size with a sign", chunked("+5\r\nhello\r\n")),
            ("a size with 0x", chunked("0x5\r\nhello\r\n")),
            ("a size that is too big", chunked("10000000000000005\r\nhello\r\n")),
            ("a size behind space", chunked(" 5\r\nhello\r\n")),
            ("two sizes", chunked("5 5\r\nhello\r\n")),
            ("a size far away", chunked(&format!("{}5\r\nhello\r\n", "0".repeat(200)))),
            ("LF alone behind a size", chunked("5\nhello\r\n")),
            ("LF alone in an extension", chunked("5;a\nb\r\nhello\r\n")),
            ("a longer chunk", chunked("5\r\nhello!\r\n")),
            ("LF alone behind a chunk", chunked("5\r\nhello\n0\r\n\r\n")),
            ("LF alone in the trailers", chunked("0\r\nX: 1\n\r\n")),
            ("LF alone at the end of the trailers", chunked("0\r\n\n")),
        ] {
            assert!(outcome(&bytes).is_err(), "{case}");
        }
    }

    #[test]
    fn bytes_after_an_upgrade_request_wait_for_its_response() {
        for head in [
            "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
            "GET / HTTP/1.1\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\nab",
        ] {
            let mut boundaries = MessageBoundaries::new();
            let bytes = format!("{head}{NEXT_REQUEST}");
            assert_eq!(
                boundaries.scan(bytes.as_bytes()),
                (head.len(), Some(ScanStop::AwaitingResponse)),
                "{head}"
            );
            assert_eq!(boundaries.scan(b"\x16\x03\n"), (0, Some(ScanStop::AwaitingResponse)));
            assert_eq!(boundaries.scan(b""), (0, None));
            boundaries.resume();
            assert_eq!(boundaries.scan(NEXT_REQUEST.as_bytes()), (NEXT_REQUEST.len(), None));
            assert_eq!(boundaries.heads(), 2);
        }
    }

    #[test]
    fn nothing_of_a_refused_line_is_passed_on() {
        let passed_prefix = "POST / HTTP/1.1\r\nContent-Length: 5\r\n";
        let bytes = format!("{passed_prefix}Transfer-Encoding: chunked\r\n\r\n");
        let (passed, stop) = MessageBoundaries::new().scan(bytes.as_bytes());
        assert_eq!(passed, passed_prefix.len());
        assert_eq!(stop, Some(ScanStop::Malformed("both transfer-encoding and content-length")));
    }

    /// For each new empty line, hyper parses all of them again.
    #[test]
    fn many_empty_lines_before_a_request_are_refused() {
        let lines = |count| "\r\n".repeat(count);
        let (few, many) = (lines(8), lines(9));
        assert_eq!(outcome(&format!("{few}{NEXT_REQUEST}{few}{NEXT_REQUEST}{few}")), Ok(2));
        for bytes in [many.clone(), format!("{NEXT_REQUEST}{many}"), lines(32 << 10)] {
            assert_eq!(outcome(&bytes), Err("too many empty lines before a request"));
        }
    }
}
