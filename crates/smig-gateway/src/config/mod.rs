//! The gateway's configuration file: combines the specifications of the other modules, and reports each fault
//! with its line and key.

mod check;
mod header_rules;
mod host_pattern;
mod spec;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use smig_admin::AdminSpec;
use smig_admin::telemetry::TelemetrySpec;
use smig_settings::{Diagnostic, Diagnostics, Document, KeyLocations, Schema, ServerSettings};

pub use header_rules::HeaderRules;
pub use host_pattern::HostPattern;
pub(crate) use host_pattern::MAX_HOST_BYTES;
pub use spec::{
    AccessLogSpec, CertificateSpec, ClientCertificateMode, ForwardedFields, ForwardedSpec,
    HeaderSpec, ListenSecurity, ListenSpec, ListenTlsSpec, OneOrMany, RouteMigration, RouteSpec,
};

pub use crate::ip_net::IpNet;

use crate::forward_proxy::ForwardProxySpec;
use crate::upstream::{ServerUrl, UpstreamSpec};

/// The top-level keys of the file other than the sections of the shared settings.
pub const KEYS: [&str; 10] = [
    "listen",
    "certificate",
    "tls",
    "upstreams",
    "route",
    "forwarded",
    "access_log",
    "forward_proxy",
    "admin",
    "telemetry",
];

/// The schema of the shared settings.
static SCHEMA: LazyLock<Schema<Box<ServerSettings>>> = LazyLock::new(|| {
    let sections = smig_settings::SECTIONS.to_vec();
    Schema {
        sections,
        settings: smig_settings::shared_settings(),
        example_command: "smig config example gateway",
    }
});

/// The configuration of a gateway.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Workers, limits, sockets, and the migration policy.
    pub server: Box<ServerSettings>,
    /// Listeners.
    pub listen: Vec<ListenSpec>,
    /// Server certificates.
    pub certificates: Vec<CertificateSpec>,
    /// Chain and key (PEM) to use if there are no certificates.
    pub development_certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// TLS settings of the listeners.
    pub tls: ListenTlsSpec,
    /// Upstreams by name.
    pub upstreams: BTreeMap<String, UpstreamSpec>,
    /// Routes.
    pub routes: Vec<RouteSpec>,
    /// The fields that inform upstreams about the client.
    pub forwarded: ForwardedSpec,
    /// The access log.
    pub access_log: AccessLogSpec,
    /// The forward proxy: tunnels and requests to other hosts; disabled if absent.
    pub forward_proxy: Option<ForwardProxySpec>,
    /// The admin page; disabled if absent.
    pub admin: Option<AdminSpec>,
    /// The collector of request spans; disabled if absent.
    pub telemetry: Option<TelemetrySpec>,
    /// The file it was read from.
    source: Option<ConfigText>,
}

/// A file and its text.
#[derive(Clone, Debug)]
struct ConfigText {
    file: PathBuf,
    text: String,
}

impl Config {
    /// A configuration that routes all requests to one server.
    #[must_use]
    pub fn for_server(server: ServerUrl) -> Self {
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

    /// Reads a file. Relative paths in it are resolved against its directory.
    ///
    /// # Errors
    /// All faults of the file.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Diagnostics::unreadable(path, "the configuration file", &error))?;
        Self::parse(&text, path)
            .map_err(|faults| Diagnostics { file: path.display().to_string(), diagnostics: faults })
    }

    /// Parses a file's text; `path` is where it was read.
    ///
    /// # Errors
    /// Every fault, in the file's order.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Vec<Diagnostic>> {
        let mut document = Document::parse(text).map_err(|fault| vec![fault])?;
        let mut config = Self {
            source: Some(ConfigText { file: path.to_owned(), text: text.to_owned() }),
            ..Self::default()
        };
        if document.has_unread("forward_proxy") {
            raise_defaults_for_agents(&mut config.server.engine);
        }
        document.read_sections(&SCHEMA, &mut config.server);
        let listen = document.take_array("listen");
        let certificates = document.take_array("certificate");
        let upstreams = document.take_tables("upstreams");
        let routes = document.take_array("route");
        let tls = document.take("tls");
        let forwarded = document.take("forwarded");
        let access_log = document.take("access_log");
        let forward_proxy = document.take("forward_proxy");
        let admin = document.take("admin");
        let telemetry = document.take("telemetry");
        check::listeners(&listen, &mut document);
        check::routes(&routes, &upstreams, &mut document);
        let sections = SCHEMA.sections.iter().map(|(section, _)| *section);
        let known: Vec<&str> = KEYS.iter().copied().chain(sections).collect();
        document.finish(&known)?;

        config.listen = listen.into_iter().map(|placed| placed.value).collect();
        config.certificates = certificates.into_iter().map(|placed| placed.value).collect();
        config.routes = routes.into_iter().map(|placed| placed.value).collect();
        let named = |placed: smig_settings::ValueAtKey<UpstreamSpec>| {
            (placed.path.into_iter().next_back().unwrap_or_default(), placed.value)
        };
        config.upstreams = upstreams.into_iter().map(named).collect();
        config.tls = tls.map(|placed| placed.value).unwrap_or_default();
        config.forwarded = forwarded.map(|placed| placed.value).unwrap_or_default();
        config.access_log = access_log.map(|placed| placed.value).unwrap_or_default();
        config.forward_proxy = forward_proxy.map(|placed| placed.value);
        config.admin = admin.map(|placed| placed.value);
        config.telemetry = telemetry.map(|placed| placed.value);
        config.resolve_paths(path);
        Ok(config)
    }

    /// Adds a certificate; relative paths are resolved against the current directory.
    pub fn add_certificate(&mut self, chain: &Path, key: &Path) {
        self.certificates.push(CertificateSpec { chain: chain.to_owned(), key: key.to_owned() });
    }

    /// Resolves relative paths against the file's directory.
    fn resolve_paths(&mut self, file: &Path) {
        let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let directory = absolute.parent().unwrap_or(&absolute);
        let join = |path: &mut PathBuf| *path = directory.join(&*path);
        for certificate in &mut self.certificates {
            join(&mut certificate.chain);
            join(&mut certificate.key);
        }
        self.tls.client_ca.as_mut().map(join);
        self.access_log.file.as_mut().map(join);
        if let Some(telemetry) = &mut self.telemetry {
            telemetry.ca.as_mut().map(join);
        }
        if let Some(forward_proxy) = &mut self.forward_proxy {
            forward_proxy.users_file.as_mut().map(join);
        }
        for upstream in self.upstreams.values_mut() {
            upstream.tls.ca.as_mut().map(join);
        }
    }

    /// Creates a fault at a key, for errors that only appear when its value is used.
    #[must_use]
    pub fn fault(&self, key_path: &[&str], message: impl Into<String>) -> Diagnostics {
        let key_path: Vec<String> = key_path.iter().map(|&key| key.to_owned()).collect();
        let mut line = 1;
        let mut file = "configuration".to_owned();
        if let Some(source) = &self.source {
            file = source.file.display().to_string();
            line =
                KeyLocations::parse(&source.text).map_or(1, |located| located.find(&key_path).line);
        }
        Diagnostics {
            file,
            diagnostics: vec![Diagnostic {
                line,
                key: key_path.join("."),
                message: message.into(),
            }],
        }
    }

    /// Returns the keys that differ from another configuration's and take effect only after a restart: shared
    /// settings, `admin`, `telemetry`.
    #[must_use]
    pub fn changes_requiring_restart(&self, other: &Self) -> Vec<&'static str> {
        let differs = |setting: &&smig_settings::Setting<Box<ServerSettings>>| {
            (setting.show)(&self.server) != (setting.show)(&other.server)
        };
        let mut changed_keys: Vec<_> =
            SCHEMA.settings.iter().filter(differs).map(|setting| setting.key).collect();
        if self.admin != other.admin {
            changed_keys.push("admin");
        }
        if self.telemetry != other.telemetry {
            changed_keys.push("telemetry");
        }
        changed_keys
    }

    /// The host names of all routes, without wildcards.
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

/// Adjusts defaults for agents, which carry all traffic of their programs in one session: more concurrent
/// streams, and a larger connection window for uploads whose destinations do not read.
const fn raise_defaults_for_agents(engine: &mut smig::Config) {
    engine.max_concurrent_streams = 1024;
    engine.connection_window = 16 << 20;
}

/// Returns whether a file that is not an agent's configures a gateway: it has a top-level key that files of `smig serve` do not have.
#[must_use]
pub fn is_gateway_file(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.parse::<toml::Table>().is_ok_and(|table| KEYS.iter().any(|key| table.contains_key(*key)))
}

/// A file with every key, its meaning and its default.
#[must_use]
pub fn example() -> String {
    format!("{}{}", include_str!("example.toml"), SCHEMA.example(false))
}

#[cfg(test)]
mod tests;
