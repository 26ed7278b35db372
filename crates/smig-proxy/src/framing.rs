//! The framing of a forwarded request: determined once, when the request is validated, and written
//! when it is sent.
//!
//! content-length and transfer-encoding are derived from it alone (RFC 9112 section 6): [`Fields`] cannot contain
//! them, and a [`Content`] yields exactly what it announces, or fails.

use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Method;
use http::header::{
    CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_KEY, TRANSFER_ENCODING, VIA,
};
use http_body::{Body, Frame, SizeHint};
use smig::BoxError;

/// How the end of a request's content is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// There is no content.
    Empty,
    /// The number of remaining bytes.
    Exact(u64),
    /// The end of the body.
    Chunked,
    /// The following bytes belong to another protocol, and are not content.
    Tunnel,
}

/// The content or tunnel data behind a request's header section, with its framing.
#[derive(Clone, Debug)]
pub struct Content<B> {
    framing: Framing,
    body: B,
}

/// The body's length differs from the announced one.
#[derive(Debug, thiserror::Error)]
enum ContentLengthError {
    #[error("the body is {0} bytes shorter than announced")]
    Short(u64),
    #[error("the body is longer than announced")]
    Long,
}

impl<B: Body> Content<B> {
    /// Creates the content of a request, with the framing that these fields announce.
    pub(crate) fn from_headers(headers: &HeaderMap, body: B) -> Result<Self, &'static str> {
        let framing = match (content_length(headers)?, body.is_end_stream()) {
            (None | Some(0), true) => Framing::Empty,
            (Some(_), true) => return Err("the body is shorter than announced"),
            (Some(length), false) => Framing::Exact(length),
            (None, false) => Framing::Chunked,
        };
        Ok(Self { framing, body })
    }

    /// Creates the tunnel data behind a request that switches protocols; checks its fields.
    pub(crate) fn for_upgrade(headers: &HeaderMap, body: B) -> Result<Self, &'static str> {
        // A tunnel has no content. If some were announced, a server that does not switch would take
        // it from the next request.
        if announces_content(headers) {
            return Err("content in a request to switch protocols");
        }
        Ok(Self::tunnel(body))
    }

    /// One direction of a tunnel.
    pub const fn tunnel(body: B) -> Self {
        Self { framing: Framing::Tunnel, body }
    }

    /// Converts the body, and keeps the framing.
    pub fn map<C>(self, map: impl FnOnce(B) -> C) -> Content<C> {
        Content { framing: self.framing, body: map(self.body) }
    }

    /// Returns the body without its framing.
    pub fn into_body(self) -> B {
        self.body
    }

    /// Returns the body.
    pub const fn body(&self) -> &B {
        &self.body
    }

    /// Returns the number of remaining bytes, if the framing is an exact length; `None` also for empty content.
    pub const fn remaining(&self) -> Option<u64> {
        match self.framing {
            Framing::Exact(left) => Some(left),
            Framing::Empty | Framing::Chunked | Framing::Tunnel => None,
        }
    }

    /// Returns whether there is no content.
    pub fn is_empty(&self) -> bool {
        self.framing == Framing::Empty
    }

    /// Sets the one field that frames the content over HTTP/1.1.
    pub(crate) fn insert_framing_field(&self, method: &Method, headers: &mut HeaderMap) {
        if self.framing == Framing::Chunked {
            // Also for GET and HEAD, for which hyper takes an unknown length for no content.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        } else {
            self.insert_content_length(method, headers);
        }
    }

    /// Sets Content-Length if the length is known: all that HTTP/2 has in addition to END_STREAM.
    pub(crate) fn insert_content_length(&self, method: &Method, headers: &mut HeaderMap) {
        match self.framing {
            Framing::Exact(length) => drop(headers.insert(CONTENT_LENGTH, length.into())),
            // RFC 9110 section 8.6.
            Framing::Empty if expects_content(method) => {
                headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
            }
            Framing::Empty | Framing::Chunked | Framing::Tunnel => {}
        }
    }
}

/// Returns whether the absence of content should be announced.
fn expects_content(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

/// Returns content-length: at most one, of digits only. Two equal ones are rejected too, since they
/// suggest that a component in front was confused (RFC 9110 section 8.6 leaves the choice). So is a
/// value that overflows a signed integer, and would be negative to some parsers.
pub(crate) fn content_length(headers: &HeaderMap) -> Result<Option<u64>, &'static str> {
    Ok(only_length(headers)?.map(|(number, _)| number))
}

/// Like [`content_length`], with the digits as received.
fn only_length(headers: &HeaderMap) -> Result<Option<(u64, &[u8])>, &'static str> {
    const INVALID_LENGTH: &str = "content-length is not a single number";
    // Most header sections have a few fields: comparing their names is cheaper than a hash.
    let mut lengths = headers.iter().filter(|(name, _)| **name == CONTENT_LENGTH);
    let Some((_, length)) = lengths.next() else { return Ok(None) };
    if lengths.next().is_some() {
        return Err(INVALID_LENGTH);
    }
    let digits = length.as_bytes();
    let number = parse_length(digits).ok_or(INVALID_LENGTH)?;
    Ok(Some((number, digits)))
}

/// Parses digits, at least one and nothing else, of a number that a signed integer of 64 bits can hold.
fn parse_length(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0_i64, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(digit.into())
    })?;
    u64::try_from(number).ok()
}

/// Checks a response's length, and rewrites it without leading zeros: some parsers take those for octal.
pub(crate) fn rewrite_length(headers: &mut HeaderMap) -> Result<(), &'static str> {
    if let Some((number, digits)) = only_length(headers)?
        && digits.starts_with(b"0")
    {
        headers.insert(CONTENT_LENGTH, number.into());
    }
    Ok(())
}

/// Returns whether the fields announce content, or are ambiguous about it.
pub fn announces_content(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING)
        || headers.get_all(CONTENT_LENGTH).iter().any(|length| length != "0")
}

impl<B> Body for Content<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.framing == Framing::Empty {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose();
        let frame = frame.map_err(Into::into)?;
        let Framing::Exact(remaining) = &mut self.framing else {
            return Poll::Ready(frame.map(Ok));
        };
        let error = match frame.as_ref().map(Frame::data_ref) {
            Some(Some(data)) => match remaining.checked_sub(data.len() as u64) {
                Some(rest) => {
                    *remaining = rest;
                    None
                }
                None => Some(ContentLengthError::Long),
            },
            // Trailers, or the end.
            Some(None) | None => (*remaining > 0).then_some(ContentLengthError::Short(*remaining)),
        };
        Poll::Ready(match error {
            Some(error) => Some(Err(error.into())),
            None => frame.map(Ok),
        })
    }

    fn is_end_stream(&self) -> bool {
        match self.framing {
            Framing::Empty => true,
            Framing::Exact(left) => left == 0 && self.body.is_end_stream(),
            Framing::Chunked | Framing::Tunnel => self.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Empty => SizeHint::with_exact(0),
            Framing::Exact(left) => SizeHint::with_exact(left),
            Framing::Chunked | Framing::Tunnel => SizeHint::default(),
        }
    }
}

/// A request's fields, without framing and hop-by-hop fields, and without a way to insert one.
#[derive(Clone, Debug)]
pub struct Fields(HeaderMap);

/// Fields that this proxy sets itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyField {
    /// Via (RFC 9110 section 7.6.3).
    Via,
    /// The key of a WebSocket handshake that the client made over HTTP/2.
    WebSocketKey,
}

impl Fields {
    /// Removes the framing fields; hop-by-hop fields have already been removed.
    pub(crate) fn of(mut headers: HeaderMap) -> Self {
        for name in [CONTENT_LENGTH, TRANSFER_ENCODING] {
            if headers.keys().any(|present| *present == name) {
                headers.remove(name);
            }
        }
        Self(headers)
    }

    /// Sets one of the proxy's own fields; Via is a list, to which the value is appended.
    pub fn set(&mut self, field: ProxyField, value: HeaderValue) {
        match field {
            ProxyField::Via => drop(self.0.append(VIA, value)),
            ProxyField::WebSocketKey => drop(self.0.insert(SEC_WEBSOCKET_KEY, value)),
        }
    }

    /// Removes a field, and returns its value.
    pub fn remove(&mut self, name: &HeaderName) -> Option<HeaderValue> {
        self.0.remove(name)
    }

    /// Returns the fields, to which the caller adds the framing.
    pub(crate) fn into_headers(self) -> HeaderMap {
        self.0
    }
}

impl Deref for Fields {
    type Target = HeaderMap;

    fn deref(&self) -> &HeaderMap {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::{BodyExt as _, Empty, Full, StreamBody};

    use super::*;

    fn headers(lengths: &[&'static str]) -> HeaderMap {
        let values = lengths.iter().map(|length| HeaderValue::from_static(length));
        values.map(|value| (CONTENT_LENGTH, value)).collect()
    }

    #[test]
    fn a_length_is_one_number() {
        for (lengths, expected) in [
            (&[][..], Ok(None)),
            (&["0"], Ok(Some(0))),
            (&["5"], Ok(Some(5))),
            (&["005"], Ok(Some(5))),
            (&["9223372036854775807"], Ok(Some(i64::MAX.unsigned_abs()))),
            (&["9223372036854775808"], Err(())),
            (&["18446744073709551615"], Err(())),
            (&["18446744073709551616"], Err(())),
            (&[""], Err(())),
            (&["+5"], Err(())),
            (&["-5"], Err(())),
            (&["0x5"], Err(())),
            (&["5 "], Err(())),
            (&["5, 5"], Err(())),
            (&["5.0"], Err(())),
            (&["5", "5"], Err(())),
            (&["5", "6"], Err(())),
        ] {
            assert_eq!(content_length(&headers(lengths)).map_err(drop), expected, "{lengths:?}");
        }
    }

    #[test]
    fn a_length_is_forwarded_without_leading_zeros() {
        for (received, written) in
            [("5", "5"), ("005", "5"), ("0", "0"), ("00", "0"), ("010", "10")]
        {
            let mut headers = headers(&[received]);
            rewrite_length(&mut headers).unwrap();
            assert_eq!(headers.get_all(CONTENT_LENGTH).iter().collect::<Vec<_>>(), [written]);
        }
        let mut none = HeaderMap::new();
        rewrite_length(&mut none).unwrap();
        assert!(none.is_empty());
        assert!(rewrite_length(&mut headers(&["5", "5"])).is_err());
    }

    /// Returns the field that frames a body over HTTP/1.1, given the announced lengths.
    fn framing_field<B: Body>(
        method: &Method,
        lengths: &[&'static str],
        body: B,
    ) -> Option<String> {
        let content = Content::from_headers(&headers(lengths), body).ok()?;
        let mut fields = HeaderMap::new();
        content.insert_framing_field(method, &mut fields);
        assert!(fields.len() <= 1);
        let text =
            fields.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        Some(text.collect())
    }

    fn unsized_body() -> impl Body<Data = Bytes, Error = BoxError> + Unpin {
        StreamBody::new(stream::iter([Ok(Frame::data(Bytes::from_static(b"hello")))]))
    }

    #[test]
    fn at_most_one_framing_field_is_written() {
        let full_body = || Full::<Bytes>::from("hello");
        let empty_body = Empty::<Bytes>::new;
        for method in [Method::GET, Method::HEAD, Method::DELETE, Method::POST] {
            let field = framing_field(&method, &["005"], full_body());
            assert_eq!(field.as_deref(), Some("content-length: 5"), "{method}");
            let field = framing_field(&method, &[], unsized_body());
            assert_eq!(field.as_deref(), Some("transfer-encoding: chunked"), "{method}");
            let no_content = if method == Method::POST { "content-length: 0" } else { "" };
            for lengths in [&[][..], &["0"]] {
                assert_eq!(
                    framing_field(&method, lengths, empty_body()).as_deref(),
                    Some(no_content),
                    "{method}"
                );
            }
            assert_eq!(framing_field(&method, &["5"], empty_body()), None, "{method}");
            assert_eq!(framing_field(&method, &["5", "5"], full_body()), None, "{method}");
        }
        let mut fields = HeaderMap::new();
        Content::tunnel(full_body()).insert_framing_field(&Method::GET, &mut fields);
        assert!(fields.is_empty());
    }

    #[test]
    fn a_protocol_switch_must_not_announce_content() {
        for (fields, accepted) in [
            (headers(&[]), true),
            (headers(&["0"]), true),
            (headers(&["00"]), false),
            (headers(&["50"]), false),
            (headers(&["0", "50"]), false),
            (
                [(TRANSFER_ENCODING, HeaderValue::from_static("chunked"))].into_iter().collect(),
                false,
            ),
        ] {
            let switched = Content::for_upgrade(&fields, Empty::<Bytes>::new());
            assert_eq!(switched.is_ok(), accepted, "{fields:?}");
        }
    }

    #[tokio::test]
    async fn a_body_must_have_its_announced_length() {
        for (announced, error) in [
            ("5", None),
            ("4", Some("the body is longer than announced")),
            ("0", Some("the body is longer than announced")),
            ("7", Some("the body is 2 bytes shorter than announced")),
        ] {
            let content = Content::from_headers(&headers(&[announced]), unsized_body()).unwrap();
            assert_eq!(content.size_hint().exact(), announced.parse().ok());
            assert!(!content.is_end_stream());
            let collected = content.collect().await.map_err(|error| error.to_string());
            assert_eq!(collected.err().as_deref(), error, "{announced}");
        }
    }

    #[tokio::test]
    async fn trailers_before_the_announced_length_are_an_error() {
        for (announced, fits) in [("5", true), ("6", false)] {
            let frames = [
                Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"hello"))),
                Ok(Frame::trailers(HeaderMap::new())),
            ];
            let body = StreamBody::new(stream::iter(frames));
            let content = Content::from_headers(&headers(&[announced]), body).unwrap();
            assert_eq!(content.collect().await.is_ok(), fits, "{announced}");
        }
    }

    #[test]
    fn fields_do_not_contain_framing_fields() {
        let mut all = headers(&["5", "6"]);
        all.append(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        all.append(TRANSFER_ENCODING, HeaderValue::from_static("gzip"));
        all.append("x", HeaderValue::from_static("1"));
        let fields = Fields::of(all);
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["x"]);
    }
}
