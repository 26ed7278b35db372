//! The admin page: one self-contained file, embedded in the binary.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

pub(crate) const PAGE: &str = include_str!("page.html");

/// Returns the Content-Security-Policy: it allows the page's own style and script, by their hashes, and
/// requests to the page's origin.
pub(crate) fn content_security_policy() -> String {
    let style = hash(text_between(PAGE, "<style>", "</style>"));
    let script = hash(text_between(PAGE, "<script>", "</script>"));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    )
}

fn hash(text: &str) -> String {
    BASE64_STANDARD.encode(Sha256::digest(text))
}

fn text_between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let inside = text.split_once(begin).map_or("", |(_, rest)| rest);
    inside.split_once(end).map_or("", |(inside, _)| inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_self_contained() {
        for outside in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!PAGE.contains(outside), "the page refers to {outside}");
        }
        assert_eq!(PAGE.matches("<script>").count(), 1);
        assert_eq!(PAGE.matches("<style>").count(), 1);
        // A browser blocks what the policy forbids, and does not report it to the server.
        for inline in [" style=\"", " onclick=", "javascript:"] {
            assert!(!PAGE.contains(inline), "the page's policy forbids {inline}");
        }
        assert!(!text_between(PAGE, "<script>", "</script>").is_empty());
    }
}
