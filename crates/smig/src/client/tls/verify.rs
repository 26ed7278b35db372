//! Certificate verifiers in addition to rustls' default.
//!
//! A certificate that is trusted explicitly may be self-signed and marked as an authority, or be a
//! server's own whose issuer is unknown. So a server certificate that is identical to a trusted one
//! needs no chain. Its name and validity are checked as usual, and its key usage here.
//!
//! A trusted authority must be permitted to sign certificates and be valid at the time; webpki checks neither for a
//! trust anchor. The behaviour follows OpenSSL, and so `curl --cacert`, except for authorities of version 3 without
//! basic constraints, which RFC 5280 section 4.2.1.9 forbids and OpenSSL accepts. Not checked, unlike in OpenSSL: an
//! authority's path length and unknown critical extensions, and the key usage (other than the extended one) of intermediates and
//! of server certificates that an authority has signed.

use std::borrow::Cow;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use super::x509::{CertificateFields, Validity};
use crate::error::IssuerError;

/// Accepts the trusted certificates, and certificates signed by the authorities among them.
#[derive(Debug)]
pub(super) struct ExplicitTrustVerifier {
    certificates: Vec<(CertificateDer<'static>, CertificateFields)>,
    authorities: Authorities,
    /// Verifies the handshake's signatures, in the same way for every certificate.
    signature_verifier: AcceptAnyCert,
}

impl ExplicitTrustVerifier {
    pub(super) fn new(
        certificates: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, Error> {
        let parse = |der: CertificateDer<'static>| {
            let fields = CertificateFields::parse(&der).ok_or(CertificateError::BadEncoding)?;
            Ok::<_, CertificateError>((der, fields))
        };
        let certificates = certificates.into_iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let authorities = Authorities::new(&certificates, UnixTime::now())?;
        Ok(Self { certificates, authorities, signature_verifier: AcceptAnyCert(provider) })
    }
}

/// The authorities among the trusted certificates. A server's own cannot sign for other names.
#[derive(Debug)]
struct Authorities {
    /// Those that may sign ...
    roots: RootCertStore,
    /// ... and their validity periods, in the same order.
    validity_periods: Vec<Validity>,
    /// Those that may not sign.
    non_signing: RootCertStore,
}

impl Authorities {
    fn new(
        certificates: &[(CertificateDer<'static>, CertificateFields)],
        now: UnixTime,
    ) -> Result<Self, Error> {
        let (roots, non_signing) = (RootCertStore::empty(), RootCertStore::empty());
        let mut authorities = Self { roots, validity_periods: Vec::new(), non_signing };
        for (number, (der, fields)) in certificates.iter().enumerate() {
            if !fields.is_authority() {
                continue;
            }
            let issuer_error = if fields.may_sign() {
                authorities.roots.add(der.clone())?;
                authorities.validity_periods.push(fields.validity);
                validity_error(fields.validity, now)
            } else {
                authorities.non_signing.add(der.clone())?;
                Some(IssuerError::MayNotSign)
            };
            if let Some(issuer_error) = issuer_error {
                let number = number + 1;
                tracing::warn!("CA certificate {number} is not used: {issuer_error}");
            }
        }
        Ok(authorities)
    }

    /// Returns the authorities that are valid at `now`: one may have expired since it was loaded.
    fn valid_roots_at(&self, now: UnixTime) -> Cow<'_, RootCertStore> {
        if self.validity_periods.iter().all(|validity| validity.check(now).is_ok()) {
            return Cow::Borrowed(&self.roots);
        }
        let all = self.roots.roots.iter().zip(&self.validity_periods);
        let good = all.filter(|(_, validity)| validity.check(now).is_ok());
        Cow::Owned(good.map(|(anchor, _)| anchor.clone()).collect())
    }

    /// Checks that a valid authority has signed a certificate. If an authority that is not valid
    /// or may not sign has signed it, the error says so.
    fn check_signed(
        &self,
        now: UnixTime,
        is_signed_by: impl Fn(&RootCertStore) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let unknown_issuer = match is_signed_by(&self.valid_roots_at(now)) {
            Err(error @ Error::InvalidCertificate(CertificateError::UnknownIssuer)) => error,
            other => return other,
        };
        let rejection =
            |why: IssuerError| CertificateError::Other(OtherError(Arc::new(why))).into();
        if is_signed_by(&self.non_signing).is_ok() {
            return Err(rejection(IssuerError::MayNotSign));
        }
        for (anchor, validity) in self.roots.roots.iter().zip(&self.validity_periods) {
            if let Some(why) = validity_error(*validity, now)
                && is_signed_by(&RootCertStore { roots: vec![anchor.clone()] }).is_ok()
            {
                return Err(rejection(why));
            }
        }
        Err(unknown_issuer)
    }
}

/// Returns why an authority with this validity period is not accepted, if it is not valid at `now`.
fn validity_error(validity: Validity, now: UnixTime) -> Option<IssuerError> {
    match validity.check(now) {
        Ok(()) => None,
        Err(CertificateError::NotValidYetContext { .. }) => Some(IssuerError::NotYetValid),
        Err(_) => Some(IssuerError::Expired),
    }
}

impl ServerCertVerifier for ExplicitTrustVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        if let Some((_, fields)) =
            self.certificates.iter().find(|(named, _)| **named == **end_entity)
        {
            fields.validity.check(now)?;
            if !fields.may_serve() {
                return Err(CertificateError::InvalidPurpose.into());
            }
        } else {
            let algorithms = self.signature_verifier.0.signature_verification_algorithms.all;
            self.authorities.check_signed(now, |roots| {
                verify_server_cert_signed_by_trust_anchor(
                    &certificate,
                    roots,
                    intermediates,
                    now,
                    algorithms,
                )
            })?;
        }
        verify_server_name(&certificate, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature_verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature_verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signature_verifier.supported_verify_schemes()
    }
}

/// Accepts every certificate. Signatures are still verified, so that the peer must hold the private key.
#[derive(Debug)]
pub(super) struct AcceptAnyCert(pub(super) Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCert {
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
    use std::time::Duration;

    use rcgen::{
        CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
        date_time_ymd,
    };

    use super::*;

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2024, 2, 29);
        params.not_after = date_time_ymd(2050, 1, 1);
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    /// Verifies `presented` while only `trusted` is trusted.
    fn verify(
        trusted: &CertificateDer<'static>,
        presented: &CertificateDer<'_>,
        name: &str,
        now: u64,
    ) -> Result<(), Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = ExplicitTrustVerifier::new(vec![trusted.clone()], provider).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let name = ServerName::try_from(name).unwrap();
        verifier.verify_server_cert(presented, &[], &name, &[], now).map(drop)
    }

    /// 2026-01-01.
    const NOW: u64 = 1_767_225_600;

    #[test]
    fn an_explicitly_trusted_certificate_needs_no_issuer() {
        let authority = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        for kind in [IsCa::NoCa, IsCa::ExplicitNoCa, authority] {
            let own_certificate = certificate(|params| params.is_ca = kind);
            verify(&own_certificate, &own_certificate, "a.example", NOW).unwrap();
            let other_certificate = certificate(|params| params.is_ca = kind);
            verify(&own_certificate, &other_certificate, "a.example", NOW).unwrap_err();
        }
        // Signed by an authority that is not trusted.
        let (ca, leaf) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let issuer = Issuer::new(CertificateParams::default(), ca);
        let params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        let leaf = params.signed_by(&leaf, &issuer).unwrap().der().clone();
        verify(&leaf, &leaf, "a.example", NOW).unwrap();
    }

    /// Trusting a server's own certificate does not make that server an authority.
    #[test]
    fn only_an_authority_signs_for_others() {
        let authority = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        for (kind, is_authority) in
            [(IsCa::NoCa, false), (IsCa::ExplicitNoCa, false), (authority, true)]
        {
            let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
            params.is_ca = kind;
            let key = KeyPair::generate().unwrap();
            let trusted = params.self_signed(&key).unwrap().der().clone();
            let issuer = Issuer::new(params, key);
            let leaf = CertificateParams::new(vec!["b.example".to_owned()]).unwrap();
            let leaf = leaf.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
            let result = verify(&trusted, leaf.der(), "b.example", NOW);
            assert_eq!(result.is_ok(), is_authority, "{result:?}");
        }
    }

    #[test]
    fn name_and_validity_are_checked() {
        let own_certificate = certificate(|_| {});
        let error_of = |name, now| match verify(&own_certificate, &own_certificate, name, now) {
            Err(Error::InvalidCertificate(error)) => error,
            other => panic!("{other:?}"),
        };
        assert!(matches!(
            error_of("b.example", NOW),
            CertificateError::NotValidForNameContext { .. }
        ));
        // 2024-02-29 and 2050-01-01, the first by UTCTime and the second by GeneralizedTime.
        let (begin, end) = (1_709_164_800, 2_524_608_000);
        for good in [begin, end] {
            verify(&own_certificate, &own_certificate, "a.example", good).unwrap();
        }
        assert!(matches!(
            error_of("a.example", begin - 1),
            CertificateError::NotValidYetContext { .. }
        ));
        assert!(matches!(error_of("a.example", end + 1), CertificateError::ExpiredContext { .. }));
    }

    /// As in curl: a key that may only sign certificates is not valid for a server.
    #[test]
    fn an_explicitly_trusted_certificate_must_permit_servers() {
        use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
        use KeyUsagePurpose::{CrlSign, DigitalSignature, KeyCertSign};
        let usage = |usages: &[KeyUsagePurpose]| certificate(|p| p.key_usages = usages.to_vec());
        let purpose = |purposes: &[ExtendedKeyUsagePurpose]| {
            certificate(|params| params.extended_key_usages = purposes.to_vec())
        };
        for (own_certificate, is_valid) in [
            (usage(&[DigitalSignature]), true),
            (usage(&[KeyCertSign, DigitalSignature]), true),
            (usage(&[KeyCertSign, CrlSign]), false),
            (purpose(&[ClientAuth, ServerAuth]), true),
            (purpose(&[ClientAuth]), false),
            (purpose(&[Any]), false),
        ] {
            let expected =
                if is_valid { Ok(()) } else { Err(CertificateError::InvalidPurpose.into()) };
            assert_eq!(verify(&own_certificate, &own_certificate, "a.example", NOW), expected);
        }
    }

    /// Verifies, at `now`, a certificate that a trusted authority has signed.
    fn verify_signed(change: impl FnOnce(&mut CertificateParams), now: u64) -> Result<(), Error> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) =
            (date_time_ymd(2024, 1, 1), date_time_ymd(2028, 1, 1));
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let named = params.self_signed(&key).unwrap().der().clone();
        verify(&named, &leaf(&Issuer::new(params, key)), "b.example", now)
    }

    /// Returns a certificate that the authority has signed.
    fn leaf(issuer: &Issuer<'_, KeyPair>) -> CertificateDer<'static> {
        let leaf = CertificateParams::new(vec!["b.example".to_owned()]).unwrap();
        leaf.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
    }

    /// webpki checks neither validity nor key usage of a trust anchor.
    #[test]
    fn an_authority_that_may_not_sign_or_has_expired_is_not_used() {
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        use KeyUsagePurpose::{CrlSign, DigitalSignature, KeyCertSign};
        const YEAR: u64 = 31_557_600;
        let usage =
            |usages: &[KeyUsagePurpose]| verify_signed(|p| p.key_usages = usages.to_vec(), NOW);
        let purpose = |purpose| verify_signed(|p| p.extended_key_usages = vec![purpose], NOW);
        let verify_at = |now| verify_signed(|_| {}, now);
        for good in [verify_at(NOW), usage(&[KeyCertSign]), purpose(ServerAuth)] {
            good.unwrap();
        }
        for (result, why) in [
            (usage(&[DigitalSignature, CrlSign]), IssuerError::MayNotSign),
            (purpose(ClientAuth), IssuerError::MayNotSign),
            (verify_at(NOW - 3 * YEAR), IssuerError::NotYetValid),
            (verify_at(NOW + 3 * YEAR), IssuerError::Expired),
        ] {
            let Err(Error::InvalidCertificate(CertificateError::Other(OtherError(result)))) =
                result
            else {
                panic!("{result:?}, not {why:?}");
            };
            assert_eq!(result.downcast_ref(), Some(&why));
        }
    }

    /// Encodes a value with this tag.
    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let len = u16::try_from(content.len()).unwrap().to_be_bytes();
        let head = match len {
            [0, len @ 0..0x80] => vec![tag, len],
            [0, len] => vec![tag, 0x81, len],
            [high, low] => vec![tag, 0x82, high, low],
        };
        [&head, content].concat()
    }

    /// Converts the certificate to version 1, which has no extensions. The signature of a trusted certificate is
    /// not checked.
    fn to_version_1(certificate: &[u8]) -> CertificateDer<'static> {
        let take = |der, tag| super::super::x509::take(der, tag).unwrap();
        let (content, _) = take(certificate, 0x30);
        let (signed, signature) = take(content, 0x30);
        let (_version, rest) = take(signed, 0xa0);
        let mut end = rest;
        for tag in [0x02, 0x30, 0x30, 0x30, 0x30, 0x30] {
            (_, end) = take(end, tag);
        }
        let without_extensions = &rest[..rest.len() - end.len()];
        CertificateDer::from(der(0x30, &[&der(0x30, without_extensions), signature].concat()))
    }

    #[test]
    fn a_version_1_certificate_is_an_authority_only_if_self_issued() {
        let params_for = |name: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            params
        };
        let key = KeyPair::generate().unwrap();
        let root = to_version_1(params_for("root").self_signed(&key).unwrap().der());
        let root_key = Issuer::new(params_for("root"), key);
        verify(&root, &leaf(&root_key), "b.example", NOW).unwrap();
        let key = KeyPair::generate().unwrap();
        let subordinate =
            to_version_1(params_for("below").signed_by(&key, &root_key).unwrap().der());
        let result =
            verify(&subordinate, &leaf(&Issuer::new(params_for("below"), key)), "b.example", NOW);
        assert_eq!(result, Err(CertificateError::UnknownIssuer.into()));
    }

    #[test]
    fn a_damaged_certificate_does_not_panic_the_parser() {
        let valid_der = certificate(|params| {
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        });
        assert!(CertificateFields::parse(&valid_der).is_some());
        for end in 0..valid_der.len() {
            assert!(CertificateFields::parse(&valid_der[..end]).is_none());
        }
        for index in 0..valid_der.len() {
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut damaged = valid_der.to_vec();
                damaged[index] = byte;
                let _ = CertificateFields::parse(&damaged);
            }
        }
    }
}
