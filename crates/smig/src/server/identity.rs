//! Identity of a connection, which must be equal for it to join a session (SMIG-4.5/same-identity): listener,
//! server name, client certificate, tenant.

use std::net::SocketAddr;

use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use smig_proto::Identity;

use crate::transport::Transport;

/// Returns the identity of a connection that was accepted at `listener`.
pub(super) fn compute(transport: &Transport, listener: SocketAddr, tenant: &[u8]) -> Identity {
    let certificates = match transport.tls() {
        Some(rustls::Connection::Server(tls)) => tls.peer_certificates().unwrap_or_default(),
        _ => &[],
    };
    digest(listener, transport.server_name(), tenant, certificates)
}

fn digest(
    listener: SocketAddr,
    server_name: Option<&str>,
    tenant: &[u8],
    certificates: &[CertificateDer<'_>],
) -> Identity {
    let mut hash = Sha256::new();
    // Each part has its length as a prefix, so that no two lists of parts have the same encoding.
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(listener.to_string().as_bytes());
    part(server_name.unwrap_or_default().as_bytes());
    part(tenant);
    for certificate in certificates {
        part(certificate);
    }
    Identity(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    // SMIG-4.5/same-identity
    #[test]
    fn each_difference_makes_another_identity() {
        let (first_addr, second_addr) =
            ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let (first_certificate, second_certificate) =
            (CertificateDer::from(vec![1]), CertificateDer::from(vec![2]));
        let base = digest(
            first_addr,
            Some("a.example"),
            b"tenant",
            std::slice::from_ref(&first_certificate),
        );
        let same = digest(
            first_addr,
            Some("a.example"),
            b"tenant",
            std::slice::from_ref(&first_certificate),
        );
        assert_eq!(base, same);
        for differs in [
            digest(
                second_addr,
                Some("a.example"),
                b"tenant",
                std::slice::from_ref(&first_certificate),
            ),
            digest(
                first_addr,
                Some("b.example"),
                b"tenant",
                std::slice::from_ref(&first_certificate),
            ),
            digest(first_addr, None, b"tenant", std::slice::from_ref(&first_certificate)),
            digest(
                first_addr,
                Some("a.example"),
                b"another",
                std::slice::from_ref(&first_certificate),
            ),
            digest(
                first_addr,
                Some("a.example"),
                b"tenant",
                std::slice::from_ref(&second_certificate),
            ),
            digest(first_addr, Some("a.example"), b"tenant", &[]),
            digest(
                first_addr,
                Some("a.examplet"),
                b"enant",
                std::slice::from_ref(&first_certificate),
            ),
        ] {
            assert_ne!(base, differs);
        }
    }
}
