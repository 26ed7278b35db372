//! Header sections: compression bombs, and the forms used for request smuggling. Malformed sections are
//! refused, never repaired, and affect only their stream.

use http::Method;
use smig_proto::{Config, EndStream, ErrorCode, Event, Limits};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, Peer};

fn try_take_request(peer: &mut Peer) -> bool {
    let request = |event: &Event| matches!(event, Event::Request { .. }).then_some(());
    peer.try_take_event(request).is_some()
}

/// Expects that the request is refused with PROTOCOL_ERROR and not passed to the application, and that the
/// connection and another stream are not affected.
#[track_caller]
fn expect_malformed(head: HeadersBuilder) {
    let mut peer = Peer::connected_to_server(Config::server());
    let other_key = peer.get(C1, 1);
    let frame: Frame = head.clone().into();
    peer.send(C1, frame);
    assert!(!try_take_request(&mut peer), "{head:?} reached the application");
    assert!(!peer.is_closed(C1), "{head:?} ended the connection");
    peer.expect(C1, reset(3, ErrorCode::ProtocolError));
    peer.respond(other_key, 204, EndStream::Yes);
    peer.expect(C1, headers(1).status(204).end());
    peer.expect_silence();
}

#[track_caller]
fn expect_accepted(head: HeadersBuilder) {
    let mut peer = Peer::connected_to_server(Config::server());
    peer.send(C1, Frame::from(head.clone()));
    peer.expect_silence();
    assert!(try_take_request(&mut peer), "{head:?} did not reach the application");
}

fn get_request() -> HeadersBuilder {
    headers(3).get("/")
}

// Bombs (CVE-2016-1544, CVE-2022-41723).

/// A large literal that enters the dynamic table, and references to it.
fn bomb(size: usize, references: usize) -> Vec<u8> {
    let mut block = b"\x82\x84\x87\x01\x0bexample.com\x40\x01x\x7f".to_vec();
    let mut rest = size - 127;
    while rest >= 128 {
        block.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    block.push(rest as u8);
    block.resize(block.len() + size, b'v');
    block.resize(block.len() + references, 0xbe);
    block
}

#[test]
fn informational_responses_are_bounded() {
    let mut peer = Peer::connected_to_client(Config::client());
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    let other_key = peer.open(C1, Method::GET, EndStream::Yes);
    for _ in 0..50 {
        peer.send(C1, headers(1).status(103));
    }
    peer.expect_silence_on(C1);
    peer.send(C1, headers(1).status(103));
    peer.expect(C1, reset(1, ErrorCode::EnhanceYourCalm));
    assert_eq!(peer.take_error(key).code, ErrorCode::EnhanceYourCalm);
    peer.clear_events();
    peer.expect_not_failed(other_key);
}

#[test]
fn a_decoded_section_has_at_most_64_kilobytes() {
    // 4000 bytes on the wire that decode to 20 times as many.
    let mut peer = Peer::connected_to_server(Config::server());
    let other_key = peer.get(C1, 1);
    let flags = flag::END_HEADERS | flag::END_STREAM;
    peer.send(C1, raw(kind::HEADERS, flags, 3, bomb(4_000, 10)));
    assert!(try_take_request(&mut peer), "44 kilobytes are fine");
    peer.send(C1, raw(kind::HEADERS, flags, 5, bomb(4_000, 20)));
    assert_eq!(peer.take_limit_hit(), "header section larger than allowed");
    assert!(!try_take_request(&mut peer));
    // The user gets a 431 (RFC 6585); the rest of the request is not needed.
    peer.expect(C1, headers(5).status(431).end());
    peer.expect(C1, reset(5, ErrorCode::NoError));
    // Its block was decoded nevertheless: the next one may refer to its entries.
    let block = b"\x82\x84\x87\x01\x0bexample.com\xbe";
    peer.send(C1, raw(kind::HEADERS, flags, 7, block));
    assert!(try_take_request(&mut peer));
    peer.expect_not_failed(other_key);
    peer.expect_silence();
}

#[test]
fn a_header_block_in_one_frame_is_bounded_too() {
    let config = Config { max_frame_size: 1 << 20, ..Config::server() };
    let max = config.limits.max_header_block;
    // HEADERS alone, and HEADERS that CONTINUATION would follow.
    for flags in [5, 1] {
        let mut peer = Peer::connected_to_server(config.clone());
        peer.send(C1, raw(kind::HEADERS, flags, 1, vec![0; max + 1]));
        peer.expect_goaway(C1, ErrorCode::EnhanceYourCalm);
        assert_eq!(peer.take_limit_hit(), "header block larger than allowed");
    }
}

#[test]
fn a_section_has_at_most_128_fields() {
    let head_with_fields =
        |count: usize, name: &str| (0..count).fold(get_request(), |head, _| head.field(name, "v"));
    expect_accepted(head_with_fields(124, "x").end());
    for name in ["x", "cookie"] {
        let mut peer = Peer::connected_to_server(Config::server());
        peer.send(C1, head_with_fields(125, name).end());
        peer.expect(C1, headers(3).status(431).end());
        peer.expect(C1, reset(3, ErrorCode::NoError));
        assert_eq!(peer.take_limit_hit(), "header section with more fields than allowed");
    }
}

#[test]
fn trailers_and_responses_are_bounded_too() {
    let mut config = Config::server();
    config.limits = Limits { max_fields: 5, ..Limits::default() };
    let mut peer = Peer::connected_to_server(config.clone());
    let key = peer.post(C1, 1);
    let trailers = (0..6).fold(headers(1), |head, n| head.field(format!("x{n}"), "v"));
    peer.send(C1, trailers.end());
    peer.expect(C1, reset(1, ErrorCode::EnhanceYourCalm));
    assert_eq!(peer.take_limit_hit(), "header section with more fields than allowed");
    peer.take_error(key);
    let mut peer = Peer::connected_to_client(Config { limits: config.limits, ..Config::client() });
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    let other_key = peer.open(C1, Method::GET, EndStream::Yes);
    let large = (0..6).fold(headers(1).status(200), |head, n| head.field(format!("x{n}"), "v"));
    peer.send(C1, large);
    peer.expect(C1, reset(1, ErrorCode::EnhanceYourCalm));
    assert_eq!(peer.take_limit_hit(), "header section with more fields than allowed");
    peer.take_error(key);
    peer.expect_not_failed(other_key);
}

#[test]
fn cookie_crumbs_are_joined() {
    // RFC 9113 section 8.2.3
    let mut peer = Peer::connected_to_server(Config::server());
    peer.send(
        C1,
        get_request().field("cookie", "a=b").field("x", "y").field("cookie", "c=d").end(),
    );
    let cookie = peer.take_event(|event| match event {
        Event::Request { head, .. } => Some(head.headers["cookie"].clone()),
        _ => None,
    });
    assert_eq!(cookie, "a=b; c=d");
}

// Names and values (RFC 9113 section 8.2.1).

#[test]
fn names_are_lowercase_tokens() {
    for name in
        ["Upper", "sp ace", "tab\t", "nul\0", "col:on", ":unknown", "", "\u{7f}", "a\"b", "ü"]
    {
        expect_malformed(get_request().field(name, "v").end());
    }
    expect_accepted(get_request().field("x-!#$%&'*+-.^_`|~9", "v").end());
}

#[test]
fn values_have_no_line_ends_and_no_surrounding_space() {
    for value in ["a\r\nb", "a\nb", "a\rb", "a\0b", " a", "a ", "\ta", "a\t", "a\u{7f}"] {
        expect_malformed(get_request().field("x", value).end());
    }
    expect_accepted(get_request().field("x", "").field("y", "a b\tc\u{e9}").end());
    // Pseudo-header fields are checked as well.
    for path in ["/a\r\nx: y", "/a b\r", "/\0"] {
        expect_malformed(headers(3).get(path).end());
    }
}

// Pseudo-header fields (RFC 9113 sections 8.3 and 8.3.1).

#[test]
fn pseudo_fields_occur_once_and_come_first() {
    let all_fields =
        [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a.example")];
    let headers_with = |fields: &[(&str, &str)]| {
        fields.iter().fold(headers(3), |head, (name, value)| head.field(name, value))
    };
    expect_accepted(headers_with(&all_fields).end());
    for missing_index in 0..3 {
        let mut fields = all_fields.to_vec();
        fields.remove(missing_index);
        expect_malformed(headers_with(&fields).end());
    }
    for repeated_index in 0..4 {
        let mut fields = all_fields.to_vec();
        fields.push(all_fields[repeated_index]);
        expect_malformed(headers_with(&fields).end());
        // After a regular field.
        let mut fields = all_fields.to_vec();
        let late = fields.remove(repeated_index);
        fields.push(("x", "y"));
        fields.push(late);
        expect_malformed(headers_with(&fields).end());
    }
    expect_malformed(headers_with(&all_fields).field(":status", "200").end());
    expect_malformed(headers_with(&all_fields).field(":protocol", "websocket").end());
}

#[test]
fn pseudo_field_values_are_validated() {
    let headers_with = |method: &str, scheme: &str, authority: &str, path: &str| {
        headers(3)
            .field(":method", method)
            .field(":scheme", scheme)
            .field(":authority", authority)
            .field(":path", path)
            .end()
    };
    expect_accepted(headers_with("GET", "https", "a.example:8443", "/x?y=%20"));
    expect_accepted(headers_with("GET", "https", "[2001:db8::1]:443", "/"));
    expect_accepted(headers_with("OPTIONS", "https", "a.example", "*"));
    for method in ["", "GE T", "GET\t", "G:T", "GET /x HTTP/1.1"] {
        expect_malformed(headers_with(method, "https", "a.example", "/"));
    }
    for path in ["", "x", "*", "/a b", "/#x", "http://other.example/", "//"] {
        if path == "//" {
            expect_accepted(headers_with("GET", "https", "a.example", path));
        } else {
            expect_malformed(headers_with("GET", "https", "a.example", path));
        }
    }
    for authority in [
        "",
        "user@a.example",
        "user:pw@a.example",
        "a b",
        "a.example/x",
        "a.example:x",
        "[::1]:99999",
    ] {
        expect_malformed(headers_with("GET", "https", authority, "/"));
    }
    for scheme in ["", "ht tp", "https://"] {
        expect_malformed(headers_with("GET", scheme, "a.example", "/"));
    }
}

#[test]
fn connect_has_only_method_and_authority() {
    // RFC 9113 section 8.5
    expect_accepted(headers(3).connect("a.example:443"));
    expect_malformed(headers(3).field(":method", "CONNECT"));
    expect_malformed(headers(3).connect("a.example:443").field(":path", "/"));
    expect_malformed(headers(3).connect("a.example:443").field(":scheme", "https"));
    // RFC 8441 section 4: with :protocol all four are required.
    expect_accepted(headers(3).request("CONNECT", "/").field(":protocol", "websocket"));
    expect_malformed(headers(3).connect("a.example:443").field(":protocol", "websocket"));
    expect_malformed(headers(3).request("CONNECT", "/").field(":protocol", "web socket"));
}

#[test]
fn host_and_authority_agree() {
    expect_accepted(get_request().field("host", "example.com").end());
    expect_accepted(get_request().field("host", "EXAMPLE.com").end());
    for host in ["other.example", "example.com:443", "", "example.com, other.example"] {
        expect_malformed(get_request().field("host", host).end());
    }
    expect_malformed(get_request().field("host", "example.com").field("host", "example.com").end());
    let without_authority =
        || headers(3).field(":method", "GET").field(":scheme", "https").field(":path", "/");
    expect_accepted(without_authority().field("host", "example.com").end());
    for host in ["user@example.com", "", "a b", "example.com:x"] {
        expect_malformed(without_authority().field("host", host).end());
    }
    expect_malformed(
        without_authority().field("host", "a.example").field("host", "b.example").end(),
    );
}

// Connection-specific fields (RFC 9113 section 8.2.2).

#[test]
fn connection_specific_fields_are_refused() {
    let fields = [
        ("connection", "keep-alive"),
        ("connection", "x"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("transfer-encoding", "identity"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
    ];
    for (name, value) in fields {
        expect_malformed(get_request().field(name, value).end());
    }
    expect_accepted(get_request().field("te", "trailers").end());
    // Also in a response, and in trailers.
    let mut peer = Peer::connected_to_client(Config::client());
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C1, headers(1).status(200).field("transfer-encoding", "chunked"));
    peer.expect(C1, reset(1, ErrorCode::ProtocolError));
    peer.take_error(key);
    let mut peer = Peer::connected_to_server(Config::server());
    let key = peer.post(C1, 1);
    peer.send(C1, headers(1).field("connection", "close").end());
    peer.expect(C1, reset(1, ErrorCode::ProtocolError));
    peer.take_error(key);
}

// content-length against DATA (RFC 9113 section 8.1.1).

#[test]
fn content_length_is_one_number() {
    let post = |length: &str| headers(3).post("/").field("content-length", length);
    for length in ["", "-1", "+1", "1,1", "1, 1", "0x1", "1 1", "99999999999999999999"] {
        expect_malformed(post(length));
    }
    expect_malformed(post("1").field("content-length", "2"));
    expect_malformed(post("1").field("content-length", "1"));
    // A request that ends with its HEADERS has no body.
    expect_malformed(post("1").end());
    expect_accepted(post("0").end());
}

#[test]
fn a_body_is_as_long_as_its_content_length() {
    // Too long: error at the first excess byte; too short: error at its end, by DATA or by trailers.
    let bodies: [(&[Frame], bool); 5] = [
        (&[data(1, "12345").end()], true),
        (&[data(1, "123"), data(1, "45"), headers(1).field("x", "y").end().into()], true),
        (&[data(1, "123456")], false),
        (&[data(1, "1234").end()], false),
        (&[data(1, "1234"), headers(1).field("x", "y").end().into()], false),
    ];
    for (frames, is_accepted) in bodies {
        let mut peer = Peer::connected_to_server(Config::server());
        peer.send(C1, headers(1).post("/").field("content-length", "5"));
        let key = peer.take_request();
        for frame in frames {
            peer.send(C1, frame.clone());
        }
        if is_accepted {
            peer.expect_silence();
            assert_eq!(&peer.read(key)[..], b"12345");
        } else {
            peer.expect(C1, reset(1, ErrorCode::ProtocolError));
            assert_eq!(peer.take_error(key).code, ErrorCode::ProtocolError);
        }
    }
}

#[test]
fn responses_are_checked_like_requests() {
    let headers_with = |fields: &[(&str, &str)]| {
        fields.iter().fold(headers(1), |head, (name, value)| head.field(name, value))
    };
    let malformed_heads = [
        headers_with(&[("x", "y")]),
        headers_with(&[(":status", "20")]),
        headers_with(&[(":status", "2000")]),
        headers_with(&[(":status", "abc")]),
        headers_with(&[(":status", "101")]),
        headers_with(&[(":status", "200"), (":status", "200")]),
        headers_with(&[(":status", "200"), (":path", "/")]),
        headers_with(&[("x", "y"), (":status", "200")]),
        headers_with(&[(":status", "200"), ("X", "y")]),
        headers_with(&[(":status", "100")]).end(),
        headers_with(&[(":status", "200"), ("content-length", "5")]).end(),
    ];
    for head in malformed_heads {
        let mut peer = Peer::connected_to_client(Config::client());
        let key = peer.open(C1, Method::GET, EndStream::Yes);
        let other_key = peer.open(C1, Method::GET, EndStream::Yes);
        peer.send(C1, Frame::from(head.clone()));
        assert!(!peer.is_closed(C1), "{head:?}");
        peer.expect(C1, reset(1, ErrorCode::ProtocolError));
        assert_eq!(peer.take_error(key).code, ErrorCode::ProtocolError, "{head:?}");
        peer.send(C1, headers(3).status(204).end());
        assert_eq!(peer.take_response(other_key), 204);
    }
    // A response without content must not have any.
    for (method, status) in [(Method::HEAD, 200), (Method::GET, 304), (Method::GET, 204)] {
        let mut peer = Peer::connected_to_client(Config::client());
        let key = peer.open(C1, method, EndStream::Yes);
        peer.send(C1, headers(1).status(status));
        peer.send(C1, data(1, "x").end());
        peer.expect(C1, reset(1, ErrorCode::ProtocolError));
        peer.take_error(key);
    }
    // A response to HEAD and a 304 may announce a length without a body.
    for (method, status) in [(Method::HEAD, 200), (Method::GET, 304)] {
        let mut peer = Peer::connected_to_client(Config::client());
        let key = peer.open(C1, method, EndStream::Yes);
        peer.send(C1, headers(1).status(status).field("content-length", "5").end());
        assert_eq!(peer.take_response(key), status);
        peer.expect_silence();
    }
}
