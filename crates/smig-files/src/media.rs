//! The media type of a file, by the extension of its name.

use std::path::Path;

use http::HeaderValue;

const DEFAULT_TYPE: &str = "application/octet-stream";

/// Returns the value of content-type for a file name. Text is labelled as UTF-8.
pub(crate) fn content_type(name: &Path) -> HeaderValue {
    let extension = name.extension().and_then(|extension| extension.to_str()).unwrap_or("");
    let essence = mime_guess::from_ext(extension).first_raw().unwrap_or(DEFAULT_TYPE);
    let textual = essence.starts_with("text/") || essence == "application/javascript";
    if !textual {
        return HeaderValue::from_static(essence);
    }
    HeaderValue::from_str(&format!("{essence}; charset=utf-8"))
        .unwrap_or(HeaderValue::from_static(DEFAULT_TYPE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_follows_from_the_extension() {
        let table = [
            ("a.html", "text/html; charset=utf-8"),
            ("a.HTML", "text/html; charset=utf-8"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.wasm", "application/wasm"),
            ("a.svg", "image/svg+xml"),
            ("a.png", "image/png"),
            ("a.mp4", "video/mp4"),
            ("a.tar.gz", "application/gzip"),
            ("a.unheard-of", DEFAULT_TYPE),
            ("README", DEFAULT_TYPE),
            (".html", DEFAULT_TYPE),
            ("a.", DEFAULT_TYPE),
        ];
        for (name, expected) in table {
            assert_eq!(content_type(Path::new(name)), expected, "{name}");
        }
    }
}
