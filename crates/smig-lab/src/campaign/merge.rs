//! Merges the results of several machines.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::store::{ResultLine, read_lines, result_files, results_file_name};
use crate::scenario::TrialId;
use crate::trial::AcceptedBuilds;

/// Summary of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeSummary {
    /// The file that was written.
    pub file: PathBuf,
    /// Number of results in it.
    pub results: usize,
    /// Number of duplicate lines, all identical.
    pub duplicates: usize,
}

/// Merges the results in directories, or files, into `out`.
///
/// # Errors
/// Nothing to merge, existing results in `out`, unreadable files, or conflicting results of one
/// trial: from different scenarios, or measured twice. Under [`AcceptedBuilds::One`] also results without a
/// build, or from several builds. Nothing is written then.
pub fn merge(out: &Path, from: &[PathBuf], builds: AcceptedBuilds) -> io::Result<MergeSummary> {
    let file = out.join(results_file_name(None));
    if out.is_dir() && !result_files(out)?.is_empty() {
        let out = out.display();
        return Err(io::Error::other(format!("{out} already has results; name another directory")));
    }
    let mut results_by_trial: BTreeMap<(String, u32, TrialId), ResultLine> = BTreeMap::new();
    let mut duplicates = 0;
    for path in from {
        for line in all_lines(path)? {
            let id = line.header.id.clone();
            let key = (id.campaign.clone(), id.repetition, id);
            match results_by_trial.get(&key) {
                None => drop(results_by_trial.insert(key, line)),
                Some(other) if other.text == line.text => duplicates += 1,
                Some(other) => return Err(conflict_error(other, &line)),
            }
        }
    }
    if results_by_trial.is_empty() {
        return Err(io::Error::other("there are no results to merge"));
    }
    builds
        .check(results_by_trial.values().map(|line| line.header.origin.as_ref()))
        .map_err(io::Error::other)?;
    fs::create_dir_all(out)?;
    let mut text = String::new();
    for line in results_by_trial.values() {
        text.push_str(&line.text);
        text.push('\n');
    }
    // Write atomically.
    let unfinished = out.join("unfinished");
    fs::File::create(&unfinished)?.write_all(text.as_bytes())?;
    fs::rename(&unfinished, &file)?;
    Ok(MergeSummary { file, results: results_by_trial.len(), duplicates })
}

fn all_lines(path: &Path) -> io::Result<Vec<ResultLine>> {
    let with_path = |error: io::Error| io::Error::other(format!("{}: {error}", path.display()));
    if !path.is_dir() {
        return read_lines(path).map_err(with_path);
    }
    let files = result_files(path).map_err(with_path)?;
    if files.is_empty() {
        return Err(with_path(io::Error::other("no results in this directory")));
    }
    let mut all = Vec::new();
    for file in files {
        all.extend(read_lines(&file)?);
    }
    Ok(all)
}

fn conflict_error(existing: &ResultLine, conflicting: &ResultLine) -> io::Error {
    let problem = if existing.header.hash == conflicting.header.hash {
        "was measured twice, with different results; keep one of them"
    } else {
        "is of two different scenarios with one name; rename one of them"
    };
    let (id, existing_path, conflicting_path) =
        (&existing.header.id, existing.file.display(), conflicting.file.display());
    io::Error::other(format!(
        "{id} of {} {problem}: {existing_path} and {conflicting_path}",
        id.campaign
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::ConditionName;

    fn line(scheme: &str, repetition: u32, hash: &str, payload: u32) -> String {
        let condition = ConditionName(vec![("scheme".into(), scheme.into())]);
        let id = TrialId { campaign: "c".into(), condition, repetition };
        let build = serde_json::json!({"commit": "c1", "program": "p1"});
        let origin = serde_json::json!({"build": build, "load": [0.1, 0.2]});
        let line = serde_json::json!({
            "format": 2, "id": id, "hash": hash, "origin": origin, "more": payload,
        });
        format!("{line}\n")
    }

    fn results_dir(root: &Path, name: &str, text: &str) -> PathBuf {
        let dir = root.join(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("results.1-of-2.jsonl"), text).unwrap();
        dir
    }

    #[test]
    fn shards_are_merged_in_order_of_repetition_and_id() {
        let root = tempfile::tempdir().unwrap();
        let a = results_dir(root.path(), "a", &(line("x", 2, "h", 1) + &line("x", 1, "h", 2)));
        let b = results_dir(root.path(), "b", &(line("y", 1, "h", 3) + &line("x", 1, "h", 2)));
        let out = root.path().join("out");
        let merged = merge(&out, &[a.clone(), b], AcceptedBuilds::One).unwrap();
        assert_eq!((merged.results, merged.duplicates), (3, 1));
        let text = fs::read_to_string(merged.file).unwrap();
        assert_eq!(text, line("x", 1, "h", 2) + &line("y", 1, "h", 3) + &line("x", 2, "h", 1));
        let error = merge(&out, &[a], AcceptedBuilds::One).unwrap_err().to_string();
        assert!(error.contains("already has results"), "{error}");
    }

    #[test]
    fn conflicting_results_are_rejected() {
        let root = tempfile::tempdir().unwrap();
        let a = results_dir(root.path(), "a", &line("x", 1, "h", 1));
        let b = results_dir(root.path(), "b", &line("x", 1, "h", 2));
        let c = results_dir(root.path(), "c", &line("x", 1, "other", 1));
        let empty = root.path().join("empty");
        fs::create_dir(&empty).unwrap();
        let out = root.path().join("out");
        let merge_error = |from: &[&PathBuf]| {
            let from: Vec<_> = from.iter().map(|path| (*path).clone()).collect();
            merge(&out, &from, AcceptedBuilds::One).unwrap_err().to_string()
        };
        let duplicate_error = merge_error(&[&a, &b]);
        assert!(
            duplicate_error.contains("measured twice") && duplicate_error.contains("scheme=x #1"),
            "{duplicate_error}"
        );
        assert!(merge_error(&[&a, &c]).contains("two different scenarios"));
        assert!(merge_error(&[&empty]).contains("empty"));
        assert!(merge_error(&[&root.path().join("none")]).contains("none"));
        assert!(!out.exists(), "nothing was written");
    }

    #[test]
    fn several_or_unknown_builds_are_merged_only_with_any_build() {
        let root = tempfile::tempdir().unwrap();
        let dir_with_build = results_dir(root.path(), "known", &line("x", 1, "h", 1));
        let dir_with_other_build =
            results_dir(root.path(), "other", &line("x", 2, "h", 1).replace("p1", "p2"));
        let line_without_build = line("x", 3, "h", 1).replace("origin", "silence");
        let dir_without_build = results_dir(root.path(), "silent", &line_without_build);
        let out = root.path().join("out");
        let merge_error = |with: &PathBuf| {
            merge(&out, &[dir_with_build.clone(), with.clone()], AcceptedBuilds::One)
                .unwrap_err()
                .to_string()
        };
        let mixed_error = merge_error(&dir_with_other_build);
        assert!(
            mixed_error.contains("2 builds") && mixed_error.contains("--any-build"),
            "{mixed_error}"
        );
        assert!(merge_error(&dir_without_build).contains("1 results do not record their build"));
        assert!(!out.exists(), "nothing was written");
        let merged = merge(
            &out,
            &[dir_with_build, dir_with_other_build, dir_without_build],
            AcceptedBuilds::Any,
        )
        .unwrap();
        assert_eq!(merged.results, 3);
    }

    #[test]
    fn an_incomplete_last_line_is_ignored() {
        let root = tempfile::tempdir().unwrap();
        let complete_line = line("x", 1, "h", 1);
        let a = results_dir(root.path(), "a", &format!("{complete_line}{}", &complete_line[..20]));
        let merged = merge(&root.path().join("out"), &[a], AcceptedBuilds::One).unwrap();
        assert_eq!(merged.results, 1);
    }
}
