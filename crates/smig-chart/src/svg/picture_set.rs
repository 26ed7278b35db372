//! The pictures of charts: a page, or a file, has each distinct one once.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hasher as _};

/// Proportions of a window, as most pictures have them; another one keeps its own within. librsvg draws no picture in a symbol without a size.
const VIEW_WIDTH: u32 = 4;
const VIEW_HEIGHT: u32 = 3;

/// Distinct pictures, which charts refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PictureSet {
    /// By their contents' digest, so that the same picture has the same name in all charts.
    jpegs: BTreeMap<u64, String>,
}

/// Returns whether a text is base64 and nothing else, so that it needs no escape; empty text is.
#[must_use]
pub fn is_base64(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    text.bytes().all(is_digit)
}

impl PictureSet {
    /// Adds a JPEG in base64, unless it is there; returns the name of its element. `None` without one: it is empty, or not base64.
    pub(super) fn insert(&mut self, jpeg_base64: &str) -> Option<String> {
        if jpeg_base64.is_empty() || !is_base64(jpeg_base64) {
            return None;
        }
        let digest = digest_of(jpeg_base64.as_bytes());
        self.jpegs.entry(digest).or_insert_with(|| jpeg_base64.to_owned());
        Some(element_name(digest))
    }

    /// Returns the definitions that charts refer to; nothing without pictures.
    pub(super) fn to_definitions(&self) -> String {
        let mut out = String::new();
        for (digest, jpeg) in &self.jpegs {
            let _ = write!(
                out,
                "<symbol id=\"{}\" viewBox=\"0 0 {VIEW_WIDTH} {VIEW_HEIGHT}\"><image width=\"{VIEW_WIDTH}\" height=\"{VIEW_HEIGHT}\" \
                 href=\"data:image/jpeg;base64,{jpeg}\"/></symbol>",
                element_name(*digest)
            );
        }
        if out.is_empty() { out } else { format!("<defs>{out}</defs>") }
    }

    /// Returns an element without a size that has the definitions, for a page of charts that were rendered with this set.
    #[must_use]
    pub fn to_element(&self) -> String {
        match self.to_definitions() {
            none if none.is_empty() => none,
            // Not `display: none`: what is hidden so is not drawn elsewhere either.
            definitions => format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"0\" height=\"0\" style=\"position:absolute\" \
                 aria-hidden=\"true\">{definitions}</svg>"
            ),
        }
    }
}

fn element_name(digest: u64) -> String {
    format!("picture-{digest:016x}")
}

/// The same for the same bytes in each run of one build, which is all that names need.
fn digest_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
