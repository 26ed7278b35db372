//! Directory listings.
//!
//! Owns their HTML. Lists only what the options allow to be served: no hidden names unless enabled, no
//! symlinks that are not followed, only directories and regular files. Names are untrusted, so each is
//! escaped.

use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::fs::{Dir, FileType};

use crate::error_response::ErrorResponse;
use crate::file_version::FileVersion;
use crate::options::{FileOptions, HiddenFiles};
use crate::root::Root;

/// The maximum number of names on a page. The page states if there are more.
const MAX_NAMES: usize = 10_000;

/// The characters that are percent-encoded: all but the unreserved ones (RFC 3986 section 2.3).
const PERCENT_ENCODED: AsciiSet =
    NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An entry of the page. Directories sort before files.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ListingEntry {
    Directory { name: Vec<u8>, modified_unix_seconds: Option<u64> },
    File { name: Vec<u8>, modified_unix_seconds: Option<u64>, size: u64 },
}

/// Returns the page for a directory. Blocks on the disk.
pub(crate) fn build_page(
    root: &Root,
    relative_path: &[u8],
    directory: OwnedFd,
    options: &FileOptions,
) -> Result<Bytes, ErrorResponse> {
    let mut entries = Vec::new();
    let mut is_truncated = false;
    for entry in Dir::new(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if !is_listed(&name, options.hidden_files) {
            continue;
        }
        if entries.len() == MAX_NAMES {
            is_truncated = true;
            break;
        }
        entries.extend(list_entry(root, relative_path, name));
    }
    entries.sort_unstable();
    Ok(render(relative_path, &entries, is_truncated.then_some(MAX_NAMES)).into())
}

fn is_listed(name: &[u8], hidden: HiddenFiles) -> bool {
    let refused = name == b"." || name == b".." || name.contains(&b'\\');
    !refused && (hidden == HiddenFiles::Serve || !name.starts_with(b"."))
}

/// Returns an entry of the page, or `None` for one that cannot be served.
fn list_entry(root: &Root, relative_path: &[u8], name: Vec<u8>) -> Option<ListingEntry> {
    let mut path = relative_path.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(&name);
    let (version, file_type) = FileVersion::fstat(root.open_for_stat(&path).ok()?).ok()?;
    let modified = version.modified_unix_seconds();
    match file_type {
        FileType::Directory => {
            Some(ListingEntry::Directory { name, modified_unix_seconds: modified })
        }
        FileType::RegularFile => {
            Some(ListingEntry::File { name, modified_unix_seconds: modified, size: version.size() })
        }
        _ => None,
    }
}

fn render(relative_path: &[u8], entries: &[ListingEntry], truncated_at: Option<usize>) -> String {
    let title = escape(&String::from_utf8_lossy(relative_path));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>/{title}</title>\n\
         </head>\n<body>\n<h1>/{title}</h1>\n<table>\n\
         <tr><th align=\"left\">Name</th><th align=\"right\">Bytes</th>\
         <th align=\"left\">Last modified</th></tr>\n"
    );
    if !relative_path.is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for entry in entries {
        let (name, slash, size, modified) = match entry {
            ListingEntry::Directory { name, modified_unix_seconds: modified } => {
                (name, "/", String::new(), modified)
            }
            ListingEntry::File { name, modified_unix_seconds: modified, size } => {
                (name, "", size.to_string(), modified)
            }
        };
        let link = percent_encode(name, &PERCENT_ENCODED);
        let text = escape(&String::from_utf8_lossy(name));
        let date = modified.and_then(format_date).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "<tr><td><a href=\"./{link}{slash}\">{text}{slash}</a></td>\
             <td align=\"right\">{size}</td><td>{date}</td></tr>"
        );
    }
    page.push_str("</table>\n");
    if let Some(count) = truncated_at {
        let _ = writeln!(page, "<p>Only {count} of the files in this directory are listed.</p>");
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn format_date(seconds: u64) -> Option<String> {
    // Dates after the year 9999 cannot be formatted.
    const MAX_SECONDS: u64 = 253_402_300_799;
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
    (seconds <= MAX_SECONDS).then(|| httpdate::fmt_http_date(time))
}

/// Escapes text for HTML content and for quoted attributes.
fn escape(text: &str) -> String {
    let mut escaped_text = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped_text.push_str("&amp;"),
            '<' => escaped_text.push_str("&lt;"),
            '>' => escaped_text.push_str("&gt;"),
            '"' => escaped_text.push_str("&quot;"),
            '\'' => escaped_text.push_str("&#39;"),
            other => escaped_text.push(other),
        }
    }
    escaped_text
}
