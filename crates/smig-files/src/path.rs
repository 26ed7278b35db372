//! The path of a request, decoded once and checked.
//!
//! Owns which paths may reach the file system: no empty, `.` or `..` segment, no encoded slash, no
//! backslash, no NUL, and no hidden name unless allowed. Must never decode twice, and never repair
//! a path: anything else is refused (RFC 3986 section 6, RFC 9110 section 17.3).
//!
//! Confinement does not depend on this alone: see `root`.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::error_response::ErrorResponse;
use crate::options::HiddenFiles;

/// A path that may be looked up below the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestPath<'a>(Cow<'a, [u8]>);

impl<'a> RequestPath<'a> {
    /// Decodes and checks the path component of a request's URI.
    pub(crate) fn parse(raw_path: &'a str, hidden: HiddenFiles) -> Result<Self, ErrorResponse> {
        let decoded_path: Cow<'a, [u8]> = if is_encoded(raw_path) {
            check_encoding(raw_path.as_bytes())?;
            percent_decode_str(raw_path).into()
        } else {
            Cow::Borrowed(raw_path.as_bytes())
        };
        let Some(path_below_root) = decoded_path.strip_prefix(b"/") else {
            return Err(ErrorResponse::BadPath);
        };
        if decoded_path.iter().any(|byte| matches!(byte, 0 | b'\\')) {
            return Err(ErrorResponse::BadPath);
        }
        let path_below_root = path_below_root.strip_suffix(b"/").unwrap_or(path_below_root);
        if decoded_path.len() > 1 {
            for (depth, segment) in path_below_root.split(|byte| *byte == b'/').enumerate() {
                check_segment(depth, segment, hidden)?;
            }
        }
        Ok(Self(decoded_path))
    }

    /// Returns the decoded path with its leading slash: the same for every spelling of one path.
    pub(crate) fn canonical(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path below the directory, without slashes at its ends; empty for the directory itself.
    pub(crate) fn relative(&self) -> &[u8] {
        let inside = self.0.strip_prefix(b"/").unwrap_or(&self.0);
        inside.strip_suffix(b"/").unwrap_or(inside)
    }

    /// Returns whether the path ends in a slash, and so can only name a directory.
    pub(crate) fn names_directory(&self) -> bool {
        self.0.ends_with(b"/")
    }

    pub(crate) fn into_owned(self) -> RequestPath<'static> {
        RequestPath(Cow::Owned(self.0.into_owned()))
    }
}

/// Returns whether a path has to be decoded. Any other is its own canonical form.
pub(crate) fn is_encoded(raw_path: &str) -> bool {
    raw_path.as_bytes().contains(&b'%')
}

/// Checks that every `%` is followed by two hexadecimal digits that do not encode a slash.
fn check_encoding(raw_path: &[u8]) -> Result<(), ErrorResponse> {
    let mut rest = raw_path;
    while let Some(index) = rest.iter().position(|byte| *byte == b'%') {
        let Some([high, low]) = rest.get(index + 1..index + 3) else {
            return Err(ErrorResponse::BadPath);
        };
        let is_slash = *high == b'2' && low.eq_ignore_ascii_case(&b'f');
        if is_slash || !high.is_ascii_hexdigit() || !low.is_ascii_hexdigit() {
            return Err(ErrorResponse::BadPath);
        }
        rest = &rest[index + 3..];
    }
    Ok(())
}

fn check_segment(depth: usize, segment: &[u8], hidden: HiddenFiles) -> Result<(), ErrorResponse> {
    match segment {
        b"" => Err(ErrorResponse::NotFound),
        b"." | b".." => Err(ErrorResponse::BadPath),
        b".well-known" if depth == 0 => Ok(()),
        [b'.', ..] if hidden == HiddenFiles::Refuse => Err(ErrorResponse::NotFound),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_relative(raw_path: &str) -> Result<String, ErrorResponse> {
        let path = RequestPath::parse(raw_path, HiddenFiles::Refuse)?;
        Ok(String::from_utf8_lossy(path.relative()).into_owned())
    }

    #[test]
    fn accepted_paths_are_decoded() {
        let table = [
            ("/", ""),
            ("/a", "a"),
            ("/a/", "a"),
            ("/a/b.txt", "a/b.txt"),
            ("/a%20b", "a b"),
            ("/%61", "a"),
            ("/a...b", "a...b"),
            ("/a../b", "a../b"),
            ("/%25", "%"),
            ("/%252e%252e/x", "%2e%2e/x"),
            ("/caf%C3%A9", "café"),
            ("/.well-known/security.txt", ".well-known/security.txt"),
            ("/a?b", "a?b"),
        ];
        for (raw, expected) in table {
            assert_eq!(parse_relative(raw).as_deref(), Ok(expected), "{raw}");
        }
    }

    #[test]
    fn malformed_and_hidden_paths_are_refused() {
        let table = [
            ("", ErrorResponse::BadPath),
            ("*", ErrorResponse::BadPath),
            ("a", ErrorResponse::BadPath),
            ("/..", ErrorResponse::BadPath),
            ("/../etc/passwd", ErrorResponse::BadPath),
            ("/a/../b", ErrorResponse::BadPath),
            ("/a/..", ErrorResponse::BadPath),
            ("/a/../", ErrorResponse::BadPath),
            ("/./a", ErrorResponse::BadPath),
            ("/%2e%2e/a", ErrorResponse::BadPath),
            ("/%2E%2e/a", ErrorResponse::BadPath),
            ("/.%2e/a", ErrorResponse::BadPath),
            ("/..%2fa", ErrorResponse::BadPath),
            ("/a%2Fb", ErrorResponse::BadPath),
            ("/%5c..%5cetc", ErrorResponse::BadPath),
            ("/..\\a", ErrorResponse::BadPath),
            ("/\\evil.example/", ErrorResponse::BadPath),
            ("/%00", ErrorResponse::BadPath),
            ("/a%00.txt", ErrorResponse::BadPath),
            ("/%", ErrorResponse::BadPath),
            ("/%4", ErrorResponse::BadPath),
            ("/%zz", ErrorResponse::BadPath),
            ("/a%2", ErrorResponse::BadPath),
            ("//", ErrorResponse::NotFound),
            ("//evil.example/", ErrorResponse::NotFound),
            ("/a//b", ErrorResponse::NotFound),
            ("/.git/config", ErrorResponse::NotFound),
            ("/a/.env", ErrorResponse::NotFound),
            ("/%2eenv", ErrorResponse::NotFound),
            ("/a/.well-known/x", ErrorResponse::NotFound),
        ];
        for (raw, expected) in table {
            assert_eq!(parse_relative(raw), Err(expected), "{raw}");
        }
    }

    #[test]
    fn spellings_of_one_path_have_one_canonical_form() {
        let plain = RequestPath::parse("/a b/", HiddenFiles::Refuse).unwrap();
        let encoded = RequestPath::parse("/%61%20b/", HiddenFiles::Refuse).unwrap();
        assert_eq!(plain.canonical(), encoded.canonical());
        assert!(encoded.names_directory());
    }

    proptest::proptest! {
        #[test]
        fn accepted_paths_stay_below_the_root(raw in "/([a-c./%\\\\]|%2[eEfF]|%5c|%00|\\.\\.){0,12}") {
            if let Ok(path) = RequestPath::parse(&raw, HiddenFiles::Serve) {
                let relative = path.relative();
                proptest::prop_assert!(!relative.starts_with(b"/"));
                proptest::prop_assert!(!relative.iter().any(|byte| matches!(byte, 0 | b'\\')));
                for segment in relative.split(|byte| *byte == b'/') {
                    proptest::prop_assert!(segment != b".." && segment != b".");
                    proptest::prop_assert!(!segment.is_empty() || relative.is_empty());
                }
                let canonical = std::str::from_utf8(path.canonical()).unwrap();
                if !is_encoded(canonical) {
                    let reparsed = RequestPath::parse(canonical, HiddenFiles::Serve).unwrap();
                    proptest::prop_assert_eq!(reparsed.canonical(), path.canonical());
                }
            }
        }
    }

    #[test]
    fn hidden_names_are_accepted_if_enabled() {
        let path = RequestPath::parse("/.git/config", HiddenFiles::Serve).unwrap();
        assert_eq!(path.relative(), b".git/config");
        assert!(RequestPath::parse("/.git/..", HiddenFiles::Serve).is_err());
    }
}
