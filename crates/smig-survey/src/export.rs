//! Exports of the HTTP Archive: one row per request, as JSON lines or CSV, read as a stream.
//!
//! Owns the recognised columns; docs/survey.md has the query. Memory holds one row.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use serde_json::{Map, Value};
use url::Url;

use super::error::{MalformedInput, OnMalformed, SurveyError};
use super::har::{Response, SizeRule, shortened};
use super::site::{Site, canonical};
use super::tally::{Exclusion, SurveyCounts};

/// The longest row, in bytes. A payload of the HTTP Archive has about 10 KB.
const MAX_ROW: u64 = 64 << 20;

/// Columns that name the landing page, preferred first.
const PAGE: [&str; 2] = ["root_page", "page"];

/// Columns that hold a size, preferred first.
const SIZE: [&str; 3] = ["size", "respBodySize", "respSize"];

/// Columns that hold nested JSON.
const NESTED: [&str; 2] = ["summary", "payload"];

/// Counts an export; `name` identifies it in errors. Input that begins with `{` is JSON lines,
/// other input CSV.
///
/// # Errors
/// Input that cannot be read, and damaged rows if `on_damage` is [`OnMalformed::Stop`], with their line.
pub fn read_export(
    from: impl Read,
    name: &str,
    tally: &mut SurveyCounts,
    mut on_damage: OnMalformed<'_>,
) -> Result<(), SurveyError> {
    let mut reader = BufReader::with_capacity(1 << 16, from);
    let mut export = Export { name, tally, on_damage: &mut on_damage };
    let first = reader.fill_buf().map_err(|cause| export.unreadable(cause))?;
    match first.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => export.json_lines(reader),
        Some(b'[') => Err(export
            .damage(1, "a JSON array; one row per line is required: convert it with jq -c '.[]'")
            .into()),
        Some(_) => export.csv(reader),
        None => Err(export.damage(1, "the file is empty; is the export complete?").into()),
    }
}

struct Export<'a, 'b> {
    name: &'a str,
    tally: &'a mut SurveyCounts,
    on_damage: &'a mut OnMalformed<'b>,
}

impl Export<'_, '_> {
    fn unreadable(&self, cause: io::Error) -> SurveyError {
        SurveyError::Read { name: self.name.to_owned(), cause }
    }

    fn damage(&self, line: u64, why: impl Into<String>) -> MalformedInput {
        let place = format!("line {line}");
        MalformedInput { name: self.name.to_owned(), place, why: why.into() }
    }

    fn json_lines(&mut self, mut reader: impl BufRead) -> Result<(), SurveyError> {
        let mut text = Vec::new();
        for line in 1.. {
            text.clear();
            let read = reader
                .by_ref()
                .take(MAX_ROW)
                .read_until(b'\n', &mut text)
                .map_err(|cause| self.unreadable(cause))?;
            if read == 0 {
                break;
            }
            if read as u64 == MAX_ROW && text.last() != Some(&b'\n') {
                return Err(self.damage(line, too_long()).into());
            }
            if text.trim_ascii().is_empty() {
                continue;
            }
            let row = serde_json::from_slice::<Map<String, Value>>(&text)
                .map_err(|error| format!("column {}: {error}", error.column()))
                .and_then(|row| Row::of(&|column| named(&row, column).cloned()));
            self.count(line, row)?;
        }
        Ok(())
    }

    fn csv(&mut self, reader: impl Read) -> Result<(), SurveyError> {
        let read = Rc::new(Cell::new(0));
        let metered = Metered { inner: reader, read: Rc::clone(&read) };
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(metered);
        let header = reader.headers().map_err(|error| self.csv_error(1, error))?.clone();
        self.check_header(&header)?;
        let mut record = csv::StringRecord::new();
        loop {
            read.set(0);
            let line = reader.position().line();
            match reader.read_record(&mut record) {
                Ok(false) => return Ok(()),
                Ok(true) if record.len() != header.len() => {
                    let why = format!("{} fields, the header has {}", record.len(), header.len());
                    self.count(line, Err(why))?;
                }
                Ok(true) => {
                    let field = |column: &str| {
                        let at = header.iter().position(|name| is_named(name, column))?;
                        Some(Value::String(record.get(at)?.to_owned()))
                    };
                    self.count(line, Row::of(&field))?;
                }
                Err(error) if error.is_io_error() => return Err(self.csv_error(line, error)),
                Err(error) => self.count(line, Err(error.to_string()))?,
            }
        }
    }

    fn csv_error(&self, line: u64, error: csv::Error) -> SurveyError {
        match error.into_kind() {
            csv::ErrorKind::Io(cause) if cause.kind() == io::ErrorKind::FileTooLarge => {
                self.damage(line, too_long()).into()
            }
            csv::ErrorKind::Io(cause) => self.unreadable(cause),
            _ => self.damage(line, "not UTF-8; is the file still compressed?").into(),
        }
    }

    fn check_header(&self, header: &csv::StringRecord) -> Result<(), MalformedInput> {
        let has = |columns: &[&str]| {
            columns.iter().any(|column| header.iter().any(|name| is_named(name, column)))
        };
        let missing = if !has(&PAGE) {
            "root_page or page"
        } else if !has(&["url"]) {
            "url"
        } else if !has(&SIZE) && !has(&NESTED) {
            "size, respBodySize, respSize, summary or payload"
        } else {
            return Ok(());
        };
        let there: Vec<_> = header.iter().map(shortened).take(12).collect();
        let there = there.join(", ");
        Err(self.damage(1, format!("the header has no column {missing}; it has: {there}")))
    }

    fn count(&mut self, line: u64, row: Result<Row, String>) -> Result<(), SurveyError> {
        match row {
            Ok(row) => row.count(self.tally),
            Err(why) => {
                let damage = self.damage(line, why);
                self.on_damage.take(damage)?;
                self.tally.leave_out(Exclusion::Damaged);
            }
        }
        Ok(())
    }
}

fn too_long() -> String {
    format!("the row is longer than {} MB; are line ends or quotes missing?", MAX_ROW >> 20)
}

/// Compares a column's name, ignoring case.
fn is_named(name: &str, column: &str) -> bool {
    name.trim_start_matches('\u{feff}').eq_ignore_ascii_case(column)
}

fn named<'a>(row: &'a Map<String, Value>, column: &str) -> Option<&'a Value> {
    row.get(column)
        .or_else(|| row.iter().find(|(name, _)| is_named(name, column)).map(|(_, value)| value))
}

/// One request of the HTTP Archive.
struct Row {
    site: Option<Site>,
    url: Url,
    is_good: bool,
    bytes: Option<u64>,
}

impl Row {
    fn of(field: &dyn Fn(&str) -> Option<Value>) -> Result<Self, String> {
        let page = PAGE.iter().find_map(|column| field(column).filter(is_there));
        let page = address(page, "root_page or page")?;
        let url = address(field("url"), "url")?;
        let summary = field("summary").and_then(object);
        let payload = field("payload").and_then(object);
        let response = payload
            .and_then(|mut entry| entry.remove("response"))
            .and_then(|response| serde_json::from_value::<Response>(response).ok());
        let direct = |column: &&str| number(field(column)?);
        let nested = |column: &&str| number(named(summary.as_ref()?, column)?.clone());
        let bytes = SIZE
            .iter()
            .find_map(direct)
            .or_else(|| SIZE.iter().find_map(nested))
            .or_else(|| response.as_ref()?.bytes(SizeRule::Transferred));
        let status = direct(&"status").or_else(|| nested(&"status"));
        let is_good = match (status, &response) {
            (Some(status), _) => matches!(status, 200 | 203 | 206),
            (None, Some(response)) => response.status.is_none() || response.is_good(),
            // The query selected good responses only.
            (None, None) => true,
        };
        Ok(Self { site: Site::of(&page), url, is_good, bytes })
    }

    fn count(self, tally: &mut SurveyCounts) {
        let Some(site) = self.site else { return tally.leave_out(Exclusion::NotWeb) };
        tally.site(&site);
        match Site::of(&self.url) {
            None => tally.leave_out(Exclusion::NotWeb),
            Some(host) if host != site => tally.leave_out(Exclusion::OffHost),
            Some(_) if !self.is_good => tally.leave_out(Exclusion::Status),
            Some(_) => match self.bytes {
                Some(bytes) => {
                    let url = canonical(self.url.clone()).unwrap_or(self.url);
                    tally.object(&site, url.as_str(), bytes);
                }
                None => tally.leave_out(Exclusion::NoSize),
            },
        }
    }
}

fn is_there(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn address(value: Option<Value>, column: &str) -> Result<Url, String> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Err(format!("no {column}"));
    };
    let text = value.as_str().ok_or_else(|| format!("{column} is not a string"))?;
    Url::parse(text).map_err(|error| format!("{column}: \"{}\": {error}", shortened(text)))
}

/// Parses a number; BigQuery writes integers as strings into JSON.
fn number(value: Value) -> Option<u64> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    (number >= 0.0).then_some(number as u64)
}

/// Returns a JSON column, exported as JSON or as text.
fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map),
        Value::String(text) => serde_json::from_str(&text).ok(),
        _ => None,
    }
}

/// A reader that bounds the length of a row.
struct Metered<R> {
    inner: R,
    read: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read.get() > MAX_ROW {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let read = self.inner.read(buffer)?;
        self.read.set(self.read.get() + read as u64);
        Ok(read)
    }
}

#[cfg(test)]
#[path = "tests/export.rs"]
mod tests;
