//! Tests of the command lines and of the reports of damaged files.

use std::fs;

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct TestCli {
    #[command(flatten)]
    args: SurveyArgs,
}

fn parse(line: &[&str]) -> Result<SurveyArgs, clap::Error> {
    let line = ["survey"].iter().chain(line);
    TestCli::try_parse_from(line).map(|line| line.args)
}

const VALID_HAR: &str = r#"{"log":{"entries":[{"request":{"url":"https://a.example/"},
    "response":{"status":200,"bodySize":1000,"content":{"size":1000}}}]}}"#;

#[test]
fn damaged_files_are_named_or_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (good_file, bad_file) = (path("good.har"), path("bad.har"));
    fs::write(&good_file, VALID_HAR).unwrap();
    fs::write(&bad_file, "{\"log\":\n{}}").unwrap();
    let error = run(&parse(&["har", &good_file, &bad_file]).unwrap()).unwrap_err();
    let failure = error.downcast_ref::<CliError>().unwrap();
    assert_eq!(failure.exit, Exit::Read);
    assert!(error.to_string().contains("bad.har: line 2, log: missing field"), "{error}");
    run(&parse(&["har", "--skip-damaged", &good_file, &bad_file, "--json"]).unwrap()).unwrap();
    let error = run(&parse(&["har", &path("none.har")]).unwrap()).unwrap_err();
    assert!(error.to_string().contains("cannot read"), "{error}");
    let error = run(&parse(&["httparchive", &good_file]).unwrap()).unwrap_err();
    assert!(error.to_string().contains("good.har: line 1: "), "{error}");
    let error = run(&parse(&["results", &good_file]).unwrap()).unwrap_err();
    assert!(error.to_string().contains("is it a results file?"), "{error}");
}

#[test]
fn a_crawl_needs_sites_and_a_contact() {
    assert!(parse(&["crawl", "a.example"]).is_err());
    assert!(parse(&["crawl", "--contact", "me@a.example"]).is_err());
    assert!(parse(&["crawl", "--contact", "me@a.example", "a.example", "--rate", "9"]).is_err());
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("sites.txt");
    fs::write(&list, "# mine\n\na.example\nhttps://A.example/#x\nhttp://b.example/y\n").unwrap();
    let line =
        ["crawl", "--contact", "me@a.example", "c.example", "--list", list.to_str().unwrap()];
    let SurveyCommand::Crawl(args) = parse(&line).unwrap().command else { panic!("not a crawl") };
    let starts: Vec<_> = parse_starts(&args).unwrap().into_iter().map(String::from).collect();
    assert_eq!(starts, ["https://c.example/", "https://a.example/", "http://b.example/y"]);
}
