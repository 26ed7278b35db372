//! The report of a study: one page, a picture of each combination, and a table for other programs.

use smig_chart::format_ms;
use smig_chart::html::{Align, Page, Table};
use smig_chart::svg::Figure;
use url::Url;

use super::comparison::{LOADS_CAPTION, SUM_CAPTION, loads_figure, sum_figure};
use super::protocol::Protocol;
use super::screen::add_screens;
use super::summary::{MAX_PICTURE_BYTES, MeasuredLoad, PageSummary, links, load_of, median_load};
use crate::har::{Instant, host_of};
use crate::replay::is_replayable_host;
use crate::timeline::chart::page_figure;
use crate::timeline::page_load::{Cause, Lateness};
use crate::workload::PageMetric;

pub(super) const DESKTOP_WIDTH: f64 = 1_092.0;
pub(super) const PHONE_WIDTH: f64 = 360.0;

const CHART_CAPTION: &str = "The load that took the median time (of an even number, the faster one in the middle). All panels share one clock, which begins with the \
    navigation. Requests: each row is one, in the order in which they were made; the black line is the critical path, what \
    the page waited for at each instant. Received, queue and send buffers are those of the server's TCP connections and of \
    the emulated link. Received is what the client's kernel had in order, which exceeds the link's rate where a lost packet closes a gap, or \
    where the link's delay falls. The idle round trip is that of the path without a queue: its mean if delays are random.";

/// Renders the report as one page that needs neither network access nor scripts.
#[must_use]
pub fn render_html(
    page_name: &str,
    loads: &[MeasuredLoad<'_>],
    summaries: &[PageSummary],
) -> String {
    let mut page = Page::new(&format!("Page: {page_name}"));
    page.lead(&lead(summaries));
    page.table(&times_table(summaries));
    page.paragraph(&conditions(loads));
    if let Some(text) = clock_error(loads) {
        page.paragraph(&text);
    }
    for warning in summaries.iter().flat_map(warnings) {
        page.warning(&warning);
    }
    if loads.len() > summaries.len() {
        let at = |width| loads_figure(loads, summaries, width);
        page.figure(&at(DESKTOP_WIDTH), &at(PHONE_WIDTH), LOADS_CAPTION);
    }
    page.heading("Why it was late");
    let at = |width| sum_figure(summaries, width);
    page.figure(&at(DESKTOP_WIDTH), &at(PHONE_WIDTH), SUM_CAPTION);
    page.table(&lateness_table(summaries));
    let is_used =
        |cause: &Cause| summaries.iter().any(|summary| summary.lateness_us.us(*cause) > 0.0);
    let causes: Vec<_> = Cause::ALL.into_iter().filter(is_used).collect();
    let names: Vec<String> = causes.iter().map(ToString::to_string).collect();
    let about = names.iter().zip(&causes);
    let facts: Vec<_> =
        about.map(|(name, cause)| (name.as_str(), cause.about().to_owned())).collect();
    page.facts(&facts);
    add_screens(&mut page, loads, summaries);
    for summary in summaries {
        let Some(wide) = median_figure(loads, summaries, summary, DESKTOP_WIDTH) else { continue };
        let Some(narrow) = median_figure(loads, summaries, summary, PHONE_WIDTH) else { continue };
        page.heading(&format!("{}, {}", summary.link, about_protocol(summary)));
        page.figure(&wide, &narrow, CHART_CAPTION);
    }
    page.finish()
}

/// Returns what all loads have in common, and when they were measured.
fn conditions(loads: &[MeasuredLoad<'_>]) -> String {
    let Some(result) = loads.first().map(|load| load.result) else { return String::new() };
    let control = result.scenario.hosts.server.congestion_control.as_deref().unwrap_or("cubic");
    let commit = result.origin.as_ref().and_then(|origin| origin.build.commit.as_deref());
    let build = commit.map_or_else(
        || "a build of an unknown commit".to_owned(),
        |commit| format!("commit {}", commit.chars().take(12).collect::<String>()),
    );
    let at = Instant(result.unix_time as f64 * 1e3).to_string();
    let day = at.split('T').next().unwrap_or_default();
    format!("Congestion control of the server: {control}. Measured on {day} by {build}.")
}

/// Renders the chart of one combination as a standalone SVG file; `None` if none of its loads was recorded.
#[must_use]
pub fn render_svg(
    loads: &[MeasuredLoad<'_>],
    summaries: &[PageSummary],
    summary: &PageSummary,
) -> Option<String> {
    Some(median_figure(loads, summaries, summary, DESKTOP_WIDTH)?.to_file())
}

/// Builds the chart of the median load; its axis is as long as the longest of the same network.
fn median_figure(
    loads: &[MeasuredLoad<'_>],
    summaries: &[PageSummary],
    summary: &PageSummary,
    width: f64,
) -> Option<Figure> {
    let (_, timeline) = median_load(loads, summary)?;
    let load = timeline.pages.first()?;
    let of_link = summaries.iter().filter(|other| other.link == summary.link);
    let ends_s = of_link.filter_map(|other| {
        let visual = median_load(loads, other).and_then(|(load, _)| load.visual);
        let complete_s = visual.map_or(0.0, |visual| visual.complete_us as f64 / 1e6);
        Some(other.loaded_s?.max(complete_s))
    });
    let longest_s = ends_s.fold(0.0, f64::max);
    let end_us = load.from_us + (longest_s * 1e6) as u64;
    let mut figure = page_figure(timeline, load, end_us, width);
    figure.title = format!("{}, {}", summary.link, about_protocol(summary));
    Some(figure)
}

pub(super) fn about_protocol(summary: &PageSummary) -> String {
    let known = summary.protocol.parse::<Protocol>();
    known.map_or_else(|_| summary.protocol.clone(), |protocol| protocol.about().to_owned())
}

/// Returns a sentence for each network: the fastest, and what the others take.
fn lead(summaries: &[PageSummary]) -> String {
    let links = links(summaries);
    let sentences = links.iter().filter_map(|link| {
        let own = summaries.iter().filter(|summary| summary.link == *link);
        let mut timed: Vec<_> =
            own.filter_map(|summary| Some((summary, summary.loaded_s?))).collect();
        timed.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (best, best_s) = timed.first()?;
        let others = timed.iter().skip(1).map(|(other, other_s)| {
            let ratio = other_s / best_s.max(1e-9);
            let overlap = if ranges_overlap(best, other) { " (their ranges overlap)" } else { "" };
            format!("{} takes {ratio:.2} times as long{overlap}", other.protocol)
        });
        let others: Vec<_> = others.collect();
        let tail =
            if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
        Some(format!("Over {link}, {} has loaded after {best_s:.2} s{tail}.", best.protocol))
    });
    let text = sentences.collect::<Vec<_>>().join(" ");
    if text.is_empty() { "No load was complete.".to_owned() } else { text }
}

/// Returns how far a browser's times may be off those of servers and links; `None` for a player's, whose clock it is.
fn clock_error(loads: &[MeasuredLoad<'_>]) -> Option<String> {
    let errors_ns = loads.iter().filter_map(|load| load_of(load.result)?.clock_error_ns);
    // To a tenth of a millisecond, rounded up.
    let error_ms = errors_ns.max()?.div_ceil(100_000) as f64 / 10.0;
    Some(format!(
        "The browser's times and those of servers and links are on one clock to within {error_ms:.1} ms, measured before and after each \
         load. A frame of its screen has the time at which the browser had it, which is before the time at which the page says that it was painted."
    ))
}

/// Returns whether the slowest load of one was not faster than the fastest of the other.
fn ranges_overlap(faster: &PageSummary, slower: &PageSummary) -> bool {
    match (faster.loaded_range_s, slower.loaded_range_s) {
        (Some((_, high)), Some((low, _))) => high >= low,
        _ => false,
    }
}

/// As much is shown of a URL.
const MAX_URL_CHARS: usize = 120;

/// Returns what a reader of the summary's times must know.
#[must_use]
pub fn warnings(summary: &PageSummary) -> Vec<String> {
    let name = format!("{}, {}", summary.link, summary.protocol);
    let mut warnings = Vec::new();
    if summary.loads == 0 {
        warnings.push(format!("{name}: no load has a result"));
    }
    if summary.failed > 0 {
        let why = summary.failure.as_deref().unwrap_or_default();
        warnings
            .push(format!("{name}: {} of {} loads failed: {why}", summary.failed, summary.loads));
    }
    let (served, unserved): (Vec<_>, Vec<_>) =
        summary.unknown.iter().map(String::as_str).partition(|url| can_be_served(url));
    if let Some(urls) = first_of(&served) {
        warnings.push(format!("{name}: the page asked for what was not recorded: {urls}"));
    }
    if let Some(urls) = first_of(&unserved) {
        warnings.push(format!(
            "{name}: the page asked hosts for which the lab cannot answer, recorded or not (an IPv6 address, or one of the lab's own): {urls}"
        ));
    }
    if summary.not_requested > 0 {
        let count = summary.not_requested;
        let were = if count == 1 { "response was" } else { "responses were" };
        warnings.push(format!("{name}: {count} recorded {were} not asked for"));
    }
    if summary.without_body > 0 {
        let count = summary.without_body;
        let (have, were) =
            if count == 1 { ("response has", "was") } else { ("responses have", "were") };
        warnings.push(format!(
            "{name}: {count} {have} no body in the recording, and {were} as many bytes without meaning"
        ));
    }
    if summary.without_frames > 0 {
        let count = summary.without_frames;
        warnings.push(format!(
            "{name}: the screens of {count} loads changed too often for all frames to be kept: nothing is known of what they showed"
        ));
    }
    if summary.pictures_left_out {
        let limit_mb = MAX_PICTURE_BYTES >> 20;
        warnings.push(format!(
            "{name}: no filmstrip, since the report has {limit_mb} MiB of pictures already; its times are by all frames"
        ));
    }
    if summary.disturbed > 0 {
        let (disturbed, loads) = (summary.disturbed, summary.loads);
        warnings.push(format!("{name}: the machine disturbed {disturbed} of {loads} loads"));
    }
    warnings
}

/// Returns whether a browser can be sent to the lab's servers for a URL's host.
fn can_be_served(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| is_replayable_host(&host_of(&url)))
}

/// Returns the first URL, and how many more there are; `None` without one.
fn first_of(urls: &[&str]) -> Option<String> {
    let first: String = urls.first()?.chars().take(MAX_URL_CHARS).collect();
    Some(match urls.len() {
        1 => first,
        count => format!("{first}, and {} more", count - 1),
    })
}

pub(super) fn seconds_text(time_s: Option<f64>) -> String {
    time_s.map_or_else(|| "–".to_owned(), |time_s| format!("{time_s:.3}"))
}

/// Returns the table of times, in seconds.
#[must_use]
pub fn times_table(summaries: &[PageSummary]) -> Table {
    let has_frames = summaries.iter().any(|summary| summary.speed_index_by_frames_s.is_some());
    let is_shown = |metric: &PageMetric| *metric != PageMetric::SpeedIndexByFrames || has_frames;
    let metrics =
        [PageMetric::FirstRendered, PageMetric::SpeedIndex, PageMetric::SpeedIndexByFrames];
    let metrics: Vec<_> = metrics.into_iter().filter(is_shown).collect();
    let mut columns = [
        ("network", Align::Left),
        ("protocol", Align::Left),
        ("loads", Align::Right),
        ("loaded, s", Align::Right),
        ("from – to", Align::Right),
    ]
    .map(|(name, align)| (name.to_owned(), align))
    .to_vec();
    let column = |metric: &PageMetric| (format!("{}, s", metric.title()), Align::Right);
    columns.extend(metrics.iter().map(column));
    columns.push(("mostly".to_owned(), Align::Left));
    let row = |summary: &PageSummary| {
        let range = summary.loaded_range_s;
        let mut row = vec![
            summary.link.clone(),
            summary.protocol.clone(),
            (summary.loads - summary.failed).to_string(),
            seconds_text(summary.loaded_s),
            range.map_or_else(String::new, |(low, high)| format!("{low:.3} – {high:.3}")),
        ];
        row.extend(metrics.iter().map(|metric| seconds_text(summary.median_s(*metric))));
        row.push(mostly(&summary.lateness_us));
        row
    };
    Table { columns, rows: summaries.iter().map(row).collect() }
}

/// Returns the largest part of a load, with its share.
fn mostly(lateness: &Lateness) -> String {
    let total_us = lateness.total_us();
    let largest = Cause::ALL.into_iter().max_by(|a, b| lateness.us(*a).total_cmp(&lateness.us(*b)));
    match largest {
        Some(cause) if total_us > 0.0 => {
            format!("{cause} ({:.0} %)", 100.0 * lateness.us(cause) / total_us)
        }
        _ => String::new(),
    }
}

fn lateness_table(summaries: &[PageSummary]) -> Table {
    let mut columns = vec![("ms".to_owned(), Align::Left)];
    columns.extend(
        summaries
            .iter()
            .map(|summary| (format!("{}, {}", summary.link, summary.protocol), Align::Right)),
    );
    let row = |name: String, us: &dyn Fn(&Lateness) -> f64| {
        let cells = summaries.iter().map(|summary| match summary.median_load {
            Some(_) => format_ms(us(&summary.lateness_us) / 1e3),
            None => "–".to_owned(),
        });
        std::iter::once(name).chain(cells).collect::<Vec<_>>()
    };
    let is_used =
        |cause: &Cause| summaries.iter().any(|summary| summary.lateness_us.us(*cause) > 0.0);
    let mut rows: Vec<_> = Cause::ALL
        .into_iter()
        .filter(is_used)
        .map(|cause| row(cause.to_string(), &|lateness| lateness.us(cause)))
        .collect();
    rows.push(row("all".to_owned(), &Lateness::total_us));
    Table { columns, rows }
}
