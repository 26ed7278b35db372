//! Exports as BigQuery writes them, and damaged ones.

use super::*;
use crate::{DataSource, Table};

fn read(text: &str) -> Result<Table, SurveyError> {
    let mut counts = SurveyCounts::default();
    read_export(text.as_bytes(), "export", &mut counts, OnDamaged::Stop)?;
    Ok(Table::new(DataSource::HttpArchive, &counts))
}

const JSON: &str = r#"
{"root_page":"https://a.example/","page":"https://a.example/x","url":"https://a.example/","size":"18000"}
{"root_page":"https://a.example/","url":"https://a.example/film","summary":{"status":206,"respBodySize":26000000}}
{"page":"https://a.example/","url":"https://cdn.example/","size":5000000}

{"page":"https://b.example/","url":"https://b.example/","payload":"{\"response\":{\"status\":200,\"bodySize\":40000,\"content\":{\"size\":90000}}}"}
{"page":"https://b.example/","url":"https://b.example/gone","size":9000000,"status":"404"}
{"page":"https://b.example/","url":"https://b.example/odd","size":null}
{"page":"https://b.example/","url":"https://b.example/empty","size":0}
{"page":"https://b.example/","url":"https://b.example/","size":40000}
"#;

#[test]
fn json_lines_are_counted() {
    let table = read(&format!("\u{feff}{}", JSON.trim_start())).unwrap();
    assert_eq!((table.sites, table.objects), (2, 3));
    let table = read(JSON).unwrap();
    assert_eq!((table.sites, table.objects), (2, 3));
    let reached: Vec<_> = table.threshold_rows.iter().map(|row| row.sites).collect();
    assert_eq!(reached, [1, 1, 1, 1, 0]);
    assert_eq!(table.percentiles[1].bytes, Some(40_000.0));
    let left_out: Vec<_> = table.exclusions.iter().map(|(why, n)| (*why, *n)).collect();
    assert_eq!(
        left_out,
        [
            (Exclusion::OffHost, 1),
            (Exclusion::Status, 1),
            (Exclusion::Empty, 1),
            (Exclusion::NoSize, 1),
            (Exclusion::Repeated, 1),
        ]
    );
}

#[test]
fn csv_is_counted() {
    let table = read(concat!(
        "\u{feff}page,URL,respSize,status\r\n",
        "https://a.example/,https://a.example/,18000,200\r\n",
        "https://a.example/,\"https://a.example/with,comma\",51000000,200\r\n",
        "https://b.example/,https://b.example/,,200\r\n",
    ))
    .unwrap();
    assert_eq!((table.sites, table.objects), (2, 2));
    assert_eq!(table.threshold_rows[4].sites, 1);
    assert_eq!(table.exclusions[&Exclusion::NoSize], 1);
}

#[test]
fn nested_columns_are_read_from_csv_too() {
    let table = read(concat!(
        "page,url,summary\n",
        "https://a.example/,https://a.example/,\"{\"\"respBodySize\"\": \"\"2000000\"\"}\"\n",
    ))
    .unwrap();
    assert_eq!(table.threshold_rows[0].sites, 1);
}

#[test]
fn errors_name_the_line() {
    for (text, expected) in [
        ("", "export: line 1: the file is empty"),
        ("[{\"page\":1}]", "jq -c"),
        ("{\"page\":\"https://a.example/\"}\n", "export: line 1: no url"),
        (
            "{\"page\":\"https://a.example/\",\"url\":\"https://a.example/\"}\n{\"pa",
            "export: line 2: ",
        ),
        ("{\"url\":\"https://a.example/\"}", "no root_page or page"),
        ("{\"page\":7,\"url\":\"https://a.example/\"}", "no root_page or page"),
        ("{\"page\":\"a.example\",\"url\":\"https://a.example/\"}", "\"a.example\": "),
        ("page,size\n", "no column url; it has: page, size"),
        ("url,size\n", "no column root_page or page"),
        ("page,url\n", "no column size"),
        ("page,url,size\nhttps://a.example/,https://a.example/\n", "export: line 2: 2 fields"),
        ("page,url,size\n\nx,https://a.example/,1\n", "\"x\": relative URL"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\nnot {expected}");
    }
}

#[test]
fn damaged_rows_can_be_skipped() {
    let text = JSON.replace("\"page\":\"https://b.example/\"", "\"page\":\"b\"");
    let mut reported = Vec::new();
    let mut counts = SurveyCounts::default();
    let mut report = |damage: &DamagedInput| reported.push(damage.location.clone());
    read_export(text.as_bytes(), "export", &mut counts, OnDamaged::Skip(&mut report)).unwrap();
    assert_eq!(reported, ["line 6", "line 7", "line 8", "line 9", "line 10"]);
    assert_eq!(counts.exclusions()[&Exclusion::Damaged], 5);
    assert_eq!(counts.site_count(), 1);
}

/// A file without line ends.
struct EndlessReader(u64);

impl Read for EndlessReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        buffer.fill(if self.0 == 0 { b'{' } else { b'x' });
        self.0 += buffer.len() as u64;
        Ok(buffer.len())
    }
}

#[test]
fn an_endless_row_is_an_error() {
    for first in [0, 1] {
        let mut counts = SurveyCounts::default();
        let error =
            read_export(EndlessReader(first), "export", &mut counts, OnDamaged::Stop).unwrap_err();
        assert!(error.to_string().contains("line 1: the row is longer than 64 MiB"), "{error}");
    }
}
