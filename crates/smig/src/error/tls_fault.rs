//! TLS errors as sentences: the cause, and what to do next.
//!
//! rustls prints most of its errors as names of variants. None of these is shown verbatim.

use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError, Error};

/// Why a TLS connection to a server failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFault {
    kind: Kind,
    what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No trusted authority has signed it.
    Untrusted,
    /// It is valid for other names only.
    Name,
    /// It has expired, or is not valid yet.
    Time,
    /// It is not usable for this purpose, whatever its issuer.
    Unfit,
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

impl TlsFault {
    fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into() }
    }

    /// Classifies an error of a handshake, as rustls' own streams and those of tokio return it.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
            return Self::of_tls(tls);
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => {
                Self::new(Kind::Ended, "the server closed the connection during the handshake")
            }
            _ => Self::new(Kind::Other, error.to_string()),
        }
    }

    pub(crate) fn of_tls(error: &Error) -> Self {
        let what = match error {
            Error::InvalidCertificate(error) => return Self::of_certificate(error),
            Error::NoCertificatesPresented => {
                return Self::new(Kind::Unfit, "the server sent no certificate");
            }
            Error::InvalidMessage(_) => {
                return Self::new(Kind::NotTls, "the server's reply is not TLS");
            }
            Error::AlertReceived(alert) => return Self::of_alert(*alert),
            Error::PeerIncompatible(why) => {
                let what = format!("the server is incompatible: {}", words(why));
                return Self::new(Kind::Incompatible, what);
            }
            Error::NoApplicationProtocol => {
                let what = "the server supports neither h2 nor http/1.1";
                return Self::new(Kind::Incompatible, what);
            }
            Error::UnsupportedNameType => {
                return Self::new(Kind::Name, "certificates cannot contain a name of this type");
            }
            Error::PeerMisbehaved(why) => {
                format!("the server violated the TLS protocol: {}", words(why))
            }
            Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
                "the server violated the TLS protocol: a message at the wrong time".to_owned()
            }
            Error::DecryptError => "cannot decrypt the server's data".to_owned(),
            Error::PeerSentOversizedRecord => {
                "the server sent a record that is too large".to_owned()
            }
            Error::General(why) => why.clone(),
            other => words(other),
        };
        Self::new(Kind::Other, what)
    }

    fn of_certificate(error: &CertificateError) -> Self {
        use CertificateError as Fault;
        let (kind, what) = match error {
            Fault::UnknownIssuer | Fault::BadSignature => {
                (Kind::Untrusted, "it is not signed by a trusted authority".to_owned())
            }
            Fault::Expired => (Kind::Time, "it has expired".to_owned()),
            Fault::ExpiredContext { time, not_after } => {
                let ago = time.as_secs().saturating_sub(not_after.as_secs());
                (Kind::Time, format!("it expired {} ago", span(ago)))
            }
            Fault::NotValidYet => (Kind::Time, "it is not valid yet".to_owned()),
            Fault::NotValidYetContext { time, not_before } => {
                let left = not_before.as_secs().saturating_sub(time.as_secs());
                (Kind::Time, format!("it becomes valid in {}", span(left)))
            }
            Fault::NotValidForName => (Kind::Name, "it is for another name".to_owned()),
            Fault::NotValidForNameContext { expected, presented } => {
                let names = if presented.is_empty() {
                    "no names".to_owned()
                } else {
                    // rustls prints names as `DnsName("a")`.
                    presented.iter().map(|name| bare(name)).collect::<Vec<_>>().join(", ")
                };
                (Kind::Name, format!("it is for {names}, not for {}", expected.to_str()))
            }
            Fault::Revoked => (Kind::Unfit, "it was revoked".to_owned()),
            Fault::BadEncoding => (Kind::Unfit, "it is malformed".to_owned()),
            Fault::UnhandledCriticalExtension => {
                (Kind::Unfit, "it has an unsupported critical extension".to_owned())
            }
            Fault::InvalidPurpose | Fault::InvalidPurposeContext { .. } => {
                (Kind::Unfit, "it is not valid for servers".to_owned())
            }
            Fault::UnsupportedSignatureAlgorithmContext { .. }
            | Fault::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
                (Kind::Unfit, "it has an unsupported signature algorithm".to_owned())
            }
            Fault::UnknownRevocationStatus
            | Fault::ExpiredRevocationList
            | Fault::ExpiredRevocationListContext { .. } => {
                (Kind::Unfit, "its revocation status is unknown".to_owned())
            }
            Fault::Other(inner) => {
                let said = words(&inner.0);
                if let Some(unfit) = inner.0.downcast_ref::<UnfitCertificate>() {
                    let kind = match unfit {
                        UnfitCertificate::MayNotSign => Kind::Unfit,
                        UnfitCertificate::Expired | UnfitCertificate::NotYet => Kind::Time,
                    };
                    let what =
                        format!("the authority that signed the server's certificate: {unfit}");
                    return Self::new(kind, what);
                }
                match &*said {
                    "ca used as end entity" => (
                        Kind::Untrusted,
                        "it is an authority's (CA:TRUE), and not one that was named".to_owned(),
                    ),
                    "unsupported cert version" => {
                        (Kind::Unfit, "it is older than version 3 of X.509".to_owned())
                    }
                    _ => (Kind::Unfit, said),
                }
            }
            other => (Kind::Unfit, words(other)),
        };
        Self { kind, what: format!("the server's certificate: {what}") }
    }

    fn of_alert(alert: AlertDescription) -> Self {
        let what = format!(
            "the server rejected the handshake: {} (alert {})",
            words(&alert),
            u8::from(alert)
        );
        Self::new(Kind::Alert, what)
    }

    /// Returns whether the cause is the server's certificate.
    #[must_use]
    pub const fn is_certificate(&self) -> bool {
        matches!(self.kind, Kind::Untrusted | Kind::Name | Kind::Time | Kind::Unfit)
    }

    /// Returns whether it would succeed if the certificate or its issuer were trusted.
    #[must_use]
    pub const fn is_untrusted(&self) -> bool {
        matches!(self.kind, Kind::Untrusted)
    }

    /// Returns whether the server sent an alert.
    #[must_use]
    pub const fn is_alert(&self) -> bool {
        matches!(self.kind, Kind::Alert)
    }

    /// Returns the cause.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Returns what to do next.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self.kind {
            Kind::Untrusted => {
                "if it is your own, name its file or the file of its authority as trusted"
            }
            Kind::Name => "use a name that it contains, or install one for this name",
            Kind::Time => "renew it on the server, or correct this machine's clock",
            Kind::Unfit => "install another one on the server",
            Kind::NotTls => "check that the server uses TLS on this port",
            Kind::Alert => "see the server's log; it may require a client certificate",
            Kind::Incompatible => "TLS 1.2 or 1.3 is required; check the server's TLS settings",
            Kind::Ended => "check that the server uses TLS on this port and serves this name",
            Kind::Other => "try again; if it persists, see the server's log",
        }
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.advice())
    }
}

/// Returns a variant's name as words: `CaUsedAsEndEntity` becomes "ca used as end entity". Its fields are
/// omitted.
fn words(named: &impl fmt::Debug) -> String {
    let shown = format!("{named:?}");
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

/// Returns the text between the quotes, if there are any.
fn bare(name: &str) -> &str {
    let inside = name.split_once('(').map_or(name, |(_, inside)| inside);
    inside.trim_end_matches(')').trim_matches('"')
}

fn span(seconds: u64) -> String {
    let of = |count: u64, unit: &str| match count {
        1 => format!("1 {unit}"),
        _ => format!("{count} {unit}s"),
    };
    match seconds {
        0..120 => of(seconds, "second"),
        120..7200 => of(seconds / 60, "minute"),
        7200..172_800 => of(seconds / 3600, "hour"),
        _ => of(seconds / 86_400, "day"),
    }
}

/// Why a named authority is not accepted as an issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnfitCertificate {
    MayNotSign,
    Expired,
    NotYet,
}

impl fmt::Display for UnfitCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MayNotSign => "its key usage or purpose does not allow signing for servers",
            Self::Expired => "it has expired",
            Self::NotYet => "it is not valid yet",
        })
    }
}

impl std::error::Error for UnfitCertificate {}

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
            CertificateError::Other(OtherError(Arc::new(UnfitCertificate::MayNotSign))),
            CertificateError::Other(OtherError(Arc::new(UnfitCertificate::Expired))),
            CertificateError::Other(OtherError(Arc::new(UnfitCertificate::NotYet))),
        ]
    }

    #[test]
    fn every_fault_is_a_sentence_with_what_to_do_next() {
        let others = [
            Error::NoCertificatesPresented,
            Error::UnsupportedNameType,
            Error::DecryptError,
            Error::EncryptError,
            Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
            Error::PeerMisbehaved(PeerMisbehaved::TooMuchEarlyDataReceived),
            Error::AlertReceived(AlertDescription::HandshakeFailure),
            Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType),
            Error::General("out of luck".to_owned()),
            Error::HandshakeNotComplete,
            Error::PeerSentOversizedRecord,
            Error::NoApplicationProtocol,
            Error::Other(OtherError(Arc::new(CaUsedAsEndEntity))),
        ];
        let all = certificates().into_iter().map(Error::from).chain(others);
        for error in all {
            let text = TlsFault::of(&io::Error::new(io::ErrorKind::InvalidData, error)).to_string();
            // No name of a variant or type: those have capitals within words.
            let inside = text.split(|c: char| !c.is_alphanumeric()).any(|word| {
                word.chars().skip(1).any(char::is_uppercase)
                    && !["TLS", "CA", "TRUE", "X"].contains(&word)
            });
            assert!(!inside && !text.contains(['{', '"']), "{text}");
            assert!(text.contains("; "), "{text}");
        }
    }

    #[test]
    fn what_is_said_of_certificates() {
        let said = |at: usize| TlsFault::of_certificate(&certificates()[at]).what().to_owned();
        assert_eq!(
            said(0),
            "the server's certificate: it is an authority's (CA:TRUE), and not one that was named"
        );
        assert_eq!(said(4), "the server's certificate: it expired 2 days ago");
        assert_eq!(said(6), "the server's certificate: it becomes valid in 61 seconds");
        assert_eq!(
            said(8),
            "the server's certificate: it is for b.example, 127.0.0.1, not for a.example"
        );
    }
}
