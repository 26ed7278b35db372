//! What an entry of a recording is: by the browser's own word for it, its media type, or the end of its name.

/// What a resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentKind {
    /// A document: the page, or one in a frame.
    Document,
    /// A style sheet.
    Style,
    /// A script.
    Script,
    /// A font.
    Font,
    /// A picture.
    Image,
    /// Sound or video.
    Media,
    /// Data that a script asks for.
    Fetch,
    /// Something else: a manifest, a beacon, a check before a request to another origin.
    Other,
}

impl ContentKind {
    /// Returns the kind by what the browser calls it, such as `stylesheet`, if it says something.
    pub(super) fn from_resource_type(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "document" | "subdocument" | "iframe" => Self::Document,
            "stylesheet" | "css" => Self::Style,
            "script" => Self::Script,
            "font" => Self::Font,
            "image" | "imageset" | "img" => Self::Image,
            "media" | "texttrack" | "video" | "audio" => Self::Media,
            "xhr" | "fetch" | "eventsource" | "xmlhttprequest" => Self::Fetch,
            "manifest" | "ping" | "beacon" | "preflight" | "csp_report" | "signedexchange" => {
                Self::Other
            }
            _ => return None,
        })
    }

    /// Returns the kind by the media type of the content, if it says something.
    pub(super) fn from_media_type(media_type: &str) -> Option<Self> {
        let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let (class, subtype) = essence.split_once('/')?;
        Some(match (class, subtype) {
            ("text", "css") => Self::Style,
            ("text", "html") | ("application", "xhtml+xml") => Self::Document,
            (_, subtype) if subtype.contains("javascript") || subtype.contains("ecmascript") => {
                Self::Script
            }
            ("font", _) | ("application", "vnd.ms-fontobject") => Self::Font,
            ("application", subtype) if subtype.contains("font") => Self::Font,
            ("image", _) => Self::Image,
            ("video" | "audio", _) => Self::Media,
            ("application", "manifest+json") => Self::Other,
            (_, subtype) if subtype == "json" || subtype.ends_with("+json") => Self::Fetch,
            _ => return None,
        })
    }

    /// Returns the kind by the end of a URL's path, if it says something.
    pub(super) fn from_path(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let (_, extension) = name.rsplit_once('.')?;
        Some(match extension.to_ascii_lowercase().as_str() {
            "html" | "htm" | "xhtml" => Self::Document,
            "css" => Self::Style,
            "js" | "mjs" => Self::Script,
            "woff" | "woff2" | "ttf" | "otf" | "eot" => Self::Font,
            "png" | "jpg" | "jpeg" | "gif" | "webp" | "avif" | "svg" | "ico" | "bmp" => Self::Image,
            "mp4" | "webm" | "mp3" | "ogg" | "m4s" | "ts" => Self::Media,
            "json" => Self::Fetch,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_many_names() {
        let media = |text| ContentKind::from_media_type(text);
        assert_eq!(media("text/css; charset=utf-8"), Some(ContentKind::Style));
        assert_eq!(media("application/x-javascript"), Some(ContentKind::Script));
        assert_eq!(media("application/font-woff2"), Some(ContentKind::Font));
        assert_eq!(media("application/problem+json"), Some(ContentKind::Fetch));
        assert_eq!(media("Text/HTML"), Some(ContentKind::Document));
        for nothing in ["", "x-unknown", "application/octet-stream", "text/plain"] {
            assert_eq!(media(nothing), None, "{nothing}");
        }
        assert_eq!(ContentKind::from_path("/a.b/c.WOFF2"), Some(ContentKind::Font));
        assert_eq!(ContentKind::from_path("/a.css/b"), None);
        assert_eq!(ContentKind::from_resource_type("Stylesheet"), Some(ContentKind::Style));
        assert_eq!(ContentKind::from_resource_type("other"), None);
    }
}
