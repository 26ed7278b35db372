//! Result files: one line per result, written completely or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;

use crate::scenario::{Shard, TrialId};
use crate::trial::Origin;
use crate::trial::{FORMAT_VERSION, TrialResult};

/// Fields of a line that identify its trial and origin.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct ResultHeader {
    pub(super) format: u32,
    pub(super) id: TrialId,
    pub(super) hash: String,
    #[serde(default)]
    pub(super) origin: Option<Origin>,
}

/// A line of a file, verbatim.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ResultLine {
    pub(super) header: ResultHeader,
    pub(super) text: String,
    pub(super) file: PathBuf,
}

/// Returns the name of a shard's result file.
pub(super) fn results_file_name(shard: Option<Shard>) -> String {
    match shard {
        None => "results.jsonl".into(),
        Some(shard) => format!("results.{}-of-{}.jsonl", shard.index, shard.count),
    }
}

/// Returns the name of a shard's file for rejected runs and the reasons.
fn rejected_file_name(shard: Option<Shard>) -> String {
    results_file_name(shard).replacen("results", "rejected", 1)
}

/// Lists the result files in a directory, sorted by name.
///
/// # Errors
/// The directory cannot be read.
pub fn result_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let text = name.to_string_lossy();
        if text.starts_with("results.") && text.ends_with(".jsonl") {
            files.push(dir.join(&name));
        }
    }
    files.sort();
    Ok(files)
}

/// Reads all results of a file, or of all result files in a directory.
///
/// # Errors
/// A file cannot be read, or a line cannot be parsed: then the error has the path and the beginning of the line.
pub fn read_results(path: &Path) -> io::Result<Vec<TrialResult>> {
    let files = if path.is_dir() { result_files(path)? } else { vec![path.to_owned()] };
    let mut results = Vec::new();
    for file in files {
        for line in read_lines(&file)? {
            let result = serde_json::from_str(&line.text);
            results.push(result.map_err(|error| parse_error(&file, &line.text, &error))?);
        }
    }
    Ok(results)
}

fn parse_error(file: &Path, line: &str, error: &serde_json::Error) -> io::Error {
    let start: String = line.chars().take(40).collect();
    io::Error::other(format!("{}: {start}...: {error}", file.display()))
}

/// Reads the lines of a file. Ignores an incomplete last line, which a killed process leaves
/// behind.
pub(super) fn read_lines(file: &Path) -> io::Result<Vec<ResultLine>> {
    let mut reader = BufReader::new(File::open(file)?);
    let mut lines = Vec::new();
    loop {
        let mut text = String::new();
        if reader.read_line(&mut text)? == 0 || !text.ends_with('\n') {
            return Ok(lines);
        }
        text.truncate(text.trim_end().len());
        if text.is_empty() {
            continue;
        }
        let header: ResultHeader =
            serde_json::from_str(&text).map_err(|error| parse_error(file, &text, &error))?;
        if header.format > FORMAT_VERSION {
            let message = format!("{}: written by a newer version of smig", file.display());
            return Err(io::Error::other(message));
        }
        lines.push(ResultLine { header, text, file: file.to_owned() });
    }
}

/// A result file that this process appends to exclusively.
#[derive(Debug)]
pub(super) struct ResultStore {
    file: File,
    rejected_path: PathBuf,
}

impl ResultStore {
    /// Opens or creates the file; truncates an incomplete last line.
    pub(super) fn open(dir: &Path, shard: Option<Shard>) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let path = dir.join(results_file_name(shard));
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            let path = path.display();
            io::Error::other(format!(
                "{path} is in use by another smig process; give each its own --out or --shard"
            ))
        })?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let complete_bytes =
            bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1) as u64;
        file.set_len(complete_bytes)?;
        file.seek(SeekFrom::Start(complete_bytes))?;
        Ok(Self { file, rejected_path: dir.join(rejected_file_name(shard)) })
    }

    /// Appends a result.
    pub(super) fn append(&mut self, result: &TrialResult) -> io::Result<()> {
        let mut line = serde_json::to_vec(result)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()
    }

    /// Records a rejected run.
    pub(super) fn append_rejected(&self, record: &serde_json::Value) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.rejected_path)?;
        file.write_all(format!("{record}\n").as_bytes())
    }
}
