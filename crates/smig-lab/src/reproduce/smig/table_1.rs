//! Table 1's survey on sites with known objects: served on loopback, surveyed like public sites.
//!
//! Owns the generated sites. The paper's numbers are those of the web of 2016, which cannot be measured
//! again; this shows that the survey counts exactly the objects that exist.

use std::fs::{self, File};
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;

use rcgen::{CertificateParams, KeyPair};
use smig::{Server, ServerTls, Trust};
use smig_files::{FileOptions, Files};
use smig_survey::crawl::{
    CrawlEvent, CrawlOptions, CrawlSummary, ResultsFile, Url, WalkLimits, build_client, crawl,
    parse_start,
};
use smig_survey::{DataSource, SurveyCounts, SurveyError, Table};

use super::super::data_table::{DataCell, number_column, text_column};
use super::super::facts::{FactNames, Facts};
use super::super::finding::Finding;
use super::super::paper::Figure;

/// The file of the survey's results, beside the other results.
const SURVEY_FILE: &str = "survey.jsonl";

/// The name on the command line.
pub const EXPERIMENT_NAME: &str = "table-1";

const MB: u64 = 1_000_000;
const SITE_COUNT: usize = 150;
/// The paper's shares scaled to 150 sites: how many have an object of this size and none larger.
const LARGE_OBJECTS: [(usize, u64); 4] = [(17, MB), (2, 5 * MB), (1, 10 * MB), (1, 25 * MB)];
/// Number of a site's objects other than its pages and its large object.
const SMALL_OBJECTS_PER_SITE: usize = 12;
/// Size of an object on a fourth level, which the survey must not reach.
const TOO_DEEP_BYTES: u64 = 60 * MB;
/// Quantiles of small objects and their sizes: the paper's percentiles.
const SIZE_QUANTILES: [(f64, f64); 5] =
    [(0.0, 2e3), (0.25, 18e3), (0.5, 40e3), (0.75, 115e3), (1.0, 900e3)];

/// Why the survey of the test sites failed.
#[derive(Debug, thiserror::Error)]
pub enum TestWebError {
    /// A file of the sites or of their survey cannot be read or written, or the survey cannot be started.
    #[error("the test sites or their survey: {0}")]
    Io(#[from] io::Error),
    /// The sites' server failed.
    #[error("cannot serve the test sites: {0}")]
    Server(#[from] smig::Error),
    /// The sites' certificate could not be made.
    #[error("cannot generate the test sites' certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The survey failed.
    #[error(transparent)]
    Survey(#[from] SurveyError),
}

/// One site.
struct Site {
    small_object_sizes: Vec<u64>,
    large_object_size: Option<u64>,
    /// The level of the large object: one below that of the page that links it.
    large_object_level: Level,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Second,
    Third,
}

fn plan_sites() -> Vec<Site> {
    let large_object_sizes: Vec<u64> =
        LARGE_OBJECTS.iter().flat_map(|(count, size)| std::iter::repeat_n(*size, *count)).collect();
    let small_object_count = (SITE_COUNT * SMALL_OBJECTS_PER_SITE) as f64;
    let site = |number: usize| {
        // Small sizes are distributed so that each site has some of each.
        let share =
            |index: usize| ((index * SITE_COUNT + number) as f64 + 0.5) / small_object_count;
        Site {
            small_object_sizes: (0..SMALL_OBJECTS_PER_SITE)
                .map(|index| size_at(share(index)))
                .collect(),
            large_object_size: large_object_sizes.get(number).copied(),
            large_object_level: if number.is_multiple_of(2) { Level::Second } else { Level::Third },
        }
    };
    (0..SITE_COUNT).map(site).collect()
}

/// Returns the quantile of the object sizes, interpolated logarithmically between the paper's
/// percentiles.
fn size_at(share: f64) -> u64 {
    let upper_index = SIZE_QUANTILES
        .iter()
        .position(|(at, _)| share < *at)
        .unwrap_or(SIZE_QUANTILES.len() - 1)
        .max(1);
    let ((from, low), (to, high)) = (SIZE_QUANTILES[upper_index - 1], SIZE_QUANTILES[upper_index]);
    (low * (high / low).powf((share - from) / (to - from))) as u64
}

/// Returns a site's pages by name: the landing page, a second and a third level.
fn pages(site: &Site) -> [(&'static str, String); 3] {
    let images = |range: std::ops::Range<usize>| -> String {
        range.map(|index| format!("<img src=\"{index}.bin\">")).collect()
    };
    let large_link = |level| {
        let is_linked = site.large_object_size.is_some() && site.large_object_level == level;
        if is_linked { "<a href=\"large.bin\">large</a>" } else { "" }
    };
    let head = "<!doctype html><title>A test site</title>";
    [
        (
            "index.html",
            format!(
                "{head}<a href=\"second.html\">on</a><a href=\"https://elsewhere.invalid/\">off</a>{}{}",
                images(0..SMALL_OBJECTS_PER_SITE / 2),
                large_link(Level::Second)
            ),
        ),
        (
            "second.html",
            format!(
                "{head}<a href=\"./\">back</a><a href=\"third.html\">on</a>{}{}",
                images(SMALL_OBJECTS_PER_SITE / 2..SMALL_OBJECTS_PER_SITE),
                large_link(Level::Third)
            ),
        ),
        ("third.html", format!("{head}<a href=\"too-deep.bin\">not to be followed</a>")),
    ]
}

fn write(site: &Site, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for (name, text) in pages(site) {
        fs::write(dir.join(name), text)?;
    }
    // Only the sizes matter: the files are sparse.
    let create_file = |name: &str, size| File::create(dir.join(name))?.set_len(size);
    for (index, size) in site.small_object_sizes.iter().enumerate() {
        create_file(&format!("{index}.bin"), *size)?;
    }
    if let Some(size) = site.large_object_size {
        create_file("large.bin", size)?;
    }
    create_file("too-deep.bin", TOO_DEEP_BYTES)
}

/// Returns the expected result: sites with an object of at least 1, 5, 10, 25, 50 MB, and all sizes.
fn expected_survey() -> ([u64; 5], Vec<u64>) {
    let sites = plan_sites();
    let sites_with_at_least = |bytes: u64| {
        sites
            .iter()
            .filter(|site| site.large_object_size.is_some_and(|large| large >= bytes))
            .count() as u64
    };
    let mut sizes: Vec<u64> = sites
        .iter()
        .flat_map(|site| {
            let pages = pages(site).map(|(_, text)| text.len() as u64);
            site.small_object_sizes
                .iter()
                .copied()
                .chain(site.large_object_size)
                .chain(pages)
                .collect::<Vec<_>>()
        })
        .collect();
    sizes.sort_unstable();
    ([1, 5, 10, 25, 50].map(|mega| sites_with_at_least(mega * MB)), sizes)
}

/// Serves the test sites on loopback and surveys them; the results become a file in `dir`. A
/// complete one is kept, an interrupted survey starts anew.
///
/// # Errors
/// [`TestWebError`].
pub fn survey_test_web(dir: &Path) -> Result<(), TestWebError> {
    let survey_path = dir.join(SURVEY_FILE);
    if survey_path.exists() {
        if read_survey(dir)?.is_some_and(|table| table.sites == SITE_COUNT as u64) {
            return Ok(());
        }
        fs::remove_file(&survey_path)?;
    }
    fs::create_dir_all(dir)?;
    let root = tempfile::TempDir::with_prefix("smig-lab-web-")?;
    for (number, site) in plan_sites().iter().enumerate() {
        write(site, &root.path().join(number.to_string()))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve_and_survey(root.path(), &survey_path))
}

async fn serve_and_survey(root: &Path, survey_path: &Path) -> Result<(), TestWebError> {
    let key = KeyPair::generate()?;
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?.pem();
    let tls = ServerTls::from_pem(certificate.as_bytes(), key.serialize_pem().as_bytes())?;
    let mut server = Server::builder().workers(NonZeroUsize::MIN);
    for _ in 0..SITE_COUNT {
        server = server.listen(([127, 0, 0, 1], 0).into(), tls.clone());
    }
    let server = server.start(Files::new(root, FileOptions::default())?)?;
    let start_urls: Result<Vec<Url>, SurveyError> = server
        .local_addrs()
        .iter()
        .enumerate()
        .map(|(number, address)| {
            parse_start(&format!("https://localhost:{}/{number}/", address.port()))
        })
        .collect();
    let options = CrawlOptions {
        rate: "1000/s".parse().map_err(|_| io::Error::other("the survey's rate"))?,
        parallel_sites: 8,
        contact: "https://localhost/".into(),
    };
    let client = build_client(Trust::Pem(certificate.into_bytes()))?;
    let mut results = ResultsFile::open(survey_path, WalkLimits::default())?;
    crawl(&start_urls?, &options, client, &mut results, &mut |_: CrawlEvent<'_>| ()).await?;
    Ok(())
}

/// Returns the table of a survey of the test sites in a directory of results, if there is one.
///
/// # Errors
/// The file cannot be read.
pub fn read_survey(dir: &Path) -> Result<Option<Table>, TestWebError> {
    let path = dir.join(SURVEY_FILE);
    if !path.exists() {
        return Ok(None);
    }
    let (mut tally, mut crawled) = (SurveyCounts::default(), CrawlSummary::default());
    crawled.read(File::open(&path)?, SURVEY_FILE, &mut tally)?;
    Ok(Some(Table::new(DataSource::Crawl, &tally)))
}

/// The values of [`finding`].
pub(super) const SURVEY_FACTS: FactNames = &[(
    "",
    &[
        "sites",
        "objects",
        "counts",
        "counts_verdict",
        "percentiles",
        "percentiles_verdict",
        "planted",
    ],
)];

/// Table 1: the paper's numbers, the generated ones, and the survey's result. `None` only if the table has no
/// file of claims.
pub(super) fn finding(figure: &'static Figure, survey: Option<&Table>) -> Finding {
    let mut finding = Finding::new(figure, "docs/survey.md");
    let mut facts = Facts::new(SURVEY_FACTS);
    if let Some(table) = survey {
        finding.run_count = 1;
        compare_with_planted(table, &mut finding, &mut facts);
    }
    for claim in &figure.claims {
        let note = claim.note.render(&|name| facts.get(name));
        finding.add_unmeasured(claim, note.unwrap_or_default());
    }
    finding.add_report_texts(&facts);
    finding
}

/// Compares the survey's result with what exists on the test sites.
fn compare_with_planted(table: &Table, finding: &mut Finding, facts: &mut Facts) {
    let (planted_counts, sizes) = expected_survey();
    let found_counts: Vec<u64> = table.threshold_rows.iter().map(|row| row.sites).collect();
    let verdict = |right| Some(if right { "as planted" } else { "NOT as planted" }.to_owned());
    let join_counts =
        |counts: &[u64]| Some(counts.iter().map(u64::to_string).collect::<Vec<_>>().join(", "));
    facts.set("sites", Some(table.sites.to_string()));
    facts.set("objects", Some(sizes.len().to_string()));
    facts.set("counts", join_counts(&found_counts));
    facts.set("counts_verdict", verdict(found_counts == planted_counts));
    facts.set("planted", join_counts(&planted_counts));
    let percentiles: Vec<_> =
        table.percentiles.iter().map(|percentile| percentile.bytes.unwrap_or(0.0)).collect();
    let planted_percentiles = [0.25, 0.5, 0.75].map(|share| percentile(&sizes, share));
    let are_percentiles_close = percentiles
        .iter()
        .zip(planted_percentiles)
        .all(|(found, true_)| (found - true_).abs() <= 0.01 * true_);
    let kilobytes: Vec<_> = percentiles.iter().map(|bytes| format!("{:.0}", bytes / 1e3)).collect();
    facts.set("percentiles", Some(kilobytes.join(", ")));
    facts.set("percentiles_verdict", verdict(are_percentiles_close));
    fill_table(table, planted_counts, planted_percentiles, finding);
}

fn fill_table(
    table: &Table,
    planted_counts: [u64; 5],
    planted_percentiles: [f64; 3],
    finding: &mut Finding,
) {
    finding.table.columns = vec![
        text_column("measure", "measure"),
        number_column("found", "found", 0),
        number_column("planted", "planted", 0),
        number_column("paper", "the paper", 0),
        text_column("of", "of"),
    ];
    for (row, planted) in table.threshold_rows.iter().zip(planted_counts) {
        finding.table.rows.push(vec![
            DataCell::text(format!("sites with at least {} MB", row.bytes / MB)),
            DataCell::Number(row.sites as f64),
            DataCell::Number(planted as f64),
            DataCell::Number(row.paper_sites as f64),
            DataCell::text(format!("{} test sites; the paper: 1500", table.sites)),
        ]);
    }
    for (percentile, planted) in table.percentiles.iter().zip(planted_percentiles) {
        finding.table.rows.push(vec![
            DataCell::text(format!("percentile {} of sizes, bytes", percentile.percent)),
            DataCell::of(percentile.bytes),
            DataCell::Number(planted),
            DataCell::Number(percentile.paper_bytes as f64),
            DataCell::text(format!("{} objects", table.objects)),
        ]);
    }
}

fn percentile(sizes: &[u64], share: f64) -> f64 {
    let values: Vec<f64> = sizes.iter().map(|size| *size as f64).collect();
    smig_stats::quantile(&values, share).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_web_has_the_papers_shares() {
        let (sites_with_at_least, sizes) = expected_survey();
        assert_eq!(sites_with_at_least, [21, 4, 2, 1, 0]);
        assert!(sizes.len() > SITE_COUNT * SMALL_OBJECTS_PER_SITE);
        assert_eq!(size_at(0.25), 18_000);
        assert_eq!(size_at(0.5), 40_000);
        assert!((114_000..116_000).contains(&size_at(0.75)));
    }

    #[test]
    fn the_survey_finds_what_was_planted() {
        let dir = tempfile::tempdir().unwrap();
        survey_test_web(dir.path()).unwrap();
        let table = read_survey(dir.path()).unwrap().unwrap();
        let figure = Figure::by_name(EXPERIMENT_NAME).unwrap();
        let finding = finding(figure, Some(&table));
        assert!(
            finding.claim_rows.iter().all(|row| row.ours.ends_with("as planted")),
            "{finding:#?}"
        );
        assert!(!finding.claim_rows.iter().any(|row| row.ours.contains("NOT")), "{finding:#?}");
        // A second call does nothing.
        let before = fs::metadata(dir.path().join(SURVEY_FILE)).unwrap().modified().unwrap();
        survey_test_web(dir.path()).unwrap();
        let after = fs::metadata(dir.path().join(SURVEY_FILE)).unwrap().modified().unwrap();
        assert_eq!(before, after);
    }
}
