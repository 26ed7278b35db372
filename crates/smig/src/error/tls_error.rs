//! TLS errors as sentences: the cause, and what to do next.
//!
//! rustls prints most of its errors as names of variants. These are not shown verbatim.

use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// Why a TLS connection to a server failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    kind: TlsErrorKind,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TlsErrorKind {
    /// No trusted authority has signed the certificate.
    Untrusted,
    /// The certificate is valid for other names only.
    Name,
    /// The certificate, or that of its issuer, has expired or is not valid yet.
    Time,
    /// There is no certificate that is usable for this purpose, whatever its issuer.
    Unusable,
    /// The peer does not speak TLS.
    NotTls,
    /// The server sent an alert.
    Alert,
    /// Client and server have no version, cipher suite or the like in common.
    Incompatible,
    /// The server closed the connection.
    Ended,
    /// Anything else.
    Other,
}

impl TlsError {
    fn new(kind: TlsErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Classifies an error of a handshake, as rustls' own streams and those of tokio return it.
    #[must_use]
    pub fn from_io(error: &io::Error) -> Self {
        if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
            return Self::from_rustls(tls);
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Self::new(
                TlsErrorKind::Ended,
                "the server closed the connection during the handshake",
            ),
            _ => Self::new(TlsErrorKind::Other, error.to_string()),
        }
    }

    pub(crate) fn from_rustls(error: &Error) -> Self {
        let message = match error {
            Error::InvalidCertificate(error) => return Self::from_certificate(error),
            Error::NoCertificatesPresented => {
                return Self::new(TlsErrorKind::Unusable, "the server sent no certificate");
            }
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => {
                return Self::new(TlsErrorKind::NotTls, "the server's reply is not TLS");
            }
            Error::InvalidMessage(why) => {
                format!("the server violated the TLS protocol: {}", variant_words(why))
            }
            Error::AlertReceived(alert) => return Self::from_alert(*alert),
            Error::PeerIncompatible(why) => {
                let message = format!("the server is incompatible: {}", variant_words(why));
                return Self::new(TlsErrorKind::Incompatible, message);
            }
            Error::NoApplicationProtocol => {
                let message = "the server supports neither h2 nor http/1.1";
                return Self::new(TlsErrorKind::Incompatible, message);
            }
            Error::UnsupportedNameType => {
                return Self::new(
                    TlsErrorKind::Name,
                    "certificates cannot contain a name of this type",
                );
            }
            Error::PeerMisbehaved(why) => {
                format!("the server violated the TLS protocol: {}", variant_words(why))
            }
            Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
                "the server violated the TLS protocol: a message at the wrong time".to_owned()
            }
            Error::DecryptError => "cannot decrypt the server's data".to_owned(),
            Error::PeerSentOversizedRecord => {
                "the server sent a record that is too large".to_owned()
            }
            Error::General(why) => why.clone(),
            other => variant_words(other),
        };
        Self::new(TlsErrorKind::Other, message)
    }

    fn from_certificate(error: &CertificateError) -> Self {
        use CertificateError as Fault;
        let (kind, cause) = match error {
            Fault::UnknownIssuer => {
                (TlsErrorKind::Untrusted, "it is not signed by a trusted authority".to_owned())
            }
            // Also that of the handshake, and of an authority that was made anew with its former name.
            Fault::BadSignature => (
                TlsErrorKind::Untrusted,
                "a signature is not by the key that it names: of a trusted authority, or of the server".to_owned(),
            ),
            Fault::Expired => (TlsErrorKind::Time, "it has expired".to_owned()),
            Fault::ExpiredContext { time, not_after } => {
                let ago = time.as_secs().saturating_sub(not_after.as_secs());
                (TlsErrorKind::Time, format!("it expired {} ago", format_duration(ago)))
            }
            Fault::NotValidYet => (TlsErrorKind::Time, "it is not valid yet".to_owned()),
            Fault::NotValidYetContext { time, not_before } => {
                let left = not_before.as_secs().saturating_sub(time.as_secs());
                (TlsErrorKind::Time, format!("it becomes valid in {}", format_duration(left)))
            }
            Fault::NotValidForName => (TlsErrorKind::Name, "it is for another name".to_owned()),
            Fault::NotValidForNameContext { expected, presented } => {
                let names = if presented.is_empty() {
                    "no names".to_owned()
                } else {
                    // rustls prints names as `DnsName("a")`.
                    presented.iter().map(|name| unquoted(name)).collect::<Vec<_>>().join(", ")
                };
                (TlsErrorKind::Name, format!("it is for {names}, not for {}", expected.to_str()))
            }
            Fault::Revoked => (TlsErrorKind::Unusable, "it was revoked".to_owned()),
            Fault::BadEncoding => (TlsErrorKind::Unusable, "it is malformed".to_owned()),
            Fault::UnhandledCriticalExtension => {
                (TlsErrorKind::Unusable, "it has an unsupported critical extension".to_owned())
            }
            Fault::InvalidPurpose | Fault::InvalidPurposeContext { .. } => {
                (TlsErrorKind::Unusable, "it is not valid for servers".to_owned())
            }
            Fault::UnsupportedSignatureAlgorithmContext { .. }
            | Fault::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
                (TlsErrorKind::Unusable, "it has an unsupported signature algorithm".to_owned())
            }
            Fault::UnknownRevocationStatus
            | Fault::ExpiredRevocationList
            | Fault::ExpiredRevocationListContext { .. } => {
                (TlsErrorKind::Unusable, "its revocation status is unknown".to_owned())
            }
            Fault::Other(inner) => {
                let text = variant_words(&inner.0);
                if let Some(issuer_error) = inner.0.downcast_ref::<IssuerError>() {
                    let kind = match issuer_error {
                        IssuerError::MayNotSign => TlsErrorKind::Unusable,
                        IssuerError::Expired | IssuerError::NotYetValid => TlsErrorKind::Time,
                    };
                    let message = format!(
                        "the authority that signed the server's certificate: {issuer_error}"
                    );
                    return Self::new(kind, message);
                }
                match &*text {
                    "ca used as end entity" => (
                        TlsErrorKind::Untrusted,
                        "it is a CA certificate (CA:TRUE) that is not trusted itself".to_owned(),
                    ),
                    "unsupported cert version" => {
                        (TlsErrorKind::Unusable, "it is older than version 3 of X.509".to_owned())
                    }
                    _ => (TlsErrorKind::Unusable, text),
                }
            }
            other => (TlsErrorKind::Unusable, variant_words(other)),
        };
        Self { kind, message: format!("the server's certificate: {cause}") }
    }

    fn from_alert(alert: AlertDescription) -> Self {
        let message = format!(
            "the server rejected the handshake: {} (alert {})",
            variant_words(&alert),
            u8::from(alert)
        );
        Self::new(TlsErrorKind::Alert, message)
    }

    /// Returns whether the cause is the server's certificate.
    #[must_use]
    pub const fn is_certificate(&self) -> bool {
        matches!(
            self.kind,
            TlsErrorKind::Untrusted
                | TlsErrorKind::Name
                | TlsErrorKind::Time
                | TlsErrorKind::Unusable
        )
    }

    /// Returns whether the handshake could succeed if the certificate or its issuer were trusted. Also true if the handshake's own
    /// signature is wrong, which rustls does not tell apart.
    #[must_use]
    pub const fn is_untrusted(&self) -> bool {
        matches!(self.kind, TlsErrorKind::Untrusted)
    }

    /// Returns whether the server sent an alert.
    #[must_use]
    pub const fn is_alert(&self) -> bool {
        matches!(self.kind, TlsErrorKind::Alert)
    }

    /// Returns the cause.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns what to do next.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self.kind {
            TlsErrorKind::Untrusted => {
                "if it is your own, name its file or the file of its authority as trusted"
            }
            TlsErrorKind::Name => "use a name that it contains, or install one for this name",
            TlsErrorKind::Time => "renew it on the server, or correct this machine's clock",
            TlsErrorKind::Unusable => "install another one on the server",
            TlsErrorKind::NotTls => "check that the server uses TLS on this port",
            TlsErrorKind::Alert => "see the server's log; it may require a client certificate",
            TlsErrorKind::Incompatible => {
                "TLS 1.2 or 1.3 is required; check the server's TLS settings"
            }
            TlsErrorKind::Ended => {
                "check that the server uses TLS on this port and serves this name"
            }
            TlsErrorKind::Other => "try again; if it persists, see the server's log",
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.advice())
    }
}

/// Returns a variant's name as words: `CaUsedAsEndEntity` becomes "ca used as end entity". Its fields are
/// omitted.
fn variant_words(value: &impl fmt::Debug) -> String {
    let shown = format!("{value:?}");
    let name = shown.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    let mut text = String::new();
    let mut before = ' ';
    for c in name.chars() {
        if c.is_ascii_uppercase() && before.is_ascii_lowercase() {
            text.push(' ');
        }
        text.push(c.to_ascii_lowercase());
        before = c;
    }
    text
}

/// Returns the text between the quotation marks, if there are any.
fn unquoted(name: &str) -> &str {
    let inside = name.split_once('(').map_or(name, |(_, inside)| inside);
    inside.trim_end_matches(')').trim_matches('"')
}

fn format_duration(seconds: u64) -> String {
    let count_of = |count: u64, unit: &str| match count {
        1 => format!("1 {unit}"),
        _ => format!("{count} {unit}s"),
    };
    match seconds {
        0..120 => count_of(seconds, "second"),
        120..7200 => count_of(seconds / 60, "minute"),
        7200..172_800 => count_of(seconds / 3600, "hour"),
        _ => count_of(seconds / 86_400, "day"),
    }
}

/// Why a trusted CA certificate is not accepted as an issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IssuerError {
    MayNotSign,
    Expired,
    NotYetValid,
}

impl fmt::Display for IssuerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MayNotSign => "its key usage or purpose does not allow signing for servers",
            Self::Expired => "it has expired",
            Self::NotYetValid => "it is not valid yet",
        })
    }
}

impl std::error::Error for IssuerError {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::{OtherError, PeerIncompatible, PeerMisbehaved};

    use super::*;

    #[derive(Debug)]
    struct CaUsedAsEndEntity;

    impl fmt::Display for CaUsedAsEndEntity {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("CaUsedAsEndEntity")
        }
    }

    impl std::error::Error for CaUsedAsEndEntity {}

    fn certificates() -> Vec<CertificateError> {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let name = ServerName::try_from("a.example").unwrap();
        let presented = vec!["DnsName(\"b.example\")".to_owned(), "127.0.0.1".to_owned()];
        vec![
            CertificateError::Other(OtherError(Arc::new(CaUsedAsEndEntity))),
            CertificateError::UnknownIssuer,
            CertificateError::BadSignature,
            CertificateError::Expired,
            CertificateError::ExpiredContext { time: at(200_000), not_after: at(1) },
            CertificateError::NotValidYet,
            CertificateError::NotValidYetContext { time: at(1), not_before: at(62) },
            CertificateError::NotValidForName,
            CertificateError::NotValidForNameContext { expected: name.clone(), presented },
            CertificateError::NotValidForNameContext { expected: name, presented: Vec::new() },
            CertificateError::Revoked,
            CertificateError::BadEncoding,
            CertificateError::UnhandledCriticalExtension,
            CertificateError::InvalidPurpose,
            CertificateError::UnknownRevocationStatus,
            CertificateError::ExpiredRevocationList,
            CertificateError::InvalidOcspResponse,
            CertificateError::ApplicationVerificationFailure,
            CertificateError::Other(OtherError(Arc::new(IssuerError::MayNotSign))),
            CertificateError::Other(OtherError(Arc::new(IssuerError::Expired))),
            CertificateError::Other(OtherError(Arc::new(IssuerError::NotYetValid))),
        ]
    }

    #[test]
    fn every_error_is_a_sentence_with_advice() {
        let other_errors = [
            Error::NoCertificatesPresented,
            Error::UnsupportedNameType,
            Error::DecryptError,
            Error::EncryptError,
            Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
            Error::PeerMisbehaved(PeerMisbehaved::TooMuchEarlyDataReceived),
            Error::AlertReceived(AlertDescription::HandshakeFailure),
            Error::InvalidMessage(InvalidMessage::InvalidContentType),
            Error::InvalidMessage(InvalidMessage::MissingKeyExchange),
            Error::General("out of luck".to_owned()),
            Error::HandshakeNotComplete,
            Error::PeerSentOversizedRecord,
            Error::NoApplicationProtocol,
            Error::Other(OtherError(Arc::new(CaUsedAsEndEntity))),
        ];
        let all = certificates().into_iter().map(Error::from).chain(other_errors);
        for error in all {
            let text =
                TlsError::from_io(&io::Error::new(io::ErrorKind::InvalidData, error)).to_string();
            // No name of a variant or type: those have capitals within words.
            let has_inner_capital = text.split(|c: char| !c.is_alphanumeric()).any(|word| {
                word.chars().skip(1).any(char::is_uppercase)
                    && !["TLS", "CA", "TRUE", "X"].contains(&word)
            });
            assert!(!has_inner_capital && !text.contains(['{', '"']), "{text}");
            assert!(text.contains("; "), "{text}");
        }
    }

    #[test]
    fn only_a_reply_that_is_not_a_tls_record_is_not_tls() {
        let error = |why| TlsError::from_rustls(&Error::InvalidMessage(why));
        for why in [InvalidMessage::InvalidContentType, InvalidMessage::UnknownProtocolVersion] {
            assert_eq!(error(why).message(), "the server's reply is not TLS");
        }
        let malformed = error(InvalidMessage::MessageTooShort);
        assert_eq!(malformed.message(), "the server violated the TLS protocol: message too short");
        assert!(!malformed.advice().contains("uses TLS on this port"), "{malformed}");
    }

    #[test]
    fn certificate_errors_name_the_cause() {
        let message_of =
            |at: usize| TlsError::from_certificate(&certificates()[at]).message().to_owned();
        assert_eq!(
            message_of(0),
            "the server's certificate: it is a CA certificate (CA:TRUE) that is not trusted itself"
        );
        assert_eq!(message_of(4), "the server's certificate: it expired 2 days ago");
        assert_eq!(message_of(6), "the server's certificate: it becomes valid in 61 seconds");
        assert_eq!(
            message_of(8),
            "the server's certificate: it is for b.example, 127.0.0.1, not for a.example"
        );
    }
}
