//! The rows of frames to show: selects page loads and moments.

use super::data::{BrowserResult, PageLoad};
use super::variant::BrowserVariant;
use crate::demo::BackgroundLoad;

/// Number of frames in a row.
pub(super) const FRAMES_PER_ROW: usize = 4;

/// One page load to show.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameRow<'a> {
    /// `None` for the load without a download.
    pub(super) variant: Option<BrowserVariant>,
    /// The median load of its kind.
    pub(super) page_load: &'a PageLoad,
}

impl FrameRow<'_> {
    pub(super) const fn title(&self) -> &'static str {
        match self.variant {
            None => "Nothing else on the link",
            Some(variant) => variant.title(),
        }
    }

    /// Returns the number of tiles that have arrived by a moment.
    pub(super) fn tiles_at(&self, at_ms: f64) -> usize {
        self.page_load.tiles.iter().filter(|tile| tile.end_ms <= at_ms).count()
    }
}

/// Returns the rows: first the page alone, with the first variant; then each variant beside the
/// download.
pub(super) fn rows(result: &BrowserResult) -> Vec<FrameRow<'_>> {
    let alone = result.runs.first().and_then(|run| run.median_load(BackgroundLoad::Unloaded));
    let beside = result.runs.iter().filter_map(|run| {
        Some(FrameRow {
            variant: Some(run.variant),
            page_load: run.median_load(BackgroundLoad::BigFile)?,
        })
    });
    alone
        .map(|page| FrameRow { variant: None, page_load: page })
        .into_iter()
        .chain(beside)
        .collect()
}

/// Returns moments in ms, each twice the previous one; at the last one all pages have loaded.
pub(super) fn frame_times_ms(rows: &[FrameRow<'_>]) -> [f64; FRAMES_PER_ROW] {
    let slowest_ms = rows.iter().map(|row| row.page_load.load_time_ms()).fold(0.0, f64::max);
    let mut last_ms = 250.0;
    while last_ms < slowest_ms {
        last_ms *= 2.0;
    }
    [last_ms / 8.0, last_ms / 4.0, last_ms / 2.0, last_ms]
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    #[test]
    fn the_last_frames_show_complete_pages() {
        let result = fixtures::result();
        let rows = rows(&result);
        let titles: Vec<_> = rows.iter().map(FrameRow::title).collect();
        assert_eq!(titles, ["Nothing else on the link", "Plain HTTP/2", "SMig at both ends"]);
        let moments = frame_times_ms(&rows);
        assert_eq!(moments, [500.0, 1_000.0, 2_000.0, 4_000.0]);
        for row in &rows {
            assert_eq!(row.tiles_at(moments[3]), result.setup.tile_count);
            assert!(row.page_load.frame_at(moments[3]).is_some());
        }
        assert!(rows[1].tiles_at(moments[1]) < rows[2].tiles_at(moments[1]));
    }

    #[test]
    fn of_an_even_number_of_loads_the_faster_one_in_the_middle_is_shown() {
        let mut result = fixtures::result();
        let run = &mut result.runs[0];
        let median = |run: &super::super::data::VariantRun| {
            run.median_load(BackgroundLoad::BigFile).map(PageLoad::load_time_ms)
        };
        assert_eq!(median(run), Some(3_200.0), "of three");
        run.loads.pop();
        assert_eq!(median(run), Some(3_100.0), "of two");
        run.loads.clear();
        assert_eq!(median(run), None);
    }

    #[test]
    fn the_last_frame_remains_displayed() {
        let result = fixtures::result();
        let page = &result.runs[0].loads[0];
        let last = page.frames.last().unwrap();
        assert_eq!(page.frame_at(1e9), Some(last));
        assert_eq!(page.frame_at(last.at_ms - 0.1).map(|f| f.at_ms < last.at_ms), Some(true));
        assert_eq!(page.frame_at(-1e9), None);
    }
}
