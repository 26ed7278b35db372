//! Errors name their cause, and have the matching exit code.

use smig_testkit::port::ReservedPort;

use crate::support::{Place, assert_exit, sha256_of, text};

#[track_caller]
fn assert_says(output: &std::process::Output, words: &[&str]) {
    let stderr = text(&output.stderr);
    for word in words {
        assert!(stderr.contains(word), "no {word:?} in {stderr}");
    }
}

#[test]
fn a_status_that_is_no_success_is_an_error_and_the_others_come() {
    let place = Place::new();
    let hash = place.file("file", 1000);
    let server = place.serve(&[]);
    let got = place.get(&server, &["--output-dir", "."], &["no-such-file", "file"]);
    assert_exit(&got, 22);
    assert_says(&got, &["no-such-file", "404 Not Found"]);
    assert_eq!(sha256_of(&place.path("out/file")), hash);
    assert!(!place.path("out/no-such-file.part").exists());
}

#[test]
fn certificates() {
    let place = Place::new();
    place.file("file", 10);
    let server = place.serve(&[]);
    let url = server.url("file");
    let mut stranger = place.smig(&["get", &url]);
    stranger.env("XDG_DATA_HOME", place.path("elsewhere"));
    let got = stranger.output().unwrap();
    assert_exit(&got, 60);
    assert_says(&got, &["certificate", "--cacert"]);
    assert!(got.stdout.is_empty());

    let authority = place.shown("data/smig/ca.pem");
    for flags in [&["--cacert", &authority][..], &["--insecure"]] {
        let mut args = vec!["get", &url];
        args.extend(flags);
        let mut told = place.smig(&args);
        told.env("XDG_DATA_HOME", place.path("elsewhere"));
        assert_exit(&told.output().unwrap(), 0);
    }
    let missing = place.run(&["get", "--cacert", "/no/such/file", &url]);
    assert_exit(&missing, 2);
    assert_says(&missing, &["/no/such/file"]);
}

#[test]
fn the_very_certificate_that_a_server_shows_can_be_named() {
    let place = Place::new();
    place.file("file", 10);
    for ca in [false, true] {
        let mut params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        if ca {
            // Like a certificate made by `openssl req -x509`.
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(place.path("cert.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(place.path("key.pem"), key.serialize_pem()).unwrap();
        let (cert, key) = (place.shown("cert.pem"), place.shown("key.pem"));
        let server = place.serve(&["--cert", &cert, "--key", &key]);
        let url = server.url("file");
        assert_exit(&place.run(&["get", "--cacert", &cert, &url]), 0);
        // The name is checked, and the error does not show rustls's internal name for it.
        let other = url.replace("127.0.0.1", "localhost");
        let wrong = place.run(&["get", "--cacert", &cert, &other]);
        assert_exit(&wrong, 60);
        assert_says(&wrong, &["it is for 127.0.0.1, not for localhost"]);
        let unknown = place.run(&["get", &url]);
        assert_exit(&unknown, 60);
        assert_says(&unknown, &["the server's certificate: ", "--cacert"]);
        for got in [wrong, unknown] {
            let said = text(&got.stderr).replace("(CA:TRUE)", "");
            assert!(!said.contains(['(', '{']), "{said}");
        }
    }
}

#[test]
fn cleartext_needs_nobodys_certificates() {
    let place = Place::new();
    place.file("file", 10);
    let server = place.serve(&["--cleartext"]);
    let mut get = place.smig(&["get", &server.url("file")]);
    get.env("SSL_CERT_FILE", "/no/such/file").env("SSL_CERT_DIR", "/no/such/folder");
    assert_exit(&get.output().unwrap(), 0);
}

#[test]
fn nobody_there() {
    let place = Place::new();
    let nobody = ReservedPort::new();
    assert_exit(&place.run(&["get", &format!("https://{nobody}/")]), 7);
    assert_exit(&place.run(&["get", "https://no-such-name.invalid/"]), 6);
}

#[test]
fn tls_and_cleartext_confused() {
    let place = Place::new();
    let server = place.serve(&[]);
    let got = place.run(&["get", &format!("http://{}/", server.address())]);
    assert_exit(&got, 56);
    assert_says(&got, &["https://"]);
    let clear = place.serve(&["--cleartext"]);
    assert_exit(&place.run(&["get", &format!("https://{}/", clear.address())]), 35);
}

#[test]
fn wrong_usage_of_get() {
    let place = Place::new();
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
        let got = place.run(args);
        assert_exit(&got, code);
        assert_says(&got, &[word]);
    }
}

#[test]
fn files_that_are_there_are_kept() {
    let place = Place::new();
    let hash = place.file("file", 10);
    let server = place.serve(&[]);
    let there = place.path("out/file");
    std::fs::write(&there, "precious").unwrap();
    let got = place.get(&server, &["-O"], &["file"]);
    assert_exit(&got, 23);
    assert_says(&got, &["--overwrite"]);
    assert_eq!(std::fs::read(&there).unwrap(), b"precious");
    assert_exit(&place.get(&server, &["-O", "--overwrite"], &["file"]), 0);
    assert_eq!(sha256_of(&there), hash);
}

#[test]
fn a_wrong_checksum_leaves_no_file() {
    let place = Place::new();
    place.file("file", 10);
    let server = place.serve(&[]);
    let got = place.get(&server, &["-O", "--sha256", &"0".repeat(64)], &["file"]);
    assert_exit(&got, 110);
    assert_says(&got, &["wrong checksum", "file.part"]);
    assert!(!place.path("out/file").exists());
}

#[test]
fn servers_that_cannot_start() {
    let place = Place::new();
    let www = place.shown("www");
    let running = place.serve(&[]);
    let taken = running.address();
    let not_there = place.shown("not-there");
    for (args, words) in [
        (&["serve"][..], &["smig serve DIR"][..]),
        (&["serve", &not_there], &["not-there", "does it exist"]),
        (&["serve", "/dev/null"], &["/dev/null", "name a directory"]),
        (&["serve", &www, "--listen", taken], &[taken, "another program is listening there"]),
        (&["serve", &www, "--listen", "here"], &["--listen", "127.0.0.1:8443"]),
        (&["serve", &www, "--cert", "x.pem"], &["--key"]),
        (&["serve", &www, "--cert", "/no/cert", "--key", "/no/key"], &["/no/cert"]),
        (&["serve", &www, "--min-size", "much"], &["--min-size", "much"]),
        (&["serve", &www, "--config", "/no/config"], &["/no/config"]),
    ] {
        let got = place.run(args);
        assert_exit(&got, 2);
        assert_says(&got, words);
    }
}

#[test]
fn keys_and_certificates_have_to_fit() {
    let place = Place::new();
    let www = place.shown("www");
    let made = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (one, other) = (made(), made());
    std::fs::write(place.path("cert.pem"), one.cert.pem()).unwrap();
    std::fs::write(place.path("key.pem"), other.signing_key.serialize_pem()).unwrap();
    let (cert, key) = (place.shown("cert.pem"), place.shown("key.pem"));
    let serve = |cert: &str, key: &str| {
        place.run(&["serve", &www, "--listen", "127.0.0.1:0", "--cert", cert, "--key", key])
    };
    let mismatch = serve(&cert, &key);
    assert_exit(&mismatch, 2);
    assert_says(&mismatch, &["key.pem", "does not belong to the certificate", "cert.pem"]);
    let swapped = serve(&key, &cert);
    assert_exit(&swapped, 2);
    assert_says(&swapped, &["no certificate found"]);
    let empty = serve(&cert, "/dev/null");
    assert_exit(&empty, 2);
    assert_says(&empty, &["/dev/null", "private key"]);
}
