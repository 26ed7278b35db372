//! The `smig` programs around the browser: web server and gateway in one host, agent in the other.
//! They are started as the lab starts the servers of a scenario.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use smig_lab::servers::{Launch, ProcessOptions, ServerProcess};
use smig_testbed::netns::Testbed;

use super::error::BrowserError;
use super::material::{ADDRESS, BrowserFiles, GATEWAY_PORT, ORIGIN_PORT, PROXY};
use crate::demo::Variant;

/// All programs between the page and the browser; they are killed on drop.
pub(super) struct Programs {
    /// In the order of their start.
    running: Vec<ServerProcess>,
}

/// Returns how to start `smig SUBCOMMAND`, which will listen on `address`.
fn launch(
    smig: &Path,
    material: &BrowserFiles,
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
        address,
        bind_addr: address,
        log: material.log_of(subcommand),
        backends: Vec::new(),
        process: ProcessOptions::default(),
    }
}

impl Programs {
    /// Starts the programs; each accepts connections before the next one is started.
    pub(super) fn start(
        testbed: &Testbed,
        smig: &Path,
        material: &BrowserFiles,
        variant: Variant,
    ) -> Result<Self, BrowserError> {
        let (server, client) = (testbed.server(), testbed.client());
        let at = |address: Ipv4Addr, port: u16| SocketAddr::from((address, port));
        let text = |path: &Path| path.display().to_string();
        let flags = |flags: &[&str]| flags.iter().map(|&flag| flag.to_owned()).collect::<Vec<_>>();
        let (certificate, key) = (text(&material.certificate_file()), text(&material.key_file()));

        let address = at(ADDRESS, ORIGIN_PORT);
        let (site, listen) = (text(&material.site()), address.to_string());
        let origin =
            flags(&[&site, "--quiet", "--listen", &listen, "--cert", &certificate, "--key", &key]);
        let origin = launch(smig, material, "serve", &origin, address);

        let settings = text(&material.gateway_settings(variant)?);
        let gateway = flags(&["--config", &settings]);
        let gateway = launch(smig, material, "gateway", &gateway, at(ADDRESS, GATEWAY_PORT));

        let address = at(PROXY.0, PROXY.1);
        let (via, listen) = (format!("https://{ADDRESS}:{GATEWAY_PORT}"), address.to_string());
        let token = text(&material.token_file());
        let mut agent = flags(&["--via", &via, "--cacert", &certificate, "--token-file", &token]);
        agent.extend(flags(&["--listen", &listen]));
        if variant != Variant::Smig {
            agent.push("--no-migrate".to_owned());
        }
        let agent = launch(smig, material, "agent", &agent, address);

        let all = [(origin, server), (gateway, server), (agent, client)];
        let running = all.iter().map(|(launch, host)| launch.start(host, smig));
        Ok(Self { running: running.collect::<Result<_, _>>()? })
    }

    /// Returns an error if one of the programs has ended.
    pub(super) fn check(&self) -> Result<(), BrowserError> {
        self.running.iter().try_for_each(|one| one.check().map_err(BrowserError::ProgramEnded))
    }
}
