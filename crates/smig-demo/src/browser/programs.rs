//! The `smig` processes that the browser uses: web server and gateway in one host, agent in the
//! other. They are started in the same way as the servers of a scenario.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use smig_lab::scenario::HostRole;
use smig_lab::servers::{Launch, ProcessOptions, ServerProcess};
use smig_testbed::netns::Testbed;

use super::error::BrowserError;
use super::files::{BrowserFiles, GATEWAY_PORT, ORIGIN_PORT, PROXY_ADDR, SERVER_IP};
use crate::demo::Variant;

/// Web server, gateway and agent; they are killed on drop.
pub(super) struct Programs {
    /// In the order of their start.
    processes: Vec<ServerProcess>,
}

/// Returns the command line of `smig SUBCOMMAND`, which will listen on `address`.
fn launch(
    smig: &Path,
    browser_files: &BrowserFiles,
    subcommand: &str,
    arguments: &[String],
    address: SocketAddr,
) -> Launch {
    // The caller's settings must not affect the measurement.
    let mut command =
        ["env", "-u", "SMIG_AGENT_TOKEN", "-u", "SMIG_LOG"].map(str::to_owned).to_vec();
    command.extend([smig.display().to_string(), subcommand.to_owned()]);
    command.extend_from_slice(arguments);
    Launch {
        name: format!("smig {subcommand}"),
        command,
        files: Vec::new(),
        host: HostRole::default(),
        address,
        bind_addr: address,
        log: browser_files.log_of(subcommand),
        backends: Vec::new(),
        process: ProcessOptions::default(),
    }
}

impl Programs {
    /// Starts the programs; each accepts connections before the next one is started.
    pub(super) fn start(
        testbed: &Testbed,
        smig: &Path,
        browser_files: &BrowserFiles,
        variant: Variant,
    ) -> Result<Self, BrowserError> {
        let (server, client) = (testbed.server(), testbed.client());
        let socket_addr = |address: Ipv4Addr, port: u16| SocketAddr::from((address, port));
        let path_text = |path: &Path| path.display().to_string();
        let flags = |flags: &[&str]| flags.iter().map(|&flag| flag.to_owned()).collect::<Vec<_>>();
        let (certificate, key) =
            (path_text(&browser_files.certificate_file()), path_text(&browser_files.key_file()));

        let address = socket_addr(SERVER_IP, ORIGIN_PORT);
        let (site, listen) = (path_text(&browser_files.document_root()), address.to_string());
        let origin =
            flags(&[&site, "--quiet", "--listen", &listen, "--cert", &certificate, "--key", &key]);
        let origin = launch(smig, browser_files, "serve", &origin, address);

        let settings = path_text(&browser_files.write_gateway_settings(variant)?);
        let gateway = flags(&["--config", &settings]);
        let gateway =
            launch(smig, browser_files, "gateway", &gateway, socket_addr(SERVER_IP, GATEWAY_PORT));

        let address = socket_addr(PROXY_ADDR.0, PROXY_ADDR.1);
        let (via, listen) = (format!("https://{SERVER_IP}:{GATEWAY_PORT}"), address.to_string());
        let token = path_text(&browser_files.token_file());
        let mut agent = flags(&["--via", &via, "--cacert", &certificate, "--token-file", &token]);
        agent.extend(flags(&["--listen", &listen]));
        if variant != Variant::Smig {
            agent.push("--no-migrate".to_owned());
        }
        let agent = launch(smig, browser_files, "agent", &agent, address);

        let launches = [(origin, server), (gateway, server), (agent, client)];
        let processes = launches.iter().map(|(launch, host)| launch.start(host, smig));
        Ok(Self { processes: processes.collect::<Result<_, _>>()? })
    }

    /// Returns an error if one of the programs has ended.
    pub(super) fn check(&self) -> Result<(), BrowserError> {
        self.processes
            .iter()
            .try_for_each(|process| process.check().map_err(BrowserError::ProgramEnded))
    }
}
