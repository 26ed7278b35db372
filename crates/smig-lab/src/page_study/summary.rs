//! What the loads of a study show, by network and version of HTTP.

use std::collections::BTreeSet;

use serde::Serialize;
use smig_stats::median;

use super::spec::{LINK_AXIS, PROTOCOL_AXIS};
use crate::scenario::{Campaign, ConditionName};
use crate::timeline::Timeline;
use crate::timeline::page_load::{Lateness, critical_path};
use crate::trial::TrialResult;
use crate::workload::{Outcome, PageLoad, PageMetric};

/// A load, with its recording if there is one.
#[derive(Debug, Clone)]
pub struct MeasuredLoad<'a> {
    pub(super) result: &'a TrialResult,
    /// Of loads that are drawn.
    pub(super) timeline: Option<Timeline>,
    /// What it waited for, if it was recorded.
    pub(super) lateness: Option<Lateness>,
}

/// As much base64 the pictures of a report may have, of all loads that it draws.
pub(super) const MAX_PICTURE_BYTES: usize = 64 << 20;

impl<'a> MeasuredLoad<'a> {
    /// Evaluates a run, which has one load, and its recording; of the recording it keeps nothing.
    #[must_use]
    pub fn new(result: &'a TrialResult, timeline: Option<&Timeline>) -> Self {
        let lateness = timeline.and_then(|timeline| {
            let page = timeline.pages.first()?;
            Some(Lateness::of(timeline, page, &critical_path(timeline, page)))
        });
        Self { result, timeline: None, lateness }
    }
}

/// Reads the recordings again that a report draws, those of the loads with the median times: all of them would need too much memory.
///
/// # Errors
/// Those of `read`.
pub fn keep_recordings<E>(
    loads: &mut [MeasuredLoad<'_>],
    summaries: &mut [PageSummary],
    read: impl FnMut(&TrialResult) -> Result<Option<Timeline>, E>,
) -> Result<(), E> {
    keep_recordings_within(MAX_PICTURE_BYTES, loads, summaries, read)
}

pub(super) fn keep_recordings_within<E>(
    limit_bytes: usize,
    loads: &mut [MeasuredLoad<'_>],
    summaries: &mut [PageSummary],
    mut read: impl FnMut(&TrialResult) -> Result<Option<Timeline>, E>,
) -> Result<(), E> {
    let mut kept_bytes = 0;
    for summary in summaries {
        let Some(load) = summary.median_load.and_then(|index| loads.get_mut(index)) else {
            continue;
        };
        let Some(mut timeline) = read(load.result)? else { continue };
        let bytes: usize = timeline.frames.iter().map(|frame| frame.jpeg.len()).sum();
        if kept_bytes + bytes > limit_bytes {
            timeline.frames = Vec::new();
            summary.pictures_left_out = true;
        } else {
            kept_bytes += bytes;
        }
        load.timeline = Some(timeline);
    }
    Ok(())
}

/// Returns those of a campaign's results that are of these trials, in the order of the trials: a directory may have others.
#[must_use]
pub fn results_of<'a>(campaign: &Campaign, results: &'a [TrialResult]) -> Vec<&'a TrialResult> {
    let trials = campaign.trials();
    let of_trial = trials.iter().filter_map(|trial| {
        results.iter().find(|result| result.id == trial.id && result.hash == trial.hash())
    });
    of_trial.collect()
}

/// The loads over one network by one version of HTTP.
#[derive(Debug, Clone, Serialize)]
pub struct PageSummary {
    /// Name of the network.
    pub link: String,
    /// Version of HTTP, as [`super::Protocol`] names it.
    pub protocol: String,
    /// Number of loads; 0 if none has a result.
    pub loads: usize,
    /// Of these, loads that failed; the times are of the others.
    pub failed: usize,
    /// Of these, loads that the machine disturbed.
    pub disturbed: usize,
    /// Why the first one failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Median times in seconds, in the order of [`PageMetric::ALL`].
    pub loaded_s: Option<f64>,
    /// See above.
    pub rendered_s: Option<f64>,
    /// See above.
    pub speed_index_s: Option<f64>,
    /// See above; only of loads whose screen was recorded, and so are the next two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_index_by_frames_s: Option<f64>,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visually_85_s: Option<f64>,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visually_complete_s: Option<f64>,
    /// Shortest and longest time until everything had arrived.
    pub loaded_range_s: Option<(f64, f64)>,
    /// What the load that took the median time waited for, in microseconds by cause; of an even number, the faster one in the middle.
    pub lateness_us: Lateness,
    /// What a recorded page asked for in a browser and had no recorded answer: none was recorded, or its host cannot be served.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unknown: BTreeSet<String>,
    /// Most recorded responses that a load did not ask for.
    #[serde(skip_serializing_if = "is_zero")]
    pub not_requested: usize,
    /// Recorded responses without a body in the recording.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_body: usize,
    /// Loads whose screens changed too often for all frames to be kept: they have no times by frames.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_frames: usize,
    /// Whether the report has no pictures of its screen, because it would have too many.
    #[serde(skip)]
    pub pictures_left_out: bool,
    /// Index of the load with the median time, in the loads that were summarized.
    #[serde(skip)]
    pub median_load: Option<usize>,
}

const fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl PageSummary {
    /// Returns a median time in seconds.
    #[must_use]
    pub const fn median_s(&self, metric: PageMetric) -> Option<f64> {
        match metric {
            PageMetric::Loaded => self.loaded_s,
            PageMetric::FirstRendered => self.rendered_s,
            PageMetric::SpeedIndex => self.speed_index_s,
            PageMetric::SpeedIndexByFrames => self.speed_index_by_frames_s,
            PageMetric::MostlyVisible => self.visually_85_s,
            PageMetric::Visible => self.visually_complete_s,
        }
    }

    fn of(name: (&str, &str), all: &[MeasuredLoad<'_>], own: &[usize]) -> Self {
        let loads: Vec<(usize, &PageLoad)> =
            own.iter().filter_map(|index| Some((*index, load_of(all[*index].result)?))).collect();
        let times = |metric: PageMetric| -> Vec<f64> {
            loads.iter().filter_map(|(_, load)| metric.of(load)).collect()
        };
        let failures = loads.iter().filter(|(_, load)| load.outcome != Outcome::Complete);
        let failure = failures.clone().next().map(|(_, load)| match &load.outcome {
            Outcome::Failed(why) => why.clone(),
            Outcome::TimedOut => "it did not end in time".to_owned(),
            other => format!("{other:?}"),
        });
        let notes = || loads.iter().filter_map(|(_, load)| load.replay.as_ref());
        let loaded = times(PageMetric::Loaded);
        let range = loaded.iter().fold(None, |range: Option<(f64, f64)>, &time| {
            Some(range.map_or((time, time), |(low, high)| (low.min(time), high.max(time))))
        });
        let mut ordered: Vec<(usize, f64)> = loads
            .iter()
            .filter_map(|(index, load)| Some((*index, PageMetric::Loaded.of(load)?)))
            .collect();
        ordered.sort_by(|a, b| a.1.total_cmp(&b.1));
        let median_load = ordered.len().checked_sub(1).map(|last| ordered[last / 2].0);
        let lateness = median_load.and_then(|index| all[index].lateness.clone());
        Self {
            link: name.0.to_owned(),
            protocol: name.1.to_owned(),
            loads: loads.len(),
            failed: failures.count(),
            disturbed: own.iter().filter(|index| !all[**index].result.disturbed.is_empty()).count(),
            failure,
            loaded_s: median(&loaded),
            rendered_s: median(&times(PageMetric::FirstRendered)),
            speed_index_s: median(&times(PageMetric::SpeedIndex)),
            speed_index_by_frames_s: median(&times(PageMetric::SpeedIndexByFrames)),
            visually_85_s: median(&times(PageMetric::MostlyVisible)),
            visually_complete_s: median(&times(PageMetric::Visible)),
            loaded_range_s: range,
            lateness_us: lateness.unwrap_or_default(),
            unknown: notes().flat_map(|notes| notes.unknown.iter().cloned()).collect(),
            not_requested: notes().map(|notes| notes.not_requested).max().unwrap_or(0),
            without_body: notes().map(|notes| notes.without_body).max().unwrap_or(0),
            without_frames: loads.iter().filter(|(_, load)| load.omitted_frames > 0).count(),
            pictures_left_out: false,
            median_load,
        }
    }
}

/// Returns the names of the networks, in the order of the summaries.
pub(super) fn links(summaries: &[PageSummary]) -> Vec<&str> {
    let mut links: Vec<&str> = summaries.iter().map(|summary| summary.link.as_str()).collect();
    links.dedup();
    links
}

/// Returns the load of a run.
#[must_use]
pub(super) fn load_of(result: &TrialResult) -> Option<&PageLoad> {
    result.observation.pages.first()
}

/// Returns the load of a summary with the median time, with its recording.
pub(super) fn median_load<'a>(
    loads: &'a [MeasuredLoad<'_>],
    summary: &PageSummary,
) -> Option<(&'a PageLoad, &'a Timeline)> {
    let measured = loads.get(summary.median_load?)?;
    Some((load_of(measured.result)?, measured.timeline.as_ref()?))
}

/// Returns network and version of HTTP of a condition.
pub(super) fn levels_of(name: &ConditionName) -> (&str, &str) {
    let level = |axis| name.level(axis).unwrap_or("?");
    (level(LINK_AXIS), level(PROTOCOL_AXIS))
}

/// Summarizes loads by network and version of HTTP: one summary for each condition of the campaign, in its order, also if it has no
/// result.
#[must_use]
pub fn summarize(campaign: &Campaign, loads: &[MeasuredLoad<'_>]) -> Vec<PageSummary> {
    let summary = |name: &ConditionName| {
        let is_own = |load: &MeasuredLoad<'_>| load.result.id.condition == *name;
        let own: Vec<usize> = (0..loads.len()).filter(|index| is_own(&loads[*index])).collect();
        PageSummary::of(levels_of(name), loads, &own)
    };
    campaign.conditions.iter().map(|condition| summary(&condition.name)).collect()
}
