//! Scenarios with commands as servers and clients.

use super::*;

/// The same for commands; appended below `[servers.other.command]` and `[clients.load.command]`.
const INVALID_SERVER_COMMANDS: &[(&str, &str, &[&str])] = &[
    ("", "test.toml:11: servers.other.command: ", &["missing field `argv`"]),
    ("argv = []\n", "test.toml:12: servers.other.command.argv: ", &["it is empty"]),
    (
        "argv = [\"./serve\", \"{port}\"]\n",
        "test.toml:12: servers.other.command.argv: ",
        &["\"./serve\" is relative", "\"{dir}/./serve\"", "PATH"],
    ),
    (
        "argv = [\"serve\", \"{prot}\"]\n",
        "test.toml:12: servers.other.command.argv: ",
        &["unknown placeholder {prot}", "{addr}, {port}, {root}, {cert}", "{dir}, {main}"],
    ),
    (
        "argv = [\"serve\"]\n",
        "test.toml:12: servers.other.command.argv: ",
        &["{port} is in no argument", "the lab chooses the port"],
    ),
    (
        "argv = [\"serve\", \"{port}\"]\nready = \"soon\"\n",
        "test.toml:13: servers.other.command.ready: ",
        &["`soon`", "`port` or `line`"],
    ),
    (
        "argv = [\"serve\", \"{port}\"]\nready = { line = \" \" }\n",
        "test.toml:13: servers.other.command.ready: ",
        &["needs a text"],
    ),
    (
        "argv = [\"serve\", \"{port}\"]\nstop = \"USR1\"\n",
        "test.toml:13: servers.other.command.stop: ",
        &["`USR1`", "`TERM`, `INT`"],
    ),
    (
        "argv = [\"serve\", \"{port}\"]\nfiles = { \"../x\" = \"\" }\n",
        "test.toml:13: servers.other.command.files: ",
        &["\"../x\" is not a file name"],
    ),
    (
        "argv = [\"serve\", \"{port}\"]\nversion = [\"serve\", \"{root}\"]\n",
        "test.toml:13: servers.other.command.version: ",
        &["unknown placeholder {root}; known: {dir}"],
    ),
    (
        "argv = [\"serve\", \"{port}\"]\ntls = false\n",
        "test.toml:5: clients.user.kind: ",
        &["tls = false", "\"command\""],
    ),
];

const INVALID_CLIENT_COMMANDS: &[(&str, &str, &[&str])] = &[
    (
        "argv = [\"load\"]\n",
        "test.toml:12: clients.load.command.argv: ",
        &["{url}, {origin} and {addr}"],
    ),
    (
        "argv = [\"load\", \"{url}\", \"{root}\"]\n",
        "test.toml:12: clients.load.command.argv: ",
        &["unknown placeholder {root}", "{url}, {origin}"],
    ),
    (
        "argv = [\"load\", \"{url}\"]\nresult = \"csv\"\n",
        "test.toml:13: clients.load.command.result: ",
        &["`csv`", "`exit` or `json-lines`"],
    ),
    (
        "argv = [\"load\", \"{url}\"]\n[workload.transfers.big.cancel]\nat = \"1kB\"\n",
        "test.toml:13: workload.transfers.big.cancel: ",
        &["cannot cancel", "\"command\""],
    ),
];

#[test]
fn errors_of_commands_name_file_line_key_and_remedy() {
    let check = |before: &str, cases: &[(&str, &str, &[&str])]| {
        for (text, location, words) in cases {
            let errors = parse_errors(&format!("{before}{text}"));
            let fits = |error: &&String| {
                error.starts_with(location) && words.iter().all(|word| error.contains(word))
            };
            assert!(errors.iter().any(|error| fits(&error)), "{text}: {errors:#?}");
        }
    };
    let with_other_server = MINIMAL_SCENARIO.replace(
        "[clients.user]\nkind = \"smig\"\n",
        "[clients.user]\nkind = \"smig\"\nserver = \"other\"\n",
    );
    let with_other_server = format!(
        "{with_other_server}[servers.other]\nkind = \"command\"\n[servers.other.command]\n"
    );
    check(&with_other_server, INVALID_SERVER_COMMANDS);
    let with_load_client =
        MINIMAL_SCENARIO.replace("size = \"50MB\"\n", "size = \"50MB\"\nclient = \"load\"\n");
    let with_load_client =
        format!("{with_load_client}[clients.load]\nkind = \"command\"\n[clients.load.command]\n");
    check(&with_load_client, INVALID_CLIENT_COMMANDS);
    for (text, location, expected_message) in [
        (
            "[servers.other]\nkind = \"command\"\n",
            "test.toml:9: servers.other.kind: ",
            "needs a table [servers.other.command]",
        ),
        (
            "[servers.main.command]\nargv = [\"x\", \"{port}\"]\n",
            "test.toml:8: servers.main.command: ",
            "only the kind \"command\" has this",
        ),
    ] {
        let errors = parse_errors(&format!("{MINIMAL_SCENARIO}{text}"));
        let fits = |error: &String| error.starts_with(location) && error.contains(expected_message);
        assert!(errors.iter().any(fits), "{text}: {errors:#?}");
    }
}

/// A scenario with a server `main`, another one called `name`, and an agent whose argument is `argument`.
fn with_agent(name: &str, argument: &str, agent_host: &str, rest: &str) -> String {
    let server = |name: &str, argument: &str, host: &str| {
        format!(
            "[servers.{name}]\nkind = \"command\"\nhost = \"{host}\"\n[servers.{name}.command]\n\
             argv = [\"x\", \"{{port}}\", \"{argument}\"]\n"
        )
    };
    let servers = [server(name, "", "server"), server("agent", argument, agent_host)].concat();
    format!(
        "link = \"paper-wired\"\n[servers.main]\nkind = \"smig\"\n{servers}[clients.user]\nkind = \"http1\"\n\
         server = \"agent\"\n{rest}[workload.transfers.big]\nsize = 9\n"
    )
}

#[test]
fn servers_named_in_commands_have_one_meaning_and_are_reachable() {
    for (name, argument, agent_host, rest, expected) in [
        ("web", "{main} {web} {smig}", "client", "", None),
        ("web-1", "{web-1}", "client", "", Some("{web-1} stays as it is")),
        ("smig", "{smig}", "client", "", Some("is this placeholder, and a server")),
        ("web", "{wep}", "client", "", Some("unknown placeholder {wep}")),
        ("web", "", "client", "link = 1\n", Some("clients.user.link")),
    ] {
        let errors = match parse(
            &with_agent(name, argument, agent_host, rest),
            "test",
            Path::new("/"),
            &check_setting,
        ) {
            Ok(_) => String::new(),
            Err(errors) => errors.iter().map(ToString::to_string).collect(),
        };
        match expected {
            Some(expected) => assert!(errors.contains(expected), "{name}: {errors}"),
            None => assert_eq!(errors, ""),
        }
    }
    // From the servers' host, the address of the agent would be another one.
    let text = with_agent("web", "", "client", "").replace("\"\"]", "\"{agent}\"]");
    let errors = parse(&text, "test", Path::new("/"), &check_setting).unwrap_err();
    assert!(
        errors.iter().any(|error| error.message.contains("agent runs on the clients' host")),
        "{errors:?}"
    );
    // Without an agent, nothing would be measured.
    let text = MINIMAL_SCENARIO
        .replace("kind = \"smig\"\n[clients", "kind = \"smig\"\nhost = \"client\"\n[clients");
    let errors = parse(&text, "test", Path::new("/"), &check_setting).unwrap_err();
    assert!(
        errors.iter().any(|error| error.message.contains("no packet would cross the link")),
        "{errors:?}"
    );
}

#[test]
fn the_hash_depends_on_a_servers_host_unless_it_is_the_default() {
    let hash_of = |text: &str| {
        parse(text, "test", Path::new("/"), &check_setting)
            .unwrap()
            .trials()
            .remove(0)
            .hash()
            .to_owned()
    };
    let on_server = with_agent("web", "", "server", "");
    assert_eq!(hash_of(&on_server), hash_of(&on_server.replace("host = \"server\"\n", "")));
    assert_ne!(hash_of(&on_server), hash_of(&with_agent("web", "", "client", "")));
}

#[test]
fn a_commands_hash_depends_on_its_files_bytes_and_not_on_their_path() {
    let text = "link = \"paper-wired\"\n[servers.main]\nkind = \"command\"\n[servers.main.command]\n\
        argv = [\"python3\", \"{dir}/serve.py\", \"{port}\"]\n[clients.user]\nkind = \"http1\"\n\
        [workload.transfers.big]\nsize = 9\n";
    let trial_with_script = |script: &str| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("serve.py"), script).unwrap();
        let campaign = parse(text, "test", dir.path(), &check_setting).unwrap();
        let trial = campaign.trials().remove(0);
        let argv = &trial.scenario.servers["main"].command.as_ref().unwrap().argv;
        assert_eq!(argv[1], dir.path().join("serve.py").display().to_string());
        trial
    };
    let (first, with_same_script, with_other_script) =
        (trial_with_script("1"), trial_with_script("1"), trial_with_script("2"));
    assert_ne!(first.scenario, with_same_script.scenario, "found in another directory");
    assert_eq!(first.hash(), with_same_script.hash());
    assert_ne!(first.hash(), with_other_script.hash());
}

#[test]
fn files_named_by_a_command_are_part_of_the_hash() {
    let hash_with = |argument: &str, extra_lines: &str, script: &str| {
        let text = format!(
            "link = \"paper-wired\"\n[servers.main]\nkind = \"command\"\n[servers.main.command]\n\
             argv = [\"sh\", '{argument}', \"{{port}}\"]\n{extra_lines}\n[clients.user]\nkind = \"http1\"\n\
             [workload.transfers.big]\nsize = 9\n"
        );
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("parts/more")).unwrap();
        std::fs::write(dir.path().join("parts/more/serve.py"), script).unwrap();
        std::fs::write(dir.path().join("beside.py"), script).unwrap();
        parse(&text, "test", dir.path(), &check_setting)
            .unwrap()
            .trials()
            .remove(0)
            .hash()
            .to_owned()
    };
    for (argument, extra_lines, is_part) in [
        ("--config={dir}/parts/more/serve.py", "", true),
        ("{dir}/parts", "", true),
        ("{dir}/beside.py:main", "", true),
        ("{dir}/beside.py,ro", "", true),
        ("cd /; exec python3 \"{dir}/beside.py\" 1", "", true),
        ("x", "environment = { CONFIG = \"{dir}/beside.py\" }", true),
        ("x", "files = { config = \"include {dir}/parts/more/;\" }", true),
        ("{dir}/no-such-file", "", false),
        ("{dir}", "environment = { OUT = \"{dir}\" }", false),
    ] {
        let hash = |script| hash_with(argument, extra_lines, script);
        assert_eq!(hash("1"), hash("1"), "{argument} {extra_lines}");
        assert_eq!(hash("1") != hash("2"), is_part, "{argument} {extra_lines}");
    }
}
