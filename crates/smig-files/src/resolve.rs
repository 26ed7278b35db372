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
use crate::resource::{ContentReuse, ContentSource, Presentation, Representation, Resource, Vary};
use crate::root::{Blocking, Root};

/// Maximum number of attempts to read a small file that changes during the read.
const MAX_ATTEMPTS: usize = 3;

/// The result of a path's resolution.
#[derive(Debug)]
pub(crate) enum Resolved {
    File(Arc<Resource>),
    /// A directory, but the path has no trailing slash.
    Directory,
    /// A directory listing.
    Page(Bytes),
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

/// An open file and its metadata.
struct OpenedFile {
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
    /// Resolves a path. `known` is its earlier resource; contents that have not changed are reused.
    pub(crate) fn resolve(
        &self,
        path: &RequestPath<'_>,
        known: Option<&Resource>,
        blocking: Blocking,
    ) -> Result<Resolved, ResolveError> {
        let relative = path.relative();
        if path.names_directory() {
            return self.resolve_directory(relative, known, blocking);
        }
        let opened = self.open(relative, blocking)?;
        match opened.file_type {
            FileType::RegularFile => self.resource(relative, opened, known, blocking),
            FileType::Directory => Ok(Resolved::Directory),
            _ => Err(ErrorResponse::NotFound.into()),
        }
    }

    fn resolve_directory(
        &self,
        relative: &[u8],
        known: Option<&Resource>,
        blocking: Blocking,
    ) -> Result<Resolved, ResolveError> {
        if let Some(index) = &self.options.index {
            let mut name = relative.to_vec();
            if !name.is_empty() {
                name.push(b'/');
            }
            name.extend_from_slice(index.as_bytes());
            match self.open(&name, blocking) {
                Ok(opened) if opened.file_type == FileType::RegularFile => {
                    return self.resource(&name, opened, known, blocking);
                }
                Ok(_) | Err(ResolveError::Refused(ErrorResponse::NotFound)) => {}
                Err(error) => return Err(error),
            }
        }
        let opened = self.open(relative, blocking)?;
        match (opened.file_type, self.options.listing, blocking) {
            (FileType::Directory, Listing::Off, _) => Err(ErrorResponse::Forbidden.into()),
            (FileType::Directory, Listing::On, Blocking::Forbidden) => {
                Err(ResolveError::WouldBlock)
            }
            (FileType::Directory, Listing::On, Blocking::Allowed) => {
                Ok(Resolved::Page(listing::page(&self.root, relative, opened.fd, &self.options)?))
            }
            _ => Err(ErrorResponse::NotFound.into()),
        }
    }

    fn open(&self, relative: &[u8], blocking: Blocking) -> Result<OpenedFile, ResolveError> {
        let result = self.root.open(relative, blocking).and_then(|fd| {
            let (version, file_type) = FileVersion::of(&fd)?;
            Ok(OpenedFile { fd, version, file_type })
        });
        result.map_err(|errno| match (errno, blocking) {
            (Errno::AGAIN, Blocking::Forbidden) => ResolveError::WouldBlock,
            (Errno::MFILE | Errno::NFILE, _) => ResolveError::OutOfFiles,
            (errno, _) => ResolveError::Refused(errno.into()),
        })
    }

    fn resource(
        &self,
        relative: &[u8],
        opened: OpenedFile,
        known: Option<&Resource>,
        blocking: Blocking,
    ) -> Result<Resolved, ResolveError> {
        let mut siblings = Vec::new();
        if self.options.precompressed == PrecompressedFiles::Serve {
            for coding in Coding::ALL {
                if let Some(sibling) = self.sibling(relative, coding, &opened.version, blocking)? {
                    siblings.push((coding, sibling));
                }
            }
        }
        let presentation = Presentation {
            content_type: content_type(Path::new(OsStr::from_bytes(relative))),
            cache_control: self.options.cache_control.clone(),
            vary: if siblings.is_empty() { Vary::No } else { Vary::ByEncoding },
        };
        let source = self.source(opened, known.map(|known| &*known.plain), blocking)?;
        let plain = Arc::new(Representation::new(source, None, &presentation));
        let mut coded = Vec::with_capacity(siblings.len());
        for (coding, sibling) in siblings {
            let known = known.and_then(|known| known.coded(coding)).map(|known| &**known);
            let source = self.source(sibling, known, blocking)?;
            let representation = Representation::new(source, Some(coding), &presentation);
            coded.push((coding, Arc::new(representation)));
        }
        Ok(Resolved::File(Arc::new(Resource { plain, coded })))
    }

    /// Returns the sibling of a file in one coding, if it exists and is not older than the file.
    fn sibling(
        &self,
        relative: &[u8],
        coding: Coding,
        original: &FileVersion,
        blocking: Blocking,
    ) -> Result<Option<OpenedFile>, ResolveError> {
        let name = [relative, b".", coding.extension().as_bytes()].concat();
        match self.open(&name, blocking) {
            Ok(opened) => {
                let usable = opened.file_type == FileType::RegularFile
                    && opened.version.modified() >= original.modified();
                Ok(usable.then_some(opened))
            }
            Err(ResolveError::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the source of a file's bytes: memory if the file is small.
    fn source(
        &self,
        opened: OpenedFile,
        known: Option<&Representation>,
        blocking: Blocking,
    ) -> Result<ContentSource, ResolveError> {
        let OpenedFile { fd, mut version, .. } = opened;
        if let Some(known) = known
            && let ContentSource::Memory {
                version: old_version,
                reuse: ContentReuse::UntilChanged,
                ..
            } = &known.source
            && *old_version == version
        {
            return Ok(known.source.clone());
        }
        let mut file = OpenFile::new(fd, version);
        for _ in 0..MAX_ATTEMPTS {
            let in_memory_size = usize::try_from(version.size())
                .ok()
                .filter(|size| *size <= self.options.cache_max_file_size)
                .filter(|_| self.options.cache_memory > 0);
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
    let mut filled = 0;
    while filled < size {
        let space = &mut bytes[filled..];
        let result = match blocking {
            Blocking::Forbidden => file.read_cached(filled as u64, space),
            Blocking::Allowed => {
                file.read_blocking(filled as u64, &mut [IoSliceMut::new(space)]).map(Some)
            }
        };
        match result {
            Ok(None) => return Err(ResolveError::WouldBlock),
            Ok(Some(0)) => break,
            Ok(Some(count)) => filled += count,
            Err(errno) => return Err(ResolveError::Refused(errno.into())),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::HiddenFiles;

    fn load(document_root: &DocumentRoot, known: Option<&Resource>) -> Arc<Resource> {
        let path = RequestPath::parse("/a", HiddenFiles::Refuse).unwrap();
        match document_root.resolve(&path, known, Blocking::Allowed) {
            Ok(Resolved::File(resource)) => resource,
            other => panic!("{other:?}"),
        }
    }

    fn content(resource: &Resource) -> &Bytes {
        match &resource.plain.source {
            ContentSource::Memory { bytes, .. } => bytes,
            ContentSource::File(_) => panic!("a small file is in memory"),
        }
    }

    /// Returns the same resource, with this `reuse`.
    fn with_reuse(resource: &Resource, reuse: ContentReuse) -> Resource {
        let presentation = Presentation {
            content_type: content_type(Path::new("a")),
            cache_control: None,
            vary: Vary::No,
        };
        let version = *resource.plain.source.version();
        let source = ContentSource::Memory { version, bytes: content(resource).clone(), reuse };
        let plain = Arc::new(Representation::new(source, None, &presentation));
        Resource { plain, coded: Vec::new() }
    }

    /// Content that was read just after a change is read again at the next lookup, however late.
    #[test]
    fn content_is_reused_only_if_any_change_is_detectable() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a"), "a").unwrap();
        let options = FileOptions::default();
        let root = Root::new(directory.path(), options.symlinks).unwrap();
        let document_root = DocumentRoot { root, options };
        let first = load(&document_root, None);
        for (reuse, is_reused) in [(ContentReuse::Once, false), (ContentReuse::UntilChanged, true)]
        {
            let again = load(&document_root, Some(&with_reuse(&first, reuse)));
            assert_eq!(content(&again), "a");
            assert_eq!(
                content(&again).as_ptr() == content(&first).as_ptr(),
                is_reused,
                "{reuse:?}"
            );
        }
        std::fs::write(directory.path().join("a"), "ab").unwrap();
        let changed = load(&document_root, Some(&with_reuse(&first, ContentReuse::UntilChanged)));
        assert_eq!(content(&changed), "ab");
    }
}
