//! Directory listings.

use std::os::unix::fs::symlink;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, StatusCode};
use smig_files::{FileOptions, HiddenFiles, Listing};

use crate::site::Site;

fn listing_options() -> FileOptions {
    FileOptions { listing: Listing::On, ..FileOptions::default() }
}

#[tokio::test]
async fn a_listing_has_only_entries_that_are_served() {
    let site = Site::with_options(listing_options());
    site.write("docs/b.txt", "12345").write("docs/a/x", "").write("docs/.hidden", "");
    symlink("/etc/passwd", site.path("docs/outside")).unwrap();
    symlink("b.txt", site.path("docs/inside")).unwrap();
    let page = site.get("/docs/").await;
    assert_eq!(
        (page.status, page.header(CONTENT_TYPE)),
        (StatusCode::OK, "text/html; charset=utf-8")
    );
    assert_eq!(page.header(CONTENT_LENGTH), page.body.len().to_string());
    let text = page.text();
    assert!(text.contains("<a href=\"./a/\">a/</a>"), "{text}");
    assert!(
        text.contains("<a href=\"./b.txt\">b.txt</a></td><td align=\"right\">5</td>"),
        "{text}"
    );
    assert!(text.contains("<a href=\"./inside\">") && text.contains("<a href=\"../\">"), "{text}");
    assert!(text.find("a/</a>") < text.find("b.txt</a>"), "{text}");
    for absent in ["hidden", "outside"] {
        assert!(!text.contains(absent), "{text}");
    }
    assert!(!site.get("/").await.text().contains("../"));
    let head = site.fetch(Method::HEAD, "/docs/", &[]).await;
    assert_eq!(head.headers, page.headers);
    assert_eq!(site.get("/docs").await.status, StatusCode::PERMANENT_REDIRECT);
}

#[tokio::test]
async fn names_are_escaped() {
    let site = Site::with_options(listing_options());
    let name = "<script>alert(1)<&\"'>";
    site.write(&format!("<b>/{name}"), "");
    site.write("<b>/javascript:alert(1)", "").write("<b>/a b%41#?.txt", "odd");
    let page = site.get("/%3Cb%3E/").await;
    let text = page.text();
    for raw in ["<script", "<b>", "\"'", "href=\"javascript:", "href=\"./javascript:"] {
        assert!(!text.contains(raw), "{raw}: {text}");
    }
    assert!(text.contains("&lt;script&gt;alert(1)&lt;&amp;&quot;&#39;&gt;</a>"), "{text}");
    // Each link leads to the file that it names.
    let links: Vec<_> =
        text.split("href=\"./").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(links.len(), 3);
    for link in links {
        assert_eq!(site.get(&format!("/%3Cb%3E/{link}")).await.status, StatusCode::OK, "{link}");
    }
}

#[tokio::test]
async fn an_index_has_precedence_and_hidden_names_are_optional() {
    let site =
        Site::with_options(FileOptions { hidden_files: HiddenFiles::Serve, ..listing_options() });
    site.write("a/index.html", "index").write("b/.hidden", "");
    assert_eq!(site.get("/a/").await.text(), "index");
    assert!(site.get("/b/").await.text().contains(".hidden"));
    assert_eq!(site.get("/missing/").await.status, StatusCode::NOT_FOUND);
}
