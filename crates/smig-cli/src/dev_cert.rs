//! The development certificate: an authority and a certificate that it signs, created on first use.
//!
//! Owns the directory that stores them. The authority's key never leaves this machine and is
//! readable by its owner only; `smig get` trusts the authority for loopback names only.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::suffix::with_suffix;

const DAY: Duration = Duration::from_secs(86_400);
const AUTHORITY_VALIDITY: Duration = Duration::from_secs(3650 * 86_400);
/// Just below 398 days, the longest validity that browsers accept from authorities of their own.
const CERTIFICATE_VALIDITY: Duration = Duration::from_secs(397 * 86_400);
/// A certificate whose remaining validity is less than this is replaced when a server starts.
const MIN_REMAINING_VALIDITY: Duration = Duration::from_secs(60 * 86_400);

const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Certificate, key and authority of a server.
#[derive(Debug)]
pub(crate) struct DevCert {
    /// Certificate chain, PEM.
    pub(crate) certificate: Vec<u8>,
    /// Private key, PEM.
    pub(crate) key: Vec<u8>,
    /// Path of the authority's certificate, for clients.
    pub(crate) authority_path: PathBuf,
    /// Whether the authority was created by this call.
    pub(crate) authority_state: AuthorityState,
}

/// Whether the authority existed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthorityState {
    Existing,
    /// Users must be notified: clients that trusted an earlier authority do not trust this one.
    Created,
}

/// Metadata stored beside a certificate.
#[derive(Debug, Serialize, Deserialize)]
struct CertMetadata {
    /// Expiry, in seconds since 1970.
    expires: u64,
    /// Name of the authority, or names that the certificate covers.
    names: Vec<String>,
}

/// Returns the directory of the files: `$XDG_DATA_HOME/smig`, or `~/.local/share/smig`.
pub(crate) fn data_dir() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").filter(|path| path.is_absolute());
    data.or_else(|| Some(set("HOME")?.join(".local/share"))).map(|data| data.join("smig"))
}

/// Returns the path of the authority's certificate, if the file exists.
pub(crate) fn authority_path() -> Option<PathBuf> {
    data_dir().map(|dir| dir.join("ca.pem")).filter(|path| path.is_file())
}

/// Returns the certificate for localhost and `hosts`. Creates or renews it where needed.
///
/// # Errors
/// The directory cannot be written, its files cannot be parsed, or one of `hosts` is not a host name.
pub(crate) fn obtain(hosts: &[String]) -> Result<DevCert> {
    let dir = data_dir().ok_or_else(|| {
        anyhow!(
            "no directory for a development certificate: neither HOME nor XDG_DATA_HOME is set; \
             set one, or use --cert and --key"
        )
    })?;
    obtain_in(&dir, hosts, SystemTime::now()).with_context(|| {
        format!(
            "cannot create a development certificate in {} (use --cert and --key, or set \
             XDG_DATA_HOME to a writable directory)",
            dir.display()
        )
    })
}

fn obtain_in(dir: &Path, hosts: &[String], now: SystemTime) -> Result<DevCert> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // Lock: two servers that start at the same time must create only one authority.
    let lock = File::create(dir.join("lock"))?;
    lock.lock()?;
    let now_s = now.duration_since(UNIX_EPOCH)?.as_secs();
    let path = |name: &str| dir.join(name);
    let authority_files = CertFiles::new(path("ca.pem"), path("ca.key"), path("ca.json"));
    let (issuer, authority_state) = match authority_files.load(now_s) {
        Some((metadata, _, key)) => {
            (Authority::restore(&metadata, &key)?, AuthorityState::Existing)
        }
        None => (Authority::create(&authority_files, now_s)?, AuthorityState::Created),
    };

    let mut names: Vec<String> = LOOPBACK_NAMES.iter().map(|&name| name.to_owned()).collect();
    names.extend(hosts.iter().filter(|host| !LOOPBACK_NAMES.contains(&host.as_str())).cloned());
    let files = CertFiles::new(path("server.pem"), path("server.key"), path("server.json"));
    let stored_pair = match authority_state {
        AuthorityState::Created => None,
        AuthorityState::Existing => files.load(now_s).filter(|(metadata, ..)| {
            let covers = |name| metadata.names.contains(name);
            names.iter().all(covers)
        }),
    };
    let (certificate, key) = match stored_pair {
        Some((_, certificate, key)) => (certificate, key),
        None => issuer.sign(&files, names, now_s)?,
    };
    Ok(DevCert {
        certificate: certificate.into_bytes(),
        key: key.into_bytes(),
        authority_path: authority_files.certificate,
        authority_state,
    })
}

/// Paths of a certificate, its key and its metadata.
struct CertFiles {
    certificate: PathBuf,
    key: PathBuf,
    metadata: PathBuf,
}

impl CertFiles {
    const fn new(certificate: PathBuf, key: PathBuf, metadata: PathBuf) -> Self {
        Self { certificate, key, metadata }
    }

    /// Returns the stored files if they exist and stay valid for [`MIN_REMAINING_VALIDITY`].
    fn load(&self, now_s: u64) -> Option<(CertMetadata, String, String)> {
        let metadata: CertMetadata =
            serde_json::from_slice(&fs::read(&self.metadata).ok()?).ok()?;
        let certificate = fs::read_to_string(&self.certificate).ok()?;
        let key = fs::read_to_string(&self.key).ok()?;
        (metadata.expires >= now_s + MIN_REMAINING_VALIDITY.as_secs()).then_some((
            metadata,
            certificate,
            key,
        ))
    }

    /// Writes the metadata last: a set without metadata is created again.
    fn store(&self, metadata: &CertMetadata, certificate: &str, key: &str) -> Result<()> {
        if self.metadata.exists() {
            fs::remove_file(&self.metadata)?;
        }
        write_atomically(&self.key, key.as_bytes(), 0o600)?;
        write_atomically(&self.certificate, certificate.as_bytes(), 0o644)?;
        write_atomically(&self.metadata, &serde_json::to_vec(metadata)?, 0o644)
    }
}

/// Writes a file atomically: readers see the old content or the new, never a part.
fn write_atomically(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let temporary = with_suffix(path, ".new");
    let write = || {
        let _ = fs::remove_file(&temporary);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(content)?;
        fs::rename(&temporary, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

struct Authority(Issuer<'static, KeyPair>);

impl Authority {
    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    /// Rebuilds the authority from the name and key that its certificate was created with.
    fn restore(metadata: &CertMetadata, key: &str) -> Result<Self> {
        let name = metadata.names.first().map_or("", String::as_str);
        Ok(Self(Issuer::new(Self::params(name), KeyPair::from_pem(key)?)))
    }

    fn create(files: &CertFiles, now_s: u64) -> Result<Self> {
        let key = KeyPair::generate()?;
        let expires = now_s + AUTHORITY_VALIDITY.as_secs();
        // The name differs from that of earlier authorities: some programs compare names only.
        let name = format!("smig development authority {now_s:x}");
        let mut params = Self::params(&name);
        set_validity(&mut params, now_s, expires)?;
        let certificate = params.self_signed(&key)?.pem();
        let metadata = CertMetadata { expires, names: vec![name] };
        files.store(&metadata, &certificate, &key.serialize_pem())?;
        Self::restore(&metadata, &key.serialize_pem())
    }

    fn sign(&self, files: &CertFiles, names: Vec<String>, now_s: u64) -> Result<(String, String)> {
        if let Some(invalid) = names.iter().find(|name| !is_host(name)) {
            return Err(anyhow!("--host {invalid:?} is neither a host name nor an IP address"));
        }
        let key = KeyPair::generate()?;
        let expires = now_s + CERTIFICATE_VALIDITY.as_secs();
        let mut params = CertificateParams::new(names.clone())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "smig development certificate");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now_s, expires)?;
        let certificate = params.signed_by(&key, &self.0)?.pem();
        files.store(&CertMetadata { expires, names }, &certificate, &key.serialize_pem())?;
        Ok((certificate, key.serialize_pem()))
    }
}

/// Sets the validity period. It starts a day before `now_s`, to tolerate clock differences.
fn set_validity(params: &mut CertificateParams, now_s: u64, expires: u64) -> Result<()> {
    let date = |seconds: u64| {
        Ok::<_, anyhow::Error>(OffsetDateTime::from_unix_timestamp(i64::try_from(seconds)?)?)
    };
    params.not_before = date(now_s.saturating_sub(DAY.as_secs()))?;
    params.not_after = date(expires)?;
    Ok(())
}

fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    name.parse::<IpAddr>().is_ok()
        || name.strip_prefix("*.").unwrap_or(name).split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn time_after_days(days: u64) -> SystemTime {
        UNIX_EPOCH + DAY * 20_000 + DAY * u32::try_from(days).unwrap()
    }

    #[test]
    fn certificates_are_created_once_and_renewed_before_expiry() {
        let dir = tempfile::tempdir().unwrap();
        let obtain = |hosts: &[&str], days| {
            let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
            obtain_in(dir.path(), &hosts, time_after_days(days)).unwrap()
        };
        let first_cert = obtain(&[], 0);
        assert_eq!(first_cert.authority_state, AuthorityState::Created);
        let second_cert = obtain(&[], 300);
        assert_eq!(second_cert.authority_state, AuthorityState::Existing);
        assert_eq!(second_cert.certificate, first_cert.certificate);

        let named_cert = obtain(&["files.example"], 300);
        assert_ne!(named_cert.certificate, first_cert.certificate);
        assert_eq!(named_cert.authority_state, AuthorityState::Existing);
        assert_eq!(obtain(&[], 310).certificate, named_cert.certificate, "it covers more names");
        assert_ne!(obtain(&[], 300 + 340).certificate, named_cert.certificate, "it expires soon");
        assert_eq!(obtain(&[], 3600).authority_state, AuthorityState::Created);

        let mode = fs::metadata(dir.path().join("ca.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn host_names_are_validated() {
        let dir = tempfile::tempdir().unwrap();
        let error =
            obtain_in(dir.path(), &["two words".to_owned()], time_after_days(0)).unwrap_err();
        assert!(error.to_string().contains("two words"), "{error}");
        assert!(is_host("a.example") && is_host("*.a.example") && is_host("2001:db8::1"));
        assert!(!is_host("") && !is_host("a..b") && !is_host("a_b/c"));
    }
}
