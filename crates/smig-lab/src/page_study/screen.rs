//! What the screens showed: filmstrips side by side, and the times that follow from them.

use smig_chart::html::{Align, Page, Table};
use smig_chart::svg::Figure;

use super::report::{DESKTOP_WIDTH, PHONE_WIDTH, about_protocol, seconds_text};
use super::summary::{MeasuredLoad, PageSummary, links, median_load};
use crate::timeline::chart::{FILMSTRIP_HINT, filmstrips_figure};

const TABLE_NOTE: &str = "Of the load with the median time. SpeedIndex is the area above the curve of the visual progress: by all frames; as \
    Lighthouse computes it, which skips frames that differ by little; and by structural similarity with the final screen instead of its colours.";

/// Adds filmstrips and times to a report, if the loads had frames.
pub(super) fn add_screens(page: &mut Page, loads: &[MeasuredLoad<'_>], summaries: &[PageSummary]) {
    let table = screens_table(loads, summaries);
    if table.rows.is_empty() {
        return;
    }
    page.heading("What the screens showed");
    for link in links(summaries) {
        let at = |width| figure(loads, summaries, link, width);
        if let (Some(wide), Some(narrow)) = (at(DESKTOP_WIDTH), at(PHONE_WIDTH)) {
            let caption = format!("Over {link}, loads with the median time; {FILMSTRIP_HINT}.");
            page.figure(&wide, &narrow, &caption);
        }
    }
    page.table(&table);
    page.paragraph(TABLE_NOTE);
}

/// Renders the filmstrips of the loads over one network, side by side, as a standalone SVG file; `None` without frames.
#[must_use]
pub fn render_filmstrips(
    loads: &[MeasuredLoad<'_>],
    summaries: &[PageSummary],
    link: &str,
) -> Option<String> {
    Some(figure(loads, summaries, link, DESKTOP_WIDTH)?.to_file())
}

fn figure(
    loads: &[MeasuredLoad<'_>],
    summaries: &[PageSummary],
    link: &str,
    width: f64,
) -> Option<Figure> {
    let own = summaries.iter().filter(|summary| summary.link == link);
    let screens = own.filter_map(|summary| {
        let (load, timeline) = median_load(loads, summary)?;
        let visual = load.visual.filter(|_| !timeline.frames.is_empty())?;
        Some((about_protocol(summary), timeline, timeline.pages.first()?, visual.complete_us))
    });
    let screens: Vec<_> = screens.collect();
    // All screens are complete in the last picture.
    let longest_us = screens.iter().map(|(.., complete_us)| *complete_us).max()?;
    let loads: Vec<_> =
        screens.into_iter().map(|(title, timeline, page, _)| (title, timeline, page)).collect();
    let mut figure =
        filmstrips_figure(&loads, longest_us.saturating_add(longest_us / 8).max(1), width);
    figure.title = format!("What the screens showed over {link}");
    Some(figure)
}

/// Returns the times by frames of the median loads, in seconds; loads without frames have no row.
fn screens_table(loads: &[MeasuredLoad<'_>], summaries: &[PageSummary]) -> Table {
    let columns = [
        ("network", Align::Left),
        ("protocol", Align::Left),
        ("frames", Align::Right),
        ("first change, s", Align::Right),
        ("85 % visible, s", Align::Right),
        ("all visible, s", Align::Right),
        ("SpeedIndex by frames, s", Align::Right),
        ("as Lighthouse", Align::Right),
        ("perceptual", Align::Right),
    ];
    let row = |summary: &PageSummary| {
        let visual = median_load(loads, summary)?.0.visual?;
        let times = [
            visual.first_us,
            visual.mostly_complete_us,
            visual.complete_us,
            visual.speed_index_us,
            visual.fast_speed_index_us,
            visual.perceptual_speed_index_us,
        ];
        let mut row =
            vec![summary.link.clone(), summary.protocol.clone(), visual.frames.to_string()];
        row.extend(times.map(|us| seconds_text(Some(us as f64 / 1e6))));
        Some(row)
    };
    Table {
        columns: columns.map(|(name, align)| (name.to_owned(), align)).to_vec(),
        rows: summaries.iter().filter_map(row).collect(),
    }
}
