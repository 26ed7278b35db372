//! spec/smig.md section 4: joining a connection to a session.
//!
//! That JOIN is not sent in TLS early data is the duty of the TLS driver; the crate `smig` tests it.

use core::time::Duration;

use http::Method;
use smig_proto::{
    Config, EndStream, ErrorCode, Event, Identity, JoinRefusal, KeyingRequest, MigrationTarget,
    Security, SmigConfig,
};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, C3, C4, ConnHandle, Peer, Setup};

fn joined(peer: &Peer, line: ConnHandle) -> bool {
    let session = peer.session();
    session.connection(peer.conn(line)).is_some_and(|view| view.joined)
        && std::ptr::eq(peer.session_of(line), session)
}

/// Opens another connection to a server engine, up to preface and SETTINGS, without a JOIN.
fn before_join(peer: &mut Peer) -> ConnHandle {
    let line = peer.open_line();
    peer.greet(line);
    peer.take_greeting(line);
    line
}

#[test]
fn a_client_proves_a_further_connection_before_it_uses_it() {
    // SMIG-4.1/client-proof: JOIN is the frame after SETTINGS, with a valid MAC (the script verifies it), and
    // no stream precedes it.
    let mut peer = Peer::of_client(Config::client());
    peer.clear_events();
    peer.open_line();
    let Frame::Settings(entries) = peer.next(C2) else { panic!("SETTINGS come first") };
    peer.adopt_cid(C2, &entries);
    peer.take_join(C2);
    let request = peer.event(|event| match event {
        Event::KeyingMaterialNeeded { request, .. } => Some(request.clone()),
        _ => None,
    });
    let mut context = vec![1, 2, 3, 4, 5, 6, 7, 8];
    context.extend(peer.cid(C2).number.to_be_bytes());
    assert_eq!(request, KeyingRequest::Exporter { label: "EXPORTER-smig-join", context });
}

#[test]
fn nonces_are_the_drivers_random_bytes() {
    // SMIG-4.1/client-proof: two connections, two nonces.
    let mut peer = Peer::of_client(Config::client());
    let mut nonces = Vec::new();
    for line in [C2, C3] {
        peer.open_line();
        let Frame::Settings(_) = peer.next(line) else { panic!("SETTINGS come first") };
        let Frame::Join { nonce, .. } = peer.next(line) else { panic!("then JOIN") };
        nonces.push(nonce);
    }
    assert_ne!(nonces[0], nonces[1]);
}

#[test]
fn nothing_behind_a_join_is_processed_before_its_answer() {
    // SMIG-4.2/join-first
    let mut peer = Peer::to_server(Setup::new(Config::server()).joins_by_script());
    peer.connect();
    let line = before_join(&mut peer);
    let join = peer.proof(line);
    peer.send(line, join);
    assert!(!peer.session_of(line).wants_input(peer.conn(line)));
    peer.send(line, headers(1).get("/").end());
    peer.send(line, ping([1; 8]));
    peer.expect_silence();
    peer.decide_join(line);
    peer.expect_joined(line);
    peer.expect(line, pong([1; 8]));
    let key = peer.take_request();
    peer.respond(key, 204, EndStream::Yes);
    peer.expect(line, headers(1).status(204).end());
}

#[test]
fn a_join_behind_a_frame_of_a_stream_ends_the_connection() {
    // SMIG-4.2/join-first
    for frame in
        [headers(1).get("/").end().into(), window_update(1, 5), reset(1, ErrorCode::Cancel)]
    {
        let mut peer = Peer::of_server(Config::server());
        let line = before_join(&mut peer);
        peer.send(line, Frame::clone(&frame));
        let join = peer.proof(line);
        peer.send(line, join);
        peer.expect_goaway(line, ErrorCode::ProtocolError);
        peer.expect_nothing(C1);
    }
}

#[test]
fn a_server_accepts_with_a_proof_of_its_own() {
    // SMIG-4.3/server-proof: `connect` verifies the server's MAC; then the connection is joined for the
    // server.
    let mut peer = Peer::of_server(Config::server());
    peer.connect();
    assert!(joined(&peer, C2));
    let key = peer.get(C1, 1);
    let cid = peer.cid(C2);
    peer.app(|session, now| session.migrate(now, key, MigrationTarget::Spare)).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
}

#[test]
fn a_client_believes_a_right_answer_alone() {
    // SMIG-4.3/server-proof: C2 is joined only after the answer.
    let mut peer = Peer::to_client(Setup::new(Config::client()).joins_by_script());
    peer.connect();
    peer.connect();
    assert!(!joined(&peer, C2));
    let answer = peer.join_answer(C2);
    peer.send(C2, answer);
    assert!(joined(&peer, C2));
    peer.expect_silence();

    // SMIG-4.3/server-proof: an invalid MAC, with one bit changed in it or in the nonce.
    for wrong in 0..2 {
        let mut peer = Peer::to_client(Setup::new(Config::client()).joins_by_script());
        peer.connect();
        peer.connect();
        let Frame::Join { mut nonce, mut mac, ack } = peer.join_answer(C2) else { unreachable!() };
        if wrong == 0 {
            mac[31] ^= 1
        } else {
            nonce[0] ^= 1
        }
        let key = peer.open(C1, Method::GET, EndStream::Yes);
        peer.send(C2, Frame::Join { nonce, mac, ack });
        peer.expect_goaway(C2, ErrorCode::ProtocolError);
        peer.expect_unharmed(key);
        peer.expect_silence();
    }
    // An unsolicited answer proves nothing.
    let mut peer = Peer::of_client(Config::client());
    peer.send(C1, raw(kind::JOIN, flag::SMIG_ACK, 0, [0; 48]));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
}

/// Sends a JOIN changed by `spoil` on a new connection, and returns the connection.
fn join_spoiled(peer: &mut Peer, spoil: impl FnOnce(&mut [u8; 16], &mut [u8; 32])) -> ConnHandle {
    let line = before_join(peer);
    rejoin_spoiled(peer, line, spoil);
    line
}

fn rejoin_spoiled(
    peer: &mut Peer,
    line: ConnHandle,
    spoil: impl FnOnce(&mut [u8; 16], &mut [u8; 32]),
) {
    let Frame::Join { mut nonce, mut mac, ack } = peer.proof(line) else { unreachable!() };
    spoil(&mut nonce, &mut mac);
    peer.send_as_join(line, Frame::Join { nonce, mac, ack });
}

#[test]
fn every_byte_of_a_proof_counts() {
    // SMIG-4.4/constant-time: constant time is guaranteed by `subtle`; this test shows that every byte is
    // compared.
    for byte in 0..32 {
        let mut peer = Peer::of_server(Config::server());
        let line = join_spoiled(&mut peer, |_, mac| mac[byte] ^= 0x80);
        peer.expect(line, join_refused(2));
        assert!(!joined(&peer, line));
    }
    for byte in 0..16 {
        let mut peer = Peer::of_server(Config::server());
        let line = join_spoiled(&mut peer, |nonce, _| nonce[byte] ^= 1);
        peer.expect(line, join_refused(2));
    }
}

#[test]
fn a_join_cannot_be_replayed() {
    // SMIG-4.1/client-proof: the proof covers the new connection's exporter and CID, so that a JOIN recorded
    // on one connection is invalid on another.
    let mut peer = Peer::of_server(Config::server());
    let line = before_join(&mut peer);
    let join = peer.proof(line);
    peer.send(line, Frame::clone(&join));
    peer.expect_joined(line);
    let other = before_join(&mut peer);
    peer.send(other, Frame::clone(&join));
    peer.expect(other, join_refused(2));
    // The same CID, on a connection that ended.
    peer.lose(line);
    let again = peer.open_line();
    peer.rename(again, 2);
    peer.greet(again);
    peer.take_greeting(again);
    peer.send(again, join);
    peer.expect(again, join_refused(2));
}

#[test]
fn another_identity_is_refused() {
    // SMIG-4.5/same-identity: listener, SNI, client certificate and tenant, in a digest computed by the
    // driver.
    let mut peer = Peer::of_server(Config::server());
    peer.setup_mut().identity = Identity([8; 32]);
    let line = before_join(&mut peer);
    let join = peer.proof(line);
    peer.send(line, join);
    peer.expect(line, join_refused(3));
    assert!(!joined(&peer, line));
}

#[test]
fn joins_are_refused_with_the_reason() {
    // SMIG-4.6/refusal-reasons, reason 1: no such session.
    let mut peer = Peer::of_server(Config::server());
    peer.setup_mut().app = smig_proto::AppId::new(99);
    let line = join_spoiled(&mut peer, |_, _| {});
    peer.expect(line, join_refused(1));
    // SMIG-4.6/refusal-reasons, reason 2: a ConnNo that is in use or was used, including that of the first
    // connection.
    let mut peer = Peer::of_server(Config::server());
    peer.connect();
    peer.lose(C1);
    for number in [1, 2] {
        let line = peer.open_line();
        peer.rename(line, number);
        peer.greet(line);
        peer.take_greeting(line);
        peer.key_from(C1);
        let join = peer.proof(line);
        peer.send(line, join);
        peer.expect(line, join_refused(2));
    }
    // SMIG-4.6/refusal-reasons, reason 5: the driver cannot reach the session.
    let mut peer = Peer::to_server(Setup::new(Config::server()).joins_by_script());
    peer.connect();
    let line = join_spoiled(&mut peer, |_, _| {});
    peer.refuse_join(line, JoinRefusal::NotHere);
    peer.expect(line, join_refused(5));
}

#[test]
fn a_session_has_a_bounded_number_of_connections() {
    // SMIG-4.12/max-connections and SMIG-4.6/refusal-reasons, reason 4, at a server.
    let smig = SmigConfig { max_connections: 2, ..SmigConfig::default() };
    let mut peer = Peer::of_server(Config { smig: Some(smig), ..Config::server() });
    peer.connect();
    let line = join_spoiled(&mut peer, |_, _| {});
    peer.expect(line, join_refused(4));
    assert!(!joined(&peer, line));
    // SMIG-4.12/max-connections: a connection that ended frees its slot.
    peer.lose(C2);
    peer.connect();
    assert!(joined(&peer, C4));
    // SMIG-4.12/max-connections at a client: 4 by default, and never more than 16.
    let mut peer = Peer::of_client(Config::client());
    for _ in 1..4 {
        assert!(peer.session().can_join());
        peer.connect();
    }
    assert!(!peer.session().can_join());
    let smig = SmigConfig { max_connections: 100, ..SmigConfig::default() };
    let mut peer = Peer::of_client(Config { smig: Some(smig), ..Config::client() });
    for _ in 1..16 {
        assert!(peer.session().can_join());
        peer.connect();
    }
    assert!(!peer.session().can_join());
}

#[test]
fn a_session_joins_connections_for_years() {
    // SMIG-4.13/rising-numbers: the state kept for ConnNos does not grow, so that it limits no session.
    let year = Duration::from_secs(365 * 24 * 60 * 60);
    let mut peer = Peer::of_server(Config::server());
    for n in 0..3_000 {
        let line = peer.connect();
        assert!(joined(&peer, line), "the server refuses connection {n}");
        peer.close(line);
        peer.advance(year / 3_000);
    }
    let line = peer.connect();
    let key = peer.get(C1, 1);
    let cid = peer.cid(line);
    peer.migrate(key, line).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    // A client.
    let mut peer = Peer::of_client(Config::client());
    let mut last = peer.cid(C1);
    for n in 0..3_000 {
        assert!(peer.session().can_join(), "the client opens no connection {n}");
        let line = peer.connect();
        assert!(joined(&peer, line) && peer.cid(line) > last, "connection {n}");
        last = peer.cid(line);
        peer.close(line);
        peer.advance(year / 3_000);
    }
    let line = peer.connect();
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.migrate(key, line).unwrap();
    let cid = peer.cid(line);
    peer.expect(C1, migrate(1, cid, 1));
}

#[test]
fn conn_numbers_rise() {
    // SMIG-4.13/rising-numbers: connections that were opened together may join in any order; an old number is
    // refused.
    let mut peer = Peer::of_server(Config::server());
    for (number, reason) in [(200, None), (190, None), (190, Some(2)), (137, None), (136, Some(2))]
    {
        let line = peer.open_line();
        peer.rename(line, number);
        peer.greet(line);
        peer.take_greeting(line);
        let join = peer.proof(line);
        peer.send(line, join);
        match reason {
            Some(reason) => peer.expect(line, join_refused(reason)),
            None => peer.expect_joined(line),
        }
        peer.close(line);
    }
}

#[test]
fn a_refused_connection_stays_a_working_one() {
    // SMIG-4.7/refused-lives at a server.
    let mut peer = Peer::of_server(Config::server());
    let line = join_spoiled(&mut peer, |_, mac| mac[0] ^= 1);
    peer.expect(line, join_refused(2));
    peer.send(line, ping([3; 8]));
    peer.expect(line, pong([3; 8]));
    peer.send(line, headers(1).get("/").end());
    let requested = peer.find_event_on(line, |event| match event {
        Event::Request { end, .. } => Some(*end),
        _ => None,
    });
    assert_eq!(requested, Some(EndStream::Yes));
    // SMIG-4.7/refused-lives at a client: C2 is not part of the session but accepts streams.
    for reason in [2, 3, 4, 5, 200] {
        let mut peer = Peer::to_client(Setup::new(Config::client()).joins_by_script());
        peer.connect();
        peer.connect();
        peer.send(C2, join_refused(reason));
        peer.expect_silence();
        assert!(!joined(&peer, C2));
        let key = peer.open(C1, Method::GET, EndStream::Yes);
        assert!(
            peer.app(|session, now| session.migrate(now, key, MigrationTarget::Spare)).is_err()
        );
        let other = peer.open(C2, Method::GET, EndStream::Yes);
        peer.send(C2, headers(1).status(204).end());
        assert_eq!(peer.take_response(other), 204);
    }
}

#[test]
fn an_unknown_session_is_founded_anew_at_the_server() {
    // SMIG-4.8/new-session: C2 is the first connection of a new session with K from C2; C3 joins
    // that.
    let mut peer = Peer::of_server(Config::server());
    peer.setup_mut().app = smig_proto::AppId::new(99);
    let line = join_spoiled(&mut peer, |_, _| {});
    peer.expect(line, join_refused(1));
    peer.key_from(line);
    let next = join_spoiled(&mut peer, |_, _| {});
    peer.expect_joined(next);
    assert!(std::ptr::eq(peer.session_of(line), peer.session_of(next)));
    let view = peer.session_of(line).connection(peer.conn(line)).unwrap();
    assert!(view.joined);
}

#[test]
fn an_unknown_session_is_founded_anew_at_the_client() {
    // SMIG-4.8/new-session
    let mut peer = Peer::to_client(Setup::new(Config::client()).joins_by_script());
    peer.connect();
    peer.connect();
    let old = peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C2, join_refused(1));
    peer.expect_silence();
    assert!(joined(&peer, C2), "C2 is the first connection now");
    assert!(!joined(&peer, C1));
    // The next JOIN is proved with K from C2 (`connect` checks it).
    peer.key_from(C2);
    peer.connect();
    let answer = peer.join_answer(C3);
    peer.send(C3, answer);
    assert!(joined(&peer, C3));
    // The stream on C1 continues there, and cannot migrate.
    assert!(peer.app(|session, now| session.migrate(now, old, MigrationTarget::Spare)).is_err());
    // Offers and MIGRATEs in flight there are declined and have no effect (SMIG-6.2/offer-answered).
    peer.send(C1, offer(1));
    peer.expect(C1, decline(1).end());
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, decline(1).end());
    peer.send(C1, headers(1).status(200));
    peer.send(C1, data(1, "still here").end());
    assert_eq!(peer.take_response(old), 200);
    assert_eq!(&peer.read_to_end(old)[..], b"still here");
    peer.expect_silence();
}

#[test]
fn an_unknown_session_is_founded_anew_on_cleartext() {
    // SMIG-4.8/new-session with SMIG-3.9/cleartext-key, a client: a JOIN with a new K, and its answer.
    let setup = Setup::new(Config::client()).security(Security::TrustedCleartext);
    let mut peer = Peer::to_client(setup.joins_by_script());
    let random = [0x5a; 32];
    peer.set_key(random);
    for line in [C1, C2] {
        peer.open_line();
        let Frame::Settings(entries) = peer.next(line) else { panic!("SETTINGS come first") };
        peer.adopt_cid(line, &entries);
        let Frame::Join { nonce, .. } = peer.next(line) else { panic!("then JOIN") };
        peer.note_nonce(line, nonce);
        peer.next(line);
        peer.greet(line);
        peer.expect(line, settings_ack());
        if line == C1 {
            let answer = peer.join_answer(line);
            peer.send(line, answer);
        }
    }
    peer.send(C2, join_refused(1));
    let Frame::Join { nonce, mac, ack: Ack::No } = peer.next(C2) else { panic!("a new K") };
    assert_eq!(
        ([nonce, mac[..16].try_into().unwrap()].concat(), &mac[16..]),
        (random.to_vec(), &[0; 16][..])
    );
    peer.note_nonce(C2, nonce);
    let answer = peer.join_answer(C2);
    peer.send(C2, answer);
    assert!(joined(&peer, C2) && !joined(&peer, C1));
    // SMIG-4.8/new-session, a server: it accepts the new K on the refused connection.
    let setup = Setup::new(Config::server()).security(Security::TrustedCleartext);
    let mut peer = Peer::to_server(setup);
    peer.open_line();
    peer.greet(C1);
    peer.take_greeting(C1);
    peer.set_key([1; 32]);
    let join = peer.proof(C1);
    peer.send(C1, join);
    peer.expect(C1, join_refused(1));
    let key = [0x77; 32];
    peer.set_key(key);
    let mut mac = [0; 32];
    mac[..16].copy_from_slice(&key[16..]);
    peer.send_as_join(C1, Frame::Join { nonce: [0x77; 16], mac, ack: Ack::No });
    peer.expect_joined(C1);
    peer.connect();
    assert!(joined(&peer, C1) && joined(&peer, C2));
}

#[test]
fn three_wrong_proofs_end_the_connection() {
    // SMIG-4.9/three-refusals
    let mut peer = Peer::of_server(Config::server());
    let line = join_spoiled(&mut peer, |_, mac| mac[0] ^= 1);
    peer.expect(line, join_refused(2));
    rejoin_spoiled(&mut peer, line, |_, mac| mac[9] ^= 1);
    peer.expect(line, join_refused(2));
    rejoin_spoiled(&mut peer, line, |nonce, _| nonce[9] ^= 1);
    peer.expect(line, join_refused(2));
    peer.expect_goaway(line, ErrorCode::EnhanceYourCalm);
    peer.expect_nothing(C1);
}

#[test]
fn three_refused_joins_end_the_connection_whatever_the_reasons() {
    // SMIG-4.9/three-refusals
    use JoinRefusal::{BadProof, DifferentIdentity, Limit, NotHere};
    for (reasons, bytes) in [
        ([NotHere; 3], [5, 5, 5]),
        ([DifferentIdentity, Limit, BadProof], [3, 4, 2]),
        ([Limit; 3], [4, 4, 4]),
    ] {
        let mut peer = Peer::to_server(Setup::new(Config::server()).joins_by_script());
        peer.connect();
        let line = before_join(&mut peer);
        for (reason, byte) in reasons.into_iter().zip(bytes) {
            let join = peer.proof(line);
            peer.send(line, join);
            peer.refuse_join(line, reason);
            peer.expect(line, join_refused(byte));
        }
        peer.expect_goaway(line, ErrorCode::EnhanceYourCalm);
        peer.expect_nothing(C1);
    }
    // SMIG-4.9/three-refusals: a cleartext connection that names unknown sessions.
    let setup = Setup::new(Config::server()).security(Security::TrustedCleartext);
    let mut peer = Peer::to_server(setup);
    peer.open_line();
    peer.greet(C1);
    peer.take_greeting(C1);
    peer.set_key([1; 32]);
    for _ in 0..3 {
        let join = peer.proof(C1);
        peer.send(C1, join);
        peer.expect(C1, join_refused(1));
    }
    peer.expect_goaway(C1, ErrorCode::EnhanceYourCalm);
}

#[test]
fn a_connection_joins_one_session_once() {
    // SMIG-4.14/join-once: a founder that was refused with reason 1, and sends another JOIN.
    let mut peer = Peer::of_server(Config::server());
    let join = peer.proof(C1);
    peer.send(C1, join);
    peer.expect(C1, join_refused(1));
    let join = peer.proof(C1);
    peer.send(C1, join);
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
    // SMIG-4.14/join-once: a founder that others have joined.
    let mut peer = Peer::of_server(Config::server()).with_spare();
    peer.close(C2);
    let join = peer.proof(C1);
    peer.send(C1, join);
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
    // SMIG-4.14/join-once: a connection that has joined, and is the only one.
    let mut peer = Peer::of_server(Config::server()).with_spare();
    let join = peer.proof(C2);
    peer.close(C1);
    peer.send(C2, join);
    peer.expect_goaway(C2, ErrorCode::ProtocolError);
}

#[test]
fn a_join_is_answered_in_time() {
    // SMIG-4.15/join-timeout, and SMIG-5.12/join-pending: what waited for the answer is declined.
    let mut peer = Peer::to_client(Setup::new(Config::client()).joins_by_script());
    peer.connect();
    peer.connect();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 2));
    peer.advance(Duration::from_secs(9));
    peer.expect_silence();
    peer.advance(Duration::from_secs(3));
    peer.expect_goaway(C2, ErrorCode::SettingsTimeout);
    assert_eq!(peer.limit(), "JOIN not answered in time");
    peer.expect(C1, decline(1).end());
    peer.expect_unharmed(key);
    assert!(peer.session().can_join());
    // SMIG-4.15/join-timeout: an answer in time cancels the timeout.
    let mut peer = Peer::to_client(Setup::new(Config::client()).joins_by_script());
    peer.connect();
    peer.connect();
    peer.advance(Duration::from_secs(9));
    let answer = peer.join_answer(C2);
    peer.send(C2, answer);
    peer.advance(Duration::from_secs(60));
    assert!(joined(&peer, C2));
    peer.expect_silence();
    // SMIG-4.15/join-timeout: it applies to the JOIN that founds a session on cleartext.
    let setup = Setup::new(Config::client()).security(Security::TrustedCleartext);
    let mut peer = Peer::to_client(setup.joins_by_script());
    peer.open_line();
    peer.advance(Duration::from_secs(12));
    assert!(peer.is_closed(C1));
}

#[test]
fn a_right_proof_behind_a_wrong_one_joins() {
    // SMIG-4.9/three-refusals permits two more attempts.
    let mut peer = Peer::of_server(Config::server());
    let line = join_spoiled(&mut peer, |_, mac| mac[0] ^= 1);
    peer.expect(line, join_refused(2));
    rejoin_spoiled(&mut peer, line, |_, _| {});
    peer.expect_joined(line);
    assert!(joined(&peer, line));
}

#[test]
fn limits_count_for_the_session() {
    // SMIG-4.11/session-limits: streams. Two connections have the limit of one.
    let config = Config { max_concurrent_streams: 2, ..Config::server() };
    let mut peer = Peer::of_server(config);
    peer.connect();
    peer.get(C1, 1);
    let second = peer.get(C2, 1);
    peer.send(C2, headers(3).get("/").end());
    peer.expect(C2, reset(3, ErrorCode::RefusedStream));
    // SMIG-4.11/session-limits: a running handler counts until it ends, even if its stream was reset.
    peer.send(C2, reset(1, ErrorCode::Cancel));
    peer.send(C1, headers(3).get("/").end());
    peer.expect(C1, reset(3, ErrorCode::RefusedStream));
    peer.app(|session, _| session.release(second));
    peer.get(C1, 5);
    peer.expect_silence();
    // SMIG-4.11/session-limits: resets.
    let mut config = Config::server();
    config.limits.reset_burst = 4;
    let mut peer = Peer::of_server(config);
    peer.connect();
    for stream in [1, 3] {
        for line in [C1, C2] {
            let key = peer.get(line, stream);
            peer.send(line, reset(stream, ErrorCode::Cancel));
            peer.app(|session, _| session.release(key));
        }
    }
    peer.get(C2, 5);
    peer.send(C2, reset(5, ErrorCode::Cancel));
    peer.expect_goaway(C2, ErrorCode::EnhanceYourCalm);
    // SMIG-4.11/session-limits: streams, at a client: the server's limit on one connection applies to all.
    let setup = Setup::new(Config::client()).setting(setting::MAX_CONCURRENT_STREAMS, 1);
    let mut peer = Peer::to_client(setup);
    peer.connect();
    peer.connect();
    peer.open(C1, Method::GET, EndStream::Yes);
    let conn = peer.conn(C2);
    let head = smig_testkit::script::request_head(Method::GET);
    let opened = peer.app(|session, now| session.open(now, Some(conn), &head, EndStream::Yes));
    assert_eq!(opened, Err(smig_proto::OpenError::Blocked));
}
