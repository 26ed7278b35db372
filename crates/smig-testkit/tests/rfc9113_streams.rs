//! RFC 9113 sections 5 and 8: states of streams, their ids and limits, and messages.

use bytes::BytesMut;
use http::Method;
use smig_proto::{
    AppId, Cause, Config, ConnectionSpec, EndStream, ErrorCode, Event, Identity, Initiator,
    Instant, OpenError, Processed, ReadResult, RequestHead, Security, SendError, Session,
};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, Peer, Setup, request_head};

fn server() -> Peer {
    Peer::connected_to_server(Config::server())
}

#[track_caller]
fn expect_connection_error(peer: &mut Peer, frame: impl Into<Frame>, code: ErrorCode) {
    peer.send(C1, frame);
    peer.expect_goaway(C1, code);
}

// Section 5.1: states, without the extension. With it, section 5 of spec/smig.md adds carriers.

fn server_without_smig() -> Peer {
    Peer::connected_to_server(Config { smig: None, ..Config::server() })
}

#[test]
fn idle_streams_accept_only_headers_and_priority() {
    for id in [1, 2] {
        let frames = [data(id, "x"), reset(id, ErrorCode::Cancel), window_update(id, 1)];
        for frame in frames {
            expect_connection_error(&mut server_without_smig(), frame, ErrorCode::ProtocolError);
        }
    }
    // Section 6.4: errors of an idle stream are connection errors, because it cannot be reset.
    let wrong = raw(kind::PRIORITY, 0, 1, [0; 4]);
    expect_connection_error(&mut server_without_smig(), wrong, ErrorCode::FrameSizeError);
    expect_connection_error(
        &mut server_without_smig(),
        window_update(1, 0),
        ErrorCode::ProtocolError,
    );
    let mut peer = server_without_smig();
    peer.send(C1, raw(kind::PRIORITY, 0, 5, [0, 0, 0, 3, 16]));
    peer.send(C1, priority_update(5, "u=1"));
    peer.expect_silence();
    peer.get(C1, 1);
}

#[test]
fn client_stream_ids_are_odd_and_increase() {
    // Section 5.1.1
    expect_connection_error(
        &mut server_without_smig(),
        headers(2).get("/").end(),
        ErrorCode::ProtocolError,
    );
    let mut peer = server_without_smig();
    peer.get(C1, 5);
    expect_connection_error(&mut peer, headers(3).get("/").end(), ErrorCode::ProtocolError);
    let mut peer = server_without_smig();
    peer.get(C1, 1);
    peer.get(C1, 0x7fff_ffff);
    peer.expect_silence();
}

#[test]
fn a_half_closed_stream_refuses_data_and_headers() {
    let frames: [Frame; 2] = [data(1, "x"), headers(1).field("x", "y").end().into()];
    for frame in frames {
        let mut peer = server();
        let key = peer.get(C1, 1);
        peer.send(C1, frame);
        peer.expect(C1, reset(1, ErrorCode::StreamClosed));
        assert_eq!(peer.take_error(key).code, ErrorCode::StreamClosed);
    }
    let mut peer = server();
    let key = peer.get(C1, 1);
    peer.send(C1, window_update(1, 1));
    peer.send(C1, raw(kind::PRIORITY, 0, 1, [0, 0, 0, 3, 16]));
    peer.expect_not_failed(key);
    peer.send(C1, reset(1, ErrorCode::ConnectError));
    let error = peer.take_error(key);
    assert_eq!((error.code, error.initiator), (ErrorCode::ConnectError, Initiator::Peer));
    peer.expect_silence();
}

#[test]
fn a_closed_stream_refuses_data_and_headers() {
    let server_with_closed_stream = || {
        let mut peer = server();
        let key = peer.get(C1, 1);
        peer.respond(key, 204, EndStream::Yes);
        peer.expect(C1, headers(1).status(204).end());
        peer.with_session(|session, _| session.release(key));
        peer
    };
    let mut peer = server_with_closed_stream();
    peer.send(C1, window_update(1, 5));
    peer.send(C1, reset(1, ErrorCode::Cancel));
    peer.send(C1, raw(kind::PRIORITY, 0, 1, [0, 0, 0, 3, 16]));
    peer.expect_silence();
    expect_connection_error(
        &mut server_with_closed_stream(),
        data(1, "x"),
        ErrorCode::StreamClosed,
    );
    expect_connection_error(
        &mut server_with_closed_stream(),
        headers(1).get("/").end(),
        ErrorCode::StreamClosed,
    );
}

#[test]
fn late_data_of_a_reset_stream_is_ignored_and_credited() {
    let config = Config { connection_window: 65_535, ..Config::server() };
    let mut peer = Peer::connected_to_server(config);
    let key = peer.post(C1, 1);
    peer.send(C1, data(1, vec![0; 16_000]));
    peer.with_session(|session, _| session.reset(key, ErrorCode::Cancel));
    peer.expect(C1, reset(1, ErrorCode::Cancel));
    peer.send(C1, data(1, vec![0; 16_000]));
    peer.send(C1, data(1, vec![0; 1_000]).end());
    // Credit for unread and late data is returned.
    peer.expect(C1, window_update(0, 33_000));
    peer.expect_silence();
}

#[test]
fn a_reset_goes_ahead_of_queued_data_and_drops_it() {
    let mut peer = server();
    let key = peer.get(C1, 1);
    let other_key = peer.get(C1, 3);
    peer.respond(key, 200, EndStream::No);
    peer.respond(other_key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    peer.expect(C1, headers(3).status(200));
    peer.pause(C1);
    peer.send_body(key, vec![0; 60_000], EndStream::Yes);
    peer.send_body(other_key, "other", EndStream::Yes);
    peer.with_session(|session, _| session.reset(key, ErrorCode::InternalError));
    peer.resume(C1);
    peer.expect(C1, reset(1, ErrorCode::InternalError));
    peer.expect(C1, data(3, "other").end());
    peer.expect_silence();
}

#[test]
fn the_peers_reset_drops_queued_data_too() {
    let mut peer = server();
    let key = peer.get(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    peer.pause(C1);
    peer.send_body(key, vec![0; 60_000], EndStream::Yes);
    peer.send(C1, reset(1, ErrorCode::Cancel));
    peer.resume(C1);
    peer.expect_silence();
    assert!(matches!(peer.with_session(|session, _| session.read(key)), ReadResult::Failed(_)));
    let late = peer.with_session(|session, _| session.send_data(key, "x".into(), EndStream::No));
    assert_eq!(late, Err(SendError::Ended));
}

// Section 5.1.2: concurrency.

#[test]
fn streams_beyond_the_limit_are_refused() {
    let mut peer =
        Peer::connected_to_server(Config { max_concurrent_streams: 2, ..Config::server() });
    let keys = [peer.get(C1, 1), peer.get(C1, 3)];
    peer.send(C1, headers(5).get("/").end());
    peer.expect(C1, reset(5, ErrorCode::RefusedStream));
    // A refused stream is not idle, and late frames on it are no error.
    peer.send(C1, window_update(5, 1));
    peer.respond(keys[0], 204, EndStream::Yes);
    peer.expect(C1, headers(1).status(204).end());
    peer.with_session(|session, _| session.release(keys[0]));
    peer.get(C1, 7);
    peer.expect_silence();
}

#[test]
fn a_client_keeps_to_the_servers_limit() {
    let setup = Setup::new(Config::client()).with_setting(setting::MAX_CONCURRENT_STREAMS, 1);
    let mut peer = Peer::for_client(setup);
    peer.connect();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    let head = request_head(Method::GET);
    let blocked = peer.with_session(|session, now| session.open(now, None, &head, EndStream::Yes));
    assert_eq!(blocked, Err(OpenError::Blocked));
    peer.expect_silence();
    let streams_available = |event: &Event| matches!(event, Event::StreamsAvailable).then_some(());
    assert_eq!(peer.try_take_event(streams_available), None);
    peer.send(C1, headers(1).status(204).end());
    peer.with_session(|session, _| session.release(key));
    peer.take_event(streams_available);
    peer.open(C1, Method::GET, EndStream::Yes);
    // A higher limit allows more streams as well.
    let blocked = peer.with_session(|session, now| session.open(now, None, &head, EndStream::Yes));
    assert_eq!(blocked, Err(OpenError::Blocked));
    peer.send(C1, settings(&[(setting::MAX_CONCURRENT_STREAMS, 2)]));
    peer.expect(C1, settings_ack());
    peer.take_event(streams_available);
    peer.open(C1, Method::GET, EndStream::Yes);
}

// Section 5.2: flow control of what the engine sends.

#[test]
fn streams_share_the_connections_window() {
    let setup = Setup::new(Config::server()).with_setting(setting::INITIAL_WINDOW_SIZE, 1_000_000);
    let mut peer = Peer::for_server(setup);
    peer.connect();
    let keys = [1, 3].map(|id| {
        let key = peer.get(C1, id);
        peer.respond(key, 200, EndStream::No);
        peer.expect(C1, headers(id).status(200));
        key
    });
    keys.into_iter().for_each(|key| peer.send_body(key, vec![0; 60_000], EndStream::Yes));
    let take_data_bytes = |peer: &mut Peer| {
        let mut sum = 0;
        while let Some(Frame::Data { data, .. }) = peer.next_if_any(C1) {
            sum += data.len();
        }
        sum
    };
    assert_eq!(take_data_bytes(&mut peer), 65_535);
    peer.send(C1, window_update(1, 50_000));
    peer.expect_silence();
    peer.send(C1, window_update(0, 54_464));
    assert_eq!(take_data_bytes(&mut peer), 54_464);
    peer.send(C1, window_update(0, 1));
    assert_eq!(take_data_bytes(&mut peer), 1);
    peer.expect_silence();
}

#[test]
fn headers_need_no_window() {
    let setup = Setup::new(Config::server()).with_setting(setting::INITIAL_WINDOW_SIZE, 0);
    let mut peer = Peer::for_server(setup);
    peer.connect();
    let key = peer.get(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    // Nor do the end of a body and trailers.
    peer.send_body(key, "", EndStream::Yes);
    peer.expect(C1, data(1, "").end());
    let key = peer.get(C1, 3);
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(3).status(200));
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x", "y".parse().unwrap());
    peer.with_session(|session, _| session.send_trailers(key, trailers)).unwrap();
    peer.expect(C1, headers(3).field("x", "y").end());
}

// Section 8.1: messages.

#[test]
fn an_exchange_has_informational_heads_a_body_and_trailers() {
    let mut peer = Peer::connected_to_client(Config::client());
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.send(C1, headers(1).status(100));
    peer.send(C1, headers(1).status(103).field("link", "</style.css>"));
    for status in [100, 103] {
        let informational = peer.take_event(|event| match event {
            Event::Informational { stream, head } if *stream == key => Some(head.status.as_u16()),
            _ => None,
        });
        assert_eq!(informational, status);
    }
    peer.send_body(key, "request", EndStream::Yes);
    peer.expect(C1, data(1, "request").end());
    peer.send(C1, headers(1).status(200));
    peer.send(C1, data(1, "response"));
    peer.send(C1, headers(1).field("x-sum", "8").end());
    assert_eq!(peer.take_response(key), 200);
    let (mut body, mut trailers) = (Vec::new(), None);
    loop {
        match peer.with_session(|session, _| session.read(key)) {
            ReadResult::Data(data) => body.extend_from_slice(&data),
            ReadResult::Trailers(fields) => trailers = Some(fields),
            ReadResult::End => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(body, b"response");
    assert_eq!(trailers.unwrap()["x-sum"], "8");
    peer.with_session(|session, _| session.release(key));
    assert_eq!(peer.session().stream_count(), 0);
    peer.expect_silence();
}

#[test]
fn frames_of_a_message_come_in_order() {
    let frames: [&[Frame]; 3] = [
        &[data(1, "x")],
        &[headers(1).status(103).into(), data(1, "x")],
        &[headers(1).status(200).into(), headers(1).field("x", "y").into()],
    ];
    for frames in frames {
        let mut peer = Peer::connected_to_client(Config::client());
        let key = peer.open(C1, Method::GET, EndStream::Yes);
        for frame in frames {
            peer.send(C1, frame.clone());
        }
        peer.expect(C1, reset(1, ErrorCode::ProtocolError));
        peer.take_error(key);
    }
    // Trailers contain no pseudo-header fields.
    let mut peer = server();
    let key = peer.post(C1, 1);
    peer.send(C1, headers(1).field(":path", "/x").end());
    peer.expect(C1, reset(1, ErrorCode::ProtocolError));
    peer.take_error(key);
}

#[test]
fn a_response_may_precede_the_end_of_its_request() {
    // Section 8.1: the rest is read and dropped for a while; then RST_STREAM(NO_ERROR) stops it.
    let mut peer = server();
    let key = peer.post(C1, 1);
    peer.respond(key, 413, EndStream::Yes);
    peer.expect(C1, headers(1).status(413).end());
    peer.with_session(|session, _| session.release(key));
    for _ in 0..4 {
        peer.send(C1, data(1, vec![0; 16_000]));
    }
    peer.expect_silence();
    peer.send(C1, data(1, vec![0; 16_000]));
    peer.expect(C1, reset(1, ErrorCode::NoError));
    assert_eq!(peer.session().stream_count(), 0);
    // A request that ends in time is not reset.
    let key = peer.post(C1, 3);
    peer.respond(key, 413, EndStream::Yes);
    peer.expect(C1, headers(3).status(413).end());
    peer.with_session(|session, _| session.release(key));
    peer.send(C1, data(3, "the rest").end());
    peer.expect_silence();
    assert_eq!(peer.session().stream_count(), 0);
    // The client does not treat NO_ERROR after a complete response as a failure.
    let mut peer = Peer::connected_to_client(Config::client());
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.send(C1, headers(1).status(413));
    peer.send(C1, data(1, "too large").end());
    assert_eq!(peer.take_response(key), 413);
    peer.send(C1, reset(1, ErrorCode::NoError));
    assert_eq!(&peer.read(key)[..], b"too large");
}

#[test]
fn a_released_incomplete_stream_is_cancelled() {
    let mut peer = server();
    let key = peer.post(C1, 1);
    peer.with_session(|session, _| session.release(key));
    peer.expect(C1, reset(1, ErrorCode::Cancel));
    let mut peer = Peer::connected_to_client(Config::client());
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.with_session(|session, _| session.release(key));
    peer.expect(C1, reset(1, ErrorCode::Cancel));
    assert_eq!(peer.session().stream_count(), 0);
}

#[test]
fn an_engine_does_not_send_malformed_messages() {
    // A body that differs from its content-length must not appear complete.
    let mut fields = http::HeaderMap::new();
    fields.insert("content-length", "5".parse().unwrap());
    let head = smig_proto::ResponseHead { status: http::StatusCode::OK, headers: fields };
    for (body, end) in [("123456", EndStream::No), ("1234", EndStream::Yes)] {
        let mut peer = server();
        let key = peer.get(C1, 1);
        peer.with_session(|session, _| session.send_response(key, &head, EndStream::No)).unwrap();
        let sent = peer.with_session(|session, _| session.send_data(key, body.into(), end));
        assert_eq!(sent, Err(SendError::WrongLength));
        peer.expect(C1, headers(1).status(200).field("content-length", "5"));
        peer.expect(C1, reset(1, ErrorCode::InternalError));
    }
    // Connection-specific fields of HTTP/1.1 are removed.
    let mut peer = server();
    let key = peer.get(C1, 1);
    let mut fields = http::HeaderMap::new();
    for (name, value) in
        [("connection", "x"), ("transfer-encoding", "chunked"), ("upgrade", "h2c"), ("x", "y")]
    {
        fields.insert(http::HeaderName::from_static(name), value.parse().unwrap());
    }
    let head = smig_proto::ResponseHead { status: http::StatusCode::OK, headers: fields };
    peer.with_session(|session, _| session.send_response(key, &head, EndStream::Yes)).unwrap();
    peer.expect(C1, headers(1).status(200).field("x", "y").end());
    // 101 does not exist in HTTP/2, and the order of frames is enforced.
    let key = peer.get(C1, 3);
    let switching = smig_proto::ResponseHead {
        status: http::StatusCode::SWITCHING_PROTOCOLS,
        headers: http::HeaderMap::new(),
    };
    let sent = peer.with_session(|session, _| session.send_informational(key, &switching));
    assert_eq!(sent, Err(SendError::OutOfOrder));
    let sent = peer.with_session(|session, _| session.send_data(key, "x".into(), EndStream::No));
    assert_eq!(sent, Err(SendError::OutOfOrder));
    peer.expect_silence();
}

#[test]
fn a_path_begins_with_a_slash_whatever_the_uri() {
    // Section 8.3.1: a URI may have a query and no path, a request may not; and only OPTIONS may have `*`.
    let mut peer = Peer::connected_to_client(Config::client());
    let conn = peer.conn_id(C1);
    for (method, uri, path) in [
        (Method::GET, "https://example.com?x=1", "/?x=1"),
        (Method::GET, "https://example.com?", "/?"),
        (Method::GET, "https://example.com", "/"),
        (Method::GET, "https://example.com/a?x", "/a?x"),
        (Method::GET, "https://example.com/*", "/*"),
        (Method::GET, "*", "/*"),
        (Method::OPTIONS, "https://example.com?x", "/?x"),
        (Method::OPTIONS, "https://example.com/*", "*"),
        (Method::OPTIONS, "*", "*"),
    ] {
        let head = RequestHead { uri: uri.parse().unwrap(), ..request_head(method) };
        peer.with_session(|session, now| session.open(now, Some(conn), &head, EndStream::Yes))
            .unwrap();
        let Frame::Headers { fields, .. } = peer.next(C1) else { panic!("HEADERS come first") };
        let sent = fields.0.iter().find(|(name, _)| name == ":path");
        assert_eq!(sent.map(|(_, value)| &value[..]), Some(path.as_bytes()), "{uri}");
    }
}

/// Opens a CONNECT request at a client engine.
fn client_with_connect() -> (Peer, smig_proto::StreamKey) {
    let mut peer = Peer::connected_to_client(Config::client());
    let head = RequestHead {
        method: Method::CONNECT,
        uri: http::Uri::from_static("example.com:443"),
        protocol: None,
        headers: http::HeaderMap::new(),
    };
    let opened = peer.with_session(|session, now| session.open(now, None, &head, EndStream::No));
    peer.expect(C1, headers(1).connect("example.com:443"));
    (peer, opened.unwrap())
}

#[test]
fn a_refused_connect_gets_an_ordinary_response() {
    // RFC 9110 section 9.3.6: only a 2xx opens a tunnel, which has neither a length nor trailers.
    let mut peer = server();
    peer.send(C1, headers(1).connect("example.com:443"));
    let key = peer.take_request();
    let mut head = smig_proto::ResponseHead {
        status: http::StatusCode::FORBIDDEN,
        headers: http::HeaderMap::new(),
    };
    head.headers.insert("content-length", "5".parse().unwrap());
    peer.with_session(|session, _| session.send_response(key, &head, EndStream::No)).unwrap();
    peer.expect(C1, headers(1).status(403).field("content-length", "5"));
    peer.send_body(key, "sorry", EndStream::No);
    peer.expect(C1, data(1, "sorry"));
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x", "y".parse().unwrap());
    peer.with_session(|session, _| session.send_trailers(key, trailers)).unwrap();
    peer.expect(C1, headers(1).field("x", "y").end());

    let (mut peer, key) = client_with_connect();
    peer.send(C1, headers(1).status(403).field("content-length", "5"));
    assert_eq!(peer.take_response(key), 403);
    peer.send(C1, data(1, "sorry"));
    assert_eq!(&peer.read(key)[..], b"sorry");
    peer.send(C1, headers(1).field("x", "y").end());
    let read = peer.with_session(|session, _| session.read(key));
    assert!(matches!(read, ReadResult::Trailers(fields) if fields["x"] == "y"));

    // Its content-length is checked as well.
    let (mut peer, key) = client_with_connect();
    peer.send(C1, headers(1).status(403).field("content-length", "5"));
    peer.send(C1, data(1, "less").end());
    peer.expect(C1, reset(1, ErrorCode::ProtocolError));
    assert_eq!(peer.take_error(key).initiator, Initiator::Local);
}

#[test]
fn extended_connect_needs_its_setting() {
    // RFC 8441
    let head = || headers(1).request("CONNECT", "/chat").field(":protocol", "websocket");
    let mut peer = Peer::for_server(Setup::new(Config::server()));
    peer.open_transport();
    let Frame::Settings(entries) = peer.next(C1) else { panic!("SETTINGS come first") };
    assert!(entries.contains(&(setting::ENABLE_CONNECT_PROTOCOL, 1)));
    let mut peer = server();
    peer.send(C1, head());
    let protocol = peer.take_event(|event| match event {
        Event::Request { head, .. } => head.protocol.clone(),
        _ => None,
    });
    assert_eq!(protocol.as_str(), "websocket");
    let config =
        Config { connect_protocol: smig_proto::ConnectProtocol::Disabled, ..Config::server() };
    let mut peer = Peer::connected_to_server(config);
    peer.send(C1, head());
    peer.expect(C1, reset(1, ErrorCode::ProtocolError));
    // A client does not send it to a server that does not support it.
    let mut peer = Peer::connected_to_client(Config::client());
    let head = RequestHead {
        protocol: smig_proto::Protocol::new("websocket"),
        ..request_head(Method::CONNECT)
    };
    let opened = peer.with_session(|session, now| session.open(now, None, &head, EndStream::No));
    assert!(matches!(opened, Err(OpenError::Invalid(_))));
    peer.expect_silence();
}

#[test]
fn an_extended_connect_awaits_the_settings_of_its_own_connection() {
    // RFC 8441 section 3
    const EMPTY_SETTINGS_FRAME: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    const CONNECT_SETTINGS_FRAME: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1];
    let now = Instant::from_nanos(0);
    let mut session = Session::client(Config::client(), AppId::new(1), now);
    let spec = ConnectionSpec { security: Security::Ineligible, identity: Identity([0; 32]) };
    let (first_conn, second_conn) =
        (session.add_connection(now, spec), session.add_connection(now, spec));
    let head = RequestHead {
        protocol: smig_proto::Protocol::new("websocket"),
        ..request_head(Method::CONNECT)
    };
    let mut open = |conn, settings: &[u8]| {
        session.handle_input(now, conn, &mut BytesMut::from(settings));
        session.open(now, Some(conn), &head, EndStream::No)
    };
    assert!(open(first_conn, CONNECT_SETTINGS_FRAME).is_ok());
    assert_eq!(open(second_conn, &[]), Err(OpenError::AwaitsSettings));
    assert_eq!(
        open(second_conn, EMPTY_SETTINGS_FRAME.split_at(8).0),
        Err(OpenError::AwaitsSettings)
    );
    assert!(matches!(open(second_conn, EMPTY_SETTINGS_FRAME), Err(OpenError::Invalid(_))));
}

#[test]
fn an_error_names_its_own_cause() {
    let mut peer = Peer::connected_to_client(Config::client());
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C1, headers(1).status(103).end());
    peer.expect(C1, reset(1, ErrorCode::ProtocolError));
    assert_eq!(peer.take_error(key).cause, Some(Cause::InformationalWithEnd));
    peer.send(C1, priority_update(1, "u=1"));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
    let cause = peer.take_event(|event| match event {
        Event::Closed { error, .. } => Some(error.as_ref()?.cause),
        _ => None,
    });
    assert_eq!(cause, Some(Cause::PriorityUpdateFromServer));
}

#[test]
fn a_lost_connection_fails_its_streams() {
    let mut peer = Peer::connected_to_client(Config::client());
    let keys = [(); 2].map(|()| peer.open(C1, Method::GET, EndStream::Yes));
    peer.send(C1, headers(1).status(204).end());
    peer.lose(C1);
    assert_eq!(peer.take_response(keys[0]), 204);
    peer.expect_not_failed(keys[0]);
    let error = peer.take_error(keys[1]);
    assert_eq!((error.initiator, error.processed), (Initiator::Transport, Processed::Maybe));
    assert!(peer.session().is_closed());
    let closed = peer.take_event(|event| match event {
        Event::Closed { error, .. } => Some(error.clone()),
        _ => None,
    });
    assert!(closed.is_some_and(|error| error.detail.contains("lost")));
}

#[test]
fn a_refused_stream_is_safe_to_retry() {
    // Section 8.7
    let mut peer = Peer::connected_to_client(Config::client());
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.send(C1, reset(1, ErrorCode::RefusedStream));
    assert_eq!(peer.take_error(key).processed, Processed::No);
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.send(C1, reset(3, ErrorCode::InternalError));
    assert_eq!(peer.take_error(key).processed, Processed::Maybe);
}
