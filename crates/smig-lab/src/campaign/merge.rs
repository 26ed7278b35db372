//! Merges the results of several machines.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::store::{Line, file_name, lines, results_in};
use crate::scenario::TrialId;
use crate::trial::Builds;

/// Summary of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The file that was written.
    pub file: PathBuf,
    /// Number of results in it.
    pub results: usize,
    /// Number of duplicate lines, all identical.
    pub repeated: usize,
}

/// Merges the results in directories, or files, into `out`.
///
/// # Errors
/// Nothing to merge, existing results in `out`, unreadable files, or conflicting results of one
/// cell: from different scenarios, or measured twice. Under [`Builds::One`] also results without a
/// build, or from several builds. Nothing is written then.
pub fn merge(out: &Path, from: &[PathBuf], builds: Builds) -> io::Result<Merged> {
    let file = out.join(file_name(None));
    if out.is_dir() && !results_in(out)?.is_empty() {
        let out = out.display();
        return Err(io::Error::other(format!("{out} already has results; name another directory")));
    }
    let mut joined: BTreeMap<(String, u32, TrialId), Line> = BTreeMap::new();
    let mut repeated = 0;
    for path in from {
        for line in all_lines(path)? {
            let id = line.stub.id.clone();
            let key = (id.campaign.clone(), id.repetition, id);
            match joined.get(&key) {
                None => drop(joined.insert(key, line)),
                Some(other) if other.text == line.text => repeated += 1,
                Some(other) => return Err(conflict(other, &line)),
            }
        }
    }
    if joined.is_empty() {
        return Err(io::Error::other("there are no results to merge"));
    }
    builds
        .check(joined.values().map(|line| line.stub.origin.as_ref()))
        .map_err(io::Error::other)?;
    fs::create_dir_all(out)?;
    let mut text = String::new();
    for line in joined.values() {
        text.push_str(&line.text);
        text.push('\n');
    }
    // Write atomically.
    let unfinished = out.join("unfinished");
    fs::File::create(&unfinished)?.write_all(text.as_bytes())?;
    fs::rename(&unfinished, &file)?;
    Ok(Merged { file, results: joined.len(), repeated })
}

fn all_lines(path: &Path) -> io::Result<Vec<Line>> {
    let named = |error: io::Error| io::Error::other(format!("{}: {error}", path.display()));
    if !path.is_dir() {
        return lines(path).map_err(named);
    }
    let files = results_in(path).map_err(named)?;
    if files.is_empty() {
        return Err(named(io::Error::other("no results in this directory")));
    }
    let mut all = Vec::new();
    for file in files {
        all.extend(lines(&file)?);
    }
    Ok(all)
}

fn conflict(one: &Line, other: &Line) -> io::Error {
    let why = if one.stub.hash == other.stub.hash {
        "was measured twice, with different results; keep one of them"
    } else {
        "is of two different scenarios with one name; rename one of them"
    };
    let (id, one, other) = (&one.stub.id, one.file.display(), other.file.display());
    io::Error::other(format!("{id} of {} {why}: {one} and {other}", id.campaign))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Variant;

    fn line(scheme: &str, repetition: u32, hash: &str, more: u32) -> String {
        let variant = Variant(vec![("scheme".into(), scheme.into())]);
        let id = TrialId { campaign: "c".into(), variant, repetition };
        let build = serde_json::json!({"commit": "c1", "program": "p1"});
        let origin = serde_json::json!({"build": build, "load": [0.1, 0.2]});
        let line = serde_json::json!({
            "format": 2, "id": id, "hash": hash, "origin": origin, "more": more,
        });
        format!("{line}\n")
    }

    fn folder(root: &Path, name: &str, text: &str) -> PathBuf {
        let folder = root.join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("results.1-of-2.jsonl"), text).unwrap();
        folder
    }

    #[test]
    fn shares_are_joined_in_the_campaigns_order() {
        let root = tempfile::tempdir().unwrap();
        let a = folder(root.path(), "a", &(line("x", 2, "h", 1) + &line("x", 1, "h", 2)));
        let b = folder(root.path(), "b", &(line("y", 1, "h", 3) + &line("x", 1, "h", 2)));
        let out = root.path().join("out");
        let merged = merge(&out, &[a.clone(), b], Builds::One).unwrap();
        assert_eq!((merged.results, merged.repeated), (3, 1));
        let text = fs::read_to_string(merged.file).unwrap();
        assert_eq!(text, line("x", 1, "h", 2) + &line("y", 1, "h", 3) + &line("x", 2, "h", 1));
        let again = merge(&out, &[a], Builds::One).unwrap_err().to_string();
        assert!(again.contains("already has results"), "{again}");
    }

    #[test]
    fn conflicts_are_refused_and_named() {
        let root = tempfile::tempdir().unwrap();
        let a = folder(root.path(), "a", &line("x", 1, "h", 1));
        let b = folder(root.path(), "b", &line("x", 1, "h", 2));
        let c = folder(root.path(), "c", &line("x", 1, "other", 1));
        let empty = root.path().join("empty");
        fs::create_dir(&empty).unwrap();
        let out = root.path().join("out");
        let refused = |from: &[&PathBuf]| {
            let from: Vec<_> = from.iter().map(|path| (*path).clone()).collect();
            merge(&out, &from, Builds::One).unwrap_err().to_string()
        };
        let twice = refused(&[&a, &b]);
        assert!(twice.contains("measured twice") && twice.contains("scheme=x #1"), "{twice}");
        assert!(refused(&[&a, &c]).contains("two different scenarios"));
        assert!(refused(&[&empty]).contains("empty"));
        assert!(refused(&[&root.path().join("none")]).contains("none"));
        assert!(!out.exists(), "nothing was written");
    }

    #[test]
    fn results_of_unknown_or_several_builds_are_refused_unless_any_will_do() {
        let root = tempfile::tempdir().unwrap();
        let known = folder(root.path(), "known", &line("x", 1, "h", 1));
        let other = folder(root.path(), "other", &line("x", 2, "h", 1).replace("p1", "p2"));
        let silent = line("x", 3, "h", 1).replace("origin", "silence");
        let silent = folder(root.path(), "silent", &silent);
        let out = root.path().join("out");
        let refused = |with: &PathBuf| {
            merge(&out, &[known.clone(), with.clone()], Builds::One).unwrap_err().to_string()
        };
        let mixed = refused(&other);
        assert!(mixed.contains("2 builds") && mixed.contains("--any-build"), "{mixed}");
        assert!(refused(&silent).contains("1 results do not record their build"));
        assert!(!out.exists(), "nothing was written");
        let all = merge(&out, &[known, other, silent], Builds::Any).unwrap();
        assert_eq!(all.results, 3);
    }

    #[test]
    fn a_line_that_was_not_written_to_its_end_is_not_counted() {
        let root = tempfile::tempdir().unwrap();
        let whole = line("x", 1, "h", 1);
        let a = folder(root.path(), "a", &format!("{whole}{}", &whole[..20]));
        let merged = merge(&root.path().join("out"), &[a], Builds::One).unwrap();
        assert_eq!(merged.results, 1);
    }
}
