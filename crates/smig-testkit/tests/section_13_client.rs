//! spec/resumption.md at a client: which streams are resumed, when, and what a refusal means.

use http::Method;
use smig_proto::{
    Cause, Cid, Config, EndStream, ErrorCode, Event, MigrateError, Processed, ResumptionConfig,
    SmigConfig, StreamKey,
};
use smig_testkit::script::frame::*;
use smig_testkit::script::resumption::{SECOND, point};
use smig_testkit::script::{C1, C2, C3, ConnHandle, JoinAnswers, Peer, Setup};

fn setup() -> Setup {
    let resumption = Some(ResumptionConfig::default());
    let smig = SmigConfig { resumption, ..SmigConfig::default() };
    let config = Config { smig: Some(smig), stream_window: 100_000, ..Config::client() };
    Setup::new(config).with_setting(setting::SMIG_RESUME, 30)
}

/// A client engine with two connections on which streams can be resumed.
fn client() -> Peer {
    let mut peer = Peer::for_client(setup());
    peer.connect();
    peer.connect();
    peer
}

/// What a RESUME asks for.
#[derive(Debug, PartialEq, Eq)]
struct Requested {
    id: u32,
    conn_no: u32,
    s0: u32,
    attempt: u32,
    received: u64,
    flags: u8,
}

#[track_caller]
fn take_resume(peer: &mut Peer, handle: ConnHandle) -> Requested {
    let Frame::Raw { kind: kind::RESUME, flags, stream, payload } = peer.next(handle) else {
        panic!("RESUME is not the next frame");
    };
    let word = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
    Requested {
        id: stream,
        conn_no: word(8),
        s0: word(12),
        attempt: word(16),
        received: u64::from_be_bytes(payload[20..28].try_into().unwrap()),
        flags,
    }
}

/// Skips the receipts that are due within a second on a connection.
fn skip_receipts(peer: &mut Peer, handle: ConnHandle) {
    peer.advance(SECOND);
    while let Some(frame) = peer.next_if_any(handle) {
        assert!(matches!(frame, Frame::Raw { kind: kind::RECEIPT, .. }), "{frame:?}");
    }
}

/// Lets time pass until the engine sends RESUME on this stream of C2. Returns the number of seconds.
#[track_caller]
fn seconds_until_resume(peer: &mut Peer, id: u32) -> u32 {
    for second in 1..20 {
        peer.advance(SECOND);
        while let Some(frame) = peer.next_if_any(C2) {
            match frame {
                Frame::Raw { kind: kind::RESUME, stream, .. } if stream == id => return second,
                Frame::Raw { kind: kind::RECEIPT, .. } => {}
                frame => panic!("{frame:?}"),
            }
        }
    }
    panic!("no RESUME on {id}");
}

/// A download on stream 1 of C1, of which the head and five bytes have come.
fn download(peer: &mut Peer) -> StreamKey {
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C1, headers(1).status(200));
    peer.send(C1, data(1, "hello"));
    assert_eq!(peer.take_response(key), 200);
    key
}

fn first(received: u64, flags: u8) -> Requested {
    Requested { id: 1, conn_no: 1, s0: 1, attempt: 1, received, flags }
}

#[test]
fn a_download_goes_on_where_it_was() {
    // SMIG-13.2/adrift (a), SMIG-13.8/absolute, SMIG-13.12/lost-last
    let mut peer = client();
    let key = download(&mut peer);
    let cid = peer.cid(C1);
    peer.lose(C1);
    assert_eq!(take_resume(&mut peer, C2), first(5, flag::RESUME_HEAD));
    peer.expect_silence_on(C2);
    peer.send(C2, resumed(1, point(0, flag::RESUME_WHOLE)));
    peer.expect(C2, lost(cid));
    peer.send(C2, data(1, " world").end());
    assert_eq!(&peer.read_to_end(key)[..], b"hello world");
    peer.take_event(|event| matches!(event, Event::Resumed { .. }).then_some(()));
}

#[test]
fn an_upload_sends_again_what_the_server_lacks() {
    // SMIG-13.10/kept-until-answer
    let mut peer = client();
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.send_body(key, "0123456789", EndStream::Yes);
    peer.expect(C1, data(1, "0123456789").end());
    peer.lose(C1);
    assert_eq!(take_resume(&mut peer, C2), first(0, 0));
    let few = ResumePoint { received: 4, window: 3, flags: 0 };
    let cid = peer.cid(C1);
    peer.send(C2, resumed(1, few));
    peer.expect(C2, lost(cid));
    peer.expect(C2, data(1, "456"));
    peer.send(C2, window_update(1, 100));
    peer.expect(C2, data(1, "789").end());
    peer.send(C2, headers(1).status(204).end());
    assert_eq!(peer.take_response(key), 204);
}

#[test]
fn a_server_that_wants_what_is_kept_no_more_gets_a_reset() {
    // SMIG-13.10/kept-until-answer
    let mut peer = client();
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.send_body(key, "0123456789", EndStream::No);
    peer.expect(C1, data(1, "0123456789"));
    // Preface, SETTINGS, its acknowledgement and the window precede.
    for count in 0..8 {
        if peer.session().kept_bytes() > 0 {
            peer.send(C1, receipt(count));
        }
    }
    assert_eq!(peer.session().kept_bytes(), 0);
    peer.lose(C1);
    take_resume(&mut peer, C2);
    peer.send(C2, resumed(1, point(3, 0)));
    peer.expect(C2, reset(1, Cause::NotKept.code()));
    assert_eq!(peer.take_error(key).cause, Some(Cause::NotKept));
}

#[test]
fn refusals_end_the_stream_as_they_say() {
    // SMIG-13.16/refused, SMIG-13.9/never-processed
    for (reason, code, expected, processed) in [
        (1, ErrorCode::NoError, ErrorCode::RefusedStream, Processed::No),
        (2, ErrorCode::NoError, ErrorCode::Cancel, Processed::Maybe),
        (3, ErrorCode::EnhanceYourCalm, ErrorCode::EnhanceYourCalm, Processed::Maybe),
        (3, ErrorCode::RefusedStream, ErrorCode::RefusedStream, Processed::No),
        (5, ErrorCode::NoError, ErrorCode::Cancel, Processed::Maybe),
        (99, ErrorCode::NoError, ErrorCode::Cancel, Processed::Maybe),
    ] {
        let mut peer = client();
        let cid = peer.cid(C1);
        let key = peer.open(C1, Method::POST, EndStream::No);
        peer.lose(C1);
        take_resume(&mut peer, C2);
        peer.send(C2, resume_refused(1, reason, code));
        let error = peer.take_error(key);
        assert_eq!((error.code, error.processed), (expected, processed), "{reason}");
        peer.expect(C2, lost(cid));
        peer.expect_silence_on(C2);
        assert_eq!(peer.session().check_invariants(), [""; 0]);
    }
}

#[test]
fn a_refusal_for_a_limit_is_tried_again_later_each_time() {
    // SMIG-13.2/adrift (e)
    let mut peer = client();
    download(&mut peer);
    peer.lose(C1);
    assert_eq!(take_resume(&mut peer, C2).attempt, 1);
    peer.send(C2, resume_refused(1, 4, ErrorCode::NoError));
    peer.expect_silence_on(C2);
    // Ticks come once a second, at times of their own.
    assert!((1..=2).contains(&seconds_until_resume(&mut peer, 3)));
    peer.send(C2, resume_refused(3, 4, ErrorCode::NoError));
    assert!((2..=3).contains(&seconds_until_resume(&mut peer, 5)));
    peer.send(C2, resume_refused(5, 4, ErrorCode::NoError));
    assert!((4..=5).contains(&seconds_until_resume(&mut peer, 7)));
}

#[test]
fn a_rejected_resume_says_nothing_of_the_request() {
    // SMIG-13.2/adrift (e)
    let mut peer = client();
    let key = download(&mut peer);
    peer.connect();
    peer.lose(C1);
    take_resume(&mut peer, C2);
    peer.send(C2, goaway(0, ErrorCode::NoError));
    let again = take_resume(&mut peer, C3);
    assert_eq!((again.attempt, again.s0), (2, 1));
    peer.send(C3, reset(1, ErrorCode::RefusedStream));
    peer.expect_not_failed(key);
    for _ in 0..3 {
        peer.advance(SECOND);
    }
    let resume = loop {
        match peer.next(C3) {
            Frame::Raw { kind: kind::RESUME, stream, .. } => break stream,
            Frame::Raw { kind: kind::RECEIPT, .. } => {}
            frame => panic!("{frame:?}"),
        }
    };
    peer.send(C3, resumed(resume, point(0, flag::RESUME_WHOLE)));
    peer.send(C3, data(resume, "!").end());
    assert_eq!(&peer.read_to_end(key)[..], b"hello!");
}

#[test]
fn a_pull_drops_what_still_comes_and_tells_no_receipt_for_it() {
    // SMIG-13.6/no-receipts-now, SMIG-13.7/earlier-void
    let mut peer = client();
    let key = download(&mut peer);
    skip_receipts(&mut peer, C1);
    skip_receipts(&mut peer, C2);
    let to = peer.conn_id(C2);
    peer.with_session(|session, _| session.pull(key, to)).unwrap();
    assert_eq!(take_resume(&mut peer, C2), first(5, flag::RESUME_HEAD));
    peer.send(C1, ping([1; 8]));
    peer.expect(C1, pong([1; 8]));
    peer.send(C1, data(1, " late"));
    peer.send(C1, ping([2; 8]));
    peer.expect(C1, pong([2; 8]));
    peer.advance(SECOND);
    let Frame::Raw { kind: kind::RECEIPT, payload, .. } = peer.next(C1) else {
        panic!("the first PING is reported")
    };
    let reported = u64::from_be_bytes(payload[..].try_into().unwrap());
    peer.advance(3 * SECOND);
    peer.expect_silence_on(C1);
    while peer.next_if_any(C2).is_some() {}
    peer.send(C2, resumed(1, point(0, flag::RESUME_WHOLE)));
    peer.advance(SECOND);
    peer.expect(C1, receipt(reported + 2));
    peer.send(C2, data(1, " world").end());
    assert_eq!(&peer.read_to_end(key)[..], b"hello world");
    let error = peer.with_session(|session, _| session.pull(key, to));
    assert_eq!(error, Err(MigrateError::Ended));
    let conn = peer.session().connection(peer.conn_id(C1)).unwrap();
    assert_eq!(conn.unread_bytes, 0);
}

#[test]
fn a_stream_that_is_cancelled_while_it_is_pulled_is_reset_at_both_places() {
    // SMIG-13.11/reset-earlier
    let mut peer = client();
    let key = download(&mut peer);
    let to = peer.conn_id(C2);
    peer.with_session(|session, _| session.pull(key, to)).unwrap();
    take_resume(&mut peer, C2);
    peer.with_session(|session, _| session.reset(key, ErrorCode::Cancel));
    peer.expect(C1, reset(1, ErrorCode::Cancel));
    peer.expect(C2, reset(1, ErrorCode::Cancel));
    // The answer crosses.
    peer.send(C2, resumed(1, point(0, flag::RESUME_WHOLE)));
    peer.send(C2, data(1, "late"));
    peer.expect_silence();
}

#[test]
fn a_connection_that_does_not_answer_a_resume_counts_as_ended() {
    // SMIG-13.3/attempts
    let mut setup = setup();
    setup.config.smig.as_mut().unwrap().answer_timeout = 5 * SECOND;
    let mut peer = Peer::for_client(setup);
    for _ in 0..3 {
        peer.connect();
    }
    download(&mut peer);
    peer.lose(C1);
    take_resume(&mut peer, C2);
    for _ in 0..8 {
        peer.advance(SECOND);
    }
    peer.take_event(|event| matches!(event, Event::AbortTransport { .. }).then_some(()));
    let request = loop {
        match peer.next(C3) {
            Frame::Raw { kind: kind::RESUME, payload, .. } => break payload,
            Frame::Raw { kind: kind::RECEIPT, .. } => {}
            frame => panic!("{frame:?}"),
        }
    };
    assert_eq!(request[16..20], 2_u32.to_be_bytes(), "the second attempt");
}

#[test]
fn an_unanswered_migrate_is_forgotten() {
    // SMIG-13.2/adrift (b): the server may have followed, or not.
    let mut peer = client();
    let key = download(&mut peer);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 1).end());
    peer.lose(C1);
    let request = take_resume(&mut peer, C2);
    assert_eq!(request, Requested { id: 3, ..first(5, flag::RESUME_HEAD) });
    // What comes on the carrier is dropped; nobody resets it.
    peer.send(C2, data(1, "lost"));
    peer.send(C2, resumed(3, point(0, flag::RESUME_WHOLE)));
    peer.send(C2, data(3, " world").end());
    assert_eq!(&peer.read_to_end(key)[..], b"hello world");
}

#[test]
fn an_answer_that_may_be_lost_makes_its_stream_adrift() {
    // SMIG-13.2/adrift (c): the stream is on C2, and lives.
    for is_covered in [false, true] {
        let mut peer = client();
        let key = download(&mut peer);
        let cid = peer.cid(C2);
        peer.send(C1, migrate(1, cid, 2));
        peer.expect(C1, accept(1, cid, 2).end());
        peer.send(C2, data(2, " wor"));
        if is_covered {
            // All frames of the client: the last is the answer.
            let mut count = 0;
            while peer.session().connection(peer.conn_id(C1)).is_some() && count < 6 {
                count += 1;
                peer.send(C1, receipt(count));
            }
        }
        peer.lose(C1);
        if is_covered {
            let Frame::Raw { kind: kind::LOST, .. } = peer.next(C2) else { panic!("LOST is due") };
            peer.send(C2, data(2, "ld").end());
        } else {
            let request = take_resume(&mut peer, C2);
            assert_eq!(request, first(9, flag::RESUME_HEAD));
            peer.send(C2, data(2, "dropped"));
            peer.send(C2, resumed(1, point(0, flag::RESUME_WHOLE)));
            peer.send(C2, data(1, "ld").end());
        }
        assert_eq!(&peer.read_to_end(key)[..], b"hello world");
    }
}

#[test]
fn the_tail_of_an_upload_is_sent_again_after_the_response() {
    // SMIG-13.14/kept-to-the-end: the application has nothing to do with it.
    let mut peer = client();
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.send_body(key, "0123456789", EndStream::Yes);
    peer.expect(C1, data(1, "0123456789").end());
    peer.send(C1, headers(1).status(204).end());
    assert_eq!(peer.take_response(key), 204);
    peer.with_session(|session, _| session.release(key));
    peer.lose(C1);
    let request = take_resume(&mut peer, C2);
    assert_eq!(request, first(0, flag::RESUME_HEAD | flag::RESUME_WHOLE));
    peer.send(C2, resumed(1, point(7, 0)));
    let Frame::Raw { kind: kind::LOST, .. } = peer.next(C2) else { panic!("LOST is due") };
    peer.expect(C2, data(1, "789").end());
    assert_eq!(peer.session().stream_count(), 0);
    assert_eq!(peer.session().check_invariants(), [""; 0]);
}

#[test]
fn lost_is_told_again_until_it_is_covered() {
    // SMIG-13.12/lost-last
    let mut peer = client();
    peer.connect();
    let cids = [C1, C2].map(|handle| peer.cid(handle));
    peer.lose(C1);
    peer.expect(C2, lost(cids[0]));
    peer.lose(C2);
    peer.expect(C3, lost(cids[0]));
    peer.expect(C3, lost(cids[1]));
    let covered = Cid { number: 9, ..cids[0] };
    peer.send(C3, lost(covered));
    peer.expect_silence_on(C3);
}

#[test]
fn what_the_server_calls_lost_has_ended() {
    // SMIG-13.12/lost-last
    let mut peer = client();
    download(&mut peer);
    let cid = peer.cid(C1);
    peer.send(C2, lost(cid));
    peer.take_event(|event| matches!(event, Event::AbortTransport { .. }).then_some(()));
    assert_eq!(take_resume(&mut peer, C2), first(5, flag::RESUME_HEAD));
}

#[test]
fn a_client_without_connections_joins_again_or_gives_up() {
    // SMIG-13.13/linger
    let mut peer = client();
    let key = download(&mut peer);
    peer.lose(C1);
    take_resume(&mut peer, C2);
    peer.lose(C2);
    assert!(peer.session().can_join() && !peer.session().is_closed());
    let third = peer.open_transport();
    peer.take_preface(third);
    peer.send_preface(third);
    peer.expect(third, settings_ack());
    let request = take_resume(&mut peer, third);
    assert_eq!((request.attempt, request.received), (2, 5));
    peer.lose(third);
    for _ in 0..35 {
        peer.advance(SECOND);
    }
    assert_eq!(peer.take_error(key).cause, Some(Cause::Lingered));
    assert!(peer.session().is_closed());
}

#[test]
fn the_answer_is_the_first_frame_on_the_id_of_a_resume() {
    // SMIG-13.7/earlier-void
    let cid = |peer: &Peer| peer.cid(C3);
    for case in 0..4 {
        let mut peer = client();
        peer.connect();
        let key = download(&mut peer);
        peer.lose(C1);
        take_resume(&mut peer, C2);
        let frame = match case {
            0 => data(1, "early"),
            1 => headers(1).status(200).into(),
            2 => window_update(1, 5),
            _ => migrate(1, cid(&peer), 2),
        };
        peer.send(C2, frame);
        peer.expect(C2, reset(1, ErrorCode::ProtocolError));
        assert_eq!(peer.take_error(key).cause, Some(Cause::BadResume), "{case}");
        assert_eq!(peer.session().check_invariants(), [""; 0]);
    }
}

#[test]
fn what_is_lost_with_a_connection_that_waits_for_its_join_is_answered() {
    // SMIG-13.12/lost-last, SMIG-5.10/always-answer
    let mut peer = client();
    let key = download(&mut peer);
    peer.setup_mut().join_answers = JoinAnswers::Scripted;
    let third = peer.open_transport();
    peer.take_preface(third);
    peer.send_preface(third);
    let cid = peer.cid(third);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect_silence_on(C1);
    peer.send(C2, lost(cid));
    peer.expect(C1, decline(1).end());
    peer.send(C1, data(1, "!").end());
    assert_eq!(&peer.read_to_end(key)[..], b"hello!");
}

#[test]
fn lost_does_not_overtake_the_resume_of_an_upload_that_had_ended_elsewhere() {
    // SMIG-13.12/lost-last
    let mut peer = client();
    let cids = [C1, C2].map(|handle| peer.cid(handle));
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.send_body(key, "01234", EndStream::No);
    peer.expect(C1, data(1, "01234"));
    peer.send(C1, migrate(1, cids[1], 2));
    peer.expect(C1, accept(1, cids[1], 2));
    peer.send_body(key, "56789", EndStream::Yes);
    peer.expect(C2, data(2, "56789").end());
    peer.send(C2, headers(2).status(204).end());
    assert_eq!(peer.take_response(key), 204);
    peer.with_session(|session, _| session.release(key));
    peer.lose(C1);
    let request = take_resume(&mut peer, C2);
    assert_eq!(request, first(0, flag::RESUME_HEAD | flag::RESUME_WHOLE));
    peer.expect_silence_on(C2);
    peer.send(C2, resumed(1, point(10, flag::RESUME_WHOLE)));
    peer.expect(C2, lost(cids[0]));
}

#[test]
fn the_first_lost_of_each_connection_is_no_offence() {
    // SMIG-13.12/lost-last: it crosses the client's own.
    let mut setup = setup();
    setup.config.limits.max_consecutive_empty_frames = 1;
    let mut peer = Peer::for_client(setup);
    let [.., last] = [(); 4].map(|()| peer.connect());
    for handle in [C1, C2, C3] {
        let cid = peer.cid(handle);
        peer.lose(handle);
        peer.send(last, lost(cid));
    }
    assert!(!peer.is_closed(last));
    let cid = peer.cid(C1);
    while peer.next_if_any(last).is_some() {}
    for _ in 0..2 {
        peer.send(last, lost(cid));
    }
    peer.expect_goaway(last, ErrorCode::EnhanceYourCalm);
}

#[test]
fn a_request_of_which_something_was_heard_may_have_been_processed() {
    // SMIG-13.16/refused
    let mut peer = client();
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.send(C1, headers(1).status(103));
    peer.lose(C1);
    take_resume(&mut peer, C2);
    peer.send(C2, resume_refused(1, 3, ErrorCode::RefusedStream));
    assert_eq!(peer.take_error(key).processed, Processed::Maybe);
    // An acceptance says that the request was read.
    let mut peer = client();
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.lose(C1);
    take_resume(&mut peer, C2);
    peer.send(C2, resumed(1, point(0, 0)));
    peer.send(C2, reset(1, ErrorCode::RefusedStream));
    assert_eq!(peer.take_error(key).processed, Processed::Maybe);
}

#[test]
fn a_client_that_shuts_down_resumes_what_runs() {
    // SMIG-13.1/who-resumes: on a connection without GOAWAY.
    let mut peer = client();
    let key = download(&mut peer);
    peer.with_session(smig_proto::Session::shutdown);
    assert!(!peer.session().can_join());
    peer.lose(C1);
    assert!(peer.session().can_join());
    let third = peer.open_transport();
    peer.take_preface(third);
    peer.send_preface(third);
    peer.expect(third, settings_ack());
    assert_eq!(take_resume(&mut peer, third), first(5, flag::RESUME_HEAD));
    peer.send(third, resumed(1, point(0, flag::RESUME_WHOLE)));
    assert!(!peer.session().can_join());
    peer.advance(SECOND);
    peer.advance(SECOND);
    let is_goaway = |frame: &Frame| matches!(frame, Frame::GoAway { .. });
    let frames = std::iter::from_fn(|| peer.next_if_any(third)).collect::<Vec<_>>();
    assert!(frames.iter().any(is_goaway), "{frames:?}");
    peer.send(third, data(1, " world").end());
    assert_eq!(&peer.read_to_end(key)[..], b"hello world");
}

#[test]
fn a_client_without_connections_joins_the_session_that_the_server_keeps() {
    // SMIG-13.13/linger: nothing runs. A session that it founded would be another one with the same AppID.
    for seconds in [20, 35] {
        let mut peer = client();
        peer.lose(C1);
        peer.lose(C2);
        assert!(peer.session().is_closed() && peer.session().can_join());
        for _ in 0..seconds {
            peer.advance(SECOND);
        }
        assert_eq!(peer.session().can_join(), seconds == 20);
        if seconds == 20 {
            let third = peer.open_transport();
            peer.take_preface(third);
        }
    }
}

#[test]
fn a_refused_join_does_not_end_the_wait_for_a_connection() {
    // SMIG-13.13/linger: another connection may reach the server that has the session.
    let mut peer = client();
    let key = download(&mut peer);
    peer.lose(C1);
    take_resume(&mut peer, C2);
    peer.lose(C2);
    peer.setup_mut().join_answers = JoinAnswers::Scripted;
    let third = peer.open_transport();
    peer.take_preface(third);
    peer.send_preface(third);
    assert!(!peer.session().can_join(), "one is on its way");
    peer.send(third, join_refused(5));
    assert!(peer.session().can_join());
    peer.setup_mut().join_answers = JoinAnswers::Automatic;
    let fourth = peer.open_transport();
    peer.take_preface(fourth);
    peer.send_preface(fourth);
    peer.expect(fourth, settings_ack());
    take_resume(&mut peer, fourth);
    peer.expect_not_failed(key);
}
