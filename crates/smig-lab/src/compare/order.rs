//! Whether both sides put the settings in the same order: a cheap way to measure is worth something if it does.

use smig_stats::rank_correlation;

use super::difference::Comparison;

/// With fewer settings an order says little.
const MIN_SETTINGS: usize = 5;

/// How well the order of one side's medians predicts that of the other's.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderAgreement {
    /// The metric.
    pub metric: String,
    /// Number of settings.
    pub settings: usize,
    /// Spearman's rank correlation of the two sides' medians.
    pub correlation: f64,
}

/// Returns the agreement for each metric that five settings or more have, in the order of the comparisons.
#[must_use]
pub fn order_agreements(comparisons: &[Comparison]) -> Vec<OrderAgreement> {
    let mut metrics: Vec<&str> = Vec::new();
    for comparison in comparisons {
        if !metrics.contains(&comparison.metric.as_str()) {
            metrics.push(&comparison.metric);
        }
    }
    let agreement = |metric: &str| {
        let settings = comparisons.iter().filter(|one| one.metric == metric);
        let medians = |one: &Comparison| (one.a.summary.median, one.b.summary.median);
        let is_finite = |pair: &(f64, f64)| pair.0.is_finite() && pair.1.is_finite();
        let pairs: Vec<_> = settings.map(medians).filter(is_finite).collect();
        let correlation = rank_correlation(&pairs).filter(|_| pairs.len() >= MIN_SETTINGS)?;
        Some(OrderAgreement { metric: metric.to_owned(), settings: pairs.len(), correlation })
    };
    metrics.into_iter().filter_map(agreement).collect()
}

#[cfg(test)]
mod tests {
    use smig_stats::{Bootstrap, Run};

    use super::*;
    use crate::compare::{BetterDirection, Series, compare};
    use crate::scenario::ConditionName;

    fn comparison(a: f64, b: f64) -> Comparison {
        let series = |value| Series {
            metric: "page loaded".into(),
            unit: "s".into(),
            better: BetterDirection::Lower,
            runs: vec![Run { seed: 1, values: vec![value] }],
        };
        let (a, b) = (series(a), series(b));
        let bootstrap = Bootstrap { resamples: 10, ..Bootstrap::default() };
        compare(&ConditionName(Vec::new()), ("player", &a), ("browser", &b), &bootstrap).unwrap()
    }

    #[test]
    fn an_order_needs_five_settings() {
        let medians = [(1.0, 2.0), (2.0, 3.0), (3.0, 5.0), (4.0, 7.0), (5.0, 6.0)];
        let comparisons: Vec<_> = medians.iter().map(|&(a, b)| comparison(a, b)).collect();
        assert!(order_agreements(&comparisons[..4]).is_empty());
        let agreements = order_agreements(&comparisons);
        assert_eq!((agreements.len(), agreements[0].settings), (1, 5));
        // Of five, the last two are exchanged: 1 - 6 * 2 / 120.
        assert!((agreements[0].correlation - 0.9).abs() < 1e-12, "{agreements:?}");
    }
}
