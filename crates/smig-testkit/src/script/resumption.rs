//! Steps of scripts about streams that outlive their connections (spec/resumption.md), with a server engine.

use core::time::Duration;

use smig_proto::{Cid, Config, EndStream, ResumptionConfig, SmigConfig, StreamKey};

use super::frame::*;
use super::{C1, ConnHandle, Peer, Setup};

/// The interval of ticks.
pub const SECOND: Duration = Duration::from_secs(1);

/// A server's configuration with resumption.
#[must_use]
pub fn resumable_config(resumption: ResumptionConfig) -> Config {
    let smig = SmigConfig { resumption: Some(resumption), ..SmigConfig::default() };
    Config { smig: Some(smig), ..Config::server() }
}

/// A server engine's conditions, and a client that sets `linger`.
#[must_use]
pub fn resumable_setup(resumption: ResumptionConfig) -> Setup {
    Setup::new(resumable_config(resumption)).with_setting(setting::SMIG_RESUME, 30)
}

/// A server engine with two connections on which streams can be resumed.
#[must_use]
#[track_caller]
pub fn resumable_server_with(resumption: ResumptionConfig) -> Peer {
    let mut peer = Peer::for_server(resumable_setup(resumption));
    peer.connect();
    peer.connect();
    peer
}

/// Like [`resumable_server_with`], with the default configuration.
#[must_use]
#[track_caller]
pub fn resumable_server() -> Peer {
    resumable_server_with(ResumptionConfig::default())
}

/// What one end has received, with a window of 1000 bytes.
#[must_use]
pub const fn point(received: u64, flags: u8) -> ResumePoint {
    ResumePoint { received, window: 1000, flags }
}

/// Takes the acceptance of a RESUME. Returns what the engine has received, and its flags.
///
/// # Panics
///
/// If it is not the next frame.
#[track_caller]
pub fn take_resumed(peer: &mut Peer, handle: ConnHandle, id: u32) -> (u64, u8) {
    let Frame::Raw { kind: kind::RESUME, flags, stream, payload } = peer.next(handle) else {
        panic!("RESUME is not the next frame");
    };
    assert_eq!((stream, payload.len()), (id, 12));
    assert_ne!(flags & flag::SMIG_ACK, 0);
    (u64::from_be_bytes(payload[..8].try_into().expect("eight bytes")), flags & !flag::SMIG_ACK)
}

/// Takes the receipt that the engine sends within a second. Returns its count.
///
/// # Panics
///
/// If it is not the next frame.
#[track_caller]
pub fn take_receipt(peer: &mut Peer, handle: ConnHandle) -> u64 {
    peer.advance(SECOND);
    let Frame::Raw { kind: kind::RECEIPT, stream: 0, payload, .. } = peer.next(handle) else {
        panic!("RECEIPT is not the next frame");
    };
    u64::from_be_bytes(payload[..].try_into().expect("eight bytes"))
}

/// Has the engine respond to stream 1 of C1 with eleven bytes, and takes them. Returns the stream.
#[track_caller]
pub fn answered(peer: &mut Peer) -> StreamKey {
    let key = peer.get(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.send_body(key, "hello world", EndStream::Yes);
    peer.expect(C1, headers(1).status(200));
    peer.expect(C1, data(1, "hello world").end());
    key
}

/// Loses the first connection: the engine says so on another one (SMIG-13.12/lost-last).
#[track_caller]
pub fn lose_first(peer: &mut Peer, reported_on: ConnHandle) {
    let cid = peer.cid(C1);
    peer.lose(C1);
    peer.expect(reported_on, lost(cid));
}

/// The name of a stream.
#[must_use]
#[track_caller]
pub fn stream_name(peer: &Peer, handle: ConnHandle, id: u32) -> (Cid, u32) {
    (peer.cid(handle), id)
}
