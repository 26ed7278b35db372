//! Colours: on a terminal, if NO_COLOR is empty or unset, and TERM is not dumb.

use std::io::IsTerminal;
use std::sync::LazyLock;

/// For what is printed on standard error.
pub(crate) static STDERR: LazyLock<Painter> = LazyLock::new(|| Painter::of(&std::io::stderr()));
/// For what is printed on standard output.
pub(crate) static STDOUT: LazyLock<Painter> = LazyLock::new(|| Painter::of(&std::io::stdout()));

/// Colours text for one stream, or leaves it as it is.
#[derive(Debug)]
pub(crate) struct Painter {
    uses_color: bool,
}

impl Painter {
    fn of(stream: &impl IsTerminal) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { uses_color: !no_color && !is_dumb && stream.is_terminal() }
    }

    /// Returns whether the stream shows colours.
    pub(crate) const fn uses_color(&self) -> bool {
        self.uses_color
    }

    fn paint(&self, text: &str, code: &str) -> String {
        if self.uses_color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Colours an error.
    pub(crate) fn error(&self, text: &str) -> String {
        self.paint(text, "1;31")
    }

    /// Colours a success.
    pub(crate) fn success(&self, text: &str) -> String {
        self.paint(text, "32")
    }

    /// Dims secondary text.
    pub(crate) fn dim(&self, text: &str) -> String {
        self.paint(text, "2")
    }

    /// Emphasizes text.
    pub(crate) fn bold(&self, text: &str) -> String {
        self.paint(text, "1")
    }
}
