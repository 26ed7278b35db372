//! Measures the memory that a peer can make an engine hold, with a counting allocator: a window
//! bounds memory, not only bytes on the wire.

#![expect(unsafe_code, reason = "an allocator that counts implements an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use http::Method;
use smig_proto::{Config, EndStream, ErrorCode};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, ConnHandle, Peer};

thread_local! {
    /// Bytes that this thread's test has allocated and not freed.
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
}

struct CountingAllocator;

fn add_held(bytes: isize) {
    // A thread that exits frees memory after its thread-locals are destroyed.
    let _ended = HELD_BYTES.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: forwards to `System` with the same arguments.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add_held(layout.size() as isize);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        add_held(-(layout.size() as isize));
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Returns the bytes that `act` leaves allocated.
fn bytes_held_by(act: impl FnOnce()) -> usize {
    let before = HELD_BYTES.get();
    act();
    usize::try_from(HELD_BYTES.get() - before).unwrap_or(0)
}

fn frame(kind: u8, stream: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; 9 + length];
    bytes[..3].copy_from_slice(&(length as u32).to_be_bytes()[1..]);
    bytes[3] = kind;
    bytes[5..9].copy_from_slice(&stream.to_be_bytes());
    bytes
}

/// Returns one read buffer of a driver: DATA of `length` bytes, then 48 KiB of frames that are not
/// stored.
fn read_buffer(stream: u32, length: usize) -> Vec<u8> {
    let mut bytes = frame(kind::DATA, stream, length);
    for _ in 0..3 {
        bytes.extend(frame(0x42, 0, 16_384));
    }
    bytes
}

/// Sends `window` bytes of unread body, each slice in a separate buffer.
fn fill(peer: &mut Peer, handle: ConnHandle, streams: &[u32], length: usize, window: usize) {
    let slices_per_stream = window / streams.len() / length;
    for &stream in streams {
        let bytes = read_buffer(stream, length);
        for _ in 0..slices_per_stream {
            peer.send_bytes(handle, &bytes);
        }
    }
    assert!(!peer.is_closed(handle));
    peer.clear_events();
}

const MIB: usize = 1 << 20;

#[test]
fn unread_uploads_hold_at_most_a_multiple_of_the_window() {
    // The connection's window is 4 MiB. It used to hold 208 MiB in slices of 1 KiB.
    for (length, max_factor) in [(1, 40), (1000, 2), (1024, 2), (4000, 2), (8192, 8), (16_384, 4)] {
        let window = if length == 1 { 4096 } else { 4 * MIB };
        let mut peer = Peer::connected_to_server(Config::server());
        let streams = [1, 3, 5, 7];
        for stream in streams {
            peer.post(C1, stream);
        }
        let held_bytes = bytes_held_by(|| fill(&mut peer, C1, &streams, length, window));
        assert!(held_bytes >= window, "{length}: {held_bytes} of {window}");
        assert!(
            held_bytes <= max_factor * window + 200_000,
            "slices of {length}: {held_bytes} of {window}"
        );
    }
}

#[test]
fn frames_before_their_barrier_hold_at_most_a_multiple_of_the_window() {
    // A client's stream has a window of 8 MiB, its connection one of 16 MiB.
    let mut peer = Peer::connected_to_client(Config::client()).with_spare();
    peer.open(C1, Method::GET, EndStream::Yes);
    let held_bytes = bytes_held_by(|| fill(&mut peer, C2, &[2, 4], 1024, 8 * MIB));
    assert!(held_bytes >= 8 * MIB, "{held_bytes}");
    assert!(held_bytes <= 20 * MIB, "{held_bytes}");
    // A mover's carrier.
    let mut peer = Peer::connected_to_client(Config::client()).with_spare();
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.migrate(key, C2).unwrap();
    let held_bytes = bytes_held_by(|| fill(&mut peer, C2, &[1], 1024, 4 * MIB));
    assert!(held_bytes >= 4 * MIB, "{held_bytes}");
    assert!(held_bytes <= 10 * MIB, "{held_bytes}");
}

/// Sends one frame on a stream of C2 repeatedly, until the connection is closed. Returns the bytes
/// held.
fn flood(peer: &mut Peer, frame: &[u8]) -> usize {
    bytes_held_by(|| {
        for _ in 0..200_000 {
            if peer.is_closed(C2) {
                break;
            }
            peer.send_bytes(C2, frame);
        }
        while peer.next_if_any(C2).is_some() {}
        peer.clear_events();
    })
}

#[test]
fn empty_frames_before_their_barrier_hold_no_memory() {
    // Each costs its sender nine bytes, and would cost a queue entry of 56 bytes here.
    const END_STREAM: u8 = 1;
    for flags in [0, END_STREAM] {
        let empty_frame = |stream| {
            let mut bytes = frame(kind::DATA, stream, 0);
            bytes[4] = flags;
            bytes
        };
        // A carrier that no MIGRATE has named yet.
        let mut peer = Peer::connected_to_client(Config::client()).with_spare();
        peer.open(C1, Method::GET, EndStream::Yes);
        let held_bytes = flood(&mut peer, &empty_frame(2));
        assert!(held_bytes <= 64 << 10, "unbound, flags {flags}: {held_bytes}");
        // The carrier of a mover, at a server and at a client.
        let mut peer = Peer::connected_to_server(Config::server()).with_spare();
        let key = peer.post(C1, 1);
        peer.migrate(key, C2).unwrap();
        let held_bytes = flood(&mut peer, &empty_frame(2));
        assert!(held_bytes <= 64 << 10, "server, flags {flags}: {held_bytes}");
        let mut peer = Peer::connected_to_client(Config::client()).with_spare();
        let key = peer.open(C1, Method::POST, EndStream::No);
        peer.migrate(key, C2).unwrap();
        let held_bytes = flood(&mut peer, &empty_frame(1));
        assert!(held_bytes <= 64 << 10, "client, flags {flags}: {held_bytes}");
    }
}

#[test]
fn fields_and_debug_data_hold_no_read_buffer() {
    let mut peer = Peer::connected_to_client(Config::client());
    let mut keys = Vec::new();
    for _ in 0..50 {
        keys.push(peer.open(C1, Method::GET, EndStream::Yes));
    }
    let held_bytes = bytes_held_by(|| {
        for id in (0..50).map(|n| 2 * n + 1) {
            peer.send(C1, headers(id).status(200).field("x-field", "of a few bytes"));
            peer.send_bytes(C1, &read_buffer(id, 1));
        }
        for _ in 0..5 {
            peer.send(
                C1,
                Frame::GoAway {
                    last_stream_id: 99,
                    code: ErrorCode::NoError,
                    debug: vec![b'x'; 16_000].into(),
                },
            );
            peer.send(C1, data(1, "x"));
        }
    });
    assert!(held_bytes <= 256 << 10, "{held_bytes}");
}
