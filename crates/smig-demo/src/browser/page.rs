//! The result as one web page, and as JSON.

use std::fmt::Write as _;

use serde::Serialize;
use smig_chart::html::{Bar, Page, escape};
use smig_chart::svg::{Axis, Colour, Figure, Layer, Panel, Shape};
use smig_chart::{format_bytes, format_number};

use super::data::{BrowserResult, BrowserSetup};
use super::strip::{self, FrameRow};
use super::summary::{self, VariantSummary};
use super::variant::{BrowserVariant, Route};

/// Renders the result with its summary as a JSON document, without the frames.
///
/// # Panics
/// Never: every value can be serialised as JSON.
#[must_use]
pub fn render_json(result: &BrowserResult) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        format: &'static str,
        summary: Vec<VariantSummary>,
        #[serde(flatten)]
        result: &'a BrowserResult,
    }
    let summary = summary::summaries(result);
    let document = Document { format: "smig-browser/2", summary, result };
    serde_json::to_string_pretty(&document).expect("numbers, strings and lists") + "\n"
}

/// Renders the result as one self-contained page.
#[must_use]
pub fn render_html(result: &BrowserResult) -> String {
    let summaries = summary::summaries(result);
    let rows = strip::rows(result);
    let mut page = Page::new("A page beside a big download");
    page.lead(&summary::describe_setup(&result.setup));
    page.bars(
        "Median time until the page has loaded, by Navigation Timing",
        &bars(result.setup.route, &summaries),
    );
    for sentence in summary::findings(result.setup.route, &summaries) {
        page.paragraph(&sentence);
    }
    for warning in summary::warnings(result) {
        page.warning(&warning);
    }
    page.heading("What the browser shows at the same moments");
    page.raw(&film_html(&rows, result.setup.tile_count));
    page.heading("When the images arrived");
    page.chart(
        &arrivals_figure(&rows, 860.0).to_element(),
        &arrivals_figure(&rows, 340.0).to_element(),
        "Images received completely, by Resource Timing, in the median load of each kind.",
    );
    page.heading("In numbers");
    page.table(&summary::summary_table(result.setup.route, &summaries));
    page.heading("How it was measured");
    page.facts(&facts(result));
    page.finish()
}

fn bars(route: Route, summaries: &[VariantSummary]) -> Vec<Bar> {
    let bar = |name: &str, value: f64, colour: Colour| {
        let text = summary::format_seconds(value);
        Bar { name: name.to_owned(), value, text, colour }
    };
    let alone = summary::unloaded_median(route, summaries);
    let mut bars: Vec<_> =
        alone.map(|ms| bar("nothing else on the link", ms, Colour::Slate)).into_iter().collect();
    for summary in summaries {
        let title = summary.variant.title();
        if let (Route::Direct, Some(ms)) = (route, summary.unloaded_median_ms) {
            bars.push(bar(&format!("{title}, alone"), ms, Colour::Slate));
        }
        let during = summary.median_ms.map(|ms| bar(title, ms, summary.variant.colour()));
        bars.extend(during);
    }
    bars
}

/// Returns rows of frames, in their own markup, so that they scale with the page.
fn film_html(rows: &[FrameRow<'_>], tile_count: usize) -> String {
    let moments_ms = strip::frame_times_ms(rows);
    let mut out = format!("<style>{FILM_STYLE}</style>");
    for row in rows {
        let _ = write!(
            out,
            "<h3>{}: loaded after {}</h3><div class=\"film\">",
            escape(row.title()),
            summary::format_seconds(row.page_load.load_time_ms())
        );
        for moment_ms in moments_ms {
            let _ = write!(out, "<figure>");
            if let Some(frame) = row.page_load.frame_at(moment_ms) {
                let _ = write!(
                    out,
                    "<img alt=\"\" src=\"data:image/jpeg;base64,{}\">",
                    escape(&frame.jpeg)
                );
            }
            let _ = write!(
                out,
                "<figcaption><b>{} s</b>, {} of {tile_count}</figcaption></figure>",
                format_number(moment_ms / 1e3),
                row.tiles_at(moment_ms)
            );
        }
        out.push_str("</div>");
    }
    out
}

const FILM_STYLE: &str = "\
.film{display:grid;grid-template-columns:repeat(4,1fr);gap:12px;margin:0 0 26px}\
.film figure{margin:0}.film img{width:100%;display:block;border:1px solid var(--grid)}\
@media(max-width:720px){.film{grid-template-columns:repeat(2,1fr)}}\
";

/// Plots the number of loaded tiles over time.
fn arrivals_figure(rows: &[FrameRow<'_>], width: f64) -> Figure {
    let end_s = rows.iter().map(|row| row.page_load.load_time_ms()).fold(0.0, f64::max) / 1e3;
    let layer = |row: &FrameRow<'_>| {
        let mut end_times_s: Vec<f64> =
            row.page_load.tiles.iter().map(|tile| tile.end_ms / 1e3).collect();
        end_times_s.sort_by(f64::total_cmp);
        let count = end_times_s.len() as f64;
        let steps = end_times_s.iter().enumerate().map(|(index, &end)| (end, (index + 1) as f64));
        let steps = [(0.0, 0.0)].into_iter().chain(steps).chain([(end_s, count)]).collect();
        Layer {
            name: row.title().to_owned(),
            colour: row.variant.map_or(Colour::Slate, BrowserVariant::colour),
            shape: Shape::Steps(steps),
        }
    };
    let tile_count = rows.iter().map(|row| row.page_load.tiles.len()).max().unwrap_or(0);
    Figure {
        title: "Images received over time".into(),
        description: "One line for the page alone, and one for each variant during the download."
            .into(),
        width,
        x: Axis::linear(end_s, "s"),
        panels: vec![Panel {
            title: "Images received".into(),
            y: Axis::linear(tile_count as f64, ""),
            height: 200.0,
            layers: rows.iter().map(layer).collect(),
            rules: Vec::new(),
        }],
        event_lines: Vec::new(),
    }
}

fn facts(result: &BrowserResult) -> Vec<(&'static str, String)> {
    let setup = &result.setup;
    let mut facts = match setup.route {
        Route::Direct => direct_facts(result),
        Route::Agent => agent_facts(result),
    };
    facts.extend([
        ("Congestion control", setup.congestion_control.clone()),
        (
            "Page",
            format!(
                "{} PNG files of {} in total, and HTML",
                setup.tile_count,
                format_bytes(setup.tiles_bytes)
            ),
        ),
        ("Time", "Navigation Timing: from navigation start to the end of the load event".into()),
        ("Browser", format!("{}, headless, controlled over the DevTools protocol", setup.browser)),
        ("Program", setup.program.clone()),
        ("Kernel", setup.kernel.clone()),
    ]);
    facts
}

/// When the download begins and ends.
const DOWNLOAD_SPAN: &str = "it begins at least 4 s and 2 MB before the first page load during it, \
                             and continues to the last one";

fn direct_facts(result: &BrowserResult) -> Vec<(&'static str, String)> {
    let setup = &result.setup;
    let mut facts = vec![
        ("Link", format!("{}, emulated below TCP, between browser and server", setup.link)),
        (
            "Path",
            "browser → link → server. No proxy, no agent; the browser does not support SMig".into(),
        ),
        (
            "Download",
            format!(
                "fetch() in another tab of the same browser context, read and discarded; \
                 {DOWNLOAD_SPAN}"
            ),
        ),
        (
            "Connection",
            "in each run one HTTP/2 connection carried all pages and the download: the server's \
             access log has no request from another one, otherwise the measurement fails"
                .into(),
        ),
        (
            "Page loads",
            format!(
                "{} alone and {} during the download for each variant; each in a new tab, over the \
                 open connection, nothing from a cache (Cache-Control: no-store), and all images \
                 received. The first load, which opens the connection, is not counted",
                setup.loads, setup.loads
            ),
        ),
        (
            "Alone",
            "slower than it could be: the connection was idle for half a second before, so that the server's kernel \
             starts slowly again (net.ipv4.tcp_slow_start_after_idle), while during the download its \
             congestion window is open. Therefore no time is given as a multiple of the one alone. \
             Each variant has its own; the pictures show that of the first one"
                .into(),
        ),
    ];
    facts.extend(server_facts(&result.setup));
    facts
}

fn server_facts(setup: &BrowserSetup) -> Vec<(&'static str, String)> {
    let has = |variant| setup.variants.contains(&variant);
    let mut facts = vec![(
        "Plain HTTP/2",
        "smig serve without pacing and extension, and with the system's send buffers".into(),
    )];
    if has(BrowserVariant::NotsentLowat) {
        let text = "the same with TCP_NOTSENT_LOWAT of 16 KiB";
        facts.push(("TCP_NOTSENT_LOWAT", text.into()));
    }
    if has(BrowserVariant::Serve) {
        facts.push(("smig serve", "as it is by default".into()));
    }
    if has(BrowserVariant::Gateway) {
        let text = "as it is by default, in front of smig serve over HTTP/1.1 without TLS";
        facts.push(("smig gateway", text.into()));
    }
    if let Some(version) = &setup.nginx {
        let text = format!(
            "{version} in one process, with its built-in defaults, except for keepalive_requests"
        );
        facts.push(("nginx", text));
    }
    facts
}

fn agent_facts(result: &BrowserResult) -> Vec<(&'static str, String)> {
    let setup = &result.setup;
    let mut facts = vec![
        ("Link", format!("{}, emulated below TCP, between browser and gateway", setup.link)),
        (
            "Path",
            "browser → smig agent → link → smig gateway → web server (smig serve). The page uses \
             https: the browser opens a tunnel with CONNECT, and neither agent nor gateway sees \
             its content"
                .into(),
        ),
        (
            "Download",
            format!(
                "HTTPS through another tunnel of the same agent, in the same session; {DOWNLOAD_SPAN}"
            ),
        ),
        (
            "Page loads",
            format!(
                "{} alone and {} during the download for each variant; each with empty caches, no \
                 open connection, and all images received. The browser's first load is not counted",
                setup.loads, setup.loads
            ),
        ),
        (
            "Plain HTTP/2",
            "the same programs without the extension, and the gateway without pacing and with the system's send buffers".into(),
        ),
    ];
    if setup.variants.contains(&BrowserVariant::NotsentLowat) {
        let text = "plain HTTP/2 with TCP_NOTSENT_LOWAT of 16 KiB at the gateway";
        facts.push(("TCP_NOTSENT_LOWAT", text.into()));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use smig_chart::html::assert_balanced;

    #[test]
    fn the_page_is_well_formed_and_self_contained() {
        let mut result = fixtures::result();
        let html = render_html(&result);
        assert_balanced(&html);
        assert_eq!(html.matches("data:image/jpeg;base64,").count(), 3 * strip::FRAMES_PER_ROW);
        for external in ["<script", "src=\"http", "href=", "url(", "@import", "NaN"] {
            assert!(!html.contains(external), "{external}");
        }
        result.runs.clear();
        assert_balanced(&render_html(&result));
        let direct = render_html(&fixtures::direct_result());
        assert_balanced(&direct);
        assert!(direct.contains("smig gateway") && direct.contains("nginx/1.2.3"));
        assert!(direct.contains("smig gateway, alone") && direct.contains("slow_start_after_idle"));
    }

    #[test]
    fn json_contains_the_numbers_but_no_frames() {
        let text = render_json(&fixtures::result());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["summary"][1]["median_ms"], 720.0);
        assert_eq!(json["runs"][0]["loads"][0]["tiles"][0]["bytes"], 427);
        assert!(!text.contains("/9j/"));
        assert_eq!(
            (&json["format"], &json["setup"]["route"]),
            (&"smig-browser/2".into(), &"agent".into())
        );
        assert_eq!(
            (&json["runs"][0]["migrations"], &json["summary"][1]["migrations"]),
            (&0.into(), &1.into())
        );
        let direct: serde_json::Value =
            serde_json::from_str(&render_json(&fixtures::direct_result())).unwrap();
        assert_eq!(direct["runs"][1]["connections"][0]["downloads"], 1);
        for part in ["runs", "summary"] {
            assert!(direct[part][1].get("migrations").is_none(), "{part}: nothing migrates");
        }
        let parsed: BrowserResult = serde_json::from_str(&text).unwrap();
        assert_eq!(summary::summaries(&parsed), summary::summaries(&fixtures::result()));
    }
}
