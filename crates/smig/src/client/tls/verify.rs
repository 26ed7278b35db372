//! Verifiers beside the usual one.
//!
//! Whoever names a certificate means that certificate, whatever it says of itself: a self-signed one that
//! calls itself an authority, or a server's own whose issuer is not at hand. So one that is shown exactly
//! as it was named needs no chain. Its name and its time are checked like any other's.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

/// Accepts the named certificates, and what those of them that are authorities have signed.
#[derive(Debug)]
pub(super) struct Named {
    certificates: Vec<CertificateDer<'static>>,
    /// None where no authority was named: a server's own certificate vouches for nobody else.
    chains: Option<Arc<WebPkiServerVerifier>>,
    /// Signatures of the handshake are checked in one way, whoever is trusted.
    signatures: AcceptAll,
}

impl Named {
    pub(super) fn new(
        certificates: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            // rustls asks no root whether it is an authority.
            if is_authority(certificate).ok_or(CertificateError::BadEncoding)? {
                roots.add(certificate.clone())?;
            }
        }
        let chains = if roots.is_empty() {
            None
        } else {
            let builder =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
            let built = builder.build();
            Some(built.map_err(|error| Error::Other(OtherError(Arc::new(error))))?)
        };
        Ok(Self { certificates, chains, signatures: AcceptAll(provider) })
    }
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.certificates.iter().any(|named| **named == **end_entity) {
            let chains = self.chains.as_ref().ok_or(CertificateError::UnknownIssuer)?;
            return chains.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        }
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
        let validity = Validity::of(end_entity).ok_or(CertificateError::BadEncoding)?;
        validity.check(now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signatures.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signatures.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_verify_schemes()
    }
}

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// id-ce-basicConstraints (RFC 5280 section 4.2.1.9).
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];

/// Whether a certificate has a version, which one without does not say, and what is behind its issuer.
fn version_and(certificate: &[u8]) -> Option<(bool, &[u8])> {
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (mut rest, _) = take(certificate, SEQUENCE)?;
    let version = take(rest, VERSION);
    if let Some((_, behind)) = version {
        rest = behind;
    }
    // Serial number, signature, issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, rest) = take(rest, tag)?;
    }
    Some((version.is_some(), rest))
}

/// Whether a certificate may sign others: its basic constraints say so, or it is of version 1, which has
/// none.
fn is_authority(certificate: &[u8]) -> Option<bool> {
    let (has_version, mut rest) = version_and(certificate)?;
    if !has_version {
        return Some(true);
    }
    // Validity, subject, public key.
    for _ in 0..3 {
        (_, rest) = take(rest, SEQUENCE)?;
    }
    // Unique identifiers, which nobody uses, may come before.
    while let Some(&tag) = rest.first() {
        let (content, behind) = take(rest, tag)?;
        if tag == EXTENSIONS {
            return signs(take(content, SEQUENCE)?.0);
        }
        rest = behind;
    }
    Some(false)
}

/// Whether extensions have basic constraints that say that the certificate is an authority's.
fn signs(mut extensions: &[u8]) -> Option<bool> {
    while !extensions.is_empty() {
        let (extension, behind) = take(extensions, SEQUENCE)?;
        extensions = behind;
        let (id, mut rest) = take(extension, OBJECT_IDENTIFIER)?;
        if id == BASIC_CONSTRAINTS {
            if let Some((_critical, behind)) = take(rest, BOOLEAN) {
                rest = behind;
            }
            let (constraints, _) = take(take(rest, OCTET_STRING)?.0, SEQUENCE)?;
            return Some(take(constraints, BOOLEAN).is_some_and(|(says, _)| says == [0xff]));
        }
    }
    Some(false)
}

/// The time in which a certificate holds, both ends included, in seconds since 1970 (RFC 5280 section 4.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Validity {
    not_before: u64,
    not_after: u64,
}

impl Validity {
    fn of(certificate: &[u8]) -> Option<Self> {
        let (_, rest) = version_and(certificate)?;
        let (validity, _) = take(rest, SEQUENCE)?;
        let (not_before, rest) = time(validity)?;
        let (not_after, _) = time(rest)?;
        Some(Self { not_before, not_after })
    }

    fn check(self, now: UnixTime) -> Result<(), CertificateError> {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        if now.as_secs() < self.not_before {
            let not_before = at(self.not_before);
            return Err(CertificateError::NotValidYetContext { time: now, not_before });
        }
        if now.as_secs() > self.not_after {
            let not_after = at(self.not_after);
            return Err(CertificateError::ExpiredContext { time: now, not_after });
        }
        Ok(())
    }
}

/// A time, and what is behind it. A time before 1970 counts as 1970.
fn time(der: &[u8]) -> Option<(u64, &[u8])> {
    let (year, digits, rest) = match take(der, UTC_TIME) {
        Some((text, rest)) => {
            let (year, digits) = number(text, 2)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, digits, rest)
        }
        None => {
            let (text, rest) = take(der, GENERALIZED_TIME)?;
            let (year, digits) = number(text, 4)?;
            (year, digits, rest)
        }
    };
    let (month, digits) = number(digits, 2)?;
    let (day, digits) = number(digits, 2)?;
    let (hour, digits) = number(digits, 2)?;
    let (minute, digits) = number(digits, 2)?;
    let (second, digits) = number(digits, 2)?;
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day);
    if digits != b"Z" || !in_range || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
    Some((u64::try_from(seconds).unwrap_or(0), rest))
}

/// Days since 1970 of a date in the Gregorian calendar, counted in years that begin in March.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let leaps = year / 4 - year / 100 + year / 400;
    year * 365 + leaps + (month * 153 + 2) / 5 + day - 1 - 719_468
}

fn number(digits: &[u8], len: usize) -> Option<(i64, &[u8])> {
    let (digits, rest) = digits.split_at_checked(len)?;
    let number = digits.iter().try_fold(0, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
    });
    Some((number?, rest))
}

/// A value of this type: its content, and what is behind it.
fn take(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (head, rest) = der.split_at_checked(2)?;
    let &[first, short] = head else { return None };
    let (len, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        // Four bytes at most, and so no overflow.
        0x81..=0x84 => {
            let (long, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
            (long.iter().fold(0, |len, &byte| (len << 8) | usize::from(byte)), rest)
        }
        _ => return None,
    };
    if first == tag { rest.split_at_checked(len) } else { None }
}

/// Accepts every certificate; signatures are still checked, so that the handshake means something.
#[derive(Debug)]
pub(super) struct AcceptAll(pub(super) Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2024, 2, 29);
        params.not_after = date_time_ymd(2050, 1, 1);
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    /// What is said of `shown` when `named` is trusted.
    fn verdict(
        named: &CertificateDer<'static>,
        shown: &CertificateDer<'_>,
        name: &str,
        now: u64,
    ) -> Result<(), Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = Named::new(vec![named.clone()], provider).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let name = ServerName::try_from(name).unwrap();
        verifier.verify_server_cert(shown, &[], &name, &[], now).map(drop)
    }

    /// 2026-01-01.
    const NOW: u64 = 1_767_225_600;

    #[test]
    fn the_very_certificate_is_trusted_whatever_it_says_of_itself() {
        let authority = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        for kind in [IsCa::NoCa, IsCa::ExplicitNoCa, authority] {
            let own = certificate(|params| params.is_ca = kind);
            verdict(&own, &own, "a.example", NOW).unwrap();
            let other = certificate(|params| params.is_ca = kind);
            verdict(&own, &other, "a.example", NOW).unwrap_err();
        }
        // Signed by an authority that nobody named.
        let (ca, leaf) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let issuer = rcgen::Issuer::new(CertificateParams::default(), ca);
        let params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        let leaf = params.signed_by(&leaf, &issuer).unwrap().der().clone();
        verdict(&leaf, &leaf, "a.example", NOW).unwrap();
    }

    /// Who names a server's own certificate does not make an authority of that server.
    #[test]
    fn only_an_authority_vouches_for_others() {
        let authority = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        for (kind, vouches) in [(IsCa::NoCa, false), (IsCa::ExplicitNoCa, false), (authority, true)]
        {
            let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
            params.is_ca = kind;
            let key = KeyPair::generate().unwrap();
            let named = params.self_signed(&key).unwrap().der().clone();
            let issuer = rcgen::Issuer::new(params, key);
            let leaf = CertificateParams::new(vec!["b.example".to_owned()]).unwrap();
            let leaf = leaf.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
            let said = verdict(&named, leaf.der(), "b.example", NOW);
            assert_eq!(said.is_ok(), vouches, "{said:?}");
        }
    }

    #[test]
    fn its_name_and_its_time_are_checked() {
        let own = certificate(|_| {});
        let said = |name, now| match verdict(&own, &own, name, now) {
            Err(Error::InvalidCertificate(error)) => error,
            other => panic!("{other:?}"),
        };
        assert!(matches!(said("b.example", NOW), CertificateError::NotValidForNameContext { .. }));
        // 2024-02-29 and 2050-01-01, the first by UTCTime and the second by GeneralizedTime.
        let (begin, end) = (1_709_164_800, 2_524_608_000);
        for good in [begin, end] {
            verdict(&own, &own, "a.example", good).unwrap();
        }
        assert!(matches!(
            said("a.example", begin - 1),
            CertificateError::NotValidYetContext { .. }
        ));
        assert!(matches!(said("a.example", end + 1), CertificateError::ExpiredContext { .. }));
    }

    #[test]
    fn a_damaged_certificate_does_no_harm() {
        let whole = certificate(|_| {});
        for end in 0..whole.len() {
            let _ = (Validity::of(&whole[..end]), is_authority(&whole[..end]));
        }
        for at in 0..whole.len().min(200) {
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut damaged = whole.to_vec();
                damaged[at] = byte;
                let _ = (Validity::of(&damaged), is_authority(&damaged));
            }
        }
    }
}
