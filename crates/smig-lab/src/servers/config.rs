//! Command and configuration files of each server. Pure, so that they can be printed without a run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::built_in::{BuiltInServer, replace_placeholder_line, set_backend};
use crate::scenario::{
    AddressPlan, HostRole, Readiness, Scenario, ServerCommand, ServerSpec, Starvation, StopSignal,
    fill_placeholders,
};

/// Port of the first server; each server has its own.
const FIRST_PORT: u16 = 8443;
/// First port of backends, on the loopback.
const FIRST_BACKEND_PORT: u16 = 9080;

/// Paths and addresses for a run's servers.
#[derive(Debug, Clone)]
pub struct ServerEnv {
    /// Directory of the files to serve.
    pub root: PathBuf,
    /// The certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Certificate chain and private key in one file, PEM.
    pub cert_and_key: PathBuf,
    /// Directory for the servers' own files.
    pub scratch_dir: PathBuf,
    /// The `smig` program.
    pub smig: PathBuf,
    /// Directories of recorded pages that servers answer from, besides the files.
    pub replays: Vec<PathBuf>,
    /// User that the servers run as: some need it in their configuration.
    pub run_as: RunAs,
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
struct ServerJob<'a> {
    name: &'a str,
    server: &'a ServerSpec,
    program: &'a Path,
    /// Addresses of all servers of the run.
    addresses: &'a BTreeMap<String, SocketAddr>,
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
    /// The host that it is to be started on.
    pub host: HostRole,
    /// Address for connections to it.
    pub address: SocketAddr,
    /// Address that it listens on.
    pub bind_addr: SocketAddr,
    /// File for its standard output and standard error.
    pub log: PathBuf,
    /// Backends, which are started before it.
    pub backends: Vec<Self>,
    /// How its process is started and stopped.
    pub process: ProcessOptions,
}

/// How a server's process is started and stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessOptions {
    /// Environment variables, in addition to those of the lab.
    pub environment: Vec<(String, String)>,
    /// Sign that it is ready.
    pub readiness: Readiness,
    /// Signal that stops it.
    pub stop_signal: StopSignal,
    /// A log that it writes itself.
    pub own_log: Option<PathBuf>,
    /// Part of the time for which its processes run once it is ready; always if absent.
    pub starved: Option<Starvation>,
}

impl Default for ProcessOptions {
    /// Ready when its port is open; killed at the end.
    fn default() -> Self {
        Self {
            environment: Vec::new(),
            readiness: Readiness::Port,
            stop_signal: StopSignal::Kill,
            own_log: None,
            starved: None,
        }
    }
}

impl Launch {
    /// Sets the part of the time for which the server and its backends run.
    fn set_starved(&mut self, starved: Option<Starvation>) {
        self.process.starved = starved;
        for backend in &mut self.backends {
            backend.set_starved(starved);
        }
    }

    /// Returns files and commands as text, for `--show-config`.
    #[must_use]
    pub fn to_config_text(&self) -> String {
        let mut text = String::new();
        for server in self.backends.iter().chain([self]) {
            for (path, content) in &server.files {
                let _ = writeln!(text, "# {}", path.display());
                let _ = writeln!(text, "{}\n", content.trim_end());
            }
            let environment = server.process.environment.iter();
            let environment: String =
                environment.map(|(name, value)| format!("{name}={value} ")).collect();
            let _ = writeln!(text, "$ {environment}{}", server.command.join(" "));
        }
        text
    }
}

impl ServerEnv {
    /// Returns how to start a scenario's servers, in the order of their start: by name, those on the
    /// clients' host last. `program` returns a server's program.
    #[must_use]
    pub fn launches(
        &self,
        scenario: &Scenario,
        plan: &AddressPlan,
        program: impl Fn(&str, &ServerSpec) -> PathBuf,
    ) -> Vec<Launch> {
        let address = |(port, (name, server)): (u16, (&String, &ServerSpec))| {
            let ip = match server.host {
                HostRole::Server => plan.address_of(name),
                HostRole::Client => Ipv4Addr::LOCALHOST,
            };
            (name.clone(), SocketAddr::from((ip, port)))
        };
        let addresses = (FIRST_PORT..).zip(&scenario.servers).map(address).collect();
        let launch = |(name, server): (&String, &ServerSpec)| {
            let program = &program(name, server);
            let mut launch =
                self.build_launch(&ServerJob { name, server, program, addresses: &addresses });
            if launch.host == HostRole::Server {
                launch.set_starved(scenario.hosts.server.starved);
            }
            launch
        };
        let mut launches: Vec<_> = scenario.servers.iter().map(launch).collect();
        launches.sort_by_key(|launch| launch.host == HostRole::Client);
        launches
    }

    fn build_launch(&self, job: &ServerJob<'_>) -> Launch {
        let address = job.addresses[job.name];
        let mut bind_addr = address;
        if !address.ip().is_loopback() {
            // All addresses of the host, which belongs to this run alone.
            bind_addr.set_ip(Ipv4Addr::UNSPECIFIED.into());
        }
        let mut launch = Launch {
            name: job.name.to_owned(),
            command: vec![job.program.display().to_string()],
            files: Vec::new(),
            host: job.server.host,
            address,
            bind_addr,
            log: self.scratch_dir.join(format!("server-{}.out", job.name)),
            backends: Vec::new(),
            process: ProcessOptions::default(),
        };
        match (BuiltInServer::of(job.server.kind), &job.server.command) {
            (Some(built_in), _) => self.configure_built_in(job, built_in, &mut launch),
            (None, Some(command)) => self.configure_command(job, command, &mut launch),
            (None, None) => self.configure_smig(job, &mut launch),
        }
        launch
    }

    /// A server that the lab configures: a command, possibly with a backend.
    fn configure_built_in(
        &self,
        job: &ServerJob<'_>,
        built_in: &BuiltInServer,
        launch: &mut Launch,
    ) {
        let mut command = built_in.command_for(job.server, self.run_as == RunAs::Root);
        let (content, has_backend) = built_in.content(!self.replays.is_empty());
        for text in command.files.values_mut() {
            *text = replace_placeholder_line(text, "{content}", content.lines());
        }
        if has_backend {
            let port = launch.address.port() - FIRST_PORT + FIRST_BACKEND_PORT;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            set_backend(&mut command, address);
            launch.backends.push(self.build_backend_launch(job, address));
        }
        self.configure_command(job, &command, launch);
        // After the placeholders: braces in the scenario's lines belong to the server's syntax.
        for (_, text) in &mut launch.files {
            *text = replace_placeholder_line(
                text,
                "{lines}",
                job.server.lines.iter().map(String::as_str),
            );
        }
    }

    /// `smig` without TLS, on the loopback.
    fn build_backend_launch(&self, job: &ServerJob<'_>, address: SocketAddr) -> Launch {
        let lab_settings = [
            ("listen", Value::from(address.to_string())),
            ("root", Value::from(self.root.display().to_string())),
            ("cleartext", Value::from(true)),
        ];
        let config = self.config_path(job, "backend.toml");
        let arguments =
            [self.smig.as_path(), "lab".as_ref(), "server".as_ref(), "--config".as_ref()];
        let command = arguments.into_iter().chain([config.as_path()]);
        let command = command.map(|word: &Path| word.display().to_string());
        Launch {
            name: format!("{}-backend", job.name),
            command: command.chain(self.replay_arguments()).collect(),
            files: vec![(
                config.clone(),
                with_lab_settings(&Table::new(), lab_settings).to_string(),
            )],
            host: job.server.host,
            address,
            bind_addr: address,
            log: self.scratch_dir.join(format!("server-{}-backend.out", job.name)),
            backends: Vec::new(),
            process: ProcessOptions::default(),
        }
    }

    /// A command, with its placeholders filled in.
    fn configure_command(&self, job: &ServerJob<'_>, command: &ServerCommand, launch: &mut Launch) {
        let scratch_dir = self.scratch_dir.join(format!("server-{}", job.name));
        let log = scratch_dir.join("log");
        let bind_addr = launch.bind_addr;
        let value = |name: &str| {
            let path = match name {
                "addr" => return Some(bind_addr.ip().to_string()),
                "port" => return Some(bind_addr.port().to_string()),
                "root" => &self.root,
                "cert" => &self.certificate,
                "key" => &self.key,
                "cert_and_key" => &self.cert_and_key,
                "scratch" => &scratch_dir,
                "log" => &log,
                "smig" => &self.smig,
                // The files of built-in servers name no others, and have braces of their own.
                _ if job.server.command.is_none() => return None,
                _ => return job.addresses.get(name).map(ToString::to_string),
            };
            Some(path.display().to_string())
        };
        let arguments = command.argv.iter().skip(1).map(|text| fill_placeholders(text, &value));
        launch.command.extend(arguments);
        let file = |(name, text): (&String, &String)| {
            (scratch_dir.join(name), fill_placeholders(text, &value))
        };
        launch.files = command.files.iter().map(file).collect();
        let variable =
            |(name, text): (&String, &String)| (name.clone(), fill_placeholders(text, &value));
        launch.process = ProcessOptions {
            environment: command.environment.iter().map(variable).collect(),
            readiness: command.ready.clone(),
            stop_signal: command.stop,
            own_log: Some(log),
            starved: None,
        };
    }

    /// Returns the arguments of the lab's own server that make it answer from recorded pages.
    fn replay_arguments(&self) -> impl Iterator<Item = String> {
        let arguments = |dir: &PathBuf| ["--replay".to_owned(), dir.display().to_string()];
        self.replays.iter().flat_map(arguments)
    }

    fn config_path(&self, job: &ServerJob<'_>, extension: &str) -> PathBuf {
        self.scratch_dir.join(format!("server-{}.{extension}", job.name))
    }

    fn configure_smig(&self, job: &ServerJob<'_>, launch: &mut Launch) {
        let path_value = |path: &Path| Value::from(path.display().to_string());
        let lab_settings = [
            ("listen", Value::from(launch.bind_addr.to_string())),
            ("root", path_value(&self.root)),
            ("cert", path_value(&self.certificate)),
            ("key", path_value(&self.key)),
        ];
        let settings = with_lab_settings(&job.server.settings, lab_settings);
        let path = self.config_path(job, "toml");
        let arguments =
            ["lab", "server", "--config", &path.display().to_string()].map(str::to_owned);
        launch.command.extend(arguments);
        launch.command.extend(self.replay_arguments());
        launch.files.push((path, settings.to_string()));
    }
}

/// Returns settings of `smig serve` with the lab's own in the section `server`.
fn with_lab_settings<const N: usize>(settings: &Table, lab_settings: [(&str, Value); N]) -> Table {
    let mut settings = settings.clone();
    let server = settings.entry("server").or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(server) = server {
        server.entry("workers").or_insert_with(|| Value::from(1));
        for (key, value) in lab_settings {
            server.insert(key.into(), value);
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{ServerKind, parse};

    fn env() -> ServerEnv {
        ServerEnv {
            root: "/m/files".into(),
            certificate: "/m/certificate.pem".into(),
            key: "/m/key.pem".into(),
            cert_and_key: "/m/both.pem".into(),
            scratch_dir: "/m/scratch".into(),
            smig: "/bin/smig".into(),
            replays: Vec::new(),
            run_as: RunAs::Root,
        }
    }

    fn launch_of(kind: ServerKind) -> Launch {
        let env = env();
        let server = ServerSpec {
            kind,
            host: HostRole::Server,
            settings: Table::new(),
            congestion_control: None,
            http2: None,
            latency_optimization: Some(true),
            lines: vec!["header X {port}".into(), "more".into()],
            program: None,
            command: None,
        };
        let address = (Ipv4Addr::new(10, 99, 0, 1), 8445).into();
        let addresses = BTreeMap::from([("main".to_owned(), address)]);
        let (name, program) = ("main", Path::new("/bin/program"));
        env.build_launch(&ServerJob { name, server: &server, program, addresses: &addresses })
    }

    #[test]
    fn every_server_gets_its_parameters_and_writes_only_to_scratch() {
        let built_in_kinds = super::super::built_in::BUILT_IN_SERVER_FILES.map(|(kind, _)| kind);
        for kind in built_in_kinds.into_iter().chain([ServerKind::Smig]) {
            let launch = launch_of(kind);
            let config_text = launch.to_config_text();
            let without_lines = config_text.replace("header X {port}", "");
            fill_placeholders(&without_lines, &|name| panic!("{kind}: {{{name}}} has no value"));
            assert_eq!(launch.address.to_string(), "10.99.0.1:8445", "{kind}");
            assert_eq!(launch.command[0], "/bin/program", "{kind}");
            assert!(config_text.contains("8445"), "{kind}: {config_text}");
            assert!(config_text.contains("/m/files"), "{kind}: {config_text}");
            let keys = ["/m/key.pem", "/m/both.pem"];
            assert!(keys.iter().any(|key| config_text.contains(key)), "{kind}: {config_text}");
            let files =
                launch.backends.iter().flat_map(|backend| &backend.files).chain(&launch.files);
            for (path, _) in files {
                assert!(path.starts_with("/m/scratch"), "{kind}: {}", path.display());
            }
            let takes_lines =
                [ServerKind::Nginx, ServerKind::H2o, ServerKind::Haproxy, ServerKind::Caddy];
            let has_line_as_written = config_text.contains("header X {port}\n");
            assert_eq!(has_line_as_written, takes_lines.contains(&kind), "{kind}: {config_text}");
            assert_eq!(
                config_text.contains("more\n"),
                takes_lines.contains(&kind),
                "{kind}: {config_text}"
            );
        }
    }

    #[test]
    fn a_server_on_the_clients_host_starts_last_and_has_the_others_addresses() {
        let text = "link = 'paper-wired'\n[servers.agent]\nkind = 'command'\nhost = 'client'\n\
            command.argv = ['{smig}', 'agent', '--via={main}', '--listen={addr}:{port}']\n\
            [servers.main]\nkind = 'smig'\n[clients.c]\nkind = 'h2'\nserver = 'main'\n\
            [workload.transfers.t]\nsize = 1\n";
        let campaign = parse(text, "test", Path::new("/"), &|_| Ok(())).unwrap();
        let scenario = &campaign.conditions[0].scenario;
        let plan = AddressPlan::of(scenario);
        let launches = env().launches(scenario, &plan, |name, _| name.to_owned().into());
        let [main, agent] = &launches[..] else { panic!("{launches:?}") };
        assert_eq!(
            (main.host, main.address.to_string().as_str()),
            (HostRole::Server, "10.99.0.1:8444")
        );
        assert_eq!((agent.host, agent.bind_addr), (HostRole::Client, agent.address));
        assert_eq!(
            agent.command,
            ["agent", "agent", "--via=10.99.0.1:8444", "--listen=127.0.0.1:8443"]
        );
    }

    /// h2o's documentation: the optimization is off for round-trip times below min-rtt, and above
    /// max-cwnd bytes in flight; default 65,535.
    #[test]
    fn h2o_latency_optimization_is_on_with_every_profile_and_in_every_cell_of_the_matrix() {
        use smig_link::Profile;

        let config_text = launch_of(ServerKind::H2o).to_config_text();
        let value = |key: &str| -> f64 {
            let prefix = format!("http2-latency-optimization-{key}: ");
            let value = config_text.lines().find_map(|line| line.strip_prefix(&prefix));
            value.unwrap_or_else(|| panic!("{config_text}")).parse().unwrap()
        };
        let (min_rtt_ms, max_cwnd) = (value("min-rtt"), value("max-cwnd"));
        let matrix = crate::matrix::campaign(&|_| Ok(())).unwrap();
        let of_cells = matrix.conditions.iter().map(|condition| &condition.scenario.link);
        for link in Profile::all().iter().map(|profile| &profile.spec).chain(of_cells) {
            assert!(link.round_trip().as_secs_f64() * 1e3 > min_rtt_ms, "{link:?}");
        }
        for profile in Profile::all() {
            let direction = &profile.spec.to_client;
            let bytes_per_s = direction.rate.mean_bits_per_second() as f64 / 8.0;
            let queue_bytes = direction.queue.packets as f64 * f64::from(direction.mtu);
            let in_flight_bytes =
                bytes_per_s * profile.spec.round_trip().as_secs_f64() + queue_bytes;
            assert!(max_cwnd > in_flight_bytes, "{}: {in_flight_bytes}", profile.name);
        }
    }

    #[test]
    fn the_labs_settings_override_the_scenarios() {
        let settings = "[server]\nworkers = 2\naccess_log = 'off'\n[migration]\nmin_size = 5\n";
        let table = with_lab_settings(&settings.parse().unwrap(), [("root", Value::from("/m"))]);
        let expected = "[migration]\nmin_size = 5\n\n[server]\naccess_log = \"off\"\nroot = \"/m\"\nworkers = 2\n";
        assert_eq!(table.to_string(), expected);
    }
}
