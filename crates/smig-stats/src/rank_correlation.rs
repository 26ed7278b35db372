//! Spearman's rank correlation: do two lists put the same things in the same order?

/// Returns the correlation of the ranks of pairs, ties as midranks: 1 for the same order, -1 for the reverse. Pairs with a value that is
/// not finite are left out. `None` for fewer than three pairs, and if all values of a list are equal.
#[must_use]
pub fn rank_correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let finite: Vec<_> =
        pairs.iter().copied().filter(|(a, b)| a.is_finite() && b.is_finite()).collect();
    if finite.len() < 3 {
        return None;
    }
    let first = midranks(&finite.iter().map(|pair| pair.0).collect::<Vec<_>>());
    let second = midranks(&finite.iter().map(|pair| pair.1).collect::<Vec<_>>());
    // Of both: the sum of the ranks does not depend on ties.
    let mean = (finite.len() as f64 + 1.0) / 2.0;
    let (mut product, mut first_square, mut second_square) = (0.0, 0.0, 0.0);
    for (a, b) in first.iter().zip(&second) {
        let (a, b) = (a - mean, b - mean);
        product += a * b;
        first_square += a * a;
        second_square += b * b;
    }
    let scale = (first_square * second_square).sqrt();
    (scale > 0.0).then(|| product / scale)
}

/// Returns the rank of each value, from 1; equal values have the mean of their ranks.
fn midranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut begin = 0;
    for group in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let midrank = begin as f64 + (group.len() as f64 + 1.0) / 2.0;
        group.iter().for_each(|&index| ranks[index] = midrank);
        begin += group.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_alone_counts() {
        let same = [(1.0, 10.0), (2.0, 11.0), (3.0, 400.0), (4.0, 401.0)];
        assert_eq!(rank_correlation(&same), Some(1.0));
        let reverse = same.map(|(a, b)| (a, -b));
        assert_eq!(rank_correlation(&reverse), Some(-1.0));
    }

    #[test]
    fn it_is_that_of_the_textbook() {
        // 1 - 6 sum d^2 / (n (n^2 - 1)) for distinct ranks, whose differences are 1, 1, 0, 1 and 1.
        let pairs = [(1.0, 2.0), (2.0, 1.0), (3.0, 3.0), (4.0, 6.0), (6.0, 4.0)];
        let expected = 1.0 - 6.0 * (1.0 + 1.0 + 0.0 + 1.0 + 1.0) / (5.0 * 24.0);
        assert!((rank_correlation(&pairs).unwrap() - expected).abs() < 1e-12);
        // With a tie, that of the midranks 1, 2.5, 2.5 with 1, 2, 3.
        let tied = rank_correlation(&[(5.0, 1.0), (7.0, 2.0), (7.0, 3.0)]).unwrap();
        assert!((tied - 0.866_025_403_784).abs() < 1e-9, "{tied}");
    }

    #[test]
    fn without_an_order_there_is_none() {
        assert_eq!(rank_correlation(&[(1.0, 1.0), (2.0, 2.0)]), None);
        assert_eq!(rank_correlation(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
        let odd = [(1.0, 1.0), (f64::NAN, 2.0), (2.0, f64::INFINITY), (3.0, 3.0)];
        assert_eq!(rank_correlation(&odd), None);
    }
}
