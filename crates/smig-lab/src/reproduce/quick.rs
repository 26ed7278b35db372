//! What a quick campaign of pages measures: how often each condition, and how many loads a run.

use crate::scenario::ConditionName;

/// Returns whether a condition has one of these levels on an axis.
fn is_one_of(condition: &ConditionName, axis: &str, levels: &[&str]) -> bool {
    condition.level(axis).is_some_and(|level| levels.contains(&level))
}

/// Returns whether a condition is by one of the two versions of HTTP that the studies compare.
pub(super) fn is_compared(condition: &ConditionName) -> bool {
    is_one_of(condition, "protocol", &["http1", "http2"])
}

/// Returns whether a condition of the grid is in the paper's Figure 1.
pub(super) fn is_in_figure_1(condition: &ConditionName) -> bool {
    is_compared(condition) && is_one_of(condition, "network", &["fiber", "slowdown"])
}

/// The paper's two networks completely, its larger windows where they are spoken of, and parts of what it does not have.
pub(super) fn grid_repetitions(condition: &ConditionName) -> u32 {
    let is = |axis, levels: &[&str]| is_one_of(condition, axis, levels);
    let in_papers_networks = is("network", &["fiber", "slowdown"]);
    u32::from(match (is_compared(condition), in_papers_networks) {
        (true, true) => is("window", &["10"]) || is("network", &["slowdown"]),
        (true, false) => {
            is("control", &["cubic", "cubic-hystart"])
                && is("objects", &["48", "192"])
                && is("total", &["550kB", "2300kB"])
        }
        (false, true) => {
            is("protocol", &["paced", "smig"])
                && is("control", &["cubic", "cubic-hystart"])
                && is("objects", &["6", "48", "192"])
                && is("total", &["140kB", "2300kB", "9MB"])
        }
        (false, false) => false,
    })
}

/// Five runs: so many are needed for an interval, and for a share of pairs to mean anything.
pub(super) fn five_repetitions(_: &ConditionName) -> u32 {
    5
}

/// The two that are compared five times each, ours with one congestion control.
pub(super) fn cases_repetitions(condition: &ConditionName) -> u32 {
    match is_compared(condition) {
        true => 5,
        false if is_one_of(condition, "control", &["cubic-hystart"]) => 3,
        false => 0,
    }
}

/// Sites that one sort of senders serves, and those of which the largest part goes by delays, once each.
pub(super) fn sites_repetitions(condition: &ConditionName) -> u32 {
    let is_mixed = condition.level("protocol") == Some("httpx");
    u32::from(match condition.level("delay") {
        Some("none" | "all") => is_compared(condition),
        Some("cdn") => is_compared(condition) || is_mixed,
        _ => false,
    })
}

/// Five runs of those that are compared, of the others one.
pub(super) fn mosaic_repetitions(condition: &ConditionName) -> u32 {
    match condition.level("protocol") {
        Some("http1" | "http2") => 5,
        Some("http3") => 1,
        _ => 2,
    }
}
