//! Pages: what a browser loads, as a graph of resources. Pure data: the player of `workload` loads it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::recorded::Recording;
use super::tiles::{TileSizes, Tiles};
use super::value::{Size, TimeSpan};

/// Maximum number of resources of all loads of a page.
const MAX_RESOURCES: u64 = 1_000_000;
/// Maximum number of hosts of a page: each has clients of its own.
const MAX_HOSTS: usize = 200;
/// Size of a document that only names tiles: a head, and an element for each tile.
pub(crate) const DOCUMENT_HEAD_BYTES: u64 = 1_000;
pub(crate) const TILE_ELEMENT_BYTES: u64 = 100;

/// A page. A client loads it as a browser does: resources are requested as they are found, with the urgencies that Chromium
/// sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// Name of its client; optional if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Whether the client's connections are open before the page is loaded, and shared with its transfers. Otherwise each
    /// load opens its own, whose handshakes are part of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm: bool,
    /// Time of the first load since the start of the run.
    #[serde(default)]
    pub start: TimeSpan,
    /// Number of loads, one after the other; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Pause between two loads.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pause: TimeSpan,
    /// Time for which each resource occupies the client's one thread after it has arrived, besides its own `run`: what a browser
    /// needs to decode and lay out. None if absent; a browser takes its own time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resource_cost: TimeSpan,
    /// Size of the document. If absent, what the elements of its tiles need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<Size>,
    /// Pictures of which the document consists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiles: Option<Tiles>,
    /// Further resources by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, ResourceSpec>,
    /// A recorded page: a HAR 1.2 file, relative to the scenario. It has everything above that describes a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub har: Option<PathBuf>,
    /// Hosts of resources, by name, that are on other servers than the page's client uses.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, PageHost>,
    /// What that file has: [`super::load`] fills it in, so that a result says what was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<Arc<Recording>>,
}

const fn is_zero(time: &TimeSpan) -> bool {
    time.0.is_zero()
}

/// A host of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageHost {
    /// Name of the server that it is on.
    pub server: String,
}

/// Specification of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceSpec {
    /// What it is.
    pub kind: ResourceKind,
    /// Size of its body.
    pub size: Size,
    /// Name of the resource that asks for it, after it has arrived and run; the document if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Where in the document its element is, from 0, the beginning, to 1; 0 if absent. It is found when that part has arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<f64>,
    /// Time for which it occupies the page's one thread after it has arrived: a script runs, a style sheet is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<TimeSpan>,
    /// Its host, to which the client has connections of its own; the document's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Kind of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResourceKind {
    /// The page itself; each page has one.
    #[serde(skip)]
    Document,
    /// A style sheet: nothing is rendered before it.
    Style,
    /// A script in the document: nothing is rendered before it has run.
    Script,
    /// A script that blocks nothing.
    AsyncScript,
    /// A font.
    Font,
    /// A picture.
    Image,
    /// Sound or video.
    Media,
    /// A document in the page.
    Frame,
    /// Data that a script asks for.
    Fetch,
    /// What nothing on the page waits for, such as a beacon.
    Other,
}

impl std::fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Document => "document",
            Self::Style => "style",
            Self::Script => "script",
            Self::AsyncScript => "async-script",
            Self::Font => "font",
            Self::Image => "image",
            Self::Media => "media",
            Self::Frame => "frame",
            Self::Fetch => "fetch",
            Self::Other => "other",
        })
    }
}

impl ResourceKind {
    /// Returns the priority field value (RFC 9218) that Chromium sends with such a request.
    #[must_use]
    pub const fn priority(self) -> &'static str {
        match self {
            Self::Document | Self::Frame => "u=0, i",
            Self::Style | Self::Font => "u=0",
            Self::Script => "u=1",
            Self::AsyncScript => "u=3",
            Self::Image | Self::Media => "u=3, i",
            Self::Fetch => "u=1, i",
            Self::Other => "u=4, i",
        }
    }
}

/// A resource of a page's graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// Its name; tiles are numbered from 0.
    pub name: String,
    /// What it is.
    pub kind: ResourceKind,
    /// Size of its body in bytes.
    pub size: u64,
    /// Its host, unless it is the document's.
    pub host: Option<String>,
    /// Time for which it occupies the page's thread after it has arrived.
    pub run: Duration,
    /// When it is requested.
    pub discovery: Discovery,
    /// Whether nothing is rendered before it has arrived and run: the document, its styles and scripts, and styles that such styles
    /// ask for. What a script asks for blocks nothing.
    pub blocks_rendering: bool,
}

/// When a resource is requested.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Discovery {
    /// With the beginning of the load: the document.
    Start,
    /// When this many bytes of the document have arrived.
    Document {
        /// Bytes of the document.
        bytes: u64,
    },
    /// When the resource with this index has arrived and run.
    Parent {
        /// Index in the page's resources.
        index: usize,
    },
}

impl Page {
    /// Returns the number of loads.
    #[must_use]
    pub fn loads(&self) -> u32 {
        self.count.unwrap_or(1)
    }

    /// Returns the names of the hosts of resources other than the document's.
    #[must_use]
    pub fn host_names(&self) -> BTreeSet<String> {
        let named = self.resources.values().map(|spec| &spec.host);
        let recorded = self.recording.iter().flat_map(|recording| &recording.resources);
        named.chain(recorded.map(|resource| &resource.host)).flatten().cloned().collect()
    }

    /// Returns the name of the server of a host, if it is not that of the page's client.
    #[must_use]
    pub fn server_of_host(&self, host: &str) -> Option<&str> {
        self.hosts.get(host).map(|host| host.server.as_str())
    }

    fn document_bytes(&self) -> u64 {
        let tiles = self.tiles.as_ref().map_or(0, |tiles| u64::from(tiles.objects));
        self.document.map_or(DOCUMENT_HEAD_BYTES + TILE_ELEMENT_BYTES * tiles, |size| size.0)
    }

    /// Returns the name of the directory with its files, for a browser: the same for pages with the same files.
    #[must_use]
    pub fn directory(&self) -> Option<String> {
        let tiles = self.tiles.as_ref()?;
        let (objects, total, seed) = (tiles.objects, tiles.total.0, tiles.seed);
        Some(match tiles.sizes {
            TileSizes::Equal => format!("tiles-{objects}-{total}"),
            TileSizes::LogNormal => format!("tiles-{objects}-{total}-{seed}"),
        })
    }

    /// Returns the graph: the document first, then the named resources, then the tiles. What a check of the scenario rejects is left
    /// out.
    #[must_use]
    pub fn resources(&self) -> Vec<Resource> {
        let document_bytes = self.document_bytes();
        let part =
            |share: f64| Discovery::Document { bytes: (document_bytes as f64 * share) as u64 };
        let mut resources = vec![Resource {
            name: "document".to_owned(),
            kind: ResourceKind::Document,
            size: document_bytes,
            host: None,
            run: Duration::ZERO,
            discovery: Discovery::Start,
            blocks_rendering: true,
        }];
        let index_of = |name: &str| self.resources.keys().position(|other| other == name);
        for (name, spec) in &self.resources {
            let discovery = match &spec.parent {
                None => part(spec.position.unwrap_or(0.0)),
                Some(parent) => match index_of(parent) {
                    Some(index) => Discovery::Parent { index: index + 1 },
                    None => continue,
                },
            };
            resources.push(Resource {
                name: name.clone(),
                kind: spec.kind,
                size: spec.size.0,
                host: spec.host.clone(),
                run: spec.run.map_or(Duration::ZERO, |run| run.0) + self.resource_cost.0,
                discovery,
                blocks_rendering: self.blocks_rendering(name),
            });
        }
        if let Some(recording) = &self.recording {
            resources.extend(recording.resources(self.resource_cost.0, part));
        }
        if let Some(tiles) = &self.tiles {
            let count = f64::from(tiles.objects);
            for (number, size) in (0_u32..).zip(tiles.sizes()) {
                resources.push(Resource {
                    name: number.to_string(),
                    kind: ResourceKind::Image,
                    size,
                    host: None,
                    run: self.resource_cost.0,
                    discovery: part(f64::from(number + 1) / (count + 1.0)),
                    blocks_rendering: false,
                });
            }
        }
        resources
    }

    fn blocks_rendering(&self, name: &str) -> bool {
        let mut current = name;
        // As many steps as there are resources: parents may be a circle, until that is rejected.
        for _ in 0..self.resources.len() {
            match self.resources.get(current).map(|spec| (spec.kind, spec.parent.as_deref())) {
                Some((ResourceKind::Style, Some(parent))) => current = parent,
                Some((ResourceKind::Style, None)) => return true,
                Some((ResourceKind::Script, None)) => return current == name,
                _ => return false,
            }
        }
        false
    }

    /// Returns the faults, each with its key below the page's.
    pub(super) fn faults(&self) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        let mut add = |key: &str, what: &str| faults.push((key.to_owned(), what.to_owned()));
        match (&self.tiles, self.document) {
            // Why there is none is a fault of the recording.
            (None, None) if self.har.is_some() => {}
            (None, None) => add("document", "a size is required, such as \"30kB\", or tiles"),
            (_, Some(size)) if size.0 == 0 => add("document", "an empty document names nothing"),
            _ => {}
        }
        if self.count == Some(0) {
            add("count", "0 would load nothing");
        }
        let each = self.resources.len() as u64
            + self.recording.as_ref().map_or(0, |recording| recording.resources.len() as u64)
            + self.tiles.as_ref().map_or(0, |tiles| u64::from(tiles.objects));
        if (each + 1).saturating_mul(u64::from(self.loads())) > MAX_RESOURCES {
            add("count", "a million resources of all loads are the limit");
        }
        let hosts = self.host_names();
        if hosts.len() > MAX_HOSTS {
            add(
                if self.har.is_some() { "har" } else { "resources" },
                "a page has at most 200 hosts",
            );
        }
        if self.warm && !hosts.is_empty() {
            let what =
                "the client has no open connections to the hosts of its resources; leave this out";
            add("warm", what);
        }
        if let Some(what) = self.tiles.as_ref().and_then(Tiles::fault) {
            add("tiles", &what);
        }
        for (name, spec) in &self.resources {
            let mut add = |key: &str, what: &str| add(&format!("resources.{name}.{key}"), what);
            if spec.size.0 == 0 {
                add("size", "nothing would be transferred");
            }
            if spec.position.is_some_and(|position| !(0.0..=1.0).contains(&position)) {
                add("position", "it must be 0 to 1, a part of the document");
            }
            if spec.position.is_some() && spec.parent.is_some() {
                add("position", "only what the document asks for has a position in it");
            }
            if !self.leads_to_the_document(name) {
                let others: Vec<_> = self.resources.keys().cloned().collect();
                let what = format!(
                    "it must lead to the document by resources of this page: {}",
                    others.join(", ")
                );
                add("parent", &what);
            }
        }
        faults
    }

    /// Returns whether a resource is found at all: by the parents of its parents.
    fn leads_to_the_document(&self, name: &str) -> bool {
        let mut current = name;
        for _ in 0..=self.resources.len() {
            match self.resources.get(current).map(|spec| spec.parent.as_deref()) {
                Some(None) => return true,
                Some(Some(parent)) => current = parent,
                None => return false,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn tiles_are_found_one_after_the_other_in_a_document_that_names_them() {
        let resources = page("tiles = { objects = 4, total = 10_000 }").resources();
        assert_eq!((resources.len(), resources[0].size), (5, 1_400));
        assert_eq!(resources[0].discovery, Discovery::Start);
        let found = resources[1..].iter().map(|tile| tile.discovery).collect::<Vec<_>>();
        assert_eq!(found, [280, 560, 840, 1_120].map(|bytes| Discovery::Document { bytes }));
        assert!(resources[1..].iter().all(|tile| tile.size == 2_500));
    }

    #[test]
    fn a_graph_names_its_parents_by_index() {
        let resources = page(
            "document = '30kB'\n\
             resources.app = { kind = 'script', size = '50kB', position = 0.5, run = '20ms' }\n\
             resources.data = { kind = 'image', size = '5kB', parent = 'app' }\n",
        )
        .resources();
        let names: Vec<_> = resources.iter().map(|resource| resource.name.as_str()).collect();
        assert_eq!(names, ["document", "app", "data"]);
        assert_eq!(resources[1].discovery, Discovery::Document { bytes: 15_000 });
        assert_eq!(resources[1].run, Duration::from_millis(20));
        assert_eq!(resources[2].discovery, Discovery::Parent { index: 1 });
    }

    #[test]
    fn each_resource_costs_what_the_page_says() {
        let text = "resource_cost = '2ms'\ndocument = '30kB'\ntiles = { objects = 2, total = 1_000 }\n\
                    resources.app = { kind = 'script', size = '50kB', run = '20ms' }\n";
        let runs = page(text).resources().into_iter().map(|resource| resource.run.as_millis());
        assert_eq!(runs.collect::<Vec<_>>(), [0, 22, 2, 2]);
    }

    #[test]
    fn what_scripts_ask_for_does_not_block_rendering() {
        let resources = page(
            "document = '30kB'\n\
             resources.a = { kind = 'style', size = 1 }\n\
             resources.b = { kind = 'style', size = 1, parent = 'a' }\n\
             resources.c = { kind = 'script', size = 1 }\n\
             resources.d = { kind = 'script', size = 1, parent = 'c' }\n\
             resources.e = { kind = 'style', size = 1, parent = 'c' }\n\
             resources.f = { kind = 'async-script', size = 1 }\n",
        )
        .resources();
        let blocking = resources.iter().filter(|resource| resource.blocks_rendering);
        let names: Vec<_> = blocking.map(|resource| resource.name.as_str()).collect();
        assert_eq!(names, ["document", "a", "b", "c"]);
    }

    #[test]
    fn faults_name_the_key() {
        let keys = |text: &str| {
            let faults = page(text).faults();
            faults.into_iter().map(|(key, _)| key).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(keys("tiles = { objects = 4, total = '10kB' }"), "");
        assert_eq!(keys(""), "document");
        assert_eq!(keys("document = 0\ncount = 0"), "document count");
        assert_eq!(keys("tiles = { objects = 9999, total = '10MB' }\ncount = 1000"), "count");
        assert_eq!(keys("tiles = { objects = 0, total = '10kB' }"), "tiles");
        let circle = "document = 9\nresources.a = { kind = 'font', size = 1, parent = 'b' }\n\
                      resources.b = { kind = 'font', size = 1, parent = 'a' }";
        assert_eq!(keys(circle), "resources.a.parent resources.b.parent");
        let wrong = "document = 9\n\
                     resources.a = { kind = 'font', size = 0, parent = 'x', position = 2.0 }";
        let all = "resources.a.size resources.a.position resources.a.position resources.a.parent";
        assert_eq!(keys(wrong), all);
        assert!(toml::from_str::<Page>("resources.a = { kind = 'document', size = 1 }").is_err());
    }
}
