//! The file that describes a gateway: it composes what the other modules describe, and says of every
//! fault where it is.

mod check;
mod spec;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use smig_settings::{Document, Fault, Faults, Located, Schema, ServerSettings};

pub use spec::{
    AccessLogSpec, CertificateSpec, ClientCertificate, ClientTlsSpec, ForwardedFields,
    ForwardedSpec, HeaderSpec, ListenProtocol, ListenSpec, MoveSpec, OneOrMore, RouteSpec,
};

use crate::admin::AdminSpec;
pub use crate::network::Network;

use crate::forward::ForwardSpec;
use crate::telemetry::TelemetrySpec;
use crate::upstream::{ServerUrl, UpstreamSpec};

/// The keys of the file's top that are not shared with other servers.
pub const KEYS: [&str; 10] = [
    "listen",
    "certificate",
    "tls",
    "upstreams",
    "route",
    "forwarded",
    "access_log",
    "forward",
    "admin",
    "telemetry",
];

/// The shared settings, in a place of their own.
static SCHEMA: LazyLock<Schema<Box<ServerSettings>>> = LazyLock::new(|| {
    let sections = smig_settings::SECTIONS.to_vec();
    Schema { sections, settings: smig_settings::shared(), example: "smig config example gateway" }
});

/// What a gateway is told.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Workers, limits, sockets, and when streams move.
    pub server: Box<ServerSettings>,
    /// Where it listens.
    pub listen: Vec<ListenSpec>,
    /// What it proves itself with.
    pub certificates: Vec<CertificateSpec>,
    /// Chain and key (PEM) for when there are no certificates.
    pub development: Option<(Vec<u8>, Vec<u8>)>,
    /// Clients' certificates.
    pub tls: ClientTlsSpec,
    /// Where requests can go, by name.
    pub upstreams: BTreeMap<String, UpstreamSpec>,
    /// Which requests go there.
    pub routes: Vec<RouteSpec>,
    /// What upstreams are told of the client.
    pub forwarded: ForwardedSpec,
    /// What is written of each request.
    pub access_log: AccessLogSpec,
    /// Tunnels and requests to other hosts; absent: none.
    pub forward: Option<ForwardSpec>,
    /// The live page; absent: none.
    pub admin: Option<AdminSpec>,
    /// The collector that gets spans of requests; absent: none.
    pub telemetry: Option<TelemetrySpec>,
    /// Where it is from.
    source: Option<Source>,
}

/// The text of a file.
#[derive(Clone, Debug)]
struct Source {
    file: PathBuf,
    text: String,
}

impl Config {
    /// All requests go to one server.
    #[must_use]
    pub fn to(server: ServerUrl) -> Self {
        let route = RouteSpec {
            path: "/".to_owned(),
            upstream: Some("origin".to_owned()),
            ..RouteSpec::default()
        };
        Self {
            upstreams: BTreeMap::from([("origin".to_owned(), UpstreamSpec::new(vec![server]))]),
            routes: vec![route],
            ..Self::default()
        }
    }

    /// Reads a file. Paths in it are looked for in its folder.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Faults::unreadable(path, "the configuration file", &error))?;
        Self::parse(&text, path)
            .map_err(|faults| Faults { file: path.display().to_string(), faults })
    }

    /// Reads a file's text; `path` is where it is from.
    ///
    /// # Errors
    /// Every fault, in the file's order.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Vec<Fault>> {
        let mut document = Document::parse(text).map_err(|fault| vec![fault])?;
        let mut config = Self {
            source: Some(Source { file: path.to_owned(), text: text.to_owned() }),
            ..Self::default()
        };
        if document.has("forward") {
            for_agents(&mut config.server.engine);
        }
        document.settings(&SCHEMA, &mut config.server);
        let listen = document.each("listen");
        let certificates = document.each("certificate");
        let upstreams = document.named("upstreams");
        let routes = document.each("route");
        let tls = document.one("tls");
        let forwarded = document.one("forwarded");
        let access_log = document.one("access_log");
        let forward = document.one("forward");
        let admin = document.one("admin");
        let telemetry = document.one("telemetry");
        check::listeners(&listen, &mut document);
        check::routes(&routes, &upstreams, &mut document);
        document.finish(&KEYS)?;

        config.listen = listen.into_iter().map(|placed| placed.value).collect();
        config.certificates = certificates.into_iter().map(|placed| placed.value).collect();
        config.routes = routes.into_iter().map(|placed| placed.value).collect();
        let named = |placed: smig_settings::Placed<UpstreamSpec>| {
            (placed.at.into_iter().next_back().unwrap_or_default(), placed.value)
        };
        config.upstreams = upstreams.into_iter().map(named).collect();
        config.tls = tls.map(|placed| placed.value).unwrap_or_default();
        config.forwarded = forwarded.map(|placed| placed.value).unwrap_or_default();
        config.access_log = access_log.map(|placed| placed.value).unwrap_or_default();
        config.forward = forward.map(|placed| placed.value);
        config.admin = admin.map(|placed| placed.value);
        config.telemetry = telemetry.map(|placed| placed.value);
        config.resolve(path);
        Ok(config)
    }

    /// One more certificate; paths are as the program's own.
    pub fn add_certificate(&mut self, chain: &Path, key: &Path) {
        self.certificates.push(CertificateSpec { chain: chain.to_owned(), key: key.to_owned() });
    }

    /// Whether the files that this one names can be used.
    ///
    /// # Errors
    /// The first that cannot, with its line and key.
    pub fn check_files(&self) -> Result<(), Faults> {
        let by_tls = self.listen.iter().any(|listen| listen.protocol == ListenProtocol::Tls);
        if by_tls && !self.certificates.is_empty() {
            crate::tls::material(self)?;
        }
        if let Some(Err(error)) = self.telemetry.as_ref().map(TelemetrySpec::check_files) {
            return Err(self.fault(&["telemetry", "ca"], error.to_string()));
        }
        crate::front::check(self)
    }

    /// Makes paths relative to the file's folder.
    fn resolve(&mut self, file: &Path) {
        let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let folder = whole.parent().unwrap_or(&whole);
        let join = |path: &mut PathBuf| *path = folder.join(&*path);
        for certificate in &mut self.certificates {
            join(&mut certificate.chain);
            join(&mut certificate.key);
        }
        self.tls.client_ca.as_mut().map(join);
        self.access_log.file.as_mut().map(join);
        if let Some(telemetry) = &mut self.telemetry {
            telemetry.ca.as_mut().map(join);
        }
        if let Some(forward) = &mut self.forward {
            forward.users_file.as_mut().map(join);
        }
        for upstream in self.upstreams.values_mut() {
            upstream.tls.ca.as_mut().map(join);
        }
    }

    /// Something is wrong at a key that only shows when it is used.
    #[must_use]
    pub fn fault(&self, at: &[&str], what: impl Into<String>) -> Faults {
        let at: Vec<String> = at.iter().map(|&key| key.to_owned()).collect();
        let mut line = 1;
        let mut file = "configuration".to_owned();
        if let Some(source) = &self.source {
            file = source.file.display().to_string();
            line = Located::parse(&source.text).map_or(1, |located| located.find(&at).line);
        }
        Faults { file, faults: vec![Fault { line, key: at.join("."), what: what.into() }] }
    }

    /// The shared settings that differ from another configuration's: they need a restart.
    #[must_use]
    pub fn changed_server_settings(&self, other: &Self) -> Vec<&'static str> {
        let differs = |setting: &&smig_settings::Setting<Box<ServerSettings>>| {
            (setting.show)(&self.server) != (setting.show)(&other.server)
        };
        let mut changed: Vec<_> =
            SCHEMA.settings.iter().filter(differs).map(|setting| setting.key).collect();
        if self.admin != other.admin {
            changed.push("admin");
        }
        if self.telemetry != other.telemetry {
            changed.push("telemetry");
        }
        changed
    }

    /// The names that routes are for, without wildcards.
    #[must_use]
    pub fn hosts(&self) -> Vec<String> {
        let all = self.routes.iter().flat_map(|route| route.host.all());
        let mut hosts: Vec<_> =
            all.filter(|host| !host.contains('*')).map(|host| host.to_ascii_lowercase()).collect();
        hosts.sort();
        hosts.dedup();
        hosts
    }
}

/// Defaults where an agent brings all that its programs do in one session: more at once, and room on a
/// connection for uploads whose destinations do not read.
const fn for_agents(engine: &mut smig::Config) {
    engine.max_concurrent_streams = 1024;
    engine.connection_window = 16 << 20;
}

/// Whether a file is a gateway's: some key of its top is no other program's.
#[must_use]
pub fn is_gateways(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.parse::<toml::Table>().is_ok_and(|table| KEYS.iter().any(|key| table.contains_key(*key)))
}

/// A file with every key, its meaning and its default.
#[must_use]
pub fn example() -> String {
    format!("{}{}", include_str!("example.toml"), SCHEMA.example(false))
}

#[cfg(test)]
pub(crate) mod tests;
