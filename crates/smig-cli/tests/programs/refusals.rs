//! Errors name their cause, and have the matching exit code.

use smig_testkit::port::ReservedPort;

use crate::support::{Sandbox, assert_exit, sha256_of, text};

#[track_caller]
fn assert_stderr_contains(output: &std::process::Output, words: &[&str]) {
    let stderr = text(&output.stderr);
    for word in words {
        assert!(stderr.contains(word), "no {word:?} in {stderr}");
    }
}

#[test]
fn an_error_status_fails_its_url_and_the_others_are_fetched() {
    let sandbox = Sandbox::new();
    let hash = sandbox.write_file("file", 1000);
    let server = sandbox.serve(&[]);
    let got = sandbox.get(&server, &["--output-dir", "."], &["no-such-file", "file"]);
    assert_exit(&got, 22);
    assert_stderr_contains(&got, &["no-such-file", "404 Not Found"]);
    assert_eq!(sha256_of(&sandbox.path("out/file")), hash);
    assert!(!sandbox.path("out/no-such-file.part").exists());
}

#[test]
fn untrusted_certificates_are_rejected_unless_allowed() {
    let sandbox = Sandbox::new();
    sandbox.write_file("file", 10);
    let server = sandbox.serve(&[]);
    let url = server.url("file");
    let mut untrusting = sandbox.smig(&["get", &url]);
    untrusting.env("XDG_DATA_HOME", sandbox.path("elsewhere"));
    let got = untrusting.output().unwrap();
    assert_exit(&got, 60);
    assert_stderr_contains(&got, &["certificate", "--cacert"]);
    assert!(got.stdout.is_empty());

    let authority = sandbox.path_text("data/smig/ca.pem");
    for flags in [&["--cacert", &authority][..], &["--insecure"]] {
        let mut args = vec!["get", &url];
        args.extend(flags);
        let mut configured = sandbox.smig(&args);
        configured.env("XDG_DATA_HOME", sandbox.path("elsewhere"));
        assert_exit(&configured.output().unwrap(), 0);
    }
    let missing = sandbox.run(&["get", "--cacert", "/no/such/file", &url]);
    assert_exit(&missing, 2);
    assert_stderr_contains(&missing, &["/no/such/file"]);
}

#[test]
fn a_self_signed_certificate_can_be_trusted_by_file() {
    let sandbox = Sandbox::new();
    sandbox.write_file("file", 10);
    for is_ca in [false, true] {
        let mut params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        if is_ca {
            // Like a certificate made by `openssl req -x509`.
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(sandbox.path("cert.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(sandbox.path("key.pem"), key.serialize_pem()).unwrap();
        let (cert, key) = (sandbox.path_text("cert.pem"), sandbox.path_text("key.pem"));
        let server = sandbox.serve(&["--cert", &cert, "--key", &key]);
        let url = server.url("file");
        assert_exit(&sandbox.run(&["get", "--cacert", &cert, &url]), 0);
        // The name is checked, and the error does not show rustls's internal name for it.
        let localhost_url = url.replace("127.0.0.1", "localhost");
        let wrong_name_output = sandbox.run(&["get", "--cacert", &cert, &localhost_url]);
        assert_exit(&wrong_name_output, 60);
        assert_stderr_contains(&wrong_name_output, &["it is for 127.0.0.1, not for localhost"]);
        let unknown_authority_output = sandbox.run(&["get", &url]);
        assert_exit(&unknown_authority_output, 60);
        assert_stderr_contains(
            &unknown_authority_output,
            &["the server's certificate: ", "--cacert"],
        );
        for got in [wrong_name_output, unknown_authority_output] {
            let stderr = text(&got.stderr).replace("(CA:TRUE)", "");
            assert!(!stderr.contains(['(', '{']), "{stderr}");
        }
    }
}

#[test]
fn cleartext_needs_no_trust_store() {
    let sandbox = Sandbox::new();
    sandbox.write_file("file", 10);
    let server = sandbox.serve(&["--cleartext"]);
    let mut get = sandbox.smig(&["get", &server.url("file")]);
    get.env("SSL_CERT_FILE", "/no/such/file").env("SSL_CERT_DIR", "/no/such/folder");
    assert_exit(&get.output().unwrap(), 0);
}

#[test]
fn unreachable_and_unknown_hosts_have_their_exit_codes() {
    let sandbox = Sandbox::new();
    let unused_port = ReservedPort::new();
    assert_exit(&sandbox.run(&["get", &format!("https://{unused_port}/")]), 7);
    assert_exit(&sandbox.run(&["get", "https://no-such-name.invalid/"]), 6);
}

#[test]
fn a_url_with_the_wrong_scheme_is_reported() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[]);
    let got = sandbox.run(&["get", &format!("http://{}/", server.address())]);
    assert_exit(&got, 56);
    assert_stderr_contains(&got, &["https://"]);
    let clear = sandbox.serve(&["--cleartext"]);
    assert_exit(&sandbox.run(&["get", &format!("https://{}/", clear.address())]), 35);
}

#[test]
fn usage_errors_of_get_are_reported() {
    let sandbox = Sandbox::new();
    for (args, code, word) in [
        (&["get"][..], 2, "URL"),
        (&["get", "example.org/x"], 3, "https://host/path"),
        (&["get", "ftp://example.org/x"], 3, "https and http"),
        (&["get", "https://a/x", "https://b/x", "-o", "f"], 2, "--output-dir"),
        (&["get", "https://a/x", "https://b/x"], 2, "both be written"),
        (&["get", "https://a/x", "-H", "no colon"], 2, "name: value"),
        (&["get", "https://a/x", "--sha256", "12"], 2, "64 hexadecimal"),
        (&["get", "https://a/..", "-O"], 2, "give one with -o"),
        (&["get", "https://a/x", "--max-time", "soon"], 2, "soon"),
        (&["get", "https://a/x", "-d", "@/no/such/file"], 26, "/no/such/file"),
    ] {
        let got = sandbox.run(args);
        assert_exit(&got, code);
        assert_stderr_contains(&got, &[word]);
    }
}

#[test]
fn existing_files_are_kept() {
    let sandbox = Sandbox::new();
    let hash = sandbox.write_file("file", 10);
    let server = sandbox.serve(&[]);
    let existing_file = sandbox.path("out/file");
    std::fs::write(&existing_file, "precious").unwrap();
    let got = sandbox.get(&server, &["-O"], &["file"]);
    assert_exit(&got, 23);
    assert_stderr_contains(&got, &["--overwrite"]);
    assert_eq!(std::fs::read(&existing_file).unwrap(), b"precious");
    assert_exit(&sandbox.get(&server, &["-O", "--overwrite"], &["file"]), 0);
    assert_eq!(sha256_of(&existing_file), hash);
}

#[test]
fn a_wrong_checksum_leaves_no_file() {
    let sandbox = Sandbox::new();
    sandbox.write_file("file", 10);
    let server = sandbox.serve(&[]);
    let got = sandbox.get(&server, &["-O", "--sha256", &"0".repeat(64)], &["file"]);
    assert_exit(&got, 110);
    assert_stderr_contains(&got, &["wrong checksum", "file.part"]);
    assert!(!sandbox.path("out/file").exists());
}

#[test]
fn servers_that_cannot_start_report_why() {
    let sandbox = Sandbox::new();
    let www = sandbox.path_text("www");
    let running_server = sandbox.serve(&[]);
    let taken_address = running_server.address();
    let missing_directory = sandbox.path_text("not-there");
    for (args, words) in [
        (&["serve"][..], &["smig serve DIR"][..]),
        (&["serve", &missing_directory], &["not-there", "does it exist"]),
        (&["serve", "/dev/null"], &["/dev/null", "name a directory"]),
        (
            &["serve", &www, "--listen", taken_address],
            &[taken_address, "another program is listening there"],
        ),
        (&["serve", &www, "--listen", "here"], &["--listen", "127.0.0.1:8443"]),
        (&["serve", &www, "--cert", "x.pem"], &["--key"]),
        (&["serve", &www, "--cert", "/no/cert", "--key", "/no/key"], &["/no/cert"]),
        (&["serve", &www, "--min-size", "much"], &["--min-size", "much"]),
        (&["serve", &www, "--config", "/no/config"], &["/no/config"]),
    ] {
        let got = sandbox.run(args);
        assert_exit(&got, 2);
        assert_stderr_contains(&got, words);
    }
}

#[test]
fn mismatched_keys_and_certificates_are_rejected() {
    let sandbox = Sandbox::new();
    let www = sandbox.path_text("www");
    let self_signed = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (first_cert, second_cert) = (self_signed(), self_signed());
    std::fs::write(sandbox.path("cert.pem"), first_cert.cert.pem()).unwrap();
    std::fs::write(sandbox.path("key.pem"), second_cert.signing_key.serialize_pem()).unwrap();
    let (cert, key) = (sandbox.path_text("cert.pem"), sandbox.path_text("key.pem"));
    let serve = |cert: &str, key: &str| {
        sandbox.run(&["serve", &www, "--listen", "127.0.0.1:0", "--cert", cert, "--key", key])
    };
    let mismatch = serve(&cert, &key);
    assert_exit(&mismatch, 2);
    assert_stderr_contains(
        &mismatch,
        &["key.pem", "does not belong to the certificate", "cert.pem"],
    );
    let swapped = serve(&key, &cert);
    assert_exit(&swapped, 2);
    assert_stderr_contains(&swapped, &["no certificate found"]);
    let empty = serve(&cert, "/dev/null");
    assert_exit(&empty, 2);
    assert_stderr_contains(&empty, &["/dev/null", "private key"]);
}
