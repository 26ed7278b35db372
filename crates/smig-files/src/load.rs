//! Resolution of a path to a resource.
//!
//! Owns the steps from a checked path to a [`Resource`]: index files, redirects to directories, siblings,
//! and reading small files into memory. With [`Blocking::None`] it never blocks on the disk, so it may run
//! on a thread that serves other requests; it then returns [`ResolveError::WouldBlock`] if data is missing.

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
use crate::listing;
use crate::media::content_type;
use crate::options::{Listing, Options, Precompressed};
use crate::path::RequestPath;
use crate::reader::OpenFile;
use crate::refusal::ErrorResponse;
use crate::resource::{ContentReuse, ContentSource, Presentation, Representation, Resource, Vary};
use crate::root::{Blocking, Root};
use crate::stamp::FileVersion;

/// Number of attempts to read a small file that changes during the read.
const ATTEMPTS: usize = 3;

/// The result of a path's resolution.
#[derive(Debug)]
pub(crate) enum Resolved {
    File(Arc<Resource>),
    /// A directory, but the path has no trailing slash.
    Folder,
    /// A directory listing.
    Page(Bytes),
}

/// Why a path could not be resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResolveError {
    /// It would block on the disk.
    WouldBlock,
    /// The process has no file descriptor left.
    OutOfFiles,
    Refused(ErrorResponse),
}

impl From<ErrorResponse> for ResolveError {
    fn from(refusal: ErrorResponse) -> Self {
        Self::Refused(refusal)
    }
}

/// An open file and its metadata.
struct Opened {
    fd: OwnedFd,
    stamp: FileVersion,
    kind: FileType,
}

/// The directory and its options.
#[derive(Debug)]
pub(crate) struct DocumentRoot {
    pub(crate) root: Root,
    pub(crate) options: Options,
}

impl DocumentRoot {
    /// Resolves a path. `known` is its earlier resource; contents that have not changed are taken from
    /// there.
    pub(crate) fn load(
        &self,
        path: &RequestPath<'_>,
        known: Option<&Resource>,
        patience: Blocking,
    ) -> Result<Resolved, ResolveError> {
        let relative = path.relative();
        if path.names_folder() {
            return self.load_folder(relative, known, patience);
        }
        let opened = self.open(relative, patience)?;
        match opened.kind {
            FileType::RegularFile => self.resource(relative, opened, known, patience),
            FileType::Directory => Ok(Resolved::Folder),
            _ => Err(ErrorResponse::NotFound.into()),
        }
    }

    fn load_folder(
        &self,
        relative: &[u8],
        known: Option<&Resource>,
        patience: Blocking,
    ) -> Result<Resolved, ResolveError> {
        if let Some(index) = &self.options.index {
            let mut name = relative.to_vec();
            if !name.is_empty() {
                name.push(b'/');
            }
            name.extend_from_slice(index.as_bytes());
            match self.open(&name, patience) {
                Ok(opened) if opened.kind == FileType::RegularFile => {
                    return self.resource(&name, opened, known, patience);
                }
                Ok(_) | Err(ResolveError::Refused(ErrorResponse::NotFound)) => {}
                Err(failure) => return Err(failure),
            }
        }
        let opened = self.open(relative, patience)?;
        match (opened.kind, self.options.listing, patience) {
            (FileType::Directory, Listing::Off, _) => Err(ErrorResponse::Forbidden.into()),
            (FileType::Directory, Listing::On, Blocking::None) => Err(ResolveError::WouldBlock),
            (FileType::Directory, Listing::On, Blocking::Blocking) => {
                Ok(Resolved::Page(listing::page(&self.root, relative, opened.fd, &self.options)?))
            }
            _ => Err(ErrorResponse::NotFound.into()),
        }
    }

    fn open(&self, relative: &[u8], patience: Blocking) -> Result<Opened, ResolveError> {
        let result = self.root.open(relative, patience).and_then(|fd| {
            let (stamp, kind) = FileVersion::of(&fd)?;
            Ok(Opened { fd, stamp, kind })
        });
        result.map_err(|errno| match (errno, patience) {
            (Errno::AGAIN, Blocking::None) => ResolveError::WouldBlock,
            (Errno::MFILE | Errno::NFILE, _) => ResolveError::OutOfFiles,
            (errno, _) => ResolveError::Refused(errno.into()),
        })
    }

    fn resource(
        &self,
        relative: &[u8],
        opened: Opened,
        known: Option<&Resource>,
        patience: Blocking,
    ) -> Result<Resolved, ResolveError> {
        let mut siblings = Vec::new();
        if self.options.precompressed == Precompressed::Serve {
            for coding in Coding::ALL {
                if let Some(sibling) = self.sibling(relative, coding, &opened.stamp, patience)? {
                    siblings.push((coding, sibling));
                }
            }
        }
        let shown = Presentation {
            content_type: content_type(Path::new(OsStr::from_bytes(relative))),
            cache_control: self.options.cache_control.clone(),
            vary: if siblings.is_empty() { Vary::No } else { Vary::ByEncoding },
        };
        let source = self.source(opened, known.map(|known| &*known.plain), patience)?;
        let plain = Arc::new(Representation::new(source, None, &shown));
        let mut coded = Vec::with_capacity(siblings.len());
        for (coding, sibling) in siblings {
            let known = known.and_then(|known| known.coded(coding)).map(|known| &**known);
            let source = self.source(sibling, known, patience)?;
            let representation = Representation::new(source, Some(coding), &shown);
            coded.push((coding, Arc::new(representation)));
        }
        Ok(Resolved::File(Arc::new(Resource { plain, coded })))
    }

    /// Returns the sibling of a file in one coding, if it exists and is not older than the file.
    fn sibling(
        &self,
        relative: &[u8],
        coding: Coding,
        of: &FileVersion,
        patience: Blocking,
    ) -> Result<Option<Opened>, ResolveError> {
        let name = [relative, b".", coding.extension().as_bytes()].concat();
        match self.open(&name, patience) {
            Ok(opened) => {
                let usable = opened.kind == FileType::RegularFile
                    && opened.stamp.modified() >= of.modified();
                Ok(usable.then_some(opened))
            }
            Err(ResolveError::Refused(_)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the source of a file's bytes: memory if the file is small.
    fn source(
        &self,
        opened: Opened,
        known: Option<&Representation>,
        patience: Blocking,
    ) -> Result<ContentSource, ResolveError> {
        let Opened { fd, mut stamp, .. } = opened;
        if let Some(known) = known
            && let ContentSource::Memory { stamp: then, trust: ContentReuse::Lasting, .. } =
                &known.source
            && *then == stamp
        {
            return Ok(known.source.clone());
        }
        let mut file = OpenFile::new(fd, stamp);
        for _ in 0..ATTEMPTS {
            let small = usize::try_from(stamp.size())
                .ok()
                .filter(|size| *size <= self.options.max_in_memory_file)
                .filter(|_| self.options.max_memory > 0);
            let Some(size) = small else { break };
            let trust = if stamp.is_settled(SystemTime::now()) {
                ContentReuse::Lasting
            } else {
                ContentReuse::Once
            };
            let bytes = read_all(&file, size, patience)?;
            let now = file.restamp().map_err(|errno| ResolveError::Refused(errno.into()))?;
            if now == stamp && bytes.len() == size {
                return Ok(ContentSource::Memory { stamp, bytes: bytes.into(), trust });
            }
            stamp = now;
        }
        Ok(ContentSource::File(Arc::new(file)))
    }
}

/// Returns the first `size` bytes of a file, or fewer if it is shorter.
fn read_all(file: &OpenFile, size: usize, patience: Blocking) -> Result<Vec<u8>, ResolveError> {
    let mut bytes = vec![0; size];
    let mut filled = 0;
    while filled < size {
        let space = &mut bytes[filled..];
        let result = match patience {
            Blocking::None => file.read_now(filled as u64, space),
            Blocking::Blocking => {
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
    use crate::options::Hidden;

    fn load(site: &DocumentRoot, known: Option<&Resource>) -> Arc<Resource> {
        let path = RequestPath::parse("/a", Hidden::Refuse).unwrap();
        match site.load(&path, known, Blocking::Blocking) {
            Ok(Resolved::File(resource)) => resource,
            other => panic!("{other:?}"),
        }
    }

    fn content(resource: &Resource) -> &Bytes {
        match &resource.plain.source {
            ContentSource::Memory { bytes, .. } => bytes,
            ContentSource::File(_) => panic!("it is small"),
        }
    }

    /// Returns the same resource as if its stamp had been read with this trust.
    fn trusted(resource: &Resource, trust: ContentReuse) -> Resource {
        let shown = Presentation {
            content_type: content_type(Path::new("a")),
            cache_control: None,
            vary: Vary::No,
        };
        let stamp = *resource.plain.source.stamp();
        let source = ContentSource::Memory { stamp, bytes: content(resource).clone(), trust };
        let plain = Arc::new(Representation::new(source, None, &shown));
        Resource { plain, coded: Vec::new() }
    }

    /// Content that was read just after a change is read again, however late the next lookup is.
    #[test]
    fn content_is_kept_only_if_every_change_would_show() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "a").unwrap();
        let options = Options::default();
        let root = Root::new(folder.path(), options.links).unwrap();
        let site = DocumentRoot { root, options };
        let first = load(&site, None);
        for (trust, kept) in [(ContentReuse::Once, false), (ContentReuse::Lasting, true)] {
            let again = load(&site, Some(&trusted(&first, trust)));
            assert_eq!(content(&again), "a");
            assert_eq!(content(&again).as_ptr() == content(&first).as_ptr(), kept, "{trust:?}");
        }
        std::fs::write(folder.path().join("a"), "ab").unwrap();
        let changed = load(&site, Some(&trusted(&first, ContentReuse::Lasting)));
        assert_eq!(content(&changed), "ab");
    }
}
