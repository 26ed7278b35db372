//! Every installed server delivers, to one kind of client; and smig serve serves http1, h2 and smig clients.

use smig_lab::scenario::TransferDirection;
use smig_lab::workload::Outcome;

use crate::support::{SHORT_SCENARIO, Sandbox, assert_exit, can_run, text};

const SERVER_VARIANTS: &str = "
[variants.scheme.nginx.servers.main]
kind = \"nginx\"
[variants.scheme.h2o.servers.main]
kind = \"h2o\"
latency_optimization = true
[variants.scheme.nghttpd.servers.main]
kind = \"nghttpd\"
[variants.scheme.haproxy.servers.main]
kind = \"haproxy\"
[variants.scheme.caddy.servers.main]
kind = \"caddy\"
[variants.scheme.go.servers.main]
kind = \"go\"
[variants.scheme.http3]
servers.main.kind = \"http3\"
clients.user.kind = \"http3\"
";

#[test]
fn every_server_delivers_complete_objects() {
    if !can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    let scenario = SHORT_SCENARIO.replace("repetitions = 3", "repetitions = 1");
    let big = "[workload.transfers.big]\nsize = \"1MB\"\n[accept]";
    let file = sandbox.write_scenario(&(scenario.replace("[accept]", big) + SERVER_VARIANTS));
    let output = sandbox.run(&["run", &file, "--out", "out"]);
    assert_exit(&output, 0);
    eprintln!("{}", text(&output.stderr));
    let results = sandbox.results("out");
    assert!(results.len() >= 2);
    for result in &results {
        assert_eq!(result.observation.objects.len(), 2);
        for object in &result.observation.objects {
            assert_eq!(object.outcome, Outcome::Complete, "{}", result.id);
            assert_eq!(object.bytes, object.size);
        }
    }
    assert!(sandbox.is_clean());
}

#[test]
fn every_client_records_its_transfers() {
    if !can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    let clients = "
[workload.transfers.big]
size = \"20MB\"
[workload.transfers.up]
size = \"200kB\"
direction = \"upload\"
[workload.transfers.dropped]
size = \"30MB\"
cancel = { at = \"100kB\" }
[workload.transfers.later]
size = [\"1kB\", \"2kB\"]
every = \"1ms\"
arrival = \"one-by-one\"
until = \"dropped\"
[variants.scheme.http1]
clients.user = { kind = \"http1\", connections = 3 }
[variants.scheme.pool]
clients.user = { kind = \"h2\", connections = 2, priorities = \"sent\" }
# The download lasts until its second connection has joined, on a loaded machine too.
[variants.scheme.client]
workload.transfers.big.size = \"60MB\"
clients.user.migrate = \"at:100kB\"
servers.main.settings.migration.mode = \"never\"
[variants.scheme.server]
workload.transfers.big.size = \"60MB\"
servers.main.settings.migration.mode = \"at:100kB\"
";
    let file = sandbox
        .write_scenario(&(SHORT_SCENARIO.replace("repetitions = 3", "repetitions = 1") + clients));
    assert_exit(&sandbox.run(&["run", &file, "--out", "out"]), 0);
    let results = sandbox.results("out");
    assert_eq!(results.len(), 6);
    for result in &results {
        let scheme = result.id.condition.level("scheme").unwrap();
        for object in &result.observation.objects {
            let is_dropped = object.name == "dropped";
            let expected = if is_dropped { Outcome::Cancelled } else { Outcome::Complete };
            assert_eq!(object.outcome, expected, "{scheme}: {object:#?}");
            assert_eq!(object.cancel.is_some(), is_dropped);
            if object.direction == TransferDirection::Download {
                let total_bytes: u64 = object.connections.iter().map(|on| on.bytes).sum();
                assert!(total_bytes >= object.bytes, "{scheme}: {object:#?}");
            }
            assert!(object.migrations.is_empty() || ["client", "server", "smig"].contains(&scheme));
        }
        let objects_named =
            |name: &'static str| result.observation.objects.iter().filter(move |o| o.name == name);
        assert!(objects_named("later").count() >= 1, "{scheme}");
        let mut used_connections: Vec<_> = result
            .observation
            .objects
            .iter()
            .flat_map(|o| &o.connections)
            .map(|on| on.connection)
            .collect();
        used_connections.sort_unstable();
        used_connections.dedup();
        match scheme {
            "plain" => assert_eq!(used_connections.len(), 1, "{scheme}"),
            // The connection of the cancelled download is closed.
            "http1" => {
                assert!((2..=4).contains(&used_connections.len()), "{scheme}: {used_connections:?}")
            }
            "pool" => assert_eq!(used_connections.len(), 2, "{scheme}"),
            _ => {}
        }
        if scheme == "client" || scheme == "server" {
            let big = objects_named("big").next().unwrap();
            let events = &result.server_events;
            assert!(!big.migrations.is_empty(), "{scheme}: {big:#?}\n{events:#?}");
        }
    }
}
