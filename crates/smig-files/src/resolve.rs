//! Resolution of a path to a resource.
//!
//! Owns the steps from a checked path to a [`Resource`]: index files, redirects to directories, siblings,
//! and reading small files into memory. With [`Blocking::Forbidden`] it never blocks on the disk,
//! so it may run on a thread that serves other requests; it then returns
//! [`ResolveError::WouldBlock`] if data is not in memory.

use std::ffi::OsStr;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::encoding::Coding;
use crate::error_response::ErrorResponse;
use crate::file_version::FileVersion;
use crate::listing;
use crate::media::content_type;
use crate::options::{FileOptions, Listing, PrecompressedFiles};
use crate::path::RequestPath;
use crate::reader::OpenFile;
use crate::resource::{ContentReuse, ContentSource, Representation, Resource, StaticHeaders, Vary};
use crate::root::{Blocking, Root};

/// Maximum number of attempts to read a small file that changes during the read.
const MAX_READ_ATTEMPTS: usize = 3;

/// The result of a path's resolution.
#[derive(Debug)]
pub(crate) enum Resolution {
    File(Arc<Resource>),
    /// A directory, but the path has no trailing slash.
    Directory,
    /// A directory listing.
    Listing(Bytes),
}

/// Why a path could not be resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResolveError {
    /// It would block on the disk.
    WouldBlock,
    /// The process is out of file descriptors.
    OutOfFiles,
    Refused(ErrorResponse),
}

impl From<ErrorResponse> for ResolveError {
    fn from(refusal: ErrorResponse) -> Self {
        Self::Refused(refusal)
    }
}

/// The open file or directory of a path, and its metadata.
struct OpenedPath {
    fd: OwnedFd,
    version: FileVersion,
    file_type: FileType,
}

/// The directory and its options.
#[derive(Debug)]
pub(crate) struct DocumentRoot {
    pub(crate) root: Root,
    pub(crate) options: FileOptions,
}

impl DocumentRoot {
    /// Resolves a path. `known_resource` is its earlier resource; contents that have not changed are reused.
    pub(crate) fn resolve(
        &self,
        path: &RequestPath<'_>,
        known_resource: Option<&Resource>,
        blocking: Blocking,
    ) -> Result<Resolution, ResolveError> {
        let relative_path = path.relative();
        if path.names_directory() {
            return self.resolve_directory(relative_path, known_resource, blocking);
        }
        let opened_path = self.open(relative_path, blocking)?;
        match opened_path.file_type {
            FileType::RegularFile => {
                self.load_resource(relative_path, opened_path, known_resource, blocking)
            }
            FileType::Directory => Ok(Resolution::Directory),
            _ => Err(ErrorResponse::NotFound.into()),
        }
    }

    fn resolve_directory(
        &self,
        relative_path: &[u8],
        known_resource: Option<&Resource>,
        blocking: Blocking,
    ) -> Result<Resolution, ResolveError> {
        if let Some(index) = &self.options.index_file {
            let mut name = relative_path.to_vec();
            if !name.is_empty() {
                name.push(b'/');
            }
            name.extend_from_slice(index.as_bytes());
            match self.open(&name, blocking) {
                Ok(opened) if opened.file_type == FileType::RegularFile => {
                    return self.load_resource(&name, opened, known_resource, blocking);
                }
                Ok(_) | Err(ResolveError::Refused(ErrorResponse::NotFound)) => {}
                Err(error) => return Err(error),
            }
        }
        let opened_path = self.open(relative_path, blocking)?;
        match (opened_path.file_type, self.options.listing, blocking) {
            (FileType::Directory, Listing::Off, _) => Err(ErrorResponse::Forbidden.into()),
            (FileType::Directory, Listing::On, Blocking::Forbidden) => {
                Err(ResolveError::WouldBlock)
            }
            (FileType::Directory, Listing::On, Blocking::Allowed) => Ok(Resolution::Listing(
                listing::build_page(&self.root, relative_path, opened_path.fd, &self.options)?,
            )),
            _ => Err(ErrorResponse::NotFound.into()),
        }
    }

    fn open(&self, relative_path: &[u8], blocking: Blocking) -> Result<OpenedPath, ResolveError> {
        let result = self.root.open(relative_path, blocking).and_then(|fd| {
            let (version, file_type) = FileVersion::fstat(&fd)?;
            Ok(OpenedPath { fd, version, file_type })
        });
        result.map_err(|errno| match (errno, blocking) {
            (Errno::AGAIN, Blocking::Forbidden) => ResolveError::WouldBlock,
            (Errno::MFILE | Errno::NFILE, _) => ResolveError::OutOfFiles,
            (errno, _) => ResolveError::Refused(errno.into()),
        })
    }

    fn load_resource(
        &self,
        relative_path: &[u8],
        opened_path: OpenedPath,
        known_resource: Option<&Resource>,
        blocking: Blocking,
    ) -> Result<Resolution, ResolveError> {
        let mut siblings = Vec::new();
        if self.options.precompressed_files == PrecompressedFiles::Serve {
            for coding in Coding::ALL {
                if let Some(sibling) =
                    self.open_sibling(relative_path, coding, &opened_path.version, blocking)?
                {
                    siblings.push((coding, sibling));
                }
            }
        }
        let static_headers = StaticHeaders {
            content_type: content_type(Path::new(OsStr::from_bytes(relative_path))),
            cache_control: self.options.cache_control.clone(),
            vary: if siblings.is_empty() { Vary::No } else { Vary::ByEncoding },
        };
        let source = self.load_source(
            opened_path,
            known_resource.map(|known| &*known.plain_representation),
            blocking,
        )?;
        let plain_representation = Arc::new(Representation::new(source, None, &static_headers));
        let mut coded_representations = Vec::with_capacity(siblings.len());
        for (coding, sibling) in siblings {
            let known_representation = known_resource
                .and_then(|known| known.coded_representation(coding))
                .map(|known| &**known);
            let source = self.load_source(sibling, known_representation, blocking)?;
            let representation = Representation::new(source, Some(coding), &static_headers);
            coded_representations.push((coding, Arc::new(representation)));
        }
        Ok(Resolution::File(Arc::new(Resource { plain_representation, coded_representations })))
    }

    /// Returns the sibling of a file in one coding, if it exists and is not older than the file.
    fn open_sibling(
        &self,
        relative_path: &[u8],
        coding: Coding,
        original_version: &FileVersion,
        blocking: Blocking,
    ) -> Result<Option<OpenedPath>, ResolveError> {
        let name = [relative_path, b".", coding.extension().as_bytes()].concat();
        match self.open(&name, blocking) {
            Ok(opened) => {
                let usable = opened.file_type == FileType::RegularFile
                    && opened.version.modified_unix_seconds()
                        >= original_version.modified_unix_seconds();
                Ok(usable.then_some(opened))
            }
            Err(ResolveError::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the source of a file's bytes: memory if the file is small.
    fn load_source(
        &self,
        opened_path: OpenedPath,
        known_representation: Option<&Representation>,
        blocking: Blocking,
    ) -> Result<ContentSource, ResolveError> {
        let OpenedPath { fd, mut version, .. } = opened_path;
        if let Some(known_representation) = known_representation
            && let ContentSource::Memory {
                version: old_version,
                reuse: ContentReuse::UntilChanged,
                ..
            } = &known_representation.source
            && *old_version == version
        {
            return Ok(known_representation.source.clone());
        }
        let mut file = OpenFile::new(fd, version);
        for _ in 0..MAX_READ_ATTEMPTS {
            let in_memory_size = usize::try_from(version.size())
                .ok()
                .filter(|size| *size <= self.options.cache_max_file_bytes)
                .filter(|_| self.options.cache_memory_bytes > 0);
            let Some(size) = in_memory_size else { break };
            let reuse = if version.is_settled(SystemTime::now()) {
                ContentReuse::UntilChanged
            } else {
                ContentReuse::Once
            };
            let bytes = read_all(&file, size, blocking)?;
            let new_version =
                file.refresh_version().map_err(|errno| ResolveError::Refused(errno.into()))?;
            if new_version == version && bytes.len() == size {
                return Ok(ContentSource::Memory { version, bytes: bytes.into(), reuse });
            }
            version = new_version;
        }
        Ok(ContentSource::File(Arc::new(file)))
    }
}

/// Returns the first `size` bytes of a file, or fewer if it is shorter.
fn read_all(file: &OpenFile, size: usize, blocking: Blocking) -> Result<Vec<u8>, ResolveError> {
    let mut bytes = vec![0; size];
    let mut filled_len = 0;
    while filled_len < size {
        let space = &mut bytes[filled_len..];
        let result = match blocking {
            Blocking::Forbidden => file.read_cached(filled_len as u64, space),
            Blocking::Allowed => {
                file.read_blocking(filled_len as u64, &mut [IoSliceMut::new(space)]).map(Some)
            }
        };
        match result {
            Ok(None) => return Err(ResolveError::WouldBlock),
            Ok(Some(0)) => break,
            Ok(Some(count)) => filled_len += count,
            Err(errno) => return Err(ResolveError::Refused(errno.into())),
        }
    }
    bytes.truncate(filled_len);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::HiddenFiles;

    fn load(document_root: &DocumentRoot, known: Option<&Resource>) -> Arc<Resource> {
        let path = RequestPath::parse("/a", HiddenFiles::Refuse).unwrap();
        match document_root.resolve(&path, known, Blocking::Allowed) {
            Ok(Resolution::File(resource)) => resource,
            other => panic!("{other:?}"),
        }
    }

    fn content(resource: &Resource) -> &Bytes {
        match &resource.plain_representation.source {
            ContentSource::Memory { bytes, .. } => bytes,
            ContentSource::File(_) => panic!("a small file is in memory"),
        }
    }

    /// Returns the same resource, with this `reuse`.
    fn with_reuse(resource: &Resource, reuse: ContentReuse) -> Resource {
        let static_headers = StaticHeaders {
            content_type: content_type(Path::new("a")),
            cache_control: None,
            vary: Vary::No,
        };
        let version = *resource.plain_representation.source.version();
        let source = ContentSource::Memory { version, bytes: content(resource).clone(), reuse };
        let plain = Arc::new(Representation::new(source, None, &static_headers));
        Resource { plain_representation: plain, coded_representations: Vec::new() }
    }

    /// Content that was read just after a change is read again at the next lookup, however late.
    #[test]
    fn content_is_reused_only_if_any_change_is_detectable() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a"), "a").unwrap();
        let options = FileOptions::default();
        let root = Root::new(directory.path(), options.symlinks).unwrap();
        let document_root = DocumentRoot { root, options };
        let first_resource = load(&document_root, None);
        for (reuse, is_reused) in [(ContentReuse::Once, false), (ContentReuse::UntilChanged, true)]
        {
            let second_resource = load(&document_root, Some(&with_reuse(&first_resource, reuse)));
            assert_eq!(content(&second_resource), "a");
            assert_eq!(
                content(&second_resource).as_ptr() == content(&first_resource).as_ptr(),
                is_reused,
                "{reuse:?}"
            );
        }
        std::fs::write(directory.path().join("a"), "ab").unwrap();
        let changed_resource =
            load(&document_root, Some(&with_reuse(&first_resource, ContentReuse::UntilChanged)));
        assert_eq!(content(&changed_resource), "ab");
    }
}
