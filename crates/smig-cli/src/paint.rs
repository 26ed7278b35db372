//! Colours on standard error, if it is a terminal, NO_COLOR is empty or unset, and TERM is not dumb.

use std::io::IsTerminal as _;
use std::sync::LazyLock;

static USES_COLOR: LazyLock<bool> = LazyLock::new(|| {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !no_color && !is_dumb && std::io::stderr().is_terminal()
});

/// Returns whether standard error shows colours.
pub(crate) fn uses_color() -> bool {
    *USES_COLOR
}

fn paint(text: &str, code: &str) -> String {
    if uses_color() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Colours an error.
pub(crate) fn error(text: &str) -> String {
    paint(text, "1;31")
}

/// Colours a success.
pub(crate) fn success(text: &str) -> String {
    paint(text, "32")
}

/// Dims secondary text.
pub(crate) fn dim(text: &str) -> String {
    paint(text, "2")
}

/// Emphasizes text.
pub(crate) fn bold(text: &str) -> String {
    paint(text, "1")
}
