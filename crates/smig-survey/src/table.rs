//! The survey's table: the counts beside the paper's Table 1, and sentences that compare them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use smig_stats::wilson;

use super::counts::{Exclusion, LargestObject, SurveyCounts};

/// Number of sites that the paper studied: the Alexa top 1500.
const PAPER_SITES: u64 = 1500;

/// Table 1: number of sites that hold an object of each size.
const PAPER_SITES_BY_THRESHOLD: [u64; 5] = [209, 43, 21, 10, 4];

/// Section 2.1: percentiles of object sizes, in bytes.
const PAPER_PERCENTILES: [(u8, u64); 3] = [(25, 18_000), (50, 40_000), (75, 115_000)];

/// Minimum number of sites for a conclusion about the web.
const MIN_SITES: u64 = 30;

/// Where the sizes come from; each source sees different objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataSource {
    /// HAR files: what a browser loaded.
    Har,
    /// An export of the HTTP Archive.
    HttpArchive,
    /// A crawl by this program.
    Crawl,
}

impl DataSource {
    /// Returns what this source misses, or counts differently from the paper.
    const fn caveat(self) -> &'static str {
        match self {
            Self::Har => {
                "A HAR file holds what a browser loaded for its pages, scripts included, but not \
                 what those pages only link to: downloads behind a link, above all the paper's \
                 large objects, are missing unless they were clicked."
            }
            Self::HttpArchive => {
                "The HTTP Archive loads a home page and at most one page below it and follows no \
                 other link: downloads behind links are missing, so the counts of large objects \
                 are lower bounds for three levels."
            }
            Self::Crawl => {
                "The crawl reads HTML without running scripts, obeys robots.txt and stops at its \
                 limits: the counts of large objects are lower bounds. Sizes are those of content \
                 without compression."
            }
        }
    }
}

/// Sites with an object of at least some size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThresholdRow {
    /// The object's size, in bytes.
    pub bytes: u64,
    /// Sites that hold one.
    pub sites: u64,
    /// Their share of all sites; `None` without sites.
    pub share: Option<f64>,
    /// Wilson's 95 % confidence interval of the share: low, high.
    pub interval: Option<(f64, f64)>,
    /// The paper's number, of 1500.
    pub paper_sites: u64,
    /// The paper's share.
    pub paper_share: f64,
}

/// A percentile of the object sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Percentile {
    /// The percentage.
    pub percent: u8,
    /// The size in bytes; `None` without objects.
    pub bytes: Option<f64>,
    /// The paper's value, in bytes.
    pub paper_bytes: u64,
}

/// The survey's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Where the sizes come from.
    pub source: DataSource,
    /// Number of sites.
    pub sites: u64,
    /// Objects on their landing pages' hosts.
    pub objects: u64,
    /// Sites with an object of at least each size.
    #[serde(rename = "at_least")]
    pub threshold_rows: Vec<ThresholdRow>,
    /// Sizes of all objects.
    pub percentiles: Vec<Percentile>,
    /// Whether sizes were rounded to one part in 4,096, because too many are distinct.
    pub rounded: bool,
    /// Entries that were not counted, by reason.
    #[serde(rename = "left_out")]
    pub exclusions: BTreeMap<Exclusion, u64>,
    /// The sites with the largest objects.
    pub largest: Vec<LargestObject>,
    /// Comparison with the paper's table, in sentences.
    pub comparison: String,
    /// Further notes for the reader.
    pub notes: Vec<String>,
}

impl Table {
    /// Builds the table from the counts.
    #[must_use]
    pub fn new(source: DataSource, counts: &SurveyCounts) -> Self {
        let sites = counts.site_count();
        let threshold_rows: Vec<_> = counts
            .site_counts_by_threshold()
            .zip(PAPER_SITES_BY_THRESHOLD)
            .map(|((bytes, reached), paper_sites)| ThresholdRow {
                bytes,
                sites: reached,
                share: (sites > 0).then(|| reached as f64 / sites as f64),
                interval: wilson(reached, sites).map(|interval| (interval.low, interval.high)),
                paper_sites,
                paper_share: paper_sites as f64 / PAPER_SITES as f64,
            })
            .collect();
        let percentiles: Vec<_> = PAPER_PERCENTILES
            .map(|(percent, paper_bytes)| Percentile {
                percent,
                bytes: counts.sizes().quantile(f64::from(percent) / 100.0),
                paper_bytes,
            })
            .into();
        Self {
            source,
            sites,
            objects: counts.object_count(),
            comparison: compare_with_paper(source, sites, &threshold_rows, &percentiles),
            threshold_rows,
            percentiles,
            rounded: counts.sizes().is_rounded(),
            exclusions: counts.exclusions().clone(),
            largest: counts.largest(),
            notes: Vec::new(),
        }
    }

    /// Renders the table as text, for a terminal or a file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "Sites with large objects on the landing page's host (sites: {}, objects: {})\n\n",
            self.sites, self.objects
        );
        text += "  at least   sites    share     95 % interval   paper (of 1500)\n";
        for row in &self.threshold_rows {
            let share = row.share.map_or_else(|| "-".to_owned(), format_percent);
            let interval = row.interval.map_or_else(
                || "-".to_owned(),
                |(low, high)| format!("{} to {}", format_percent(low), format_percent(high)),
            );
            let (size, paper) = (format_size(row.bytes as f64), format_percent(row.paper_share));
            let (sites, paper_sites) = (row.sites, row.paper_sites);
            // Writing to a String does not fail.
            let _ = writeln!(
                text,
                "  {size:>8} {sites:>7} {share:>8} {interval:>17}   {paper_sites:>7} {paper:>7}"
            );
        }
        text += "\n  percentile of object sizes      here     paper\n";
        for row in &self.percentiles {
            let here = row.bytes.map_or_else(|| "-".to_owned(), format_size);
            let paper = format_size(row.paper_bytes as f64);
            let _ = writeln!(text, "  {:>10}th {here:>23} {paper:>9}", row.percent);
        }
        if !self.largest.is_empty() {
            text += "\n  the largest\n";
            for large in self.largest.iter().take(5) {
                let _ = writeln!(text, "  {:>8}  {}", format_size(large.bytes as f64), large.url);
            }
        }
        if !self.exclusions.is_empty() {
            let parts: Vec<_> = self
                .exclusions
                .iter()
                .map(|(why, n)| format!("{n} {}", why.description()))
                .collect();
            let _ = write!(text, "\n{}", wrap(&format!("Not counted: {}.", parts.join(", "))));
        }
        let _ = write!(text, "\n{}", wrap(&self.comparison));
        if self.rounded {
            text += "Percentiles are accurate to one part in 4,096: too many sizes to store.\n";
        }
        self.notes.iter().for_each(|note| text += &wrap(note));
        text
    }

    /// Renders the table as CSV: a header, and one line per size threshold and per percentile.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut csv =
            String::from("measure,bytes_or_percent,value,of,low,high,paper_value,paper_of\n");
        let format_value =
            |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        for row in &self.threshold_rows {
            let (low, high) = row.interval.unzip();
            let _ = writeln!(
                csv,
                "sites_with_object_of_at_least,{},{},{},{},{},{},{PAPER_SITES}",
                row.bytes,
                row.sites,
                self.sites,
                format_value(low),
                format_value(high),
                row.paper_sites
            );
        }
        for row in &self.percentiles {
            let _ = writeln!(
                csv,
                "object_bytes_percentile,{},{},{},,,{},",
                row.percent,
                format_value(row.bytes),
                self.objects,
                row.paper_bytes
            );
        }
        csv
    }
}

/// Returns sentences that compare the result with the paper.
fn compare_with_paper(
    source: DataSource,
    sites: u64,
    rows: &[ThresholdRow],
    percentiles: &[Percentile],
) -> String {
    let mut text = String::new();
    if let Some((row, (share, (low, high)))) =
        rows.first().and_then(|row| Some((row, (row.share?, row.interval?))))
    {
        let finding = if sites < MIN_SITES {
            "too few sites for a conclusion"
        } else if row.paper_share < low {
            "more than in the paper"
        } else if row.paper_share > high {
            "fewer than in the paper"
        } else {
            "no clear difference from the paper"
        };
        let _ = write!(
            text,
            "{} of these sites hold an object of at least 1 MB, {} of the paper's: {finding}. ",
            format_percent(share),
            format_percent(row.paper_share)
        );
    }
    let median = percentiles.iter().find(|row| row.percent == 50);
    if let Some((median_bytes, paper_bytes)) =
        median.and_then(|row| Some((row.bytes?, row.paper_bytes as f64)))
    {
        let _ = write!(
            text,
            "The median object is {}, in the paper {}. ",
            format_size(median_bytes),
            format_size(paper_bytes)
        );
    }
    text += "The paper crawled the Alexa top 1500 of 2016; these are other sites at another time. ";
    text += source.caveat();
    text
}

/// Wraps text to lines of at most 100 characters.
fn wrap(text: &str) -> String {
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > 100 {
            lines.push('\n');
            width = 0;
        } else if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines += word;
        width += length;
    }
    lines + "\n"
}

fn format_percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Formats a size as in the paper: 1 KB is 1,000 bytes.
fn format_size(bytes: f64) -> String {
    let format_with_unit = |value: f64, unit| {
        if value.fract().abs() < 0.05 || value >= 100.0 {
            format!("{value:.0} {unit}")
        } else {
            format!("{value:.1} {unit}")
        }
    };
    match bytes {
        b if b < 1e3 => format_with_unit(b, "B"),
        b if b < 1e6 => format_with_unit(b / 1e3, "KB"),
        b if b < 1e9 => format_with_unit(b / 1e6, "MB"),
        b => format_with_unit(b / 1e9, "GB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Site;

    /// Counts with the paper's 1500 sites and percentiles.
    fn paper_counts() -> SurveyCounts {
        let mut counts = SurveyCounts::default();
        for number in 0..1500_u64 {
            let site =
                Site::from_url(&format!("https://s{number}.example/").parse().unwrap()).unwrap();
            counts.add_site(&site);
            for (index, bytes) in [18_000, 18_000, 40_000, 115_000, 115_000].iter().enumerate() {
                counts.add_object(&site, &format!("{site}/{index}"), *bytes);
            }
            let reached_threshold = [209, 43, 21, 10, 4].iter().rposition(|sites| number < *sites);
            if let Some(threshold_index) = reached_threshold {
                counts.add_object(
                    &site,
                    "large",
                    super::super::counts::THRESHOLDS[threshold_index],
                );
            }
        }
        counts
    }

    #[test]
    fn the_papers_own_numbers_show_no_difference() {
        let table = Table::new(DataSource::Crawl, &paper_counts());
        for row in &table.threshold_rows {
            assert_eq!((row.sites, row.share), (row.paper_sites, Some(row.paper_share)));
        }
        for row in &table.percentiles {
            assert_eq!(row.bytes, Some(row.paper_bytes as f64));
        }
        assert!(
            table.comparison.contains("no clear difference from the paper"),
            "{}",
            table.comparison
        );
        let text = table.to_text();
        assert!(text.contains("1 MB     209   13.9 %"), "{text}");
        assert!(text.contains("18 KB") && text.contains("115 KB"), "{text}");
        assert_eq!(table.to_csv().lines().count(), 9);
        assert!(table.to_csv().contains("sites_with_object_of_at_least,50000000,4,1500,"));
    }

    #[test]
    fn an_empty_survey_has_no_percentages() {
        let table = Table::new(DataSource::Har, &SurveyCounts::default());
        assert_eq!(table.threshold_rows[0].share, None);
        assert_eq!(table.percentiles[0].bytes, None);
        assert!(table.to_text().contains("(sites: 0, objects: 0)"));
        assert!(!table.comparison.contains('%'), "{}", table.comparison);
        let mut counts = SurveyCounts::default();
        let site = Site::from_url(&"https://a.example/".parse().unwrap()).unwrap();
        counts.add_object(&site, "x", 60_000_000);
        let table = Table::new(DataSource::Har, &counts);
        assert!(
            table.comparison.contains("too few sites for a conclusion"),
            "{}",
            table.comparison
        );
        let text = table.to_text();
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, shown) in [
            (999.0, "999 B"),
            (1.55e4, "15.5 KB"),
            (1e6, "1 MB"),
            (2.5e7, "25 MB"),
            (3.2e9, "3.2 GB"),
        ] {
            assert_eq!(format_size(bytes), shown);
        }
    }
}
