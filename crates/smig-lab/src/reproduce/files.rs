//! The report as files: a page, figures, tables.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::document::{render_html, render_json, summary};
use super::finding::Finding;
use super::study::Study;
use crate::campaign::TrialResult;

/// Chart width, for a README.
const CHART_WIDTH: f64 = 860.0;

/// Paths of the parts of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportFiles {
    /// The page.
    pub page: PathBuf,
    /// All findings as JSON.
    pub json: PathBuf,
    /// The claims as Markdown, for a README.
    pub summary: PathBuf,
    /// One file per figure.
    pub figures: Vec<PathBuf>,
    /// One CSV and one JSON file per table.
    pub tables: Vec<PathBuf>,
}

/// Writes `report.html`, `report.json`, `summary.md`, `figures/` and `tables/` into a directory.
///
/// # Errors
/// A file cannot be written; the error names it.
pub fn write_report(
    dir: &Path,
    study: &Study,
    findings: &[Finding],
    results: &[TrialResult],
) -> io::Result<ReportFiles> {
    let mut files = ReportFiles {
        page: dir.join("report.html"),
        json: dir.join("report.json"),
        summary: dir.join("summary.md"),
        figures: Vec::new(),
        tables: Vec::new(),
    };
    for part in ["figures", "tables"] {
        let path = dir.join(part);
        fs::create_dir_all(&path).map_err(|error| with_path(&path, &error))?;
    }
    for finding in findings.iter().filter(|finding| finding.run_count > 0) {
        for chart in &finding.charts {
            let path = dir.join("figures").join(format!("{}.svg", chart.name));
            write_file(&path, &(chart.to_file(CHART_WIDTH) + "\n"))?;
            files.figures.push(path);
        }
        for drawing in &finding.drawings {
            let path = dir.join("figures").join(format!("{}.svg", drawing.name));
            if let Some(markup) = drawing.to_file(CHART_WIDTH) {
                write_file(&path, &(markup + "\n"))?;
            }
            files.figures.push(path);
        }
        let table_path = dir.join("tables").join(finding.name);
        let (csv, json) = (table_path.with_extension("csv"), table_path.with_extension("json"));
        write_file(&csv, &finding.table.to_csv())?;
        write_file(&json, &to_pretty_json(&finding.table.to_json()))?;
        files.tables.extend([csv, json]);
    }
    write_file(&files.json, &to_pretty_json(&render_json(study, findings)))?;
    write_file(&files.summary, &smig_chart::table::to_markdown(&summary(study, findings)))?;
    write_file(&files.page, &render_html(study, findings, results))?;
    Ok(files)
}

fn to_pretty_json(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

fn write_file(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text).map_err(|error| with_path(path, &error))
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}
