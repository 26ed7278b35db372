//! Authentication of users: bearer tokens, basic authentication, client certificates.

use std::fmt;
use std::io;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::PROXY_AUTHORIZATION;
use serde::de::{Deserialize, Deserializer, Error as _};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::spec::ForwardProxySpec;

/// The SHA-256 of a secret, written as `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretDigest([u8; 32]);

impl SecretDigest {
    /// Hashes a secret.
    #[must_use]
    pub fn of(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest")
    }
}

impl FromStr for SecretDigest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let syntax_error = || "a secret must be sha256: and 64 hexadecimal digits".to_owned();
        let hex = text.strip_prefix("sha256:").ok_or_else(syntax_error)?.as_bytes();
        let (pairs, []) = hex.as_chunks::<2>() else { return Err(syntax_error()) };
        let mut digest = [0; 32];
        if pairs.len() != digest.len() {
            return Err(syntax_error());
        }
        for (byte, pair) in digest.iter_mut().zip(pairs) {
            let digit = |digit: u8| char::from(digit).to_digit(16).ok_or_else(syntax_error);
            let [high, low] = *pair;
            *byte = u8::try_from(digit(high)? * 16 + digit(low)?).map_err(|_| syntax_error())?;
        }
        Ok(Self(digest))
    }
}

impl<'de> Deserialize<'de> for SecretDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The users of the proxy.
#[derive(Debug)]
pub(super) struct Users {
    digests: Vec<(String, SecretDigest)>,
    subjects: Vec<String>,
}

impl Users {
    pub(super) fn new(spec: &ForwardProxySpec) -> io::Result<Self> {
        let mut digests: Vec<_> =
            spec.users.iter().map(|(name, digest)| (name.clone(), *digest)).collect();
        if let Some(path) = &spec.users_file {
            let file_error = |why: String| io::Error::other(format!("{}: {why}", path.display()));
            let text =
                std::fs::read_to_string(path).map_err(|error| file_error(error.to_string()))?;
            for (number, line) in text.lines().enumerate() {
                let line = line.trim();
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                let (name, digest) = line.split_once(char::is_whitespace).ok_or_else(|| {
                    file_error(format!("line {}: write NAME sha256:HEX", number + 1))
                })?;
                let digest = digest.trim().parse();
                let digest =
                    digest.map_err(|why| file_error(format!("line {}: {why}", number + 1)))?;
                digests.push((name.to_owned(), digest));
            }
        }
        if digests.is_empty() && spec.certificate_subjects.is_empty() {
            return Err(io::Error::other(
                "the forward proxy has no users; set users, users_file or certificate_subjects",
            ));
        }
        Ok(Self { digests, subjects: spec.certificate_subjects.clone() })
    }

    /// Returns the user of a request. Credentials take precedence over the certificate.
    pub(super) fn find(&self, headers: &HeaderMap, subject: Option<&str>) -> Option<String> {
        let mut values = headers.get_all(PROXY_AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            return self.subjects.iter().find(|known| subject == Some(known)).cloned();
        };
        let (scheme, credentials) = value.to_str().ok()?.split_once(' ')?;
        if values.next().is_some() {
            return None;
        }
        let credentials = credentials.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.find_by_secret(None, credentials.as_bytes());
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let decoded = STANDARD.decode(credentials).ok()?;
        let colon = decoded.iter().position(|&byte| byte == b':')?;
        let (name, secret) = (decoded.get(..colon)?, decoded.get(colon + 1..)?);
        self.find_by_secret(Some(std::str::from_utf8(name).ok()?), secret)
    }

    /// Compares with every user, so that the time does not reveal which of them matched.
    fn find_by_secret(&self, name: Option<&str>, secret: &[u8]) -> Option<String> {
        let digest = SecretDigest::of(secret);
        let mut matching_user = None;
        for (user, known) in &self.digests {
            let same = bool::from(known.0.ct_eq(&digest.0));
            if same && name.is_none_or(|name| name == user) {
                matching_user = Some(user);
            }
        }
        matching_user.cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn with_authorization(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(PROXY_AUTHORIZATION, value.parse().unwrap());
        headers
    }

    #[test]
    fn users_are_found_by_token_password_or_certificate() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(
            file,
            "# people\n\nbob sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
        )
        .unwrap();
        let users = Users::new(&ForwardProxySpec {
            users: [("ann".to_owned(), SecretDigest::of(b"a:b"))].into(),
            users_file: Some(file.path().to_owned()),
            certificate_subjects: vec!["laptop".to_owned()],
            ..ForwardProxySpec::default()
        })
        .unwrap();
        let find = |value: &str| users.find(&with_authorization(value), None);
        assert_eq!(find("Bearer test").as_deref(), Some("bob"));
        assert_eq!(find("bearer a:b").as_deref(), Some("ann"));
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert_eq!(find(&basic("bob:test")).as_deref(), Some("bob"));
        assert_eq!(find(&basic("ann:a:b")).as_deref(), Some("ann"));
        for bad in [
            &*basic("ann:test"),
            &*basic("bob"),
            "Basic !",
            "Bearer tes",
            "Bearer ",
            "Bearer",
            "Digest test",
        ] {
            assert_eq!(find(bad), None, "{bad}");
        }
        let none = HeaderMap::new();
        assert_eq!(users.find(&none, Some("laptop")).as_deref(), Some("laptop"));
        assert_eq!(users.find(&none, Some("other")), None);
        assert_eq!(users.find(&with_authorization("Bearer no"), Some("laptop")), None);
        let mut twice = with_authorization("Bearer test");
        twice.append(PROXY_AUTHORIZATION, "Bearer test".parse().unwrap());
        assert_eq!(users.find(&twice, None), None);
    }

    #[test]
    fn a_proxy_without_users_is_an_error() {
        assert!(Users::new(&ForwardProxySpec::default()).is_err());
        let spec = ForwardProxySpec {
            users_file: Some("/nonexistent".into()),
            ..ForwardProxySpec::default()
        };
        assert!(Users::new(&spec).unwrap_err().to_string().contains("/nonexistent"));
    }
}
