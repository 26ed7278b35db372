//! The common name in a client's certificate.
//!
//! TLS has verified the certificate; here it is only parsed, as far as the subject's common name
//! (RFC 5280 section 4.1).

use smig::ConnectionInfo;

const INTEGER: u8 = 0x02;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;

/// id-at-commonName, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// Returns the common name of the client's certificate, if it presented one that was verified.
#[must_use]
pub fn client_common_name(connection: &ConnectionInfo) -> Option<&str> {
    common_name(connection.tls()?.peer_certificates().first()?)
}

fn common_name(certificate: &[u8]) -> Option<&str> {
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (mut rest, _) = take(certificate, SEQUENCE)?;
    if let Some((_, tail)) = take(rest, VERSION) {
        rest = tail;
    }
    // Serial number, signature, issuer, validity.
    for tag in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE] {
        (_, rest) = take(rest, tag)?;
    }
    let (mut names, _) = take(rest, SEQUENCE)?;
    let mut last_value = None;
    while let Some((set, tail)) = take(names, SET) {
        names = tail;
        let (attribute, _) = take(set, SEQUENCE)?;
        let (kind, value) = take(attribute, OBJECT_ID)?;
        if kind == COMMON_NAME {
            // The most specific name comes last.
            last_value = Some(value);
        }
    }
    let value = last_value?;
    let text_tags = [UTF8_STRING, PRINTABLE_STRING, IA5_STRING];
    let (name, _) = text_tags.iter().find_map(|&tag| take(value, tag))?;
    std::str::from_utf8(name).ok()
}

/// Parses a DER value with this tag; returns its content, and the rest of the input.
fn take(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = der.split_first()?;
    let (&length, rest) = rest.split_first()?;
    if first != tag {
        return None;
    }
    if length < 0x80 {
        return rest.split_at_checked(length.into());
    }
    let length_bytes = usize::from(length & 0x7f);
    if !(1..=4).contains(&length_bytes) {
        return None;
    }
    let (length, rest) = rest.split_at_checked(length_bytes)?;
    let length = length.iter().fold(0_usize, |length, &byte| (length << 8) | usize::from(byte));
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn certificate(names: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, name) in names {
            params.distinguished_name.push(kind.clone(), *name);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_common_name_is_found() {
        let der = certificate(&[
            (DnType::OrganizationName, "Somebody"),
            (DnType::CommonName, "änn@example"),
        ]);
        assert_eq!(common_name(&der), Some("änn@example"));
        assert_eq!(common_name(&certificate(&[(DnType::OrganizationName, "x")])), None);
    }

    #[test]
    fn truncated_and_corrupted_certificates_do_not_panic() {
        let der = certificate(&[(DnType::CommonName, "ann")]);
        for end in 0..der.len() {
            // A truncated certificate neither panics nor loops.
            let _ = common_name(&der[..end]);
        }
        for at in 0..der.len().min(200) {
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut damaged = der.clone();
                damaged[at] = byte;
                let _ = common_name(&damaged);
            }
        }
        assert_eq!(common_name(&[]), None);
    }
}
