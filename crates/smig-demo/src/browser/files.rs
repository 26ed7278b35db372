//! The files of web server, gateway, agent and browser, in a directory that is removed on drop.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::error::BrowserError;
use super::mosaic::Mosaic;
use crate::demo::Variant;

/// The server host's address in every testbed.
pub(super) const SERVER_IP: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The ports of the web server and of the gateway; unprivileged ones.
pub(super) const ORIGIN_PORT: u16 = 8444;
pub(super) const GATEWAY_PORT: u16 = 8443;
/// The gateway's admin address, in its own host.
pub(super) const ADMIN_ADDR: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 9901);
/// The agent's address, in the browser's host.
pub(super) const PROXY_ADDR: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 8118);
/// The name of the file that is downloaded beside the page.
pub(super) const BIG_FILE: &str = "big.bin";

/// The token of agent and gateway. Only processes of the measurement can reach the gateway.
const TOKEN: &str = "mosaic";

/// TCP_NOTSENT_LOWAT of the tuned variant, in bytes.
const NOTSENT_LOWAT_BYTES: u32 = 16 << 10;

/// Document root, certificate, key, token, settings, logs.
#[derive(Debug)]
pub(super) struct BrowserFiles {
    directory: TempDir,
    pub(super) certificate: String,
    /// The SHA-256 of the certificate's key, in base64.
    pub(super) key_digest: String,
}

impl BrowserFiles {
    /// Writes the files. The big file is sparse and reads as zeros.
    pub(super) fn create(mosaic: &Mosaic, big_file_bytes: u64) -> Result<Self, BrowserError> {
        let directory = TempDir::with_prefix("smig-browser-")?;
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(vec![SERVER_IP.to_string()])?;
        let certificate = params.self_signed(&key)?.pem();
        let key_digest = STANDARD.encode(Sha256::digest(key.subject_public_key_info()));
        let files = Self { directory, certificate, key_digest };
        fs::create_dir(files.document_root())?;
        mosaic.write(&files.document_root())?;
        File::create(files.document_root().join(BIG_FILE))?.set_len(big_file_bytes)?;
        fs::write(files.certificate_file(), &files.certificate)?;
        fs::write(files.key_file(), key.serialize_pem())?;
        fs::write(files.token_file(), TOKEN)?;
        Ok(files)
    }

    /// Returns the web server's document root.
    pub(super) fn document_root(&self) -> PathBuf {
        self.path("site")
    }

    pub(super) fn certificate_file(&self) -> PathBuf {
        self.path("certificate.pem")
    }

    pub(super) fn key_file(&self) -> PathBuf {
        self.path("key.pem")
    }

    pub(super) fn token_file(&self) -> PathBuf {
        self.path("token")
    }

    /// Returns the log of a program.
    pub(super) fn log_of(&self, program: &str) -> PathBuf {
        self.path(&format!("{program}.log"))
    }

    /// Creates an empty home directory for a browser.
    pub(super) fn create_home(&self, variant: Variant) -> io::Result<PathBuf> {
        let home = self.path(&format!("home-{}", variant as u8));
        fs::create_dir(&home)?;
        Ok(home)
    }

    /// Writes the gateway's settings for a variant.
    pub(super) fn write_gateway_settings(&self, variant: Variant) -> io::Result<PathBuf> {
        let path = self.path(&format!("gateway-{}.toml", variant as u8));
        fs::write(&path, gateway_settings(variant))?;
        Ok(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Returns settings that are the same for all variants except for the compared factor.
fn gateway_settings(variant: Variant) -> String {
    let token = Sha256::digest(TOKEN).iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let (admin, admin_port) = ADMIN_ADDR;
    let low_water = match variant {
        Variant::PlainHttp2 => Some(0),
        Variant::NotsentLowat => Some(NOTSENT_LOWAT_BYTES),
        Variant::Smig => None,
    };
    let mut settings = format!(
        "[[listen]]\naddress = \"{SERVER_IP}:{GATEWAY_PORT}\"\n\
         [[certificate]]\nchain = \"certificate.pem\"\nkey = \"key.pem\"\n\
         [forward_proxy]\nusers = {{ mosaic = \"sha256:{token}\" }}\nallow = [\"{SERVER_IP}\"]\n\
         [admin]\nlisten = \"{admin}:{admin_port}\"\n"
    );
    if let Some(low_water) = low_water {
        let _ = write!(
            settings,
            "[smig]\nenabled = false\n[interactive]\nnotsent_lowat = {low_water}\n"
        );
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_differ_only_in_the_compared_settings() {
        let [plain, lowat, smig] = Variant::ALL.map(gateway_settings);
        assert!(plain.starts_with(&smig) && lowat.starts_with(&smig));
        assert!(plain.ends_with("notsent_lowat = 0\n"), "{plain}");
        assert!(lowat.ends_with("notsent_lowat = 16384\n"), "{lowat}");
        for settings in [plain, lowat, smig] {
            settings.parse::<toml::Table>().unwrap();
        }
    }

    #[test]
    fn the_directory_is_removed_on_drop() {
        let mosaic = Mosaic::draw().unwrap();
        let files = BrowserFiles::create(&mosaic, 1 << 40).unwrap();
        let directory = files.directory.path().to_owned();
        let big = fs::metadata(files.document_root().join(BIG_FILE)).unwrap();
        assert_eq!(big.len(), 1 << 40);
        assert_eq!(STANDARD.decode(&files.key_digest).unwrap().len(), 32);
        drop(files);
        assert!(!directory.exists());
    }
}
