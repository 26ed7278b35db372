//! A scripted peer for one engine: sends any frame, valid or not, and checks the engine's frames.
//!
//! Has its own frame codec, handshake and proofs, written from RFC 9113 and spec/smig.md and not
//! shared with the engine (except for HPACK decoding). Never uses real time or a socket.
//!
//! ```
//! use smig_testkit::script::{C1, Peer, frame::*};
//! use smig_proto::{Config, ErrorCode};
//!
//! let mut peer = Peer::connected_to_server(Config::server());
//! peer.send(C1, headers(1).get("/").end());
//! peer.send(C1, window_update(1, 0));
//! peer.expect(C1, reset(1, ErrorCode::ProtocolError));
//! peer.expect_silence_on(C1);
//! ```

mod codec;
mod expect;
pub mod frame;
mod handshake;
mod peer;
mod proof;
pub mod resumption;
mod setup;
mod streams;

pub use handshake::cid_settings;
pub use peer::{C1, C2, C3, C4, ConnHandle, Peer};
pub use setup::{JoinAnswers, Setup};
pub use streams::request_head;
