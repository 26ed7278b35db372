//! Extracts the URLs from an HTML page.
//!
//! Owns which attributes hold URLs. Scripts are not run. Text in another encoding is read as
//! UTF-8: URLs are nearly always ASCII.

use std::collections::BTreeSet;

use html5gum::{DefaultEmitter, HtmlString, Spanned, StartTag, Token, Tokenizer};
use url::Url;

use super::site::canonicalize;

/// Returns the URLs that a page at `url` embeds, runs or links to: absolute, canonical, distinct, in
/// order of appearance, without `nofollow` links (by `rel`, or by the page's robots meta tag).
pub(super) fn page_links(html: &[u8], url: &Url) -> Vec<Url> {
    let mut emitter = DefaultEmitter::default();
    // The text of scripts and styles is not markup.
    emitter.naively_switch_states(true);
    let mut collector = LinkCollector {
        base: url.clone(),
        has_base: false,
        may_follow: true,
        style: StyleElement::Outside,
        urls: Vec::new(),
    };
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => collector.visit_tag(&tag),
            Token::EndTag(_) => collector.style = StyleElement::Outside,
            Token::String(text) if collector.style == StyleElement::Inside => {
                collector.push_css_urls(&String::from_utf8_lossy(&text));
            }
            _ => {}
        }
    }
    collector.links()
}

/// A URL as written in the page, and whether it is embedded or linked to.
struct RawUrl {
    text: String,
    kind: UrlKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlKind {
    Embedded,
    Hyperlink,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StyleElement {
    Inside,
    Outside,
}

struct LinkCollector {
    base: Url,
    has_base: bool,
    may_follow: bool,
    style: StyleElement,
    urls: Vec<RawUrl>,
}

impl LinkCollector {
    fn visit_tag(&mut self, tag: &StartTag<()>) {
        let name: &[u8] = &tag.name;
        self.style = if name == b"style" { StyleElement::Inside } else { StyleElement::Outside };
        if let Some(css) = attribute(tag, "style") {
            self.push_css_urls(&css);
        }
        match name {
            b"a" | b"area" => {
                let is_nofollow = words(tag, "rel").any(|word| word == "nofollow");
                if !is_nofollow {
                    self.push_attribute(tag, "href", UrlKind::Hyperlink);
                }
            }
            b"link" => self.visit_link_element(tag),
            b"base" if !self.has_base => {
                let base = attribute(tag, "href").and_then(|href| self.base.join(href.trim()).ok());
                if let Some(base) = base {
                    (self.base, self.has_base) = (base, true);
                }
            }
            b"img" | b"source" => {
                self.push_attribute(tag, "src", UrlKind::Embedded);
                self.push_srcset(tag, "srcset");
            }
            b"video" => {
                self.push_attribute(tag, "src", UrlKind::Embedded);
                self.push_attribute(tag, "poster", UrlKind::Embedded);
            }
            b"script" | b"audio" | b"track" | b"embed" | b"iframe" | b"frame" | b"input" => {
                self.push_attribute(tag, "src", UrlKind::Embedded);
            }
            b"image" | b"use" => {
                self.push_attribute(tag, "href", UrlKind::Embedded);
                self.push_attribute(tag, "xlink:href", UrlKind::Embedded);
            }
            b"object" => self.push_attribute(tag, "data", UrlKind::Embedded),
            b"body" | b"table" | b"td" => self.push_attribute(tag, "background", UrlKind::Embedded),
            b"meta" => self.visit_meta(tag),
            _ => {}
        }
    }

    /// `<link>`: a part of the page, a link, or an address for a preconnect only.
    fn visit_link_element(&mut self, tag: &StartTag<()>) {
        const EMBEDDED_RELS: [&str; 7] = [
            "stylesheet",
            "icon",
            "apple-touch-icon",
            "preload",
            "modulepreload",
            "prefetch",
            "manifest",
        ];
        let rels: Vec<_> = words(tag, "rel").collect();
        if rels.iter().any(|rel| EMBEDDED_RELS.contains(&rel.as_str())) {
            self.push_attribute(tag, "href", UrlKind::Embedded);
            self.push_srcset(tag, "imagesrcset");
        } else if !rels.iter().any(|rel| rel == "preconnect" || rel == "dns-prefetch") {
            self.push_attribute(tag, "href", UrlKind::Hyperlink);
        }
    }

    /// `<meta>`: an automatic redirect, or a directive to robots.
    fn visit_meta(&mut self, tag: &StartTag<()>) {
        let Some(content) = attribute(tag, "content") else { return };
        let lower_case_content = content.to_ascii_lowercase();
        let has_value = |name: &str, value: &str| {
            attribute(tag, name).is_some_and(|text| text.trim().eq_ignore_ascii_case(value))
        };
        if has_value("http-equiv", "refresh") {
            if let Some(at) = lower_case_content.find("url=") {
                let target = content[at + 4..].trim().trim_matches(['"', '\'']);
                self.urls.push(RawUrl { text: target.to_owned(), kind: UrlKind::Hyperlink });
            }
        } else if has_value("name", "robots")
            && lower_case_content.split([',', ' ']).any(|word| word == "nofollow" || word == "none")
        {
            self.may_follow = false;
        } else if ["og:image", "og:video", "twitter:image"]
            .iter()
            .any(|name| has_value("property", name) || has_value("name", name))
        {
            self.urls.push(RawUrl { text: content, kind: UrlKind::Embedded });
        }
    }

    fn push_attribute(&mut self, tag: &StartTag<()>, name: &str, kind: UrlKind) {
        if let Some(text) = attribute(tag, name) {
            self.urls.push(RawUrl { text, kind });
        }
    }

    /// `a.png 1x, b.png 2x`: URLs end at white space, so a comma can be part of one.
    fn push_srcset(&mut self, tag: &StartTag<()>, name: &str) {
        let Some(text) = attribute(tag, name) else { return };
        let mut rest = text.as_str();
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
            if rest.is_empty() {
                return;
            }
            let end = rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(rest.len());
            let (url, after) = rest.split_at(end);
            let url_text = url.trim_end_matches(',');
            self.urls.push(RawUrl { text: url_text.to_owned(), kind: UrlKind::Embedded });
            // A URL without a comma at its end is followed by descriptors.
            rest = if url_text.len() < url.len() {
                after
            } else {
                after.split_once(',').map_or("", |(_, next)| next)
            };
        }
    }

    /// Extracts `url(...)` from a style sheet.
    fn push_css_urls(&mut self, text: &str) {
        let mut rest = text;
        while let Some((_, after)) = rest.split_once("url(") {
            let Some((inside, next)) = after.split_once(')') else { return };
            let url_text = inside.trim().trim_matches(['"', '\'']);
            self.urls.push(RawUrl { text: url_text.to_owned(), kind: UrlKind::Embedded });
            rest = next;
        }
    }

    fn links(self) -> Vec<Url> {
        let mut links = Vec::new();
        let mut seen_urls = BTreeSet::new();
        for raw_url in self.urls {
            let text = raw_url.text.trim();
            if text.is_empty()
                || text.starts_with('#')
                || (raw_url.kind == UrlKind::Hyperlink && !self.may_follow)
            {
                continue;
            }
            let Some(url) = self.base.join(text).ok().and_then(canonicalize) else { continue };
            if seen_urls.insert(url.clone()) {
                links.push(url);
            }
        }
        links
    }
}

fn attribute(tag: &StartTag<()>, name: &str) -> Option<String> {
    let key = HtmlString(name.as_bytes().to_vec());
    let value: &Spanned<HtmlString, ()> = tag.attributes.get(&key)?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Returns the words of an attribute, in lower case.
fn words(tag: &StartTag<()>, name: &str) -> impl Iterator<Item = String> {
    let text = attribute(tag, name).unwrap_or_default().to_ascii_lowercase();
    text.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(html: &str) -> Vec<String> {
        let url = "https://a.example/dir/page.html?x=1".parse().unwrap();
        page_links(html.as_bytes(), &url).into_iter().map(Into::into).collect()
    }

    #[test]
    fn references_are_found_once() {
        let urls = links(
            r##"<!doctype html><LINK REL="Stylesheet" href=s.css><link rel=preconnect href=//c.example>
            <link rel=next href="?x=2"><script src="/s.js">var a = "<a href=no>";</script>
            <style>body { background: url("bg.png") } i { x: url( 'i.png' ) }</style>
            <a href="#top">t</a><a href="page.html?x=1#part">self</a><a href=mailto:x@a.example>m</a>
            <A HREF='../other.html&amp;b'>o</A><a href="/s.js">again</a><a href=//b.example/x>b</a>
            <img src=i1 srcset="i2 1x, i3,4 2x,i5, i6"><video src=v poster=p><source src=w></video>
            <iframe src=f></iframe><object data=d></object><div style="background:url(e)">
            <meta http-equiv=Refresh content="5; URL='/r'"><a href="javascript:no()">j</a><!-- <a href=no> -->"##,
        );
        let at = |path: &str| format!("https://a.example{path}");
        assert_eq!(
            urls,
            [
                at("/dir/s.css"),
                at("/dir/page.html?x=2"),
                at("/s.js"),
                at("/dir/bg.png"),
                at("/dir/i.png"),
                at("/dir/page.html?x=1"),
                at("/other.html&b"),
                "https://b.example/x".to_owned(),
                at("/dir/i1"),
                at("/dir/i2"),
                at("/dir/i3,4"),
                at("/dir/i5"),
                at("/dir/i6"),
                at("/dir/v"),
                at("/dir/p"),
                at("/dir/w"),
                at("/dir/f"),
                at("/dir/d"),
                at("/dir/e"),
                at("/r"),
            ]
        );
    }

    #[test]
    fn references_of_rarer_elements_are_found() {
        let found = links(
            "<link rel=preload as=image href=l imagesrcset='l2 2x'><body background=bo><map><area href=ar>
            <area rel=nofollow href=no></map><audio src=au></audio><track src=tr><embed src=em>
            <input type=image src=in><svg><image href=im><use xlink:href=us></svg>
            <frameset><frame src=fr></frameset><table background=ta><td background=td>",
        );
        let names = ["l", "l2", "bo", "ar", "au", "tr", "em", "in", "im", "us", "fr", "ta", "td"];
        assert_eq!(found, names.map(|name| format!("https://a.example/dir/{name}")));
    }

    #[test]
    fn images_of_link_previews_are_found() {
        let found = links(
            "<meta property=og:image content=/o.png><meta name=twitter:image content=/t.png>",
        );
        assert_eq!(found, ["https://a.example/o.png", "https://a.example/t.png"]);
    }

    #[test]
    fn a_base_counts_for_the_whole_page() {
        let found = links("<a href=1></a><base href=/b/><base href=/no/><a href=2></a>");
        assert_eq!(found, ["https://a.example/b/1", "https://a.example/b/2"]);
    }

    #[test]
    fn nofollow_is_respected() {
        assert!(links("<a rel='external nofollow' href=/x>").is_empty());
        let found = links("<a href=/x><img src=/i><meta name=robots content='noindex, nofollow'>");
        assert_eq!(found, ["https://a.example/i"]);
    }

    #[test]
    fn malformed_pages_are_read_as_far_as_possible() {
        assert_eq!(
            links("<a href='/x\u{0}y'><a href=\"/never ends"),
            ["https://a.example/x%EF%BF%BDy"]
        );
        let url = "https://a.example/".parse().unwrap();
        let found = page_links(b"\xff\xfe<img src=/\xe4.png><", &url);
        assert_eq!(found.len(), 1);
    }
}
