//! Extracts the URLs from an HTML page.
//!
//! Owns which attributes hold URLs. Scripts are not run. Text in another encoding is read as
//! UTF-8: URLs are nearly always ASCII.

use std::collections::BTreeSet;

use html5gum::{DefaultEmitter, HtmlString, Spanned, StartTag, Token, Tokenizer};
use url::Url;

use super::site::canonical;

/// Returns the URLs that a page at `url` embeds, runs or links to: absolute, canonical, distinct, in
/// order of appearance. Links marked as not to be followed (`rel=nofollow`, or the page's robots
/// meta tag) are left out.
pub(super) fn page_links(html: &[u8], url: &Url) -> Vec<Url> {
    let mut emitter = DefaultEmitter::default();
    // The text of scripts and styles is not markup.
    emitter.naively_switch_states(true);
    let mut found = Found {
        base: url.clone(),
        has_base: false,
        follows: true,
        style: Style::Outside,
        raw: Vec::new(),
    };
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => found.tag(&tag),
            Token::EndTag(_) => found.style = Style::Outside,
            Token::String(text) if found.style == Style::Inside => {
                found.css(&String::from_utf8_lossy(&text));
            }
            _ => {}
        }
    }
    found.links()
}

/// A URL as written in the page, and whether it is embedded or linked to.
struct Raw {
    text: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Part,
    Link,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Inside,
    Outside,
}

struct Found {
    base: Url,
    has_base: bool,
    follows: bool,
    style: Style,
    raw: Vec<Raw>,
}

impl Found {
    fn tag(&mut self, tag: &StartTag<()>) {
        let name: &[u8] = &tag.name;
        self.style = if name == b"style" { Style::Inside } else { Style::Outside };
        if let Some(css) = attribute(tag, "style") {
            self.css(&css);
        }
        match name {
            b"a" | b"area" => {
                let refuses = words(tag, "rel").any(|word| word == "nofollow");
                if !refuses {
                    self.take(tag, "href", Kind::Link);
                }
            }
            b"link" => self.link(tag),
            b"base" if !self.has_base => {
                let base = attribute(tag, "href").and_then(|href| self.base.join(href.trim()).ok());
                if let Some(base) = base {
                    (self.base, self.has_base) = (base, true);
                }
            }
            b"img" | b"source" => {
                self.take(tag, "src", Kind::Part);
                self.srcset(tag, "srcset");
            }
            b"video" => {
                self.take(tag, "src", Kind::Part);
                self.take(tag, "poster", Kind::Part);
            }
            b"script" | b"audio" | b"track" | b"embed" | b"iframe" | b"frame" | b"input" => {
                self.take(tag, "src", Kind::Part);
            }
            b"image" | b"use" => {
                self.take(tag, "href", Kind::Part);
                self.take(tag, "xlink:href", Kind::Part);
            }
            b"object" => self.take(tag, "data", Kind::Part),
            b"body" | b"table" | b"td" => self.take(tag, "background", Kind::Part),
            b"meta" => self.meta(tag),
            _ => {}
        }
    }

    /// `<link>`: a part of the page, a link, or an address for a preconnect only.
    fn link(&mut self, tag: &StartTag<()>) {
        const PARTS: [&str; 7] = [
            "stylesheet",
            "icon",
            "apple-touch-icon",
            "preload",
            "modulepreload",
            "prefetch",
            "manifest",
        ];
        let rels: Vec<_> = words(tag, "rel").collect();
        if rels.iter().any(|rel| PARTS.contains(&rel.as_str())) {
            self.take(tag, "href", Kind::Part);
            self.srcset(tag, "imagesrcset");
        } else if !rels.iter().any(|rel| rel == "preconnect" || rel == "dns-prefetch") {
            self.take(tag, "href", Kind::Link);
        }
    }

    /// `<meta>`: an automatic redirect, or a directive to robots.
    fn meta(&mut self, tag: &StartTag<()>) {
        let Some(content) = attribute(tag, "content") else { return };
        let lower = content.to_ascii_lowercase();
        let is = |name: &str, value: &str| {
            attribute(tag, name).is_some_and(|text| text.trim().eq_ignore_ascii_case(value))
        };
        if is("http-equiv", "refresh") {
            if let Some(at) = lower.find("url=") {
                let target = content[at + 4..].trim().trim_matches(['"', '\'']);
                self.raw.push(Raw { text: target.to_owned(), kind: Kind::Link });
            }
        } else if is("name", "robots")
            && lower.split([',', ' ']).any(|word| word == "nofollow" || word == "none")
        {
            self.follows = false;
        } else if ["og:image", "og:video", "twitter:image"].iter().any(|name| is("property", name))
        {
            self.raw.push(Raw { text: content, kind: Kind::Part });
        }
    }

    fn take(&mut self, tag: &StartTag<()>, name: &str, kind: Kind) {
        if let Some(text) = attribute(tag, name) {
            self.raw.push(Raw { text, kind });
        }
    }

    /// `a.png 1x, b.png 2x`: URLs end at white space, so a comma can be part of one.
    fn srcset(&mut self, tag: &StartTag<()>, name: &str) {
        let Some(text) = attribute(tag, name) else { return };
        let mut rest = text.as_str();
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
            if rest.is_empty() {
                return;
            }
            let end = rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(rest.len());
            let (url, after) = rest.split_at(end);
            let bare = url.trim_end_matches(',');
            self.raw.push(Raw { text: bare.to_owned(), kind: Kind::Part });
            // Without a comma at its end, its descriptors follow.
            rest = if bare.len() < url.len() {
                after
            } else {
                after.split_once(',').map_or("", |(_, next)| next)
            };
        }
    }

    /// Extracts `url(...)` from a style sheet.
    fn css(&mut self, text: &str) {
        let mut rest = text;
        while let Some((_, after)) = rest.split_once("url(") {
            let Some((inside, next)) = after.split_once(')') else { return };
            let bare = inside.trim().trim_matches(['"', '\'']);
            self.raw.push(Raw { text: bare.to_owned(), kind: Kind::Part });
            rest = next;
        }
    }

    fn links(self) -> Vec<Url> {
        let mut links = Vec::new();
        let mut seen = BTreeSet::new();
        for raw in self.raw {
            let text = raw.text.trim();
            if text.is_empty() || text.starts_with('#') || (raw.kind == Kind::Link && !self.follows)
            {
                continue;
            }
            let Some(url) = self.base.join(text).ok().and_then(canonical) else { continue };
            if seen.insert(url.clone()) {
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
    fn every_kind_of_reference_is_found_once() {
        let found = links(
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
            found,
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
    fn a_base_counts_for_the_whole_page() {
        let found = links("<a href=1></a><base href=/b/><base href=/no/><a href=2></a>");
        assert_eq!(found, ["https://a.example/b/1", "https://a.example/b/2"]);
    }

    #[test]
    fn wishes_not_to_be_followed_are_granted() {
        assert!(links("<a rel='external nofollow' href=/x>").is_empty());
        let found = links("<a href=/x><img src=/i><meta name=robots content='noindex, nofollow'>");
        assert_eq!(found, ["https://a.example/i"]);
    }

    #[test]
    fn broken_pages_are_read_as_far_as_they_go() {
        assert_eq!(
            links("<a href='/x\u{0}y'><a href=\"/never ends"),
            ["https://a.example/x%EF%BF%BDy"]
        );
        let url = "https://a.example/".parse().unwrap();
        let found = page_links(b"\xff\xfe<img src=/\xe4.png><", &url);
        assert_eq!(found.len(), 1);
    }
}
