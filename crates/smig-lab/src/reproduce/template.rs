//! Sentences with placeholders, as the files of claims have them.
//!
//! `{name}` is a value. A part in `[brackets]` is left out where one of its values is missing; a missing value
//! outside of brackets leaves out the whole sentence.

use serde::Deserialize;

/// A sentence with placeholders.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    is_optional: bool,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(String),
}

impl TryFrom<String> for Template {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (outside_brackets, bracket) =
                rest.split_once('[').map_or((rest, None), |(a, b)| (a, Some(b)));
            parts.push(Part { is_optional: false, pieces: pieces(outside_brackets)? });
            let Some(bracket) = bracket else { break };
            let (inner, after) =
                bracket.split_once(']').ok_or_else(|| format!("`[{bracket}` has no `]`"))?;
            if inner.contains('[') {
                return Err(format!("`[` inside of `[{inner}]`: parts cannot be nested"));
            }
            parts.push(Part { is_optional: true, pieces: pieces(inner)? });
            rest = after;
        }
        Ok(Self { parts })
    }
}

fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    if text.contains(']') {
        return Err(format!("`]` without `[`: {text}"));
    }
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) =
            after.split_once('}').ok_or_else(|| format!("`{{{after}` has no `}}`"))?;
        pieces.push(Piece::Text(before.to_owned()));
        pieces.push(Piece::Value(name.to_owned()));
        rest = after;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    Ok(pieces)
}

impl Template {
    /// Returns the names of all placeholders.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().flat_map(|part| &part.pieces).filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Value(name) => Some(name.as_str()),
        })
    }

    /// Fills in the values; `None` if one outside of brackets is missing.
    pub(super) fn render<'a>(&self, value: &dyn Fn(&str) -> Option<&'a str>) -> Option<String> {
        let mut out = String::new();
        for part in &self.parts {
            match part.render(value) {
                Some(text) => out += &text,
                None if part.is_optional => {}
                None => return None,
            }
        }
        Some(out)
    }
}

impl Part {
    fn render<'a>(&self, value: &dyn Fn(&str) -> Option<&'a str>) -> Option<String> {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => Some(text.clone()),
            Piece::Value(name) => value(name).map(str::to_owned),
        };
        self.pieces.iter().map(piece).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Result<Template, String> {
        Template::try_from(text.to_owned())
    }

    #[test]
    fn missing_values_leave_out_their_part_or_the_sentence() {
        let sentence = template("{a} takes {b}[, alone {c}][; {d}].").unwrap();
        assert_eq!(sentence.names().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        let render_with = |known: &[&'static str]| {
            sentence.render(&|name| known.iter().copied().find(|known| *known == name))
        };
        assert_eq!(render_with(&["a", "b", "c", "d"]).unwrap(), "a takes b, alone c; d.");
        assert_eq!(render_with(&["a", "b", "d"]).unwrap(), "a takes b; d.");
        assert_eq!(render_with(&["a", "c", "d"]), None);
    }

    #[test]
    fn brackets_that_do_not_match_are_errors() {
        for (text, expected_error) in [
            ("{a", "`{a` has no `}`"),
            ("a [b", "`[b` has no `]`"),
            ("a] b", "`]` without `[`: a] b"),
            ("[a [b] c]", "`[` inside of `[a [b]`: parts cannot be nested"),
        ] {
            assert_eq!(template(text).unwrap_err(), expected_error, "{text}");
        }
    }
}
