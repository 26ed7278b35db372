//! Tests of the configuration file: the example, and the reports of faults.

use std::time::Duration;

use smig_settings::uncomment_keys;

use super::*;

fn parse(text: &str) -> Result<Config, Vec<String>> {
    Config::parse(text, Path::new("/etc/smig/gateway.toml"))
        .map_err(|faults| faults.into_iter().map(|fault| fault.to_string()).collect())
}

fn faults(text: &str) -> Vec<String> {
    parse(text).unwrap_err()
}

#[test]
fn a_forward_proxy_raises_the_default_limits() {
    let engine_of = |text: &str| parse(text).unwrap().server.engine;
    let defaults = engine_of("");
    let with_forward_proxy = engine_of("[forward_proxy]\ncertificate_subjects = ['ann']");
    assert_eq!(
        (defaults.max_concurrent_streams, with_forward_proxy.max_concurrent_streams),
        (128, 1024)
    );
    assert!(with_forward_proxy.connection_window > defaults.connection_window);
    let explicit = engine_of(
        "[http2]\nmax_concurrent_streams = 7\n[forward_proxy]\ncertificate_subjects = ['ann']",
    );
    assert_eq!(explicit.max_concurrent_streams, 7);
}

#[test]
fn the_example_parses_as_written_and_with_every_key_uncommented() {
    let config = parse(&example()).unwrap();
    assert_eq!(config.listen[0].address.len(), 2);
    assert_eq!(config.routes[0].upstream.as_deref(), Some("app"));
    let defaults = Config::default();
    assert!(config.changes_requiring_restart(&defaults).is_empty());
    assert_eq!(config.tls, defaults.tls);
    assert_eq!(config.forwarded, defaults.forwarded);
    assert_eq!(config.access_log, defaults.access_log);
    let UpstreamSpec { servers, .. } = config.upstreams["app"].clone();
    assert_eq!(config.upstreams["app"], UpstreamSpec::new(servers));

    let all_keys = uncomment_keys(&example());
    let config = parse(&all_keys).unwrap_or_else(|faults| panic!("{faults:#?}"));
    assert_eq!(config.changes_requiring_restart(&defaults), ["admin", "telemetry"]);
    assert_eq!(config.listen.len(), 2);
    assert_eq!(config.certificates[0].chain, Path::new("/etc/smig/fullchain.pem"));
    assert_eq!(config.routes.len(), 3);
    assert_eq!(config.hosts(), ["localhost", "www.example.com"]);
    assert!(config.upstreams["app"].health.is_some());
    assert!(config.forward_proxy.is_some());
}

/// Returns the keys of a section, as the report of an unknown one lists them.
fn keys_of(header: &str) -> Vec<String> {
    let faults = parse(&format!("{header}\nzzz = 1\n")).err().unwrap_or_default();
    let listed = faults.iter().find_map(|fault| fault.split_once("known keys: "));
    listed.map(|(_, keys)| keys.split(", ").map(str::to_owned).collect()).unwrap_or_default()
}

/// Returns whether there is a value at a path of keys, in any of several tables of one name.
fn has_key(value: &toml::Value, path: &[&str]) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    match value {
        toml::Value::Table(table) => table.get(*first).is_some_and(|inner| has_key(inner, rest)),
        toml::Value::Array(entries) => entries.iter().any(|entry| has_key(entry, path)),
        _ => false,
    }
}

#[test]
fn the_example_has_every_key() {
    let all_keys = toml::Value::Table(uncomment_keys(&example()).parse().unwrap());
    let has = |section: &str, key: &str| {
        has_key(&all_keys, &section.split('.').chain([key]).collect::<Vec<_>>())
    };
    let mut count = 0;
    for key in KEYS {
        assert!(has_key(&all_keys, &[key]), "{key}");
        let section = if key == "upstreams" { "upstreams.app" } else { key };
        for header in [format!("[{section}]"), format!("[[{section}]]")] {
            for inner in keys_of(&header) {
                assert!(has(section, &inner), "{section}.{inner}");
                let subsection = format!("{section}.{inner}");
                for leaf in keys_of(&format!("[{subsection}]")) {
                    assert!(has(&subsection, &leaf), "{subsection}.{leaf}");
                    count += 1;
                }
                count += 1;
            }
        }
    }
    assert!(count > 60, "{count} keys were found");
}

#[test]
fn every_fault_is_reported_with_its_line_and_key() {
    assert_eq!(
        faults(
            "[[listen]]\naddress = 'somewhere'\n[[route]]\npath = 'x'\nupstrem = 'app'\n\
             [migration]\nmin_sise = 5\n[acces_log]\n[tls]\nreload_interval = 5\n"
        ),
        [
            "2: listen.0.address: \"somewhere\" is not an address with a port; write 127.0.0.1:8443, \
             [::1]:8443, localhost:8443 (both), or [::]:8443 for every interface",
            "5: route.0.upstrem: unknown key; did you mean upstream?",
            "7: unknown key migration.min_sise; did you mean migration.min_size?",
            "8: acces_log: unknown key; did you mean access_log?",
            "10: tls.reload_interval: this takes a string with a unit, such as \"500ms\", \"10s\" or \"2min\"",
        ]
    );
    assert_eq!(
        faults("[upstreams.a]\nservers = []\n"),
        ["2: upstreams.a.servers: no servers; add at least one"]
    );
    assert_eq!(
        faults("[upstreams.a]\nservers = ['a:1']\n"),
        [
            "2: upstreams.a.servers.0: \"a:1\" does not begin with http://, h2c://, https://, smig:// or unix:"
        ]
    );
    assert_eq!(
        faults("[[route]]\nstatus = 200\nhost = 5\n"),
        ["3: route.0.host: this takes a string or an array of strings"]
    );
    assert!(faults("[[route]\n")[0].starts_with("1: "));
    assert_eq!(
        faults("[migratoin]\nmin_size = 5\n"),
        ["1: migratoin: unknown key; did you mean migration?"]
    );
}

#[test]
fn constraints_between_keys_are_checked() {
    let route_faults =
        |text: &str| faults(&format!("[upstreams.app]\nservers = ['http://a']\n[[route]]\n{text}"));
    assert_eq!(
        route_faults("upstream = 'ap'\n"),
        ["4: route.0.upstream: there is no upstream \"ap\"; did you mean \"app\"?"]
    );
    assert_eq!(
        route_faults("path = '/'\n"),
        ["4: route.0.path: the route has no action; add upstream, redirect, or status"]
    );
    assert_eq!(
        route_faults("upstream = 'app'\nredirect = 'https://a'\n"),
        ["5: route.0.redirect: not allowed with upstream; remove one"]
    );
    assert_eq!(
        route_faults("redirect = 'https://a'\nstatus = 200\n"),
        ["5: route.0.status: a redirect is 301, 302, 303, 307 or 308"]
    );
    assert_eq!(
        route_faults("upstream = 'app'\nhost = ['a', 'b:80']\n"),
        [
            "5: route.0.host: \"b:80\" is not a host; write a name, *.NAME, or an address, without a port"
        ]
    );
    assert_eq!(
        route_faults("upstream = 'app'\npath = 'api'\n"),
        ["5: route.0.path: \"api\" is not a path; write /PATH without a query"]
    );
    assert_eq!(
        route_faults("upstream = 'app'\nrequest_headers = { set = { Host = 'a' } }\n"),
        ["5: route.0.request_headers.set.Host: this field is reserved for the gateway"]
    );
    assert_eq!(
        route_faults("upstream = 'app'\n[[route]]\nupstream = 'app'\npath = '/'\n"),
        ["7: route.1.path: route.0 is for the same host and path"]
    );
    assert_eq!(
        faults("[[listen]]\naddress = '127.0.0.1:1'\n[[listen]]\naddress = '127.0.0.1:1'\n"),
        ["4: listen.1.address: 127.0.0.1:1 is configured twice"]
    );
    assert_eq!(
        faults("[[listen]]\naddress = '127.0.0.1:1'\nredirect_to_https = 443\n"),
        ["3: listen.0.redirect_to_https: this listener uses TLS; set protocol = \"cleartext\""]
    );
    let redirect_to_itself =
        "[[listen]]\naddress = '127.0.0.1:443'\nprotocol = 'cleartext'\nredirect_to_https = 443\n";
    assert_eq!(
        faults(redirect_to_itself),
        ["4: listen.0.redirect_to_https: this is the listener's own port: redirects would loop"]
    );
}

#[test]
fn errors_found_later_have_a_line_too() {
    let config = parse("[[certificate]]\nchain = 'a'\n\nkey = 'b'\n").unwrap();
    let faults = config.fault(&["certificate", "0", "key"], "cannot be read");
    assert_eq!(faults.to_string(), "/etc/smig/gateway.toml:4: certificate.0.key: cannot be read");
}

#[test]
fn shared_settings_are_parsed() {
    let text = "[server]\nworkers = 3\ndrain_timeout = '7s'\n[migration]\nmin_size = '1MiB'\n";
    let config = parse(text).unwrap();
    assert_eq!(config.server.workers, Some(3));
    assert_eq!(config.server.drain_timeout, Duration::from_secs(7));
    assert_eq!(config.server.migration.policy.min_size, 1 << 20);
    assert_eq!(
        config.changes_requiring_restart(&Config::default()),
        ["server.workers", "server.drain_timeout", "migration.min_size"]
    );
}

#[test]
fn pace_bulk_of_a_route_is_optional() {
    assert_eq!(Config::for_server("http://127.0.0.1:1".parse().unwrap()).routes[0].pace_bulk, None);
    let config = parse("[[route]]\nstatus = 204\npace_bulk = false\n").unwrap();
    assert_eq!(config.routes[0].pace_bulk, Some(false));
}

#[test]
fn the_example_in_the_gateway_docs_is_valid() {
    let page = include_str!("../../../../docs/gateway.md");
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let config = parse(text).unwrap_or_else(|faults| panic!("{faults:#?}"));
    assert_eq!(config.routes.len(), 2);
}
