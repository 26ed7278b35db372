//! Which certificate a browser accepts without a CA.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

/// Returns the SHA-256 of a certificate's public key in base64, as [`BrowserLaunch`](crate::BrowserLaunch) takes it.
///
/// # Errors
/// It is not a certificate in PEM.
pub fn trusted_key_sha256(certificate_pem: &str) -> Result<String, String> {
    let fail = |why: &dyn std::fmt::Display| format!("the certificate cannot be read: {why}");
    let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|e| fail(&e))?;
    key_sha256(&der)
}

/// Returns the same of a certificate in DER.
///
/// # Errors
/// It is not a certificate.
pub fn key_sha256(certificate: &CertificateDer<'_>) -> Result<String, String> {
    let certificate = webpki::EndEntityCert::try_from(certificate)
        .map_err(|error| format!("the certificate cannot be read: {error}"))?;
    Ok(STANDARD.encode(Sha256::digest(certificate.subject_public_key_info())))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};

    use super::*;

    #[test]
    fn the_key_is_that_of_the_certificate() {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["10.99.0.1".to_owned()]).unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let expected = STANDARD.encode(Sha256::digest(key.subject_public_key_info()));
        assert_eq!(trusted_key_sha256(&pem).unwrap(), expected);
        assert!(trusted_key_sha256("no certificate").unwrap_err().contains("certificate"));
    }
}
