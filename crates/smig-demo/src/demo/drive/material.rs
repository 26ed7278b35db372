//! The files that the demonstration's server serves, and a certificate for its address.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use rcgen::{CertificateParams, KeyPair};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::DriveError;

/// The small object's name.
pub(super) const OBJECT: &str = "object.bin";
/// The big file's name.
pub(super) const BIG_FILE: &str = "big.bin";
/// The name in the certificate.
pub(super) const HOST_NAME: &str = "server.smig.test";

/// Files in a directory that is removed on drop, and TLS keys.
#[derive(Debug)]
pub(super) struct DemoFiles {
    pub(super) folder: TempDir,
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) big_file_digest: [u8; 32],
}

impl DemoFiles {
    pub(super) fn make(object_bytes: u64, big_file_bytes: u64) -> Result<Self, DriveError> {
        let folder = TempDir::with_prefix("smig-demo-")?;
        write_noise(&folder.path().join(OBJECT), object_bytes)?;
        let big_file_digest = write_noise(&folder.path().join(BIG_FILE), big_file_bytes)?;
        let address = super::host::ADDRESS.to_string();
        let params = CertificateParams::new(vec![HOST_NAME.to_owned(), address])?;
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { folder, certificate, key: key.serialize_pem(), big_file_digest })
    }
}

/// Writes incompressible bytes and returns their SHA-256.
fn write_noise(path: &Path, bytes: u64) -> io::Result<[u8; 32]> {
    let mut file = BufWriter::new(File::create(path)?);
    let (mut digest, mut state, mut left) = (Sha256::new(), 0x9e37_79b9_7f4a_7c15_u64, bytes);
    let mut block = [0; 8192];
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            // xorshift64 suffices: the bytes need only be incompressible.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let part = &block[..block.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        file.write_all(part)?;
        digest.update(part);
        left -= part.len() as u64;
    }
    file.flush()?;
    Ok(digest.finalize().into())
}
