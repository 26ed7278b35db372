//! Builds one self-contained HTML page, without network access or scripts.
//!
//! Owns escaping: the functions here pass all text of the page through [`escape`].

use std::fmt::Write;

use super::svg::{Colour, Figure, PictureSet, STYLE};

pub use super::markup::{assert_balanced, escape};

/// Alignment of a table's column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// For text.
    Left,
    /// For numbers.
    Right,
}

/// A table; cells are plain text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Headings and their alignment.
    pub columns: Vec<(String, Align)>,
    /// Rows; the first cell of each is its heading.
    pub rows: Vec<Vec<String>>,
}

/// A horizontal bar with its name and value as text.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Text to the left of the bar.
    pub name: String,
    /// Length, in the same unit as the other bars.
    pub value: f64,
    /// Text to the right of the bar.
    pub text: String,
    /// Colour of the bar.
    pub colour: Colour,
}

/// A page under construction, appended from top to bottom.
#[derive(Debug, Clone)]
pub struct Page {
    title: String,
    body: String,
    pictures: PictureSet,
}

impl Page {
    /// Creates an empty page with its title as the heading.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            body: format!("<h1>{}</h1>", escape(title)),
            pictures: PictureSet::default(),
        }
    }

    /// Adds the lead paragraph, in larger type.
    pub fn lead(&mut self, text: &str) {
        let _ = write!(self.body, "<p class=\"lead\">{}</p>", escape(text));
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: &str) {
        let _ = write!(self.body, "<h2>{}</h2>", escape(text));
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) {
        let _ = write!(self.body, "<p>{}</p>", escape(text));
    }

    /// Adds a highlighted paragraph.
    pub fn warning(&mut self, text: &str) {
        let _ = write!(self.body, "<p class=\"warning\">{}</p>", escape(text));
    }

    /// Adds charts with titles, side by side if there is room. A chart is markup, and
    /// inserted as it is.
    pub fn charts(&mut self, charts: &[(String, String)], caption: &str) {
        self.body.push_str("<figure><div class=\"row\">");
        for (title, svg) in charts {
            let _ = write!(self.body, "<div class=\"cell\"><h3>{}</h3>{svg}</div>", escape(title));
        }
        let _ = write!(self.body, "</div><figcaption>{}</figcaption></figure>", escape(caption));
    }

    /// Adds one chart in two versions: for wide and for narrow pages. They are markup, and inserted as they are.
    pub fn chart(&mut self, wide: &str, narrow: &str, caption: &str) {
        let _ = write!(
            self.body,
            "<figure><div class=\"wide\">{wide}</div><div class=\"narrow\">{narrow}</div>\
             <figcaption>{}</figcaption></figure>",
            escape(caption)
        );
    }

    /// Like [`Self::chart`], of figures: a picture that several of them show is in the page once.
    pub fn figure(&mut self, wide: &Figure, narrow: &Figure, caption: &str) {
        let wide = wide.to_element_with(&mut self.pictures);
        let narrow = narrow.to_element_with(&mut self.pictures);
        self.chart(&wide, &narrow, caption);
    }

    /// Adds bars with a common baseline, as HTML, so that they scale with the page.
    pub fn bars(&mut self, caption: &str, bars: &[Bar]) {
        let max = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
        let _ = write!(
            self.body,
            "<style>{BAR_STYLE}</style><div class=\"bars\"><p>{}</p>",
            escape(caption)
        );
        for bar in bars {
            let _ = write!(
                self.body,
                "<div class=\"bar\" style=\"--part:{:.4};--colour:var({})\"><span>{}</span>\
                 <i></i><b>{}</b></div>",
                (bar.value / max).max(0.005),
                bar.colour.variable(),
                escape(&bar.name),
                escape(&bar.text)
            );
        }
        self.body.push_str("</div>");
    }

    /// Adds a table. On a narrow page each row becomes a block with its headings.
    pub fn table(&mut self, table: &Table) {
        self.body.push_str("<table><thead><tr>");
        for (heading, align) in &table.columns {
            let _ = write!(self.body, "<th{}>{}</th>", class(*align), escape(heading));
        }
        self.body.push_str("</tr></thead><tbody>");
        for row in &table.rows {
            self.body.push_str("<tr>");
            for (index, (cell, (heading, align))) in row.iter().zip(&table.columns).enumerate() {
                let tag = if index == 0 { "th scope=\"row\"" } else { "td" };
                let end = if index == 0 { "th" } else { "td" };
                let _ = write!(
                    self.body,
                    "<{tag}{} data-label=\"{}\">{}</{end}>",
                    class(*align),
                    escape(heading),
                    escape(cell)
                );
            }
            self.body.push_str("</tr>");
        }
        self.body.push_str("</tbody></table>");
    }

    /// Adds a list of terms and descriptions.
    pub fn facts(&mut self, facts: &[(&str, String)]) {
        self.body.push_str("<dl>");
        for (term, text) in facts {
            let _ = write!(self.body, "<dt>{}</dt><dd>{}</dd>", escape(term), escape(text));
        }
        self.body.push_str("</dl>");
    }

    /// Adds markup that the caller has escaped.
    pub fn raw(&mut self, markup: &str) {
        self.body.push_str(markup);
    }

    /// Returns the complete document.
    #[must_use]
    pub fn finish(self) -> String {
        format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\">\
             <title>{}</title><style>{STYLE}{PAGE_STYLE}</style></head>\
             <body>{}<main>{}</main></body></html>\n",
            escape(&self.title),
            self.pictures.to_element(),
            self.body
        )
    }
}

const fn class(align: Align) -> &'static str {
    match align {
        Align::Left => "",
        Align::Right => " class=\"n\"",
    }
}

/// The bar and its number share a grid cell; the longest bar leaves room for its number.
const BAR_STYLE: &str = "\
.bars{margin:22px 0}.bars p{margin:0 0 12px;color:var(--soft);font-size:15px}\
.bar{display:grid;grid-template:'name value'/280px 1fr;align-items:center;gap:2px 14px;\
margin:9px 0}\
.bar span{grid-area:name}\
.bar i,.bar b{grid-area:value;--length:calc(var(--part)*(100% - 90px))}\
.bar i{height:20px;border-radius:2px;background:var(--colour);width:var(--length)}\
.bar b{margin-left:calc(var(--length) + 10px);white-space:nowrap;\
font-variant-numeric:tabular-nums}\
@media(max-width:720px){.bar{grid-template:'name' 'value'/1fr}}\
";

const PAGE_STYLE: &str = "\
*{box-sizing:border-box}\
body{margin:0;background:var(--paper);color:var(--ink);\
font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}\
main{max-width:1140px;margin:0 auto;padding:40px 24px 64px}\
h1{font-size:30px;line-height:1.2;margin:0 0 12px;letter-spacing:-.01em}\
h2{font-size:20px;line-height:1.3;margin:44px 0 8px}\
h3{font-size:15px;margin:0 0 6px;font-weight:600}\
p{max-width:70ch;margin:8px 0}\
.lead{font-size:19px;line-height:1.5}\
.warning{border-left:4px solid var(--vermilion);padding:6px 14px}\
figure{margin:20px 0}\
figcaption{color:var(--soft);font-size:14px;max-width:80ch;margin-top:8px}\
.row{display:grid;grid-template-columns:repeat(auto-fit,minmax(330px,1fr));gap:28px 20px}\
.cell{min-width:0}\
.fig{max-width:100%;height:auto}\
.narrow{display:none}\
table{border-collapse:collapse;width:100%;margin:16px 0;font-variant-numeric:tabular-nums}\
th,td{padding:9px 12px;text-align:left;border-bottom:1px solid var(--grid);\
vertical-align:baseline}\
thead th{font-size:13px;color:var(--soft);font-weight:500;vertical-align:bottom}\
tbody th{font-weight:600}\
.n{text-align:right}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:6px 24px;margin:16px 0;\
font-size:15px}\
dt{color:var(--soft)}dd{margin:0}\
@media(max-width:720px){\
main{padding:24px 16px 48px}h1{font-size:25px}.lead{font-size:17px}\
.wide{display:none}.narrow{display:block}\
.row{grid-template-columns:1fr}\
thead{display:none}tr{display:block;padding:12px 0;border-bottom:1px solid var(--grid)}\
tbody th,td{display:flex;justify-content:space-between;gap:16px;padding:3px 0;border:0;\
text-align:right}\
tbody th{font-size:17px}td::before{content:attr(data-label);color:var(--soft);\
text-align:left}\
dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:8px}\
}\
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_complete_escaped_and_self_contained() {
        let mut page = Page::new("Me & <you>");
        page.lead("a \"quote\"");
        page.heading("h");
        page.paragraph("p");
        page.warning("<script>");
        page.facts(&[("term", "fact".into())]);
        page.table(&Table {
            columns: vec![("name".into(), Align::Left), ("ms".into(), Align::Right)],
            rows: vec![vec!["a".into(), "<1".into()]],
        });
        let html = page.finish();
        assert_balanced(&html);
        assert!(html.starts_with("<!doctype html>"));
        assert!(html.contains("<h1>Me &amp; &lt;you&gt;</h1>"));
        assert!(html.contains("<td class=\"n\" data-label=\"ms\">&lt;1</td>"));
        for external_reference in ["<script", "http:", "https:", "url(", "@import", "src="] {
            assert!(!html.contains(external_reference), "{external_reference}");
        }
    }
}
