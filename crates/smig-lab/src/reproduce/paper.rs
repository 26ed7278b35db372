//! The numbers of the paper (SMig, CoNEXT 2016) and of the slides of its talk, as data.
//!
//! Only values that its text gives in numbers or words. Bars of its figures are not measured.

use super::claim::{Claim, Expected};

const fn claim(
    experiment: &'static str,
    key: &'static str,
    text: &'static str,
    expected: Expected,
    place: &'static str,
) -> Claim {
    Claim { experiment, key, text, expected, place }
}

const CLAIMS: &[Claim] = &[
    claim(
        "slide-table",
        "alone",
        "10 KB alone: 0.05 s",
        Expected::Seconds(0.05),
        "slides of the talk",
    ),
    claim(
        "slide-table",
        "https",
        "10 KB beside a download, HTTPS: 0.14 s",
        Expected::Seconds(0.14),
        "slides of the talk",
    ),
    claim(
        "slide-table",
        "http2",
        "10 KB beside a download, HTTP/2: 8.40 s",
        Expected::Seconds(8.40),
        "slides of the talk",
    ),
    claim(
        "figure-4",
        "less",
        "wired, default buffer: SMig takes up to 90 % less",
        Expected::LessBy(0.90),
        "section 5.1, on Figure 4",
    ),
    claim(
        "figure-5",
        "less",
        "wired, large buffer: SMig takes up to 93 % less",
        Expected::LessBy(0.93),
        "section 5.1, on Figures 5 and 7",
    ),
    claim(
        "figure-5",
        "worst",
        "a migration by the client (MigCP) helps less than the server's",
        Expected::More,
        "section 5.1, on Figures 5 and 7",
    ),
    claim(
        "figure-6",
        "less",
        "LTE, default buffer: qualitatively as in Figure 4 (no number given)",
        Expected::Less,
        "section 5.1, on Figure 6",
    ),
    claim(
        "figure-7",
        "less",
        "LTE, large buffer: SMig takes up to 92 % less",
        Expected::LessBy(0.92),
        "section 5.1, on Figures 5 and 7",
    ),
    claim(
        "figure-7",
        "worst",
        "a migration by the client (MigCP) helps less than the server's",
        Expected::More,
        "section 5.1, on Figures 5 and 7",
    ),
    claim(
        "figure-8",
        "least",
        "wired, 1 KB objects: 95 % less",
        Expected::LessBy(0.95),
        "section 5.1, Impact of Object Sizes, on Figure 8",
    ),
    claim(
        "figure-8",
        "trend",
        "the smaller the object, the more it gains (no number given)",
        Expected::More,
        "section 5.1, Impact of Object Sizes, on Figure 8",
    ),
    claim(
        "figure-8",
        "lte",
        "LTE: up to 99 % less",
        Expected::LessBy(0.99),
        "section 5.1, Impact of Object Sizes (figure not shown)",
    ),
    claim(
        "figure-9",
        "1MB",
        "10 KB beside a file of 1 MB, wired: 88 % less",
        Expected::LessBy(0.88),
        "section 5.1, Impact of Object Sizes, on Figure 9",
    ),
    claim(
        "figure-9",
        "lte",
        "LTE: over HTTP/2 a file of 10 MB blocks small objects for more than 5 s",
        Expected::LongerThan(5.0),
        "section 5.1, Impact of Object Sizes (figure not shown)",
    ),
    claim(
        "figure-10",
        "existing",
        "migrated to an existing connection, the big file takes less than 2.5 % longer",
        Expected::MoreByLessThan(0.025),
        "section 5.1, Impact of Large File Download Time, on Figure 10",
    ),
    claim(
        "figure-10",
        "new",
        "migrated to a new connection, the big file takes less than 2.5 % longer",
        Expected::MoreByLessThan(0.025),
        "section 5.1, Impact of Large File Download Time, on Figure 10",
    ),
    claim(
        "figure-11",
        "large",
        "LTE, large buffer: migration cuts the bytes after a cancel by 90 %",
        Expected::LessBy(0.90),
        "section 5.2, on Figure 11",
    ),
    claim(
        "figure-11",
        "default",
        "LTE, default buffer: by 53 %",
        Expected::LessBy(0.53),
        "section 5.2, on Figure 11",
    ),
    claim(
        "table-1",
        "sites",
        "of the top 1500 sites 209 / 43 / 21 / 10 / 4 hold an object of at least 1 / 5 / 10 / 25 / 50 MB",
        Expected::Web,
        "Table 1",
    ),
    claim(
        "table-1",
        "sizes",
        "sizes of objects, 25th, 50th, 75th percentile: 18, 40, 115 KB",
        Expected::Web,
        "section 2.1",
    ),
    claim(
        "table-2",
        "http1",
        "HTTP/1.1, download cancelled: 150 KB still arrive",
        Expected::Bytes(150e3),
        "Table 2, row 1",
    ),
    claim(
        "table-2",
        "http2",
        "HTTP/2, download cancelled: 2.5 MB still arrive",
        Expected::Bytes(2.5e6),
        "Table 2, row 2",
    ),
    claim(
        "table-2",
        "closed",
        "HTTP/2, browser closed: 150 KB still arrive",
        Expected::Bytes(150e3),
        "Table 2, row 3",
    ),
];

/// Returns the paper's claims about an experiment, in the order of its text.
pub fn claims_of(experiment: &str) -> impl Iterator<Item = &'static Claim> {
    CLAIMS.iter().filter(move |claim| claim.experiment == experiment)
}

#[cfg(test)]
mod tests {
    use super::super::Experiment;
    use super::*;

    #[test]
    fn every_claim_belongs_to_an_experiment_and_every_experiment_has_one() {
        for claim in CLAIMS {
            let known = Experiment::named(claim.experiment).is_some();
            assert!(known || claim.experiment == super::super::table_1::NAME, "{claim:?}");
            let same = claims_of(claim.experiment).filter(|other| other.key == claim.key).count();
            assert_eq!(same, 1, "{claim:?}");
        }
        for experiment in Experiment::all() {
            assert!(claims_of(experiment.name).next().is_some(), "{}", experiment.name);
        }
    }

    #[test]
    fn words_and_numbers_say_the_same() {
        for claim in CLAIMS {
            let number = match claim.expected {
                Expected::Seconds(seconds) => format!("{seconds:.2} s"),
                Expected::LessBy(share) => format!("{:.0} %", share * 100.0),
                Expected::MoreByLessThan(share) => format!("{:.1} %", share * 100.0),
                Expected::LongerThan(seconds) => format!("{seconds:.0} s"),
                Expected::Bytes(bytes) if bytes >= 1e6 => format!("{:.1} MB", bytes / 1e6),
                Expected::Bytes(bytes) => format!("{:.0} KB", bytes / 1e3),
                Expected::Less | Expected::More | Expected::Web => continue,
            };
            assert!(claim.text.contains(&number), "{number}: {}", claim.text);
        }
    }
}
