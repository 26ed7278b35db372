//! Each run as a trial of the lab: web server and gateway behind the link, the agent beside the browser.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use serde_json::{Value, json};
use smig_lab::scenario::Trial;

use super::drive::BrowserOptions;
use super::error::BrowserError;
use crate::demo::{Variant, parse_scenario};

/// The file that is downloaded beside the page: more than any link carries meanwhile.
pub(super) const BIG_FILE_NAME: &str = "big.bin";
pub(super) const BIG_FILE_BYTES: u64 = 1 << 40;
/// The agent's admin address.
pub(super) const AGENT_ADMIN_ADDR: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9901));

/// The clients' names in the scenario. The browser's server is the agent, its proxy.
pub(super) const BROWSER: &str = "browser";
pub(super) const DOWNLOAD: &str = "download";

/// The token of agent and gateway. Only processes of the measurement can reach the gateway.
const TOKEN: &str = "mosaic";
const WEB_SERVER_COMMAND: &str =
    "{smig} serve {root} --quiet --listen {addr}:{port} --cert {cert} --key {key}";
const GATEWAY_COMMAND: &str = "{smig} gateway --config {scratch}/gateway.toml";
const AGENT_COMMAND: &str = "{smig} agent --via https://{gateway} --cacert {cert} \
    --token-file {scratch}/token --listen {addr}:{port}";
/// Settings of the gateway: the same for all variants, except for those of [`compared_settings`].
const GATEWAY_SETTINGS: &str = r#"
[[listen]]
address = "{addr}:{port}"
[[certificate]]
chain = "{cert}"
key = "{key}"
[forward_proxy]
users = { mosaic = "sha256:19818c00e27a53819a4ce1341ee0794353501110ebecd1c9884db188843988d0" }
allow = ["10.99.0.1"]
"#;

const fn compared_settings(variant: Variant) -> &'static str {
    match variant {
        Variant::PlainHttp2 => {
            "[smig]\nenabled = false\n[migration]\npace_bulk = false\n[interactive]\nnotsent_lowat = 0\n"
        }
        Variant::NotsentLowat => {
            "[smig]\nenabled = false\n[migration]\npace_bulk = false\n[interactive]\nnotsent_lowat = 16384\n"
        }
        Variant::Paced => "[smig]\nenabled = false\n",
        Variant::Smig => "",
    }
}

fn command_server(command_line: &str, files: &Value) -> Value {
    let argv: Vec<_> = command_line.split(' ').collect();
    json!({"kind": "command", "command": {"argv": argv, "files": files, "stop": "KILL"}})
}

impl BrowserOptions {
    /// Returns the trial of a variant.
    pub(super) fn trial(&self, variant: Variant) -> Result<Trial, BrowserError> {
        let host = json!({"congestion_control": self.congestion_control});
        let settings = [GATEWAY_SETTINGS, compared_settings(variant)].concat();
        let mut agent_command = format!("{AGENT_COMMAND} --admin {AGENT_ADMIN_ADDR}");
        if variant != Variant::Smig {
            agent_command += " --no-migrate";
        }
        let mut agent = command_server(&agent_command, &json!({"token": TOKEN}));
        agent["host"] = "client".into();
        let scenario = json!({
            "link": self.link,
            "hosts": {"server": host, "client": host},
            "servers": {
                "web": command_server(WEB_SERVER_COMMAND, &json!({})),
                "gateway": command_server(GATEWAY_COMMAND, &json!({"gateway.toml": settings})),
                "agent": agent,
            },
            "clients": {
                BROWSER: {"kind": "command", "server": "agent", "command": {"argv": ["chromium", "{addr}"]}},
                DOWNLOAD: {"kind": "http1", "server": "web"},
            },
            "workload": {"transfers": {"big": {"client": DOWNLOAD, "size": BIG_FILE_BYTES}}},
        });
        let text = toml::to_string(&scenario).map_err(|error| error.to_string());
        let campaign = text.and_then(|text| parse_scenario(&text, "browser"));
        let trial = campaign.and_then(|all| all.trials().pop().ok_or_else(|| "no trial".into()));
        trial.map_err(BrowserError::Scenario)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use smig_lab::scenario::HostRole;
    use smig_link::{LinkSpec, Rate};

    use super::*;

    #[test]
    fn variants_differ_only_in_the_compared_settings() {
        let [plain, lowat, paced, smig] =
            Variant::ALL.map(|variant| [GATEWAY_SETTINGS, compared_settings(variant)].concat());
        assert!([&plain, &lowat, &paced].iter().all(|settings| settings.starts_with(&smig)));
        assert!(plain.ends_with("notsent_lowat = 0\n"), "{plain}");
        assert!(lowat.ends_with("notsent_lowat = 16384\n"), "{lowat}");
        assert!(paced.ends_with("enabled = false\n"), "{paced}");
        for settings in [plain, lowat, paced, smig] {
            settings.parse::<toml::Table>().unwrap();
        }
    }

    #[test]
    fn options_reach_the_trials() {
        let mut link = LinkSpec::paper_wired();
        link.to_client.rate = Rate::mbit(3).into();
        let congestion_control = "reno".into();
        let default_options = BrowserOptions::new(Path::new("/bin/smig"));
        let options = BrowserOptions { link, congestion_control, ..default_options };
        for variant in Variant::ALL {
            let scenario = options.trial(variant).unwrap().scenario;
            assert_eq!(scenario.link, options.link);
            for host in [&scenario.hosts.server, &scenario.hosts.client] {
                assert_eq!(host.congestion_control.as_deref(), Some("reno"));
            }
            let agent = &scenario.servers["agent"];
            assert_eq!(agent.host, HostRole::Client);
            let has_no_migrate =
                agent.command.as_ref().unwrap().argv.iter().any(|word| word == "--no-migrate");
            assert_eq!(has_no_migrate, variant != Variant::Smig);
        }
    }
}
