//! Reduces points to as many as a chart can show.

use super::View;

/// Returns the points within the view, and one at each edge so that lines continue to it. Where
/// several fall onto one pixel, the first, lowest, highest and last remain, so that no peak is
/// lost.
pub(super) fn downsample(points: impl Iterator<Item = (u64, u64)>, view: &View) -> Vec<(u64, u64)> {
    let mut start_point = None;
    let mut visible_points = Vec::new();
    for point in points {
        if point.0 < view.from_us {
            start_point = Some((view.from_us, point.1));
        } else if point.0 <= view.to_us {
            visible_points.push(point);
        } else {
            // The last value holds until the next point.
            let last = visible_points.last().copied().or(start_point);
            visible_points.extend(last.map(|(_, value)| (view.to_us, value)));
            break;
        }
    }
    let column_us = (view.length_us() / view.column_count() as u64).max(1);
    let column = |point: &(u64, u64)| point.0.saturating_sub(view.from_us) / column_us;
    let mut kept_points: Vec<(u64, u64)> = start_point.into_iter().collect();
    for group in visible_points.chunk_by(|a, b| column(a) == column(b)) {
        let low = group.iter().min_by_key(|point| point.1);
        let high = group.iter().max_by_key(|point| point.1);
        let mut extremes: Vec<(u64, u64)> =
            [group.first(), low, high, group.last()].into_iter().flatten().copied().collect();
        extremes.sort_by_key(|point| point.0);
        extremes.dedup();
        kept_points.extend(extremes);
    }
    kept_points
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: View = View { from_us: 1_000, to_us: 101_000, width: 100.0 };

    #[test]
    fn peaks_survive() {
        let points = (0..200_000_u64).map(|at| (at, if at == 50_500 { 9 } else { at % 2 + 3 }));
        let thinned = downsample(points, &VIEW);
        assert!(thinned.len() <= 4 * 101 + 2, "{}", thinned.len());
        assert!(thinned.contains(&(50_500, 9)));
        assert_eq!(thinned.first().map(|point| point.0), Some(1_000));
        assert_eq!(thinned.last().map(|point| point.0), Some(101_000));
        assert!(thinned.is_sorted_by_key(|point| point.0));
    }

    #[test]
    fn a_value_from_before_holds_to_the_edges() {
        let points = [(10, 7), (200_000, 8)];
        assert_eq!(downsample(points.into_iter(), &VIEW), [(1_000, 7), (101_000, 7)]);
        assert_eq!(downsample([(200_000, 8)].into_iter(), &VIEW), []);
    }
}
