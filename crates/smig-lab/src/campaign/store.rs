//! Result files: one line per result, written completely or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;

use crate::scenario::{Shard, TrialId};
use crate::trial::Origin;
use crate::trial::{FORMAT, TrialResult};

/// Fields of a line that identify its cell and origin.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Stub {
    pub(super) format: u32,
    pub(super) id: TrialId,
    pub(super) hash: String,
    #[serde(default)]
    pub(super) origin: Option<Origin>,
}

/// A line of a file, verbatim.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) stub: Stub,
    pub(super) text: String,
    pub(super) file: PathBuf,
}

/// Returns the name of a share's result file.
pub(super) fn file_name(share: Option<Shard>) -> String {
    match share {
        None => "results.jsonl".into(),
        Some(share) => format!("results.{}-of-{}.jsonl", share.index, share.of),
    }
}

/// Returns the name of the file for a share's rejected runs and the reasons.
fn rejected_name(share: Option<Shard>) -> String {
    file_name(share).replacen("results", "rejected", 1)
}

/// Lists the result files in a directory, sorted by name.
///
/// # Errors
/// The directory cannot be read.
pub fn results_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let text = name.to_string_lossy();
        if text.starts_with("results.") && text.ends_with(".jsonl") {
            files.push(folder.join(&name));
        }
    }
    files.sort();
    Ok(files)
}

/// Reads all results of a file, or of all result files in a directory.
///
/// # Errors
/// What cannot be read, with file and line.
pub fn read_results(path: &Path) -> io::Result<Vec<TrialResult>> {
    let files = if path.is_dir() { results_in(path)? } else { vec![path.to_owned()] };
    let mut results = Vec::new();
    for file in files {
        for line in lines(&file)? {
            let result = serde_json::from_str(&line.text);
            results.push(result.map_err(|error| broken(&file, &line.text, &error))?);
        }
    }
    Ok(results)
}

fn broken(file: &Path, line: &str, error: &serde_json::Error) -> io::Error {
    let start: String = line.chars().take(40).collect();
    io::Error::other(format!("{}: {start}...: {error}", file.display()))
}

/// Reads the lines of a file. Ignores an incomplete last line, which a killed process leaves
/// behind.
pub(super) fn lines(file: &Path) -> io::Result<Vec<Line>> {
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
        let stub: Stub =
            serde_json::from_str(&text).map_err(|error| broken(file, &text, &error))?;
        if stub.format > FORMAT {
            let words = format!("{}: written by a newer version of smig", file.display());
            return Err(io::Error::other(words));
        }
        lines.push(Line { stub, text, file: file.to_owned() });
    }
}

/// A result file that this process appends to exclusively.
#[derive(Debug)]
pub(super) struct Store {
    file: File,
    rejected: PathBuf,
}

impl Store {
    /// Opens or creates the file; truncates an incomplete last line.
    pub(super) fn open(folder: &Path, share: Option<Shard>) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join(file_name(share));
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
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1) as u64;
        file.set_len(whole)?;
        file.seek(SeekFrom::Start(whole))?;
        Ok(Self { file, rejected: folder.join(rejected_name(share)) })
    }

    /// Appends a result.
    pub(super) fn add(&mut self, result: &TrialResult) -> io::Result<()> {
        let mut line = serde_json::to_vec(result)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()
    }

    /// Records a rejected run.
    pub(super) fn reject(&self, what: &serde_json::Value) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.rejected)?;
        file.write_all(format!("{what}\n").as_bytes())
    }
}
