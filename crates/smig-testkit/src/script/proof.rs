//! JOIN's proofs, and a substitute for TLS exporters (spec/smig.md sections 3 and 4).

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use smig_proto::Cid;

use super::codec::cid_bytes;
use super::peer::ConnHandle;

/// Simulates a TLS exporter of this connection: returns 32 bytes that differ for different
/// arguments.
pub(super) fn exporter(handle: ConnHandle, label: &str, context: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update((handle.0 as u64).to_be_bytes());
    hash.update((label.len() as u64).to_be_bytes());
    hash.update(label);
    hash.update(context);
    hash.finalize().into()
}

/// Returns the session key K of a session created on `handle` (SMIG-3.7/session-key).
pub(super) fn session_key(handle: ConnHandle, cid: Cid) -> [u8; 32] {
    exporter(handle, "EXPORTER-smig-session", &cid.app.to_bytes())
}

/// Returns E of a join on `handle` (SMIG-4.1/client-proof).
pub(super) fn join_exporter(handle: ConnHandle, cid: Cid) -> [u8; 32] {
    exporter(handle, "EXPORTER-smig-join", &cid_bytes(cid))
}

fn mac(key: [u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key of 32 bytes");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Returns the client's proof (SMIG-4.1/client-proof).
pub(super) fn client_proof(key: [u8; 32], cid: Cid, nonce: [u8; 16], e: [u8; 32]) -> [u8; 32] {
    mac(key, &[b"smig client", &cid_bytes(cid), &nonce, &e])
}

/// Returns the server's proof (SMIG-4.3/server-proof).
pub(super) fn server_proof(
    key: [u8; 32],
    cid: Cid,
    nonces: ([u8; 16], [u8; 16]),
    e: [u8; 32],
) -> [u8; 32] {
    mac(key, &[b"smig server", &cid_bytes(cid), &nonces.0, &nonces.1, &e])
}
