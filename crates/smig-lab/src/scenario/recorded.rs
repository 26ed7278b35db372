//! Recorded pages in a scenario: what the player needs of a HAR file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::faults::{Faults, KeyFault};
use super::page::{Discovery, Page, Resource, ResourceKind};
use super::spec::Scenario;
use super::trials::hex;
use super::value::Size;
use crate::har::{ContentKind, Found, HarError, RecordedPage, RecordedRequest};
use crate::replay::{ReplaySource, is_replayable_host};

/// Maximum length of a resource's name.
const MAX_NAME_CHARS: usize = 100;

/// A recorded page, except for its document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// URL of the document.
    pub url: String,
    /// Its resources in the order of their requests.
    pub resources: Vec<RecordedResource>,
    /// Hosts by server: those that shared a connection when the page was recorded are together, the document's first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<Vec<String>>,
    /// Digest of the file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// What was read.
    #[serde(skip)]
    pub source: RecordingSource,
}

/// A recording that was read, in the process that has read it. No part of a result, and two recordings that only differ in it are the same.
#[derive(Debug, Clone, Default)]
pub struct RecordingSource(pub Option<Arc<ReplaySource>>);

impl PartialEq for RecordingSource {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A resource of a recorded page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedResource {
    /// Its path, after its host if that is not the document's.
    pub name: String,
    /// What it is.
    pub kind: ResourceKind,
    /// Size of its body as it was transferred.
    pub size: Size,
    /// Its host, unless it is the document's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Index of the resource that asks for it, smaller than its own; the document if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<usize>,
    /// Where in the document its element is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<f64>,
}

impl From<&RecordedPage> for Recording {
    fn from(page: &RecordedPage) -> Self {
        let own_host = page.requests.first().map(|request| request.host.as_str());
        let resource = |request: &RecordedRequest| {
            let is_own = Some(request.host.as_str()) == own_host;
            let host = if is_own { "" } else { &request.host };
            let (parent, position) = match request.found {
                // The document, the first request, is not among the resources.
                Found::By { index } => (index.checked_sub(1), None),
                Found::Document { position } => (None, Some(position)),
                Found::Start => (None, None),
            };
            RecordedResource {
                name: host.chars().chain(request.url.path().chars()).take(MAX_NAME_CHARS).collect(),
                kind: kind_of(request),
                // A file of no bytes is not requested: the response to this one takes a round trip all the same.
                size: Size(request.bytes.max(1)),
                host: (!is_own).then(|| request.host.clone()),
                parent,
                position,
            }
        };
        Self {
            url: page.url.clone(),
            resources: page.requests.iter().skip(1).map(resource).collect(),
            origins: origins_of(page),
            digest: String::new(),
            source: RecordingSource::default(),
        }
    }
}

/// Returns the hosts of a page in groups: those that shared a connection, which a browser does if they have an address and a certificate
/// in common (RFC 9113 section 9.1.1).
fn origins_of(page: &RecordedPage) -> Vec<Vec<String>> {
    let mut groups: Vec<Vec<String>> = Vec::new();
    let mut by_connection = BTreeMap::new();
    for request in &page.requests {
        let own = groups.iter().position(|group| group.contains(&request.host));
        let own = own.unwrap_or_else(|| {
            groups.push(vec![request.host.clone()]);
            groups.len() - 1
        });
        let Some(connection) = &request.connection else { continue };
        // Firefox writes the server's port there.
        let port = request.url.port_or_known_default();
        let Some(ip) = request.server_ip.filter(|_| connection.parse().ok() != port) else {
            continue;
        };
        let key = (ip, connection.as_str());
        let (host, first) = (&request.host, by_connection.entry(key).or_insert(&request.host));
        if *first == host {
            continue;
        }
        let Some(shared) = groups.iter().position(|group| group.contains(*first)) else { continue };
        if shared != own {
            let later = groups.remove(shared.max(own));
            groups[shared.min(own)].extend(later);
        }
    }
    groups
}

const fn kind_of(request: &RecordedRequest) -> ResourceKind {
    match request.kind {
        ContentKind::Document => ResourceKind::Frame,
        ContentKind::Style => ResourceKind::Style,
        ContentKind::Script if request.is_deferred => ResourceKind::AsyncScript,
        ContentKind::Script => ResourceKind::Script,
        ContentKind::Font => ResourceKind::Font,
        ContentKind::Image => ResourceKind::Image,
        ContentKind::Media => ResourceKind::Media,
        ContentKind::Fetch => ResourceKind::Fetch,
        ContentKind::Other => ResourceKind::Other,
    }
}

impl Recording {
    /// Returns the host of the document.
    #[must_use]
    pub fn document_host(&self) -> Option<&str> {
        self.origins.first()?.first().map(String::as_str)
    }

    /// Returns the URL of the document as a browser loads it: everything is replayed over TLS.
    #[must_use]
    pub fn replay_url(&self) -> String {
        match self.url.strip_prefix("http:") {
            Some(rest) => format!("https:{rest}"),
            None => self.url.clone(),
        }
    }

    /// Returns the hosts that a browser can be sent to, by server as in `origins`.
    pub(crate) fn replayed_origins(&self) -> impl Iterator<Item = Vec<&str>> {
        self.origins.iter().map(|group| {
            let hosts = group.iter().map(String::as_str);
            hosts.filter(|host| is_replayable_host(host)).collect()
        })
    }

    /// Returns the graph without the document, whose resources follow it. `part` is a part of the document.
    pub(super) fn resources(
        &self,
        cost: std::time::Duration,
        part: impl Fn(f64) -> Discovery,
    ) -> impl Iterator<Item = Resource> {
        self.resources.iter().map(move |recorded| Resource {
            name: recorded.name.clone(),
            kind: recorded.kind,
            size: recorded.size.0,
            host: recorded.host.clone(),
            run: cost,
            discovery: recorded.parent.map_or_else(
                || part(recorded.position.unwrap_or(0.0)),
                |parent| Discovery::Parent { index: parent + 1 },
            ),
            blocks_rendering: self.blocks_rendering(recorded),
        })
    }

    fn blocks_rendering(&self, resource: &RecordedResource) -> bool {
        if resource.kind == ResourceKind::Script {
            return resource.parent.is_none();
        }
        let mut current = resource;
        // Parents have smaller indices, unless somebody has changed a result.
        for _ in 0..=self.resources.len() {
            if current.kind != ResourceKind::Style {
                return false;
            }
            match current.parent.map(|parent| self.resources.get(parent)) {
                None => return true,
                Some(Some(parent)) => current = parent,
                Some(None) => return false,
            }
        }
        false
    }
}

/// A file that was read, and the digest of its bytes.
#[derive(Debug, Clone)]
struct RecordingFile {
    document: Size,
    recording: Arc<Recording>,
    digest: String,
}

/// The recordings that were read: a campaign has few, and many conditions.
#[derive(Debug, Default)]
pub(super) struct Recordings(BTreeMap<PathBuf, Result<RecordingFile, HarError>>);

impl Recordings {
    /// Fills in the recorded pages of a scenario whose files are relative to `dir`; returns the digests of the files, and the faults.
    pub(super) fn fill_in(
        &mut self,
        scenario: &mut Scenario,
        dir: &Path,
    ) -> (String, Vec<KeyFault>) {
        let (mut digests, mut faults) = (String::new(), Faults::default());
        for (name, page) in &mut scenario.workload.pages {
            let path = format!("workload.pages.{name}");
            if page.recording.is_some() {
                let what = "the lab reads it from the file that har names";
                faults.add(&format!("{path}.recording"), what);
            }
            let Some(har) = page.har.clone() else { continue };
            for (key, is_set) in conflicts(page) {
                if is_set {
                    let what = "the recording has its own; leave this out, or har";
                    faults.add(&format!("{path}.{key}"), what);
                }
            }
            match self.read(&dir.join(&har), &har) {
                Ok(file) => {
                    page.document = Some(file.document);
                    page.recording = Some(Arc::clone(&file.recording));
                    digests += &file.digest;
                }
                Err(error) => faults.add(&format!("{path}.har"), error.to_string()),
            }
        }
        (digests, faults.0)
    }

    fn read(&mut self, path: &Path, name: &Path) -> &Result<RecordingFile, HarError> {
        let read = || {
            let source = ReplaySource::read(path, &name.display().to_string())?;
            let document = source.page().requests.first().map_or(0, |request| request.bytes);
            let digest = hex(source.digest());
            let recording = Recording { digest: digest.clone(), ..Recording::from(source.page()) };
            let source = RecordingSource(Some(Arc::new(source)));
            let recording = Recording { source, ..recording };
            Ok(RecordingFile { document: Size(document), recording: Arc::new(recording), digest })
        };
        self.0.entry(path.to_owned()).or_insert_with(read)
    }
}

/// Returns the keys that a recorded page cannot have, and whether each is set.
fn conflicts(page: &Page) -> [(&'static str, bool); 3] {
    [
        ("document", page.document.is_some()),
        ("tiles", page.tiles.is_some()),
        ("resources", !page.resources.is_empty()),
    ]
}
