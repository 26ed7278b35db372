//! Command and configuration files of each server. Pure, so that they can be printed without a run.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::scenario::{ServerKind, ServerSpec};

/// Port of the first server; each server has its own.
const FIRST_PORT: u16 = 8443;
/// First port of backends, on the loopback.
const FIRST_BACKEND_PORT: u16 = 9080;

/// Bytes in flight above which h2o disables its latency optimisation. h2o's default is 65,535, less than a
/// link of 10 Mbit/s and 50 ms with its queue holds; this is more than any link of the lab holds.
const H2O_MOST_ON_THE_WAY: u32 = 1 << 30;

/// Paths and addresses for a run's servers.
#[derive(Debug, Clone)]
pub struct ServerEnv {
    /// Directory of the files to serve.
    pub folder: PathBuf,
    /// The certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Certificate chain and private key in one file, PEM.
    pub both: PathBuf,
    /// Directory for the servers' own files.
    pub scratch: PathBuf,
    /// The `smig` program.
    pub smig: PathBuf,
    /// The address of the servers' host.
    pub address: Ipv4Addr,
    /// User that the servers run as: some need it in their configuration.
    pub owner: RunAs,
}

/// The user that server processes belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAs {
    /// The superuser.
    Root,
    /// An ordinary user.
    User,
}

/// Description of one server of a run.
#[derive(Debug, Clone, Copy)]
pub struct ServerJob<'a> {
    /// Its name in the scenario.
    pub name: &'a str,
    /// Its number among the run's servers, from 0.
    pub number: u16,
    /// Its specification in the scenario.
    pub server: &'a ServerSpec,
    /// Its program.
    pub program: &'a Path,
}

/// Everything needed to start a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Its name in the scenario.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Files to write before the start: path and content.
    pub files: Vec<(PathBuf, String)>,
    /// Address for connections to it.
    pub address: SocketAddr,
    /// Address that it listens on.
    pub bind_addr: SocketAddr,
    /// File for its standard output and standard error.
    pub log: PathBuf,
    /// Backends, which are started before it.
    pub backends: Vec<Self>,
}

impl Launch {
    /// Returns files and commands as text, for `--show-config`.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut text = String::new();
        for server in self.backends.iter().chain([self]) {
            for (path, content) in &server.files {
                let _ = writeln!(text, "# {}", path.display());
                let _ = writeln!(text, "{}\n", content.trim_end());
            }
            let _ = writeln!(text, "$ {}", server.command.join(" "));
        }
        text
    }
}

impl ServerEnv {
    /// Returns how to start a server.
    #[must_use]
    pub fn launch(&self, errand: &ServerJob<'_>) -> Launch {
        let port = FIRST_PORT + errand.number;
        // On every link of its host, which no other run uses.
        let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let mut launch = Launch {
            name: errand.name.to_owned(),
            command: vec![errand.program.display().to_string()],
            files: Vec::new(),
            address: SocketAddr::from((self.address, port)),
            bind_addr: everywhere,
            log: self.scratch.join(format!("server-{}.out", errand.name)),
            backends: Vec::new(),
        };
        match errand.server.kind {
            ServerKind::Smig => self.smig(errand, &mut launch),
            ServerKind::Nginx => self.nginx(errand, &mut launch),
            ServerKind::H2o => self.h2o(errand, &mut launch),
            ServerKind::Nghttpd => self.nghttpd(&mut launch),
            ServerKind::Haproxy => self.haproxy(errand, &mut launch),
            ServerKind::Caddy => self.caddy(errand, &mut launch),
            ServerKind::Go => {
                let words = [
                    &self.folder,
                    Path::new(&everywhere.to_string()),
                    &self.certificate,
                    &self.key,
                ]
                .map(|path| path.display().to_string());
                launch.command.extend(words);
            }
        }
        launch
    }

    fn file(&self, errand: &ServerJob<'_>, extension: &str) -> PathBuf {
        self.scratch.join(format!("server-{}.{extension}", errand.name))
    }

    fn smig(&self, errand: &ServerJob<'_>, launch: &mut Launch) {
        let text = |path: &Path| Value::from(path.display().to_string());
        let ours = [
            ("listen", Value::from(launch.bind_addr.to_string())),
            ("root", text(&self.folder)),
            ("cert", text(&self.certificate)),
            ("key", text(&self.key)),
        ];
        let settings = with_server(&errand.server.settings, ours);
        let path = self.file(errand, "toml");
        let more = ["lab", "server", "--config", &path.display().to_string()].map(str::to_owned);
        launch.command.extend(more);
        launch.files.push((path, settings.to_string()));
    }

    fn nginx(&self, errand: &ServerJob<'_>, launch: &mut Launch) {
        let user = if self.owner == RunAs::Root { "user root;\n" } else { "" };
        let scratch = self.scratch.join(format!("server-{}", errand.name));
        let scratch = scratch.display();
        let lines = indented(&errand.server.lines, 8);
        let (address, folder) = (launch.bind_addr, self.folder.display());
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let text = format!(
            "{user}daemon off;
master_process off;
pid {scratch}.pid;
error_log stderr warn;
events {{ worker_connections 1000; }}
http {{
    default_type application/octet-stream;
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 100000000;
    client_body_temp_path {scratch}-body;
    proxy_temp_path {scratch}-proxy;
    fastcgi_temp_path {scratch}-fastcgi;
    uwsgi_temp_path {scratch}-uwsgi;
    scgi_temp_path {scratch}-scgi;
    server {{
        listen {address} ssl http2;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        ssl_protocols TLSv1.2 TLSv1.3;
        root {folder};
{lines}    }}
}}
"
        );
        let path = self.file(errand, "conf");
        let words = [
            "-e",
            "stderr",
            "-p",
            &self.scratch.display().to_string(),
            "-c",
            &path.display().to_string(),
        ]
        .map(str::to_owned);
        launch.command.extend(words);
        launch.files.push((path, text));
    }

    fn h2o(&self, errand: &ServerJob<'_>, launch: &mut Launch) {
        let user = if self.owner == RunAs::Root { "user: root\n" } else { "" };
        // Minimum round-trip time in milliseconds for the latency optimisation, which keeps the kernel's
        // send buffer short; the maximum value disables it.
        let least_rtt = match errand.server.latency_optimization {
            Some(true) => "10",
            Some(false) | None => "4294967295",
        };
        let lines = indented(&errand.server.lines, 0);
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let text = format!(
            "{user}num-threads: 1
http2-latency-optimization-min-rtt: {least_rtt}
http2-latency-optimization-max-cwnd: {H2O_MOST_ON_THE_WAY}
{lines}listen:
  host: {}
  port: {}
  ssl:
    certificate-file: {certificate}
    key-file: {key}
    ocsp-update-interval: 0
hosts:
  default:
    paths:
      /:
        file.dir: {}
",
            launch.bind_addr.ip(),
            launch.bind_addr.port(),
            self.folder.display(),
        );
        let path = self.file(errand, "conf");
        let words = ["-m", "worker", "-c", &path.display().to_string()].map(str::to_owned);
        launch.command.extend(words);
        launch.files.push((path, text));
    }

    fn nghttpd(&self, launch: &mut Launch) {
        let words = [
            "--address".to_owned(),
            launch.bind_addr.ip().to_string(),
            "--workers=1".into(),
            "--max-concurrent-streams=128".into(),
            "--htdocs".into(),
            self.folder.display().to_string(),
            launch.bind_addr.port().to_string(),
            self.key.display().to_string(),
            self.certificate.display().to_string(),
        ];
        launch.command.extend(words);
    }

    fn haproxy(&self, errand: &ServerJob<'_>, launch: &mut Launch) {
        let backend = SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST_BACKEND_PORT + errand.number));
        let lines = indented(&errand.server.lines, 4);
        let text = format!(
            "global
    nbthread 1
defaults
    mode http
    timeout connect 10s
    timeout client 1h
    timeout server 1h
frontend main
    bind {} ssl crt {} alpn h2,http/1.1
{lines}    default_backend files
backend files
    server files {backend}
",
            launch.bind_addr,
            self.both.display(),
        );
        let ours = [
            ("listen", Value::from(backend.to_string())),
            ("root", Value::from(self.folder.display().to_string())),
            ("cleartext", Value::from(true)),
        ];
        let behind_config = self.file(errand, "behind.toml");
        let words = ["lab", "server", "--config"].map(str::to_owned);
        let mut command = vec![self.smig.display().to_string()];
        command.extend(words);
        command.push(behind_config.display().to_string());
        launch.backends.push(Launch {
            name: format!("{}-behind", errand.name),
            command,
            files: vec![(behind_config, with_server(&Table::new(), ours).to_string())],
            address: backend,
            bind_addr: backend,
            log: self.scratch.join(format!("server-{}-behind.out", errand.name)),
            backends: Vec::new(),
        });
        let path = self.file(errand, "cfg");
        launch.command.extend(["-db", "-f", &path.display().to_string()].map(str::to_owned));
        launch.files.push((path, text));
    }

    fn caddy(&self, errand: &ServerJob<'_>, launch: &mut Launch) {
        let lines = indented(&errand.server.lines, 4);
        let storage = self.scratch.join(format!("server-{}-storage", errand.name));
        let text = format!(
            "{{
    admin off
    auto_https off
    storage file_system {}
    servers {{
        protocols h1 h2
    }}
}}
:{} {{
    tls {} {}
    root * {}
    file_server
{lines}}}
",
            storage.display(),
            launch.bind_addr.port(),
            self.certificate.display(),
            self.key.display(),
            self.folder.display(),
        );
        let path = self.file(errand, "Caddyfile");
        let words = ["run", "--adapter", "caddyfile", "--config", &path.display().to_string()]
            .map(str::to_owned);
        launch.command.extend(words);
        launch.files.push((path, text));
    }
}

/// Returns settings of `smig serve` with the lab's own in the section `server`.
fn with_server<const N: usize>(settings: &Table, ours: [(&str, Value); N]) -> Table {
    let mut settings = settings.clone();
    let server = settings.entry("server").or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(server) = server {
        server.entry("workers").or_insert_with(|| Value::from(1));
        for (key, value) in ours {
            server.insert(key.into(), value);
        }
    }
    settings
}

fn indented(lines: &[String], columns: usize) -> String {
    lines.iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{:columns$}{line}", "");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(kind: ServerKind) -> Launch {
        let place = ServerEnv {
            folder: "/m/files".into(),
            certificate: "/m/certificate.pem".into(),
            key: "/m/key.pem".into(),
            both: "/m/both.pem".into(),
            scratch: "/m/scratch".into(),
            smig: "/bin/smig".into(),
            address: Ipv4Addr::new(10, 99, 0, 1),
            owner: RunAs::Root,
        };
        let server = ServerSpec {
            kind,
            settings: Table::new(),
            latency_optimization: Some(true),
            lines: vec!["more".into()],
            program: None,
        };
        let program = Path::new("/bin/program");
        place.launch(&ServerJob { name: "main", number: 2, server: &server, program })
    }

    #[test]
    fn every_server_is_told_all_it_needs_and_writes_in_its_own_folder() {
        for kind in ServerKind::ALL {
            let launch = launch(kind);
            let shown = launch.shown();
            assert_eq!(launch.address.to_string(), "10.99.0.1:8445", "{kind}");
            assert_eq!(launch.command[0], "/bin/program", "{kind}");
            assert!(shown.contains("8445"), "{kind}: {shown}");
            assert!(shown.contains("/m/files"), "{kind}: {shown}");
            let keys = ["/m/key.pem", "/m/both.pem"];
            assert!(keys.iter().any(|key| shown.contains(key)), "{kind}: {shown}");
            let files =
                launch.backends.iter().flat_map(|behind| &behind.files).chain(&launch.files);
            for (path, _) in files {
                assert!(path.starts_with("/m/scratch"), "{kind}: {}", path.display());
            }
            let takes_lines =
                [ServerKind::Nginx, ServerKind::H2o, ServerKind::Haproxy, ServerKind::Caddy];
            assert_eq!(shown.contains("more\n"), takes_lines.contains(&kind), "{kind}: {shown}");
        }
    }

    /// h2o's documentation: the optimisation is off for a round-trip time below min-rtt, and for more than
    /// max-cwnd bytes in flight, by default 65,535.
    #[test]
    fn h2o_optimises_on_every_link_of_the_lab() {
        use smig_link::Profile;

        let shown = launch(ServerKind::H2o).shown();
        assert!(shown.contains("http2-latency-optimization-min-rtt: 10\n"), "{shown}");
        let most = shown
            .lines()
            .find_map(|line| line.strip_prefix("http2-latency-optimization-max-cwnd: "));
        let most: f64 = most.unwrap().parse().unwrap();
        for profile in Profile::all() {
            let way = &profile.spec.to_client;
            let rate = way.rate.as_bits_per_second() as f64 / 8.0;
            let queue = way.queue.packets as f64 * f64::from(way.mtu);
            let holds = rate * profile.spec.round_trip().as_secs_f64() + queue;
            assert!(most > holds, "{}: {holds}", profile.name);
        }
    }

    #[test]
    fn what_the_lab_sets_goes_over_what_the_scenario_sets() {
        let settings = "[server]\nworkers = 2\naccess_log = 'off'\n[policy]\nmin_size = 5\n";
        let table = with_server(&settings.parse().unwrap(), [("root", Value::from("/m"))]);
        let expected = "[policy]\nmin_size = 5\n\n[server]\naccess_log = \"off\"\nroot = \"/m\"\nworkers = 2\n";
        assert_eq!(table.to_string(), expected);
    }
}
