//! Markup of HTML and SVG: escaped text and nested tags.

/// Escapes text for element content and attribute values.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

/// Asserts, in tests of pages and charts, that all tags are closed in the right order. Covers only
/// the markup that this crate generates.
///
/// # Panics
/// When a tag is not closed, or closed out of order.
pub fn assert_balanced(markup: &str) {
    let void_elements = ["meta", "link", "br", "hr", "img", "!doctype"];
    let mut open_tags: Vec<&str> = Vec::new();
    for piece in markup.split('<').skip(1) {
        let (tag, _) = piece.split_once('>').expect("a tag ends");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().expect("a name");
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open_tags.pop(), Some(closed), "closes the innermost open tag");
        } else if !tag.ends_with('/') && !void_elements.contains(&name) {
            open_tags.push(name);
        }
    }
    assert_eq!(open_tags, [""; 0], "all tags are closed");
}
