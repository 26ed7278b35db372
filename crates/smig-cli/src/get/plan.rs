//! Maps the command line to jobs: which URL is written where. Rejects everything that can be
//! rejected before the first connection.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use http::Uri;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use super::args::GetArgs;
use crate::exit::{CliError, Exit};
use crate::hex::hex_byte;

/// Characters that a URL must not contain unencoded, but that pasted URLs contain.
const UNSAFE_CHARACTERS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A URL and its destination.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The URL as given on the command line.
    pub(super) url: String,
    pub(super) uri: Uri,
    pub(super) destination: Destination,
    pub(super) sha256: Option<[u8; 32]>,
}

/// Destination of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    Stdout,
    /// A path that is not a regular file and is written directly: /dev/null, a pipe.
    Device(PathBuf),
    File {
        path: PathBuf,
        if_exists: IfExists,
    },
    /// There is no body (--head).
    Nowhere,
}

/// What to do if the file exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfExists {
    Replace,
    /// Never replace it: the fetch fails.
    Fail,
    /// Do not fetch the URL: an earlier run has.
    Skip,
}

impl Destination {
    /// Returns the destination for messages and JSON.
    pub(super) fn to_text(&self) -> Option<String> {
        match self {
            Self::Stdout => Some("-".to_owned()),
            Self::Device(path) | Self::File { path, .. } => Some(path.display().to_string()),
            Self::Nowhere => None,
        }
    }
}

/// Builds the jobs.
///
/// # Errors
/// The command line is invalid.
pub(super) fn plan(args: &GetArgs) -> Result<Vec<Job>, CliError> {
    let naming = choose_naming(args)?;
    let checksums = parse_checksums(args)?;
    let mut jobs = Vec::new();
    let mut urls_by_path: BTreeMap<PathBuf, &str> = BTreeMap::new();
    for (number, url) in args.urls.iter().enumerate() {
        let uri = parse_url(url)?;
        let destination = match &naming {
            Naming::Nowhere => Destination::Nowhere,
            Naming::Stdout => Destination::Stdout,
            Naming::File(path) => destination_from_path(path),
            Naming::Directory(dir) => destination_from_url(args, dir, url, &uri)?,
        };
        if let Destination::File { path, .. } = &destination
            && let Some(other_url) = urls_by_path.insert(path.clone(), url)
        {
            return Err(usage_error(format!(
                "{other_url} and {url} would both be written to {}; fetch them one by one with -o",
                path.display()
            )));
        }
        jobs.push(Job {
            url: url.clone(),
            uri,
            destination,
            sha256: checksums.get(number).copied(),
        });
    }
    Ok(jobs)
}

fn usage_error(message: impl Into<String>) -> CliError {
    CliError::new(Exit::Usage, message)
}

/// How destinations are chosen.
enum Naming {
    Nowhere,
    Stdout,
    File(PathBuf),
    Directory(PathBuf),
}

fn choose_naming(args: &GetArgs) -> Result<Naming, CliError> {
    if args.head {
        return Ok(Naming::Nowhere);
    }
    if let Some(path) = &args.output {
        if args.urls.len() > 1 {
            return Err(usage_error(
                "-o names one file, but there are several URLs; use --output-dir DIR",
            ));
        }
        if path.as_os_str() != "-" {
            return Ok(Naming::File(path.clone()));
        }
        if args.json {
            return Err(usage_error("--json prints to standard output; write the body to a file"));
        }
        return Ok(Naming::Stdout);
    }
    if let Some(dir) = &args.output_dir {
        return Ok(Naming::Directory(dir.clone()));
    }
    let is_piped = !std::io::stdout().is_terminal();
    if args.urls.len() == 1 && is_piped && !args.remote_name && !args.json {
        return Ok(Naming::Stdout);
    }
    Ok(Naming::Directory(PathBuf::new()))
}

/// Returns the destination for a path given on the command line.
fn destination_from_path(path: &Path) -> Destination {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => {
            Destination::Device(path.to_owned())
        }
        _ => Destination::File { path: path.to_owned(), if_exists: IfExists::Replace },
    }
}

fn destination_from_url(
    args: &GetArgs,
    dir: &Path,
    url: &str,
    uri: &Uri,
) -> Result<Destination, CliError> {
    let name = file_name(uri).ok_or_else(|| {
        usage_error(format!("{url} does not end in a file name; give one with -o"))
    })?;
    let path = dir.join(name);
    if args.overwrite {
        return Ok(Destination::File { path, if_exists: IfExists::Replace });
    }
    if args.resume {
        return Ok(Destination::File { path, if_exists: IfExists::Skip });
    }
    if path.symlink_metadata().is_ok() {
        return Err(CliError::new(
            Exit::Write,
            format!(
                "{} already exists; --overwrite replaces it, -o chooses another name",
                path.display()
            ),
        ));
    }
    Ok(Destination::File { path, if_exists: IfExists::Fail })
}

/// Returns the file name at the end of a URL's path, `index.html` if the path ends in a slash; `None` if
/// the name is unsafe or not UTF-8.
fn file_name(uri: &Uri) -> Option<String> {
    let last_segment = uri.path().rsplit('/').next().unwrap_or_default();
    let last_segment = if last_segment.is_empty() { "index.html" } else { last_segment };
    let decoded = percent_decode_str(last_segment).decode_utf8().ok()?;
    let is_dangerous = decoded == "."
        || decoded == ".."
        || decoded.contains('/')
        || decoded.chars().any(char::is_control);
    (!is_dangerous).then(|| decoded.into_owned())
}

fn parse_url(url: &str) -> Result<Uri, CliError> {
    let bad = |why: &str| CliError::new(Exit::MalformedUrl, format!("{url}: {why}"));
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(bad("no scheme; write https://host/path"));
    };
    let scheme = scheme.to_ascii_lowercase();
    if scheme != "https" && scheme != "http" {
        return Err(bad("only https and http are supported"));
    }
    let absolute_url = format!("{scheme}://{rest}");
    let without_fragment = absolute_url.split('#').next().unwrap_or_default();
    let encoded = utf8_percent_encode(without_fragment, UNSAFE_CHARACTERS).to_string();
    let uri: Uri = encoded.parse().map_err(|error| bad(&format!("{error}")))?;
    let authority = uri.authority().ok_or_else(|| bad("no host; write https://host/path"))?;
    if authority.as_str().contains('@') {
        return Err(bad(
            "a user name in the URL is not supported; use -H 'authorization: Basic ...'",
        ));
    }
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    if !port.is_empty() && authority.port().is_none() {
        return Err(bad("the port is not a number below 65536"));
    }
    if authority.host().is_empty() || authority.host().contains('%') {
        return Err(bad("no valid host name; write a non-ASCII name in its xn-- form"));
    }
    Ok(uri)
}

fn parse_checksums(args: &GetArgs) -> Result<Vec<[u8; 32]>, CliError> {
    if !args.sha256.is_empty() && args.sha256.len() != args.urls.len() {
        return Err(usage_error(format!(
            "--sha256 given {} times for {} URLs; give it once for each, in order",
            args.sha256.len(),
            args.urls.len()
        )));
    }
    let parse = |text: &String| {
        parse_sha256(text)
            .ok_or_else(|| usage_error(format!("--sha256 {text}: not 64 hexadecimal digits")))
    };
    args.sha256.iter().map(parse).collect()
}

fn parse_sha256(text: &str) -> Option<[u8; 32]> {
    let mut sum = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, digits) in sum.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = hex_byte(digits)?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(url: &str) -> Option<String> {
        file_name(&parse_url(url).unwrap())
    }

    #[test]
    fn names_come_from_the_end_of_the_path() {
        assert_eq!(name_of("https://a/b/c.txt?x=/d").as_deref(), Some("c.txt"));
        assert_eq!(name_of("https://a/b/").as_deref(), Some("index.html"));
        assert_eq!(name_of("https://a").as_deref(), Some("index.html"));
        assert_eq!(name_of("https://a/two%20words").as_deref(), Some("two words"));
        assert_eq!(name_of("https://a/two wörds#x").as_deref(), Some("two wörds"));
        for bad in [
            "https://a/..",
            "https://a/%2e%2e",
            "https://a/x%2fy",
            "https://a/%00",
            "https://a/%0a",
        ] {
            assert_eq!(name_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn urls_are_checked() {
        for bad in [
            "host/path",
            "ftp://host/",
            "https://",
            "https:///x",
            "https://u:p@host/",
            "https://h:99999/",
        ] {
            assert_eq!(parse_url(bad).unwrap_err().exit, Exit::MalformedUrl, "{bad}");
        }
        assert_eq!(parse_url("HTTPS://[::1]:8443/x").unwrap().port_u16(), Some(8443));
    }

    #[test]
    fn checksums_are_64_digits() {
        assert_eq!(parse_sha256(&"0f".repeat(32)), Some([15; 32]));
        assert_eq!(parse_sha256(&"0g".repeat(32)), None);
        assert_eq!(parse_sha256(&"+f".repeat(32)), None);
        assert_eq!(parse_sha256("00"), None);
        assert_eq!(parse_sha256(&"é".repeat(32)), None);
    }
}
