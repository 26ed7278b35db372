//! The results file of a crawl: one line per URL and per site, so that a stopped crawl can resume.
//!
//! Owns the format. If the machine stops during a write, the next run truncates the partial line. A file
//! that is not a results file is never changed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use url::Url;

use super::walk::{VisitOutcome, WalkEnd, WalkLimits};
use crate::{DamagedInput, Exclusion, Site, SurveyCounts, SurveyError};

/// Format version; incremented when older files can no longer be read.
const FORMAT_VERSION: u32 = 1;

/// Maximum length of a line: one page with all its links.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// The first line: the limits of the walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    format: u32,
    #[serde(flatten)]
    limits: WalkLimits,
}

/// A visited URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    /// The start address of the site's walk.
    pub start: Url,
    /// The URL.
    pub url: Url,
    /// Its level in the object tree, from 1.
    pub level: u8,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: VisitOutcome,
}

/// A site whose walk has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteEnd {
    /// The start address of its walk.
    pub start: Url,
    /// The host of its landing page.
    pub site: Option<Site>,
    /// How it ended.
    pub end: WalkEnd,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ResultLine {
    Survey(Header),
    Visit(Box<Visit>),
    Site(SiteEnd),
}

impl ResultLine {
    /// Returns the line as it is written, with its end.
    fn to_bytes(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text
    }
}

/// The outcomes of one site's URLs, by URL.
pub(super) type Visits = HashMap<String, VisitOutcome>;

/// An open results file.
#[derive(Debug)]
pub struct ResultsFile {
    path: PathBuf,
    file: File,
    limits: WalkLimits,
    finished_sites: HashSet<Url>,
    visits: HashMap<Url, Visits>,
}

impl ResultsFile {
    /// Opens a results file and reads the results of an earlier run.
    ///
    /// # Errors
    /// When the file cannot be read and written, is in use, is not a results file, or has results
    /// with other limits.
    pub fn open(path: &Path, limits: WalkLimits) -> Result<Self, SurveyError> {
        let write_error = |cause| SurveyError::Write { path: path.to_owned(), cause };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(write_error)?;
        let unusable = |reason: &str| SurveyError::UnusableResults {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let why = "another crawl is writing to it; wait for it, or use another --out";
                return Err(unusable(why));
            }
            Err(TryLockError::Error(cause)) => return Err(write_error(cause)),
        }
        let (mut finished_sites, mut visits) = (HashSet::new(), HashMap::<Url, Visits>::new());
        let mut found_header = None;
        let name = path.display().to_string();
        let read = read_lines(&file, &name, |line| match line {
            ResultLine::Survey(header) => found_header = Some(header),
            ResultLine::Visit(visit) => {
                let Visit { start, url, outcome, .. } = *visit;
                visits.entry(start).or_default().insert(url.into(), outcome);
            }
            ResultLine::Site(ended) => {
                visits.remove(&ended.start);
                // A site without a landing page is tried again.
                if ended.end != WalkEnd::Unreachable {
                    finished_sites.insert(ended.start);
                }
            }
        })?;
        let header = ResultLine::Survey(Header { format: FORMAT_VERSION, limits });
        // Without a complete line, only the beginning of the line that is written next may be there: other text
        // is not this program's.
        let is_new = read.complete_bytes == 0 && header.to_bytes().starts_with(&read.partial_line);
        if found_header.is_none() && !is_new {
            return Err(unusable("the first line of a results file is missing; use another --out"));
        }
        let mut results = Self { path: path.to_owned(), file, limits, finished_sites, visits };
        if let Some(header) = found_header {
            results.check_header(&header)?;
        }
        let file = &mut results.file;
        file.set_len(read.complete_bytes)
            .and_then(|()| file.seek(SeekFrom::End(0)))
            .map_err(write_error)?;
        if is_new {
            results.write(&header)?;
        }
        Ok(results)
    }

    fn results_error(&self, why: impl Into<String>) -> SurveyError {
        SurveyError::UnusableResults { path: self.path.clone(), reason: why.into() }
    }

    fn check_header(&self, header: &Header) -> Result<(), SurveyError> {
        let Header { format, limits } = header;
        if *format != FORMAT_VERSION {
            return Err(self.results_error(format!(
                "made by another version (format {format}); use another --out"
            )));
        }
        if *limits != self.limits {
            return Err(self.results_error(format!(
                "made with --levels {} --max-pages {} --max-urls {}; use these or another --out",
                limits.levels, limits.max_pages, limits.max_urls
            )));
        }
        Ok(())
    }

    /// Returns the limits of each walk.
    #[must_use]
    pub const fn limits(&self) -> WalkLimits {
        self.limits
    }

    /// Returns whether a site is finished.
    #[must_use]
    pub fn is_done(&self, start: &Url) -> bool {
        self.finished_sites.contains(start)
    }

    /// Removes and returns the outcomes that an earlier run recorded for a site.
    pub(super) fn take_visits(&mut self, start: &Url) -> Visits {
        self.visits.remove(start).unwrap_or_default()
    }

    pub(super) fn write(&mut self, line: &ResultLine) -> Result<(), SurveyError> {
        let write_error = |cause| SurveyError::Write { path: self.path.clone(), cause };
        self.file.write_all(&line.to_bytes()).map_err(write_error)
    }
}

/// The findings of crawls, read from their results files.
#[derive(Debug, Default)]
pub struct CrawlSummary {
    sites: BTreeMap<Url, Option<WalkEnd>>,
    levels: BTreeSet<u8>,
}

impl CrawlSummary {
    /// Counts a results file; `name` identifies it in errors.
    ///
    /// # Errors
    /// When the input cannot be read or is not a results file; the error gives the line.
    pub fn read(
        &mut self,
        input: impl Read,
        name: &str,
        counts: &mut SurveyCounts,
    ) -> Result<(), SurveyError> {
        let mut has_header = false;
        let read = read_lines(input, name, |line| match line {
            ResultLine::Survey(header) => {
                has_header = true;
                self.levels.insert(header.limits.levels);
            }
            ResultLine::Visit(visit) => {
                self.sites.entry(visit.start.clone()).or_default();
                count_visit(&visit, counts);
            }
            ResultLine::Site(ended) => {
                self.sites.insert(ended.start, Some(ended.end));
            }
        })?;
        let is_empty = read.complete_bytes == 0 && read.partial_line.is_empty();
        if has_header || is_empty {
            return Ok(());
        }
        let reason = "no first line {\"survey\":...}; is it a results file?".into();
        Err(DamagedInput { name: name.to_owned(), location: "line 1".into(), reason }.into())
    }

    /// Returns the number of sites for each way that a walk ended.
    #[must_use]
    pub fn ends(&self) -> BTreeMap<WalkEnd, u64> {
        let mut ends = BTreeMap::new();
        for end in self.sites.values().flatten() {
            *ends.entry(*end).or_default() += 1;
        }
        ends
    }

    /// Returns notes, as text, for the reader of the table.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut parts: Vec<_> =
            self.ends().iter().map(|(end, n)| format!("{n} {}", end.description())).collect();
        let unfinished = self.sites.values().filter(|end| end.is_none()).count();
        if unfinished > 0 {
            parts.push(format!("{unfinished} unfinished: the same command continues"));
        }
        let mut notes = match parts.is_empty() {
            true => vec!["No site has been crawled yet.".into()],
            false => vec![format!("Of {} sites crawled: {}.", self.sites.len(), parts.join(", "))],
        };
        if self.levels.iter().any(|levels| *levels != 3) {
            let levels: Vec<_> = self.levels.iter().map(u8::to_string).collect();
            notes.push(format!("The paper crawled 3 levels, this run {}.", levels.join(" and ")));
        }
        notes
    }
}

fn count_visit(visit: &Visit, counts: &mut SurveyCounts) {
    let Some(site) = Site::from_url(&visit.url) else { return };
    match &visit.outcome {
        VisitOutcome::Object { bytes, off_host, .. } => {
            counts.add_object(&site, visit.url.as_str(), *bytes);
            (0..*off_host).for_each(|_| counts.exclude(Exclusion::OffHost));
        }
        VisitOutcome::Unsized { .. } => {
            counts.add_site(&site);
            counts.exclude(Exclusion::NoSize);
        }
        VisitOutcome::Redirect { .. } | VisitOutcome::Refused { .. } => {
            counts.exclude(Exclusion::Status)
        }
        VisitOutcome::Disallowed => counts.exclude(Exclusion::Disallowed),
        VisitOutcome::Failed { .. } => counts.exclude(Exclusion::Failed),
    }
}

/// What [`read_lines`] has read.
struct ReadLines {
    /// Length of the complete lines in bytes.
    complete_bytes: u64,
    /// The text after them: in a results file, a line whose write was interrupted.
    partial_line: Vec<u8>,
}

/// Reads complete lines, and the text after them.
fn read_lines(
    input: impl Read,
    name: &str,
    mut on_line: impl FnMut(ResultLine),
) -> Result<ReadLines, SurveyError> {
    let mut reader = BufReader::new(input);
    let (mut text, mut complete_bytes) = (Vec::new(), 0);
    for number in 1.. {
        text.clear();
        let read_bytes = reader
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut text)
            .map_err(|cause: io::Error| SurveyError::Read { name: name.to_owned(), cause })?;
        let damaged = |reason| DamagedInput {
            name: name.to_owned(),
            location: format!("line {number}"),
            reason,
        };
        if text.last() != Some(&b'\n') {
            if read_bytes as u64 == MAX_LINE_BYTES {
                return Err(damaged("the line is too long; is it a results file?".into()).into());
            }
            break;
        }
        let line = serde_json::from_slice(&text)
            .map_err(|error| damaged(format!("{error}; is it a results file?")))?;
        on_line(line);
        complete_bytes += read_bytes as u64;
    }
    Ok(ReadLines { complete_bytes, partial_line: text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crawl::walk::SizeSource;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    fn visit(path: &str, bytes: u64) -> ResultLine {
        let links = vec![url("https://a.example/x")];
        ResultLine::Visit(Box::new(Visit {
            start: url("https://a.example/"),
            url: url(&format!("https://a.example{path}")),
            level: 1,
            outcome: VisitOutcome::Object {
                bytes,
                size_source: SizeSource::Head,
                media: None,
                links,
                off_host: 2,
            },
        }))
    }

    fn site_end_line(end: WalkEnd) -> ResultLine {
        let start = url("https://a.example/");
        ResultLine::Site(SiteEnd { site: Site::from_url(&start), start, end })
    }

    #[test]
    fn a_reopened_file_has_its_results() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        let start = url("https://a.example/");
        let mut results = ResultsFile::open(&path, WalkLimits::default()).unwrap();
        let error = ResultsFile::open(&path, WalkLimits::default()).unwrap_err().to_string();
        assert!(error.contains("another crawl"), "{error}");
        results.write(&visit("/", 5_000_000)).unwrap();
        // Simulate a machine that stops during a write.
        results.file.write_all(b"{\"visit\":{\"sta").unwrap();
        drop(results);
        let mut results = ResultsFile::open(&path, WalkLimits::default()).unwrap();
        assert!(!results.is_done(&start));
        let visits = results.take_visits(&start);
        assert!(matches!(
            visits["https://a.example/"],
            VisitOutcome::Object { bytes: 5_000_000, .. }
        ));
        results.write(&site_end_line(WalkEnd::Unreachable)).unwrap();
        drop(results);
        let mut results = ResultsFile::open(&path, WalkLimits::default()).unwrap();
        assert!(!results.is_done(&start) && results.take_visits(&start).is_empty());
        results.write(&site_end_line(WalkEnd::Limited)).unwrap();
        drop(results);
        assert!(ResultsFile::open(&path, WalkLimits::default()).unwrap().is_done(&start));
        let (mut counts, mut summary) = (SurveyCounts::default(), CrawlSummary::default());
        summary.read(File::open(&path).unwrap(), "results", &mut counts).unwrap();
        assert_eq!((counts.site_count(), counts.object_count()), (1, 1));
        assert_eq!(summary.ends(), BTreeMap::from([(WalkEnd::Limited, 1)]));
        let note = "Of 1 sites crawled: 1 limited by --max-pages or --max-urls.";
        assert_eq!(summary.notes(), [note]);
    }

    #[test]
    fn unusable_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        drop(ResultsFile::open(&path, WalkLimits { levels: 2, ..WalkLimits::default() }).unwrap());
        let error = ResultsFile::open(&path, WalkLimits::default()).unwrap_err().to_string();
        assert!(error.contains("--levels 2 --max-pages 50"), "{error}");
        for text in ["{}\n", "no\n", "{\"visit\":{}}\n"] {
            std::fs::write(&path, text).unwrap();
            let error = ResultsFile::open(&path, WalkLimits::default()).unwrap_err().to_string();
            assert!(error.contains("line 1: "), "{error}");
        }
        let mut counts = SurveyCounts::default();
        let text = serde_json::to_string(&visit("/", 1)).unwrap() + "\n";
        for text in [text.as_str(), "precious"] {
            let error = CrawlSummary::default().read(text.as_bytes(), "r", &mut counts);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("r: line 1: no first line"), "{error}");
        }
        CrawlSummary::default().read(&b""[..], "r", &mut counts).unwrap();
    }

    #[test]
    fn a_file_of_another_program_keeps_its_contents() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes.json");
        for text in
            ["precious", "{\"log\":{\"entries\":[]}}", "{\"survey\":[\"of something else\"]}"]
        {
            std::fs::write(&path, text).unwrap();
            let error = ResultsFile::open(&path, WalkLimits::default()).unwrap_err().to_string();
            assert!(error.contains("another --out"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        // A first line whose write was interrupted holds nothing that would be lost.
        for text in ["", "{\"surv"] {
            std::fs::write(&path, text).unwrap();
            drop(ResultsFile::open(&path, WalkLimits::default()).unwrap());
            let header = std::fs::read_to_string(&path).unwrap();
            assert!(header.starts_with("{\"survey\":{") && header.ends_with("}\n"), "{header}");
        }
    }
}
