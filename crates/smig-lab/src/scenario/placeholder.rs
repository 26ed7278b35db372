//! Placeholders in command lines and files of scenarios: `{port}`.
//!
//! A placeholder is a name of lowercase letters and underscores in braces. All other braces are
//! text, so that configuration files with blocks can be written as they are.

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
enum TextPiece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

/// Returns whether this name in braces is a placeholder.
pub(super) fn is_placeholder_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Splits a text into the parts before, in and after its first placeholder.
fn split(text: &str) -> Option<(&str, &str, &str)> {
    text.match_indices('{').find_map(|(at, _)| {
        let (name, after) = text[at + 1..].split_once('}')?;
        is_placeholder_name(name).then(|| (&text[..at], name, after))
    })
}

fn pieces(text: &str) -> impl Iterator<Item = TextPiece<'_>> {
    let mut rest = Some(text);
    let mut name = None;
    std::iter::from_fn(move || {
        if let Some(name) = name.take() {
            return Some(TextPiece::Placeholder(name));
        }
        let text = rest.take()?;
        let Some((before, placeholder, after)) = split(text) else {
            return Some(TextPiece::Text(text));
        };
        name = Some(placeholder);
        rest = Some(after);
        Some(TextPiece::Text(before))
    })
}

/// Returns the names of a text's placeholders.
pub(crate) fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).filter_map(|piece| match piece {
        TextPiece::Placeholder(name) => Some(name),
        TextPiece::Text(_) => None,
    })
}

/// Replaces placeholders by their values; those without a value stay.
pub(crate) fn fill_placeholders(text: &str, value: &dyn Fn(&str) -> Option<String>) -> String {
    let filled = |piece| match piece {
        TextPiece::Text(text) => text.to_owned(),
        TextPiece::Placeholder(name) => value(name).unwrap_or_else(|| format!("{{{name}}}")),
    };
    pieces(text).map(filled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_in_braces_are_placeholders() {
        let text = "http { listen {addr}:{port}; } {\"a\": {}} ${HOME} {root}{open";
        assert_eq!(placeholders(text).collect::<Vec<_>>(), ["addr", "port", "root"]);
        let value = |name: &str| (name != "root").then(|| name.to_uppercase());
        let filled = "http { listen ADDR:PORT; } {\"a\": {}} ${HOME} {root}{open";
        assert_eq!(fill_placeholders(text, &value), filled);
        assert_eq!(fill_placeholders("", &value), "");
    }
}
