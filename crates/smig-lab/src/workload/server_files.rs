//! Content for servers: files of every size that is downloaded, and a certificate for their address.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair};

use super::content::Content;
use super::tile_page;
use crate::scenario::{Page, Scenario, TransferDirection};

/// Size of the warm-up object, which is requested when connections are opened.
pub(super) const WARM_UP_BYTES: u64 = 1_000;

/// A directory with files, a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// Directory to serve: `SIZE.bin` for every size that is downloaded.
    pub files_dir: PathBuf,
    /// The certificate, PEM; clients trust it directly.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Certificate and key in one file.
    pub cert_and_key: PathBuf,
    /// Directory of recorded pages, each in a directory of its own.
    replays_dir: PathBuf,
}

/// Returns the path of an object on its server.
pub(super) fn object_path(size: u64) -> String {
    format!("/{size}.bin")
}

impl ServerFiles {
    /// Returns the paths of the files in a directory.
    #[must_use]
    pub fn at(dir: &Path) -> Self {
        let path = |name: &str| dir.join(name);
        Self {
            files_dir: path("files"),
            certificate: path("certificate.pem"),
            key: path("key.pem"),
            cert_and_key: path("certificate-and-key.pem"),
            replays_dir: path("replays"),
        }
    }

    /// Returns the directories of the recorded pages that browsers load.
    #[must_use]
    pub fn replays(&self, scenario: &Scenario) -> Vec<PathBuf> {
        let recordings = scenario.browser_pages().filter_map(|page| page.recording.as_ref());
        let digests: BTreeSet<_> = recordings.map(|recording| &recording.digest).collect();
        digests.into_iter().map(|digest| self.replays_dir.join(digest)).collect()
    }

    /// Creates the certificate for servers at these addresses, and of these names.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn create(dir: &Path, addresses: &[Ipv4Addr], names: BTreeSet<String>) -> io::Result<Self> {
        let server_files = Self::at(dir);
        fs::create_dir_all(&server_files.files_dir)?;
        let addresses = addresses.iter().map(ToString::to_string);
        let params = CertificateParams::new(addresses.chain(names).collect::<Vec<_>>())
            .map_err(io::Error::other)?;
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.self_signed(&key).map_err(io::Error::other)?.pem();
        let key = key.serialize_pem();
        fs::write(&server_files.certificate, &certificate)?;
        fs::write(&server_files.key, &key)?;
        fs::write(&server_files.cert_and_key, certificate + &key)?;
        Ok(server_files)
    }

    /// Creates the files for a scenario's downloads, unless they exist.
    ///
    /// # Errors
    /// The directory cannot be written, the disk is full, or a recording cannot be replayed.
    pub fn create_files(&self, scenario: &Scenario) -> io::Result<()> {
        let transfers = scenario.workload.transfers.values();
        let downloads =
            transfers.filter(|transfer| transfer.direction == TransferDirection::Download);
        let sizes = downloads.flat_map(|transfer| transfer.size.0.iter().map(|size| size.0));
        let resources = scenario.workload.pages.values().flat_map(Page::resources);
        let sizes = sizes.chain(resources.map(|resource| resource.size));
        for page in scenario.browser_pages() {
            let directory = page.directory().map(|name| self.files_dir.join(name));
            directory.map_or(Ok(()), |directory| tile_page::write(&directory, page))?;
            if let Some(recording) = &page.recording {
                let source = recording.source.0.as_ref();
                let unread = || io::Error::other("the recording was read by another process");
                source.ok_or_else(unread)?.prepare(&self.replays_dir.join(&recording.digest))?;
            }
        }
        for size in sizes.chain([WARM_UP_BYTES]) {
            let path = self.files_dir.join(object_path(size).trim_start_matches('/'));
            if fs::metadata(&path).is_ok_and(|meta| meta.len() == size) {
                continue;
            }
            write_content(&path, size)?;
        }
        Ok(())
    }
}

fn write_content(path: &Path, size: u64) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let (mut content, mut remaining) = (Content::new(), size);
    let mut block = [0; 8192];
    while remaining > 0 {
        let length = block.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
        content.fill(&mut block[..length]);
        file.write_all(&block[..length])?;
        remaining -= length as u64;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()
}
