//! K and E are TLS exporters: rustls exports what spec/vectors.md derives from a connection's
//! secret.

use std::sync::{Arc, Mutex};

use rustls::crypto::aws_lc_rs::{cipher_suite::TLS13_AES_128_GCM_SHA256, default_provider};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, KeyLog, RootCertStore, ServerConfig, ServerConnection,
};
use sha2::{Digest as _, Sha256};

use crate::support::certificate;

/// The `exporter_secret` of a connection, as TLS libraries write it to a key log.
#[derive(Debug, Default)]
struct ExporterSecretLog(Mutex<Vec<u8>>);

impl KeyLog for ExporterSecretLog {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label == "EXPORTER_SECRET" {
            *self.0.lock().unwrap() = secret.to_vec();
        }
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let padded = |byte: u8| {
        let mut hash = Sha256::new();
        let block: Vec<u8> =
            (0..64).map(|n| key.get(n).copied().unwrap_or_default() ^ byte).collect();
        hash.update(block);
        hash
    };
    let inner = parts.iter().fold(padded(0x36), |hash, part| hash.chain_update(part)).finalize();
    padded(0x5c).chain_update(inner).finalize().into()
}

/// HKDF-Expand-Label of RFC 8446 section 7.1, one block of SHA-256.
fn expand_label(secret: &[u8], label: &str, context: &[u8]) -> [u8; 32] {
    let label = format!("tls13 {label}");
    let lengths = [label.len(), context.len()].map(|length| u8::try_from(length).unwrap());
    hmac(secret, &[&[0, 32], &lengths[..1], label.as_bytes(), &lengths[1..], context, &[1]])
}

/// Returns both ends of a TLS 1.3 connection after its handshake, and its exporter secret.
fn connect_tls() -> (ClientConnection, ServerConnection, Vec<u8>) {
    let test_certificate = certificate();
    let der = CertificateDer::from_pem_slice(test_certificate.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(test_certificate.key.as_bytes()).unwrap();
    let mut provider = default_provider();
    provider.cipher_suites = vec![TLS13_AES_128_GCM_SHA256];
    let provider = Arc::new(provider);
    let mut roots = RootCertStore::empty();
    roots.add(der.clone()).unwrap();
    let secret = Arc::new(ExporterSecretLog::default());
    let mut client_config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client_config.key_log = Arc::clone(&secret) as Arc<dyn KeyLog>;
    let server_config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![der], key)
        .unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(client_config), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server_config)).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut flight = Vec::new();
        client.write_tls(&mut flight).unwrap();
        server.read_tls(&mut flight.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        let mut flight = Vec::new();
        server.write_tls(&mut flight).unwrap();
        client.read_tls(&mut flight.as_slice()).unwrap();
        client.process_new_packets().unwrap();
    }
    let secret = secret.0.lock().unwrap().clone();
    (client, server, secret)
}

// SMIG-3.7/session-key, SMIG-4.1/client-proof
#[test]
fn exporters_are_derived_as_the_vectors_say() {
    let (client, server, secret) = connect_tls();
    let cid = [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 2];
    for (label, context) in [("EXPORTER-smig-session", &cid[..8]), ("EXPORTER-smig-join", &cid)] {
        let derived = expand_label(&secret, label, &Sha256::digest([]));
        let expected = expand_label(&derived, "exporter", &Sha256::digest(context));
        let made = client.export_keying_material([0; 32], label.as_bytes(), Some(context)).unwrap();
        assert_eq!(made, expected, "{label}");
        let made = server.export_keying_material([0; 32], label.as_bytes(), Some(context)).unwrap();
        assert_eq!(made, expected, "{label}, at the server");
    }
}
