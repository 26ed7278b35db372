//! spec/resumption.md at a server: RESUME, LOST, and what a stream is after them.

use smig_proto::{Cause, Cid, EndStream, ErrorCode, Event, ResumptionConfig};
use smig_testkit::script::frame::*;
use smig_testkit::script::resumption::*;
use smig_testkit::script::{C1, C2, C3, Peer};

#[test]
fn a_response_goes_on_where_the_client_says() {
    // SMIG-13.8/absolute, SMIG-13.14/kept-to-the-end: the response was sent whole.
    let mut peer = resumable_server();
    answered(&mut peer);
    let name = stream_name(&peer, C1, 1);
    lose_first(&mut peer, C2);
    peer.send(C2, resume(1, name, 1, point(5, flag::RESUME_HEAD)));
    assert_eq!(take_resumed(&mut peer, C2, 1), (0, flag::RESUME_WHOLE));
    peer.expect(C2, data(1, " world").end());
    peer.expect_silence_on(C2);
}

#[test]
fn a_response_head_that_has_not_come_comes_first() {
    // SMIG-13.8/absolute
    let mut peer = resumable_server();
    answered(&mut peer);
    let name = stream_name(&peer, C1, 1);
    lose_first(&mut peer, C2);
    peer.send(C2, resume(1, name, 1, point(0, 0)));
    take_resumed(&mut peer, C2, 1);
    peer.expect(C2, headers(1).status(200));
    peer.expect(C2, data(1, "hello world").end());
}

#[test]
fn a_response_that_begins_while_the_stream_is_adrift_comes_when_it_is_resumed() {
    let mut peer = resumable_server();
    let key = peer.get(C1, 1);
    let name = stream_name(&peer, C1, 1);
    lose_first(&mut peer, C2);
    peer.respond(key, 204, EndStream::Yes);
    peer.expect_silence_on(C2);
    peer.send(C2, resume(3, name, 1, point(0, 0)));
    take_resumed(&mut peer, C2, 3);
    peer.expect(C2, headers(3).status(204).end());
}

#[test]
fn the_window_of_a_resume_replaces_all_credit() {
    // SMIG-13.8/absolute
    let mut peer = resumable_server();
    let key = peer.get(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.send_body(key, "0123456789", EndStream::No);
    peer.expect(C1, headers(1).status(200));
    peer.expect(C1, data(1, "0123456789"));
    let name = stream_name(&peer, C1, 1);
    lose_first(&mut peer, C2);
    let small = ResumePoint { received: 4, window: 3, flags: flag::RESUME_HEAD };
    peer.send(C2, resume(1, name, 1, small));
    take_resumed(&mut peer, C2, 1);
    peer.expect(C2, data(1, "456"));
    peer.expect_silence_on(C2);
    peer.send(C2, window_update(1, 2));
    peer.expect(C2, data(1, "78"));
}

#[test]
fn an_upload_goes_on_where_the_server_says() {
    // SMIG-13.8/absolute, SMIG-13.7/earlier-void: a pull from a connection that lives.
    let mut peer = resumable_server();
    let key = peer.post(C1, 1);
    peer.send(C1, data(1, "abc"));
    let name = stream_name(&peer, C1, 1);
    peer.send(C2, resume(1, name, 1, point(0, 0)));
    assert_eq!(take_resumed(&mut peer, C2, 1), (3, 0));
    // What still comes on the earlier ID is dropped, and credited to the connection.
    peer.send(C1, data(1, "xyz").end());
    peer.send(C1, window_update(1, 5));
    peer.send(C2, data(1, "def").end());
    assert_eq!(&peer.read_to_end(key)[..], b"abcdef");
    assert_eq!(peer.session().check_invariants(), [""; 0]);
    let conn = peer.session().connection(peer.conn_id(C1)).unwrap();
    assert_eq!(conn.unread_bytes, 0);
}

#[test]
fn an_older_attempt_is_refused() {
    // SMIG-13.3/attempts
    let mut peer = resumable_server();
    answered(&mut peer);
    let name = stream_name(&peer, C1, 1);
    peer.connect();
    lose_first(&mut peer, C2);
    peer.send(C3, resume(1, name, 2, point(11, flag::RESUME_HEAD)));
    take_resumed(&mut peer, C3, 1);
    peer.expect(C3, data(1, "").end());
    for attempt in [1, 2] {
        let id = 2 * attempt + 1;
        peer.send(C2, resume(id, name, attempt, point(0, 0)));
        peer.expect(C2, resume_refused(id, 5, ErrorCode::NoError));
    }
    peer.expect_silence_on(C3);
}

#[test]
fn a_reset_is_remembered() {
    // SMIG-13.14/kept-to-the-end, SMIG-13.16/refused
    let mut peer = resumable_server();
    let key = peer.get(C1, 1);
    let name = stream_name(&peer, C1, 1);
    peer.with_session(|session, _| session.reset(key, ErrorCode::EnhanceYourCalm));
    lose_first(&mut peer, C2);
    peer.send(C2, resume(1, name, 1, point(0, 0)));
    peer.expect(C2, resume_refused(1, 3, ErrorCode::EnhanceYourCalm));
}

#[test]
fn a_request_that_was_never_read_never_is() {
    // SMIG-13.9/never-processed
    let mut peer = resumable_server();
    let name = stream_name(&peer, C1, 3);
    peer.send(C2, resume(1, name, 1, point(0, 0)));
    peer.expect(C2, resume_refused(1, 1, ErrorCode::NoError));
    peer.send(C1, headers(1).get("/").end());
    peer.take_request();
    peer.send(C1, headers(3).get("/").end());
    peer.expect(C1, reset(3, ErrorCode::RefusedStream));
    let request = peer.try_take_event(|event| matches!(event, Event::Request { .. }).then_some(()));
    assert_eq!(request, None);
    // Of a connection that has ended, the last request is remembered.
    let name = (peer.cid(C1), 5);
    let known = (peer.cid(C1), 1);
    lose_first(&mut peer, C2);
    peer.send(C2, resume(3, name, 1, point(0, 0)));
    peer.expect(C2, resume_refused(3, 1, ErrorCode::NoError));
    peer.send(C2, resume(5, known, 1, point(0, 0)));
    assert_eq!(take_resumed(&mut peer, C2, 5), (0, flag::RESUME_WHOLE));
}

#[test]
fn a_connection_that_resume_or_lost_has_named_before_its_join_is_closed() {
    // SMIG-13.9/never-processed
    for is_lost in [false, true] {
        let mut peer = resumable_server();
        let unknown = Cid { app: peer.cid(C1).app, number: 3 };
        if is_lost {
            peer.send(C2, lost(unknown));
        } else {
            peer.send(C2, resume(1, (unknown, 1), 1, point(0, 0)));
            peer.expect(C2, resume_refused(1, 2, ErrorCode::NoError));
        }
        let handle = peer.open_transport();
        peer.send_preface(handle);
        let join = peer.join_request(handle);
        peer.send(handle, join);
        peer.send_if_open(handle, headers(1).get("/").end());
        assert!(peer.is_closed(handle), "{is_lost}");
        let request =
            peer.try_take_event(|event| matches!(event, Event::Request { .. }).then_some(()));
        assert_eq!(request, None);
    }
}

#[test]
fn broken_frames_close_the_connection() {
    let cid = |peer: &Peer| peer.cid(C1);
    type Broken = fn(&mut Peer) -> Frame;
    let cases: [(&str, Broken, ErrorCode); 8] = [
        ("length", |_| raw(kind::RESUME, 0, 1, [0; 31]), ErrorCode::FrameSizeError),
        ("length of LOST", |_| raw(kind::LOST, 0, 0, [0; 11]), ErrorCode::FrameSizeError),
        ("length of RECEIPT", |_| raw(kind::RECEIPT, 0, 0, [0; 9]), ErrorCode::FrameSizeError),
        ("stream 0", |_| raw(kind::RESUME, 0, 0, [0; 32]), ErrorCode::ProtocolError),
        ("LOST on a stream", |_| raw(kind::LOST, 0, 1, [0; 12]), ErrorCode::ProtocolError),
        ("ACK by a client", |_| resumed(1, point(0, 0)), ErrorCode::ProtocolError),
        ("LOST of itself", |peer| lost(peer.cid(C2)), ErrorCode::ProtocolError),
        (
            "more than was sent",
            |peer| {
                answered(peer);
                resume(1, (peer.cid(C1), 1), 1, point(12, flag::RESUME_HEAD))
            },
            ErrorCode::ProtocolError,
        ),
    ];
    for (text, broken, code) in cases {
        println!("{text}");
        let mut peer = resumable_server();
        let _ = cid(&peer);
        let frame = broken(&mut peer);
        peer.send(C2, frame);
        peer.expect_goaway(C2, code);
        assert_eq!(peer.session().check_invariants(), [""; 0]);
    }
}

#[test]
fn a_resume_on_a_closed_id_is_reset() {
    // SMIG-13.1/who-resumes
    let mut peer = resumable_server();
    answered(&mut peer);
    peer.get(C2, 3);
    peer.send(C2, raw(kind::RST_STREAM, 0, 3, 8_u32.to_be_bytes()));
    let name = stream_name(&peer, C1, 1);
    lose_first(&mut peer, C2);
    peer.send(C2, resume(3, name, 1, point(0, 0)));
    peer.expect(C2, reset(3, ErrorCode::RefusedStream));
    peer.send(C2, resume(1, name, 1, point(11, flag::RESUME_HEAD)));
    take_resumed(&mut peer, C2, 1);
}

#[test]
fn lost_cancels_what_is_there() {
    // SMIG-13.12/lost-last
    let mut peer = resumable_server();
    let key = peer.get(C1, 1);
    let cid = peer.cid(C1);
    lose_first(&mut peer, C2);
    peer.send(C2, lost(cid));
    let error = peer.take_error(key);
    assert_eq!(error.code, ErrorCode::Cancel);
    peer.send(C2, resume(1, (cid, 1), 1, point(0, 0)));
    peer.expect(C2, resume_refused(1, 3, ErrorCode::Cancel));
    // Of a connection that lives it is the end.
    let mut peer = resumable_server();
    let key = peer.get(C1, 1);
    let cid = peer.cid(C1);
    peer.send(C2, lost(cid));
    peer.take_event(|event| matches!(event, Event::AbortTransport { .. }).then_some(()));
    assert_eq!(peer.take_error(key).code, ErrorCode::Cancel);
    // One that names no connection of the session has no effect.
    peer.send(C2, lost(Cid { number: 77, ..cid }));
    peer.expect_silence_on(C2);
}

#[test]
fn a_stream_lives_for_linger() {
    // SMIG-13.13/linger
    let mut peer = resumable_server();
    let key = peer.get(C1, 1);
    lose_first(&mut peer, C2);
    peer.advance(29 * SECOND);
    peer.expect_not_failed(key);
    for _ in 0..4 {
        peer.advance(SECOND);
    }
    assert_eq!(peer.take_error(key).cause, Some(Cause::Lingered));
}

#[test]
fn a_session_without_connections_waits_for_one() {
    // SMIG-13.13/linger
    let mut peer = resumable_server();
    let key = peer.get(C1, 1);
    let name = stream_name(&peer, C1, 1);
    lose_first(&mut peer, C2);
    let cids = [C1, C2].map(|handle| peer.cid(handle));
    peer.lose(C2);
    assert!(peer.session().lingers() && !peer.session().is_closed());
    peer.respond(key, 204, EndStream::Yes);
    let third = peer.open_transport();
    peer.send_preface(third);
    let join = peer.join_request(third);
    peer.send(third, join);
    peer.take_preface(third);
    peer.expect_joined(third);
    cids.iter().for_each(|&cid| peer.expect(third, lost(cid)));
    peer.send(C3, resume(1, name, 1, point(0, 0)));
    take_resumed(&mut peer, C3, 1);
    peer.expect(C3, headers(1).status(204).end());
    peer.lose(C3);
    for _ in 0..70 {
        peer.advance(SECOND);
    }
    assert!(peer.session().is_closed());
}

#[test]
fn without_the_setting_nothing_is_resumed() {
    // SMIG-10.2/reserved-types
    let mut peer =
        Peer::connected_to_server(resumable_config(ResumptionConfig::default())).with_spare();
    let key = peer.get(C1, 1);
    let name = stream_name(&peer, C1, 1);
    peer.send(C2, resume(1, name, 1, point(0, 0)));
    peer.send(C2, receipt(1_000_000));
    peer.advance(5 * SECOND);
    peer.expect_silence();
    peer.lose(C1);
    assert_eq!(peer.take_error(key).cause, Some(Cause::ConnectionLost));
}

#[test]
fn a_stop_that_was_lost_comes_again_behind_the_response() {
    // SMIG-13.14/kept-to-the-end: RST_STREAM(NO_ERROR) after a whole response.
    for has_response in [false, true] {
        let mut peer = resumable_server();
        let key = peer.post(C1, 1);
        peer.send(C1, data(1, "abc"));
        let name = stream_name(&peer, C1, 1);
        peer.respond(key, 200, EndStream::No);
        peer.send_body(key, "enough", EndStream::Yes);
        peer.with_session(|session, _| session.reset(key, ErrorCode::NoError));
        peer.with_session(|session, _| session.release(key));
        peer.expect(C1, headers(1).status(200));
        peer.expect(C1, data(1, "enough").end());
        peer.expect(C1, reset(1, ErrorCode::NoError));
        lose_first(&mut peer, C2);
        let flags = flag::RESUME_HEAD | if has_response { flag::RESUME_WHOLE } else { 0 };
        peer.send(C2, resume(1, name, 1, point(if has_response { 6 } else { 2 }, flags)));
        assert_eq!(take_resumed(&mut peer, C2, 1), (3, 0));
        if !has_response {
            peer.expect(C2, data(1, "ough").end());
        }
        peer.expect(C2, reset(1, ErrorCode::NoError));
        peer.expect_silence_on(C2);
        assert_eq!(peer.session().check_invariants(), [""; 0]);
    }
}

#[test]
fn a_request_that_was_refused_stays_so() {
    // SMIG-13.16/refused: of too many requests, nothing was processed.
    let mut setup = resumable_setup(ResumptionConfig::default());
    setup.config.max_concurrent_streams = 1;
    let mut peer = Peer::for_server(setup);
    peer.connect();
    peer.connect();
    peer.get(C1, 1);
    peer.send(C1, headers(3).get("/").end());
    peer.expect(C1, reset(3, ErrorCode::RefusedStream));
    let name = stream_name(&peer, C1, 3);
    lose_first(&mut peer, C2);
    peer.send(C2, resume(1, name, 1, point(0, 0)));
    peer.expect(C2, resume_refused(1, 3, ErrorCode::RefusedStream));
}

#[test]
fn receipts_and_lost_without_news_count_as_frames_without_effect() {
    // CVE-2019-9518
    for is_lost in [false, true] {
        let mut peer = resumable_server();
        let cid = peer.cid(C1);
        if is_lost {
            peer.send(C2, lost(cid));
        }
        for _ in 0..20 {
            peer.send_if_open(C2, if is_lost { lost(cid) } else { receipt(0) });
        }
        peer.expect_goaway(C2, ErrorCode::EnhanceYourCalm);
    }
}

#[test]
fn a_resume_that_is_not_accepted_leaves_no_stream() {
    // SMIG-13.16/refused: an ended stream is looked at before it runs again.
    for is_error in [false, true] {
        let mut peer = resumable_server();
        peer.connect();
        let key = peer.post(C1, 1);
        peer.send(C1, data(1, "abc"));
        let name = stream_name(&peer, C1, 1);
        peer.respond(key, 200, EndStream::No);
        peer.send_body(key, "enough", EndStream::Yes);
        // What is left of it is the response, and that the client is to stop.
        peer.with_session(|session, _| session.reset(key, ErrorCode::NoError));
        peer.with_session(|session, _| session.release(key));
        while peer.next_if_any(C1).is_some() {}
        assert_eq!((peer.session().stream_count(), peer.session().kept_bytes()), (0, 6));
        lose_first(&mut peer, C2);
        if is_error {
            peer.send(C2, resume(1, name, 1, point(7, flag::RESUME_HEAD)));
            peer.expect_goaway(C2, ErrorCode::ProtocolError);
        } else {
            peer.send(C2, resume(1, name, 0, point(2, flag::RESUME_HEAD)));
            peer.expect(C2, resume_refused(1, 5, ErrorCode::NoError));
        }
        assert_eq!(peer.session().stream_count(), 0, "{is_error}");
        for _ in 0..70 {
            peer.advance(SECOND);
        }
        assert_eq!(peer.session().kept_bytes(), 0, "{is_error}");
    }
}

#[test]
fn a_reset_without_error_before_the_end_of_the_response_is_no_end() {
    // SMIG-13.14/kept-to-the-end
    let mut peer = resumable_server();
    let key = peer.post(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.send_body(key, "half", EndStream::No);
    peer.expect(C1, headers(1).status(200));
    peer.expect(C1, data(1, "half"));
    peer.with_session(|session, _| session.reset(key, ErrorCode::NoError));
    peer.expect(C1, reset(1, ErrorCode::NoError));
    let name = stream_name(&peer, C1, 1);
    lose_first(&mut peer, C2);
    peer.send(C2, resume(1, name, 1, point(2, flag::RESUME_HEAD)));
    peer.expect(C2, resume_refused(1, 3, ErrorCode::NoError));
}

#[test]
fn a_reset_on_a_carrier_is_remembered_whatever_is_covered_elsewhere() {
    // SMIG-13.14/kept-to-the-end: the RST_STREAM on C2 is lost with it.
    let mut peer = resumable_server();
    let key = peer.get(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.migrate(key, C2).unwrap();
    peer.send_body(key, "on the carrier", EndStream::No);
    peer.with_session(|session, _| session.reset(key, ErrorCode::InternalError));
    // SETTINGS, its acknowledgement and the window precede.
    let mut frames = 3;
    while peer.next_if_any(C1).is_some() {
        frames += 1;
    }
    peer.send(C1, receipt(frames));
    peer.lose(C2);
    while peer.next_if_any(C1).is_some() {}
    let name = stream_name(&peer, C1, 1);
    peer.send(C1, resume(3, name, 1, point(0, flag::RESUME_HEAD)));
    peer.expect(C1, resume_refused(3, 3, ErrorCode::InternalError));
}

#[test]
fn a_request_that_was_lost_with_all_connections_was_never_processed() {
    // SMIG-13.13/linger, SMIG-13.9/never-processed: nothing runs here, and all that was sent was read.
    let settled = || {
        let mut peer = resumable_server();
        take_receipt(&mut peer, C1);
        while peer.next_if_any(C2).is_some() {}
        // SETTINGS, its acknowledgement, the window, and on C2 the answer to JOIN.
        peer.send(C1, receipt(3));
        peer.send(C2, receipt(4));
        peer.advance(SECOND);
        peer.expect_silence();
        peer
    };
    let mut peer = settled();
    let name = stream_name(&peer, C1, 1);
    peer.lose(C1);
    peer.lose(C2);
    assert!(peer.session().lingers());
    let third = peer.open_transport();
    peer.send_preface(third);
    let join = peer.join_request(third);
    peer.send(third, join);
    peer.take_preface(third);
    peer.expect_joined(third);
    [C1, C2].map(|handle| peer.cid(handle)).iter().for_each(|&cid| peer.expect(third, lost(cid)));
    peer.send(third, resume(1, name, 1, point(0, 0)));
    peer.expect(third, resume_refused(1, 1, ErrorCode::NoError));
    // A client that closes them in order has lost nothing.
    let mut peer = settled();
    peer.close(C1);
    peer.close(C2);
    assert!(!peer.session().lingers() && peer.session().is_closed());
}

#[test]
fn a_promise_not_to_process_a_request_is_kept_and_can_be_repeated() {
    // SMIG-13.9/never-processed
    let mut peer = resumable_server();
    let names = [3, 5].map(|id| stream_name(&peer, C1, id));
    peer.send(C2, resume(1, names[1], 1, point(0, 0)));
    peer.expect(C2, resume_refused(1, 1, ErrorCode::NoError));
    peer.send(C1, headers(5).get("/").end());
    peer.expect(C1, reset(5, ErrorCode::RefusedStream));
    // It was not read: nothing below it counts as read.
    peer.send(C2, resume(3, names[0], 1, point(0, 0)));
    peer.expect(C2, resume_refused(3, 1, ErrorCode::NoError));
    peer.get(C1, 7);
    peer.send(C2, resume(5, names[1], 2, point(0, 0)));
    peer.expect(C2, resume_refused(5, 1, ErrorCode::NoError));
}

#[test]
fn the_application_learns_once_that_its_response_was_sent() {
    let mut peer = resumable_server();
    let key = peer.post(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.send_body(key, "hello", EndStream::Yes);
    while peer.next_if_any(C1).is_some() {}
    let is_finished = |event: &Event| matches!(event, Event::Finished { .. }).then_some(());
    peer.take_event(is_finished);
    let name = stream_name(&peer, C1, 1);
    lose_first(&mut peer, C2);
    peer.send(C2, resume(1, name, 1, point(0, flag::RESUME_HEAD)));
    take_resumed(&mut peer, C2, 1);
    peer.expect(C2, data(1, "hello").end());
    assert_eq!(peer.try_take_event(is_finished), None);
}
