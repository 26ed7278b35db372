//! The resource that a path names: a file, its precompressed siblings, and their header fields.
//!
//! Owns the header values of a representation, computed once when it is loaded. Independent of requests,
//! except for the selection by Accept-Encoding.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG,
    LAST_MODIFIED, VARY,
};
use http::{HeaderMap, HeaderValue};

use std::time::{Duration, SystemTime};

use crate::budget::CacheCost;
use crate::conditional::{Validators, unix_seconds};
use crate::encoding::{Coding, choose};
use crate::file_version::FileVersion;
use crate::reader::OpenFile;

/// The source of a representation's bytes.
#[derive(Debug, Clone)]
pub(crate) enum ContentSource {
    /// In memory, as read from this version of the file.
    Memory { version: FileVersion, bytes: Bytes, reuse: ContentReuse },
    /// In the file, read for each response.
    File(Arc<OpenFile>),
}

/// Whether content in memory may be reused while the file's version stays the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentReuse {
    /// When the content was read, the version was settled: any later change shows in it.
    UntilChanged,
    /// The file had just changed: it may have changed again after the read, within the same tick of
    /// the file system's clock.
    Once,
}

impl ContentSource {
    pub(crate) fn version(&self) -> &FileVersion {
        match self {
            Self::Memory { version, .. } => version,
            Self::File(file) => file.version(),
        }
    }
}

/// One form in which a file can be sent: the file itself, or one of its siblings.
#[derive(Debug)]
pub(crate) struct Representation {
    pub(crate) source: ContentSource,
    /// All header fields of a 200 response.
    pub(crate) headers: Arc<HeaderMap>,
    etag: HeaderValue,
    /// Last-Modified, in seconds since 1970.
    modified_unix_seconds: Option<u64>,
}

/// The header fields that do not depend on the file's state.
#[derive(Debug, Clone)]
pub(crate) struct StaticHeaders {
    pub(crate) content_type: HeaderValue,
    pub(crate) cache_control: Option<HeaderValue>,
    pub(crate) vary: Vary,
}

/// Whether the response depends on Accept-Encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vary {
    No,
    ByEncoding,
}

impl Representation {
    pub(crate) fn new(
        source: ContentSource,
        coding: Option<Coding>,
        static_headers: &StaticHeaders,
    ) -> Self {
        let version = source.version();
        let suffix = coding.map_or("", Coding::etag_suffix);
        // The value consists of hexadecimal digits, dashes and letters.
        let etag = HeaderValue::from_str(&version.etag(suffix))
            .unwrap_or(HeaderValue::from_static("\"\""));
        // A time in the future must not be sent (RFC 9110 section 8.8.2.1).
        let now = unix_seconds(SystemTime::now()).unwrap_or(0);
        let modified = version.modified_unix_seconds().filter(|modified| *modified <= now);

        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(CONTENT_TYPE, static_headers.content_type.clone());
        headers.insert(CONTENT_LENGTH, HeaderValue::from(version.size()));
        headers.insert(ETAG, etag.clone());
        if let Some(modified) = modified {
            let date = SystemTime::UNIX_EPOCH + Duration::from_secs(modified);
            if let Ok(date) = HeaderValue::from_str(&httpdate::fmt_http_date(date)) {
                headers.insert(LAST_MODIFIED, date);
            }
        }
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(value) = &static_headers.cache_control {
            headers.insert(CACHE_CONTROL, value.clone());
        }
        if let Some(coding) = coding {
            headers.insert(CONTENT_ENCODING, coding.header_value());
        }
        if static_headers.vary == Vary::ByEncoding {
            headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        }
        Self { source, headers: Arc::new(headers), etag, modified_unix_seconds: modified }
    }

    pub(crate) fn size(&self) -> u64 {
        self.source.version().size()
    }

    pub(crate) fn validators(&self) -> Validators<'_> {
        Validators { etag: self.etag.as_bytes(), modified_unix_seconds: self.modified_unix_seconds }
    }

    /// Returns whether its header fields still match its content. Content in memory is valid until it
    /// expires; a file is checked again, since its bytes are read from now on.
    pub(crate) fn is_current(&self) -> bool {
        match &self.source {
            ContentSource::Memory { .. } => true,
            ContentSource::File(file) => file.is_current(),
        }
    }

    fn cost(&self) -> CacheCost {
        match &self.source {
            ContentSource::Memory { bytes, .. } => {
                CacheCost { entries: 0, files: 0, bytes: bytes.len() }
            }
            ContentSource::File(_) => CacheCost { entries: 0, files: 1, bytes: 0 },
        }
    }
}

/// The resource that a path names.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) plain_representation: Arc<Representation>,
    pub(crate) coded_representations: Vec<(Coding, Arc<Representation>)>,
}

impl Resource {
    /// Returns the representation for a request.
    pub(crate) fn select(&self, headers: &HeaderMap) -> &Arc<Representation> {
        if self.coded_representations.is_empty() {
            return &self.plain_representation;
        }
        let chosen = choose(headers, self.coded_representations.iter().map(|(coding, _)| *coding));
        chosen
            .and_then(|coding| self.coded_representation(coding))
            .unwrap_or(&self.plain_representation)
    }

    pub(crate) fn coded_representation(&self, requested: Coding) -> Option<&Arc<Representation>> {
        self.coded_representations
            .iter()
            .find(|(coding, _)| *coding == requested)
            .map(|(_, coded)| coded)
    }

    /// Returns the cost of caching this resource.
    pub(crate) fn cost(&self) -> CacheCost {
        let entry = CacheCost { entries: 1, files: 0, bytes: 0 };
        self.coded_representations
            .iter()
            .fold(entry + self.plain_representation.cost(), |sum, (_, coded)| sum + coded.cost())
    }
}
