//! spec/resumption.md at a server: receipts, what is kept, and the bounds of both.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use smig_proto::{Cause, EndStream, ErrorCode, ResponseHead, ResumptionConfig};
use smig_testkit::script::frame::*;
use smig_testkit::script::resumption::*;
use smig_testkit::script::{C1, C2, Peer};

#[test]
fn what_is_kept_no_more_is_gone() {
    // SMIG-13.4/receipts, SMIG-13.10/kept-until-answer
    let mut peer = resumable_server_with(ResumptionConfig {
        max_kept_per_stream: 1000,
        ..ResumptionConfig::default()
    });
    peer.send(C1, window_update(0, 1 << 20));
    peer.send(C1, headers(1).get("/").end());
    let key = peer.take_request();
    peer.send(C1, window_update(1, 1 << 20));
    peer.respond(key, 200, EndStream::No);
    peer.send_body(key, vec![7; 200_000], EndStream::No);
    while peer.next_if_any(C1).is_some() {}
    assert!(peer.session().kept_bytes() <= 2 * (64 << 10), "{}", peer.session().kept_bytes());
    let name = stream_name(&peer, C1, 1);
    lose_first(&mut peer, C2);
    peer.send(C2, resume(1, name, 1, point(10, flag::RESUME_HEAD)));
    peer.expect(C2, resume_refused(1, 2, ErrorCode::NoError));
    assert_eq!(peer.take_error(key).cause, Some(Cause::NotKept));
}

#[test]
fn a_receipt_lets_go_of_what_was_sent() {
    // SMIG-13.5/no-gap, SMIG-13.14/kept-to-the-end
    let mut peer = resumable_server();
    answered(&mut peer);
    assert_eq!(peer.session().kept_bytes(), 11);
    // SETTINGS, its acknowledgement, perhaps the connection's window, HEADERS, DATA.
    let sent = 5;
    peer.send(C1, receipt(sent - 1));
    assert_eq!(peer.session().kept_bytes(), 11);
    peer.send(C1, receipt(sent));
    assert_eq!(peer.session().kept_bytes(), 0);
    let name = stream_name(&peer, C1, 1);
    lose_first(&mut peer, C2);
    peer.send(C2, resume(1, name, 1, point(11, flag::RESUME_HEAD | flag::RESUME_WHOLE)));
    peer.expect(C2, resume_refused(1, 6, ErrorCode::NoError));
}

#[test]
fn receipts_count_all_frames_and_come_within_a_second_or_64_kib() {
    // SMIG-13.4/receipts
    let mut peer = resumable_server();
    // SETTINGS and its acknowledgement.
    assert_eq!(take_receipt(&mut peer, C1), 2);
    // And JOIN.
    peer.expect(C2, receipt(3));
    peer.advance(SECOND);
    peer.send(C1, receipt(1));
    peer.advance(5 * SECOND);
    peer.expect_silence();
    peer.send(C1, headers(1).post("/"));
    peer.take_request();
    // The acknowledgement of SETTINGS, the receipt and the request.
    assert_eq!(take_receipt(&mut peer, C1), 4);
    for _ in 0..3 {
        peer.send(C1, data(1, vec![0; 16_384]));
    }
    peer.expect_silence_on(C1);
    peer.send(C1, data(1, vec![0; 16_000]));
    peer.expect_silence_on(C1);
    peer.send(C1, data(1, vec![0; 384]));
    peer.expect(C1, receipt(9));
}

#[test]
fn counts_that_cannot_be_close_the_connection() {
    // SMIG-13.4/receipts
    for counts in [&[1_000_000][..], &[2, 1]] {
        let mut peer = resumable_server();
        for &count in counts {
            peer.send_if_open(C1, receipt(count));
        }
        peer.expect_goaway(C1, ErrorCode::ProtocolError);
    }
}

#[test]
fn many_attempts_cost_the_budget_of_migrations() {
    let mut peer = resumable_server();
    answered(&mut peer);
    let name = stream_name(&peer, C1, 1);
    lose_first(&mut peer, C2);
    let mut refused = None;
    for attempt in 1..100 {
        let id = 2 * attempt - 1;
        peer.send(C2, resume(id, name, attempt, point(0, 0)));
        let next = peer.next(C2);
        if next == resume_refused(id, 4, ErrorCode::NoError) {
            refused = Some(attempt);
            break;
        }
        while peer.next_if_any(C2).is_some() {}
    }
    assert!(refused.is_some_and(|attempt| attempt > 40), "{refused:?}");
    assert_eq!(peer.take_limit_hit(), "resumptions");
    peer.advance(2 * SECOND);
    while peer.next_if_any(C2).is_some() {}
    peer.send(C2, resume(201, name, 101, point(11, flag::RESUME_HEAD | flag::RESUME_WHOLE)));
    take_resumed(&mut peer, C2, 201);
}

#[test]
fn an_orderly_close_waits_for_receipts_but_not_for_ever() {
    // SMIG-13.4/receipts
    for sends_receipts in [false, true] {
        let mut peer = resumable_server();
        let conn = peer.conn_id(C1);
        peer.with_session(|session, now| session.drain(now, conn));
        peer.advance(SECOND);
        while let Some(frame) = peer.next_if_any(C1) {
            if let Frame::Ping(opaque) = frame {
                peer.send(C1, pong(opaque));
            }
        }
        assert!(!peer.should_close(C1));
        if sends_receipts {
            let mut count = 3;
            while !peer.should_close(C1) {
                peer.send_if_open(C1, receipt(count));
                peer.advance(SECOND);
                count += 1;
                assert!(count < 12);
            }
        } else {
            for _ in 0..20 {
                peer.advance(SECOND);
            }
        }
        assert!(peer.should_close(C1), "{sends_receipts}");
    }
}

#[test]
fn what_waits_to_be_sent_again_counts_as_kept() {
    // SMIG-13.4/receipts: a client that opens no window pins no more than the session may keep.
    let max_kept = 200_000;
    let mut peer =
        resumable_server_with(ResumptionConfig { max_kept, ..ResumptionConfig::default() });
    let respond = |peer: &mut Peer, handle, id| {
        peer.send(handle, window_update(0, 1 << 20));
        peer.send(handle, headers(id).get("/").end());
        let key = peer.take_request();
        peer.send(handle, window_update(id, 1 << 20));
        peer.respond(key, 200, EndStream::No);
        peer.send_body(key, vec![7; 150_000], EndStream::No);
        while peer.next_if_any(handle).is_some() {}
    };
    respond(&mut peer, C1, 1);
    assert_eq!(peer.session().kept_bytes(), 150_000);
    let name = stream_name(&peer, C1, 1);
    peer.lose(C1);
    while peer.next_if_any(C2).is_some() {}
    let closed = ResumePoint { received: 0, window: 0, flags: flag::RESUME_HEAD };
    peer.send(C2, resume(1, name, 1, closed));
    assert_eq!(take_resumed(&mut peer, C2, 1), (0, flag::RESUME_WHOLE));
    assert_eq!(peer.session().kept_bytes(), 0);
    respond(&mut peer, C2, 3);
    let kept = peer.session().kept_bytes();
    assert!(kept <= max_kept - 150_000 + (64 << 10), "{kept}");
    // Once it is sent again it counts once.
    peer.send(C2, window_update(1, 1 << 20));
    while peer.next_if_any(C2).is_some() {}
    let kept = peer.session().kept_bytes();
    assert!((100_000..=max_kept).contains(&kept), "{kept}");
}

#[test]
fn heads_and_trailers_count_as_kept() {
    // SMIG-13.4/receipts
    let max_kept = 100_000;
    let mut peer =
        resumable_server_with(ResumptionConfig { max_kept, ..ResumptionConfig::default() });
    for id in (1..40).step_by(2) {
        let key = peer.get(C1, id);
        let mut head = ResponseHead { status: StatusCode::NO_CONTENT, headers: HeaderMap::new() };
        for number in 0..200 {
            let name = HeaderName::try_from(format!("x-{number}")).unwrap();
            head.headers.insert(name, HeaderValue::from_static("value"));
        }
        peer.with_session(|session, _| session.send_response(key, &head, EndStream::Yes)).unwrap();
        peer.with_session(|session, _| session.release(key));
        while peer.next_if_any(C1).is_some() {}
    }
    let names = [1, 39].map(|id| stream_name(&peer, C1, id));
    lose_first(&mut peer, C2);
    peer.send(C2, resume(1, names[0], 1, point(0, 0)));
    peer.expect(C2, resume_refused(1, 2, ErrorCode::NoError));
    peer.send(C2, resume(3, names[1], 1, point(0, 0)));
    take_resumed(&mut peer, C2, 3);
}

#[test]
fn a_resume_does_not_restart_the_stall_clock() {
    // SMIG-13.13/linger: but the time without a connection does not count.
    for (seconds_adrift, seconds_left) in [(0, 20), (20, 20)] {
        let mut peer = resumable_server();
        let key = peer.get(C1, 1);
        peer.respond(key, 200, EndStream::No);
        peer.send_body(key, vec![7; 100_000], EndStream::Yes);
        // Ticks come once a second.
        for _ in 0..40 {
            peer.advance(SECOND);
        }
        let name = stream_name(&peer, C1, 1);
        peer.lose(C1);
        for _ in 0..seconds_adrift {
            peer.advance(SECOND);
        }
        while peer.next_if_any(C2).is_some() {}
        let closed = ResumePoint { received: 0, window: 0, flags: flag::RESUME_HEAD };
        peer.send(C2, resume(1, name, 1, closed));
        take_resumed(&mut peer, C2, 1);
        for _ in 0..seconds_left - 3 {
            peer.advance(SECOND);
        }
        peer.expect_not_failed(key);
        for _ in 0..6 {
            peer.advance(SECOND);
        }
        assert_eq!(peer.take_error(key).cause, Some(Cause::Stalled));
    }
}

#[test]
fn what_is_sent_again_of_a_stream_that_had_ended_has_just_begun_to_wait() {
    // SMIG-13.14/kept-to-the-end: whatever the age of the process.
    let mut peer = resumable_server();
    for _ in 0..90 {
        peer.advance(SECOND);
        while peer.next_if_any(C1).or_else(|| peer.next_if_any(C2)).is_some() {}
    }
    answered(&mut peer);
    let name = stream_name(&peer, C1, 1);
    lose_first(&mut peer, C2);
    let closed = ResumePoint { received: 0, window: 0, flags: flag::RESUME_HEAD };
    peer.send(C2, resume(1, name, 1, closed));
    take_resumed(&mut peer, C2, 1);
    for _ in 0..3 {
        peer.advance(SECOND);
    }
    while peer.next_if_any(C2).is_some() {}
    peer.send(C2, window_update(1, 100));
    peer.expect(C2, data(1, "hello world").end());
}
