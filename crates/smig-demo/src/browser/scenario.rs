//! Each run as a trial of the lab: the web server behind the link, with a gateway before it, and an agent
//! beside the browser where the variant has them.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use serde_json::{Value, json};
use smig_lab::scenario::Trial;

use super::drive::BrowserOptions;
use super::error::BrowserError;
use super::variant::{BrowserVariant, Route};
use crate::demo::parse_scenario;

/// The file that is downloaded beside the page: more than any link carries meanwhile.
pub(super) const BIG_FILE_NAME: &str = "big.bin";
pub(super) const BIG_FILE_BYTES: u64 = 1 << 40;
/// The agent's admin address.
pub(super) const AGENT_ADMIN_ADDR: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9901));

/// The clients' names in the scenario. Through an agent, the browser's server is the agent, its proxy.
pub(super) const BROWSER: &str = "browser";
pub(super) const DOWNLOAD: &str = "download";
/// The name of the server that the browser connects to, or with an agent, asks for.
pub(super) const WEB_SERVER: &str = "web";

/// The token of agent and gateway. Only processes of the measurement can reach the gateway.
const TOKEN: &str = "mosaic";
const WEB_SERVER_COMMAND: &str =
    "{smig} serve {root} --quiet --listen {addr}:{port} --cert {cert} --key {key}";
/// For the direct route: the browser must not keep the page, and the log tells connections apart.
const DIRECT_FLAGS: &str = " --cache-control no-store --access-log=json";
/// The web server behind the gateway of the direct route.
const ORIGIN_COMMAND: &str =
    "{smig} serve {root} --quiet --listen {addr}:{port} --cleartext --cache-control no-store";
const DIRECT_GATEWAY_COMMAND: &str = "{smig} gateway --to http://{origin} --quiet \
    --listen {addr}:{port} --cert {cert} --key {key} --access-log=json";
const NGINX_COMMAND: &str = "nginx -e stderr -p {scratch} -c {scratch}/nginx.conf";
/// nginx with its defaults, except for `keepalive_requests`, after which nginx closes a connection, the log, and
/// what says which files to serve. One process, so that it can be killed.
const NGINX_CONFIG: &str = r#"
user root;
daemon off;
master_process off;
pid {scratch}/pid;
error_log stderr warn;
events { }
http {
    types { text/html html; image/png png; }
    default_type application/octet-stream;
    log_format requests escape=json
        '{"peer":"$remote_addr:$remote_port","path":"$request_uri","protocol":"$server_protocol"}';
    access_log /dev/stdout requests;
    keepalive_requests 1000000;
    client_body_temp_path {scratch}/body;
    proxy_temp_path {scratch}/proxy;
    fastcgi_temp_path {scratch}/fastcgi;
    uwsgi_temp_path {scratch}/uwsgi;
    scgi_temp_path {scratch}/scgi;
    server {
        listen {addr}:{port} ssl http2;
        ssl_certificate {cert};
        ssl_certificate_key {key};
        root {root};
        add_header cache-control no-store;
    }
}
"#;
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

const fn compared_settings(variant: BrowserVariant) -> &'static str {
    match variant {
        BrowserVariant::PlainHttp2 => {
            "[smig]\nenabled = false\n[migration]\npace_bulk = false\n[interactive]\nnotsent_lowat = 0\n"
        }
        BrowserVariant::NotsentLowat => {
            "[smig]\nenabled = false\n[migration]\npace_bulk = false\n[interactive]\nnotsent_lowat = 16384\n"
        }
        // By default, a tunnel that is paced would stay with the others while no packets are lost.
        BrowserVariant::Smig => "[migration]\npaced = \"move\"\n",
        BrowserVariant::Serve | BrowserVariant::Gateway | BrowserVariant::Nginx => "",
    }
}

fn command_server(command_line: &str, files: &Value) -> Value {
    let argv: Vec<_> = command_line.split(' ').collect();
    json!({"kind": "command", "command": {"argv": argv, "files": files, "stop": "KILL"}})
}

impl BrowserOptions {
    /// Returns the trial of a variant.
    pub(super) fn trial(&self, variant: BrowserVariant) -> Result<Trial, BrowserError> {
        let host = json!({"congestion_control": self.congestion_control});
        let browser = |server: &str| json!({"kind": "command", "server": server, "command": {"argv": ["chromium", "{addr}"]}});
        let (servers, clients, download) = match self.route {
            Route::Direct => {
                let clients = json!({BROWSER: browser(WEB_SERVER)});
                (direct_servers(variant), clients, BROWSER)
            }
            Route::Agent => {
                let clients = json!({
                    BROWSER: browser("agent"),
                    DOWNLOAD: {"kind": "http1", "server": WEB_SERVER},
                });
                (agent_servers(variant), clients, DOWNLOAD)
            }
        };
        let scenario = json!({
            "link": self.link,
            "hosts": {"server": host, "client": host},
            "servers": servers,
            "clients": clients,
            "workload": {"transfers": {"big": {"client": download, "size": BIG_FILE_BYTES}}},
        });
        let text = toml::to_string(&scenario).map_err(|error| error.to_string());
        let campaign = text.and_then(|text| parse_scenario(&text, "browser"));
        let trial = campaign.and_then(|all| all.trials().pop().ok_or_else(|| "no trial".into()));
        trial.map_err(BrowserError::Scenario)
    }
}

/// Returns the servers of the direct route: the browser's server is the web server or a gateway.
fn direct_servers(variant: BrowserVariant) -> Value {
    let no_files = json!({});
    match variant {
        BrowserVariant::Gateway => json!({
            WEB_SERVER: command_server(DIRECT_GATEWAY_COMMAND, &no_files),
            "origin": command_server(ORIGIN_COMMAND, &no_files),
        }),
        BrowserVariant::Nginx => json!({
            WEB_SERVER: command_server(NGINX_COMMAND, &json!({"nginx.conf": NGINX_CONFIG})),
        }),
        _ => {
            let command = [WEB_SERVER_COMMAND, DIRECT_FLAGS, " --config {scratch}/smig.toml"];
            let files = json!({"smig.toml": compared_settings(variant)});
            json!({WEB_SERVER: command_server(&command.concat(), &files)})
        }
    }
}

/// Returns the servers of the route through an agent.
fn agent_servers(variant: BrowserVariant) -> Value {
    let settings = [GATEWAY_SETTINGS, compared_settings(variant)].concat();
    let mut agent_command = format!("{AGENT_COMMAND} --admin {AGENT_ADMIN_ADDR}");
    if variant != BrowserVariant::Smig {
        agent_command += " --no-migrate";
    }
    let mut agent = command_server(&agent_command, &json!({"token": TOKEN}));
    agent["host"] = "client".into();
    json!({
        WEB_SERVER: command_server(WEB_SERVER_COMMAND, &json!({})),
        "gateway": command_server(GATEWAY_COMMAND, &json!({"gateway.toml": settings})),
        "agent": agent,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use smig_lab::scenario::HostRole;
    use smig_link::{LinkSpec, Rate};

    use super::*;

    fn options(route: Route) -> BrowserOptions {
        let mut link = LinkSpec::paper_wired();
        link.to_client.rate = Rate::mbit(3).into();
        let congestion_control = "reno".into();
        let default_options = BrowserOptions::new(Path::new("/bin/smig"), route);
        BrowserOptions { link, congestion_control, ..default_options }
    }

    /// Returns a server's command and its files as text.
    fn command_text(trial: &Trial, server: &str) -> String {
        let command = trial.scenario.servers[server].command.as_ref().unwrap();
        let files = command.files.values().map(String::as_str);
        command.argv.iter().map(String::as_str).chain(files).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn variants_differ_only_in_the_compared_settings() {
        let variants =
            [BrowserVariant::PlainHttp2, BrowserVariant::NotsentLowat, BrowserVariant::Serve];
        let [plain, lowat, serve] = variants.map(compared_settings);
        assert!(plain.ends_with("notsent_lowat = 0\n"), "{plain}");
        assert!(lowat.ends_with("notsent_lowat = 16384\n"), "{lowat}");
        assert_eq!(serve, "");
        for settings in [plain, lowat] {
            [GATEWAY_SETTINGS, settings].concat().parse::<toml::Table>().unwrap();
        }
        let direct = options(Route::Direct);
        let [plain, lowat, serve] =
            variants.map(|variant| command_text(&direct.trial(variant).unwrap(), WEB_SERVER));
        assert!(plain.starts_with(&serve) && lowat.starts_with(&serve), "{plain}");
    }

    #[test]
    fn every_variant_is_a_trial_with_the_options() {
        for route in [Route::Direct, Route::Agent] {
            let options = options(route);
            for variant in BrowserVariant::ALL.into_iter().filter(|&variant| route.has(variant)) {
                let trial = options.trial(variant).unwrap();
                let scenario = &trial.scenario;
                assert_eq!(scenario.link, options.link);
                for host in [&scenario.hosts.server, &scenario.hosts.client] {
                    assert_eq!(host.congestion_control.as_deref(), Some("reno"));
                }
                let agent = scenario.servers.get("agent");
                assert_eq!(
                    agent.map(|agent| agent.host),
                    match route {
                        Route::Direct => None,
                        Route::Agent => Some(HostRole::Client),
                    }
                );
                if route == Route::Agent {
                    let has_no_migrate = command_text(&trial, "agent").contains("--no-migrate");
                    assert_eq!(has_no_migrate, variant != BrowserVariant::Smig);
                }
            }
        }
    }

    #[test]
    fn nginx_is_tuned_only_to_keep_its_connection() {
        let directives = NGINX_CONFIG.lines().filter_map(|line| line.split_whitespace().next());
        let stated = [
            // Where it runs, and what it serves.
            "user",
            "daemon",
            "master_process",
            "pid",
            "error_log",
            "events",
            "http",
            "types",
            "default_type",
            "log_format",
            "'{\"peer\":\"$remote_addr:$remote_port\",\"path\":\"$request_uri\",\"protocol\":\"$server_protocol\"}';",
            "access_log",
            "client_body_temp_path",
            "proxy_temp_path",
            "fastcgi_temp_path",
            "uwsgi_temp_path",
            "scgi_temp_path",
            "server",
            "listen",
            "ssl_certificate",
            "ssl_certificate_key",
            "root",
            "add_header",
            "}",
            // What differs from a default, as the report says.
            "keepalive_requests",
        ];
        for directive in directives {
            assert!(stated.contains(&directive), "{directive}");
        }
    }

    #[test]
    fn servers_of_the_direct_route_log_requests_and_forbid_caching() {
        let options = options(Route::Direct);
        for variant in BrowserVariant::ALL.into_iter().filter(|&v| Route::Direct.has(v)) {
            let trial = options.trial(variant).unwrap();
            let has = |word: &str| {
                trial.scenario.servers.keys().any(|name| command_text(&trial, name).contains(word))
            };
            assert!(has("no-store"), "{variant}");
            assert!(has("--access-log=json") || has("access_log /dev/stdout"), "{variant}");
        }
        let gateway = options.trial(BrowserVariant::Gateway).unwrap();
        assert!(command_text(&gateway, WEB_SERVER).contains("gateway --to http://{origin}"));
    }
}
