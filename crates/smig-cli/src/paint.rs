//! Colours on standard error, where a terminal is and NO_COLOR is not.

use std::io::IsTerminal as _;
use std::sync::LazyLock;

static IS_PAINTED: LazyLock<bool> = LazyLock::new(|| {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !no_color && !is_dumb && std::io::stderr().is_terminal()
});

fn paint(text: &str, code: &str) -> String {
    if *IS_PAINTED { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Something that went wrong.
pub(crate) fn bad(text: &str) -> String {
    paint(text, "1;31")
}

/// Something that went well.
pub(crate) fn good(text: &str) -> String {
    paint(text, "32")
}

/// Something beside the point.
pub(crate) fn faint(text: &str) -> String {
    paint(text, "2")
}

/// Something to look at.
pub(crate) fn strong(text: &str) -> String {
    paint(text, "1")
}
