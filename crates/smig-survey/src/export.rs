//! Exports of the HTTP Archive: one row per request, as JSON lines or CSV, read as a stream.
//!
//! Owns the recognised columns; docs/survey.md has the query. Only one row is in memory at a time.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use serde_json::{Map, Value};
use url::Url;

use super::counts::{Exclusion, SurveyCounts};
use super::error::{DamagedInput, OnDamaged, SurveyError};
use super::har::{HarResponse, SizeRule, shorten, skip_byte_order_mark};
use super::site::{Site, canonicalize};

/// Maximum length of a row. A payload of the HTTP Archive has about 10 KB.
const MAX_ROW_BYTES: u64 = 64 << 20;

/// Columns that name the landing page, preferred first.
const PAGE_COLUMNS: [&str; 2] = ["root_page", "page"];

/// Columns that hold a size, preferred first.
const SIZE_COLUMNS: [&str; 3] = ["size", "respBodySize", "respSize"];

/// Columns that hold nested JSON.
const NESTED_COLUMNS: [&str; 2] = ["summary", "payload"];

/// Counts an export; `name` identifies it in errors. Input that begins with `{` is JSON lines,
/// other input CSV.
///
/// # Errors
/// When the input cannot be read, or a row is damaged and `on_damaged` is
/// [`OnDamaged::Stop`], with its line.
pub fn read_export(
    input: impl Read,
    name: &str,
    counts: &mut SurveyCounts,
    mut on_damaged: OnDamaged<'_>,
) -> Result<(), SurveyError> {
    let mut reader = BufReader::with_capacity(1 << 16, input);
    let mut export = ExportReader { name, counts, on_damaged: &mut on_damaged };
    skip_byte_order_mark(&mut reader).map_err(|cause| export.read_error(cause))?;
    let first = reader.fill_buf().map_err(|cause| export.read_error(cause))?;
    match first.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => export.read_json_lines(reader),
        Some(b'[') => Err(export
            .damaged_input(
                1,
                "a JSON array; one row per line is required: convert it with jq -c '.[]'",
            )
            .into()),
        Some(_) => export.read_csv(reader),
        None => Err(export.damaged_input(1, "the file is empty; is the export complete?").into()),
    }
}

struct ExportReader<'a, 'b> {
    name: &'a str,
    counts: &'a mut SurveyCounts,
    on_damaged: &'a mut OnDamaged<'b>,
}

impl ExportReader<'_, '_> {
    fn read_error(&self, cause: io::Error) -> SurveyError {
        SurveyError::Read { name: self.name.to_owned(), cause }
    }

    fn damaged_input(&self, line: u64, reason: impl Into<String>) -> DamagedInput {
        let location = format!("line {line}");
        DamagedInput { name: self.name.to_owned(), location, reason: reason.into() }
    }

    fn read_json_lines(&mut self, mut reader: impl BufRead) -> Result<(), SurveyError> {
        let mut text = Vec::new();
        for line in 1.. {
            text.clear();
            let read_bytes = reader
                .by_ref()
                .take(MAX_ROW_BYTES)
                .read_until(b'\n', &mut text)
                .map_err(|cause| self.read_error(cause))?;
            if read_bytes == 0 {
                break;
            }
            if read_bytes as u64 == MAX_ROW_BYTES && text.last() != Some(&b'\n') {
                return Err(self.damaged_input(line, row_too_long_message()).into());
            }
            if text.trim_ascii().is_empty() {
                continue;
            }
            let row = serde_json::from_slice::<Map<String, Value>>(&text)
                .map_err(|error| format!("column {}: {error}", error.column()))
                .and_then(|row| Row::parse(&|column| find_column(&row, column).cloned()));
            self.count(line, row)?;
        }
        Ok(())
    }

    fn read_csv(&mut self, reader: impl Read) -> Result<(), SurveyError> {
        let row_bytes = Rc::new(Cell::new(0));
        let limited = RowLimitReader { inner: reader, row_bytes: Rc::clone(&row_bytes) };
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(limited);
        let header = reader.headers().map_err(|error| self.csv_error(1, error))?.clone();
        self.check_header(&header)?;
        let mut record = csv::StringRecord::new();
        loop {
            row_bytes.set(0);
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
                    self.count(line, Row::parse(&field))?;
                }
                Err(error) if error.is_io_error() => return Err(self.csv_error(line, error)),
                Err(error) => self.count(line, Err(error.to_string()))?,
            }
        }
    }

    fn csv_error(&self, line: u64, error: csv::Error) -> SurveyError {
        match error.into_kind() {
            csv::ErrorKind::Io(cause) if cause.kind() == io::ErrorKind::FileTooLarge => {
                self.damaged_input(line, row_too_long_message()).into()
            }
            csv::ErrorKind::Io(cause) => self.read_error(cause),
            _ => self.damaged_input(line, "not UTF-8; is the file still compressed?").into(),
        }
    }

    fn check_header(&self, header: &csv::StringRecord) -> Result<(), DamagedInput> {
        let has = |columns: &[&str]| {
            columns.iter().any(|column| header.iter().any(|name| is_named(name, column)))
        };
        let missing_column = if !has(&PAGE_COLUMNS) {
            "root_page or page"
        } else if !has(&["url"]) {
            "url"
        } else if !has(&SIZE_COLUMNS) && !has(&NESTED_COLUMNS) {
            "size, respBodySize, respSize, summary or payload"
        } else {
            return Ok(());
        };
        let columns: Vec<_> = header.iter().map(shorten).take(12).collect();
        let columns = columns.join(", ");
        Err(self.damaged_input(
            1,
            format!("the header has no column {missing_column}; it has: {columns}"),
        ))
    }

    fn count(&mut self, line: u64, row: Result<Row, String>) -> Result<(), SurveyError> {
        match row {
            Ok(row) => row.add_to(self.counts),
            Err(why) => {
                let damaged = self.damaged_input(line, why);
                self.on_damaged.report(damaged)?;
                self.counts.exclude(Exclusion::Damaged);
            }
        }
        Ok(())
    }
}

fn row_too_long_message() -> String {
    format!("the row is longer than {} MiB; are line ends or quotes missing?", MAX_ROW_BYTES >> 20)
}

/// Compares a column's name, ignoring case.
fn is_named(name: &str, column: &str) -> bool {
    name.eq_ignore_ascii_case(column)
}

fn find_column<'a>(row: &'a Map<String, Value>, column: &str) -> Option<&'a Value> {
    row.get(column)
        .or_else(|| row.iter().find(|(name, _)| is_named(name, column)).map(|(_, value)| value))
}

/// One request of the HTTP Archive.
struct Row {
    site: Option<Site>,
    url: Url,
    carries_object: bool,
    bytes: Option<u64>,
}

impl Row {
    fn parse(field: &dyn Fn(&str) -> Option<Value>) -> Result<Self, String> {
        let page = PAGE_COLUMNS.iter().find_map(|column| field(column).filter(is_non_empty));
        let page = parse_url(page, "root_page or page")?;
        let url = parse_url(field("url"), "url")?;
        let summary = field("summary").and_then(parse_json_object);
        let payload = field("payload").and_then(parse_json_object);
        let response = payload
            .and_then(|mut entry| entry.remove("response"))
            .and_then(|response| serde_json::from_value::<HarResponse>(response).ok());
        let direct = |column: &&str| parse_number(field(column)?);
        let nested = |column: &&str| parse_number(find_column(summary.as_ref()?, column)?.clone());
        let bytes = SIZE_COLUMNS
            .iter()
            .find_map(direct)
            .or_else(|| SIZE_COLUMNS.iter().find_map(nested))
            .or_else(|| response.as_ref()?.bytes(SizeRule::Transferred));
        let status = direct(&"status").or_else(|| nested(&"status"));
        let carries_object = match (status, &response) {
            (Some(status), _) => matches!(status, 200 | 203 | 206),
            (None, Some(response)) => response.status.is_none() || response.carries_object(),
            // The query selected good responses only.
            (None, None) => true,
        };
        Ok(Self { site: Site::from_url(&page), url, carries_object, bytes })
    }

    fn add_to(self, counts: &mut SurveyCounts) {
        let Some(site) = self.site else { return counts.exclude(Exclusion::NotWeb) };
        counts.add_site(&site);
        match Site::from_url(&self.url) {
            None => counts.exclude(Exclusion::NotWeb),
            Some(host) if host != site => counts.exclude(Exclusion::OffHost),
            Some(_) if !self.carries_object => counts.exclude(Exclusion::Status),
            Some(_) => match self.bytes {
                Some(bytes) => {
                    let url = canonicalize(self.url.clone()).unwrap_or(self.url);
                    counts.add_object(&site, url.as_str(), bytes);
                }
                None => counts.exclude(Exclusion::NoSize),
            },
        }
    }
}

fn is_non_empty(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn parse_url(value: Option<Value>, column: &str) -> Result<Url, String> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Err(format!("no {column}"));
    };
    let text = value.as_str().ok_or_else(|| format!("{column} is not a string"))?;
    Url::parse(text).map_err(|error| format!("{column}: \"{}\": {error}", shorten(text)))
}

/// Parses a number; BigQuery writes integers as strings into JSON.
fn parse_number(value: Value) -> Option<u64> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    (number >= 0.0).then_some(number as u64)
}

/// Returns a JSON column, exported as JSON or as text.
fn parse_json_object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map),
        Value::String(text) => serde_json::from_str(&text).ok(),
        _ => None,
    }
}

/// A reader that bounds the length of a row.
struct RowLimitReader<R> {
    inner: R,
    row_bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for RowLimitReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.row_bytes.get() > MAX_ROW_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let read = self.inner.read(buffer)?;
        self.row_bytes.set(self.row_bytes.get() + read as u64);
        Ok(read)
    }
}

#[cfg(test)]
#[path = "tests/export.rs"]
mod tests;
