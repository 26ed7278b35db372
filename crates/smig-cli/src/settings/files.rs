//! Settings of the file service.

use smig_settings::entry::{last_value, show_text};
use smig_settings::{ValueKind, integer, size, time, word};

use super::Setting;
use super::model::{
    HIDDEN_VALUES, LISTING_VALUES, PRECOMPRESSED_VALUES, SYMLINK_VALUES, parse_field_value,
};

pub(super) const FILE_SETTINGS: &[Setting] = &[
    Setting {
        key: "files.index",
        flag: "index",
        kind: ValueKind::Text,
        value_name: "NAME",
        help: "File to serve for a directory; empty: none",
        show: |s| show_text(s.files.index_file.as_deref().unwrap_or_default()),
        set: |s, v| {
            s.files.index_file = Some(last_value(v).to_owned()).filter(|n| !n.is_empty());
            Ok(())
        },
    },
    word!(
        "files.listing",
        "listing",
        "WORD",
        LISTING_VALUES,
        files.listing,
        "Listings of directories without an index file: off or on"
    ),
    word!(
        "files.hidden",
        "hidden",
        "WORD",
        HIDDEN_VALUES,
        files.hidden_files,
        "Names that begin with a dot: refuse or serve them"
    ),
    word!(
        "files.symlinks",
        "symlinks",
        "WORD",
        SYMLINK_VALUES,
        files.symlinks,
        "Symbolic links: refuse, inside (follow those that stay in the directory) or follow"
    ),
    word!(
        "files.precompressed",
        "precompressed",
        "WORD",
        PRECOMPRESSED_VALUES,
        files.precompressed_files,
        "Precompressed files FILE.br, FILE.zst and FILE.gz: serve or ignore"
    ),
    Setting {
        key: "files.cache_control",
        flag: "cache-control",
        kind: ValueKind::Text,
        value_name: "VALUE",
        help: "Value of the Cache-Control header field of every file; empty: none",
        show: |s| {
            show_text(
                s.files.cache_control.as_ref().and_then(|v| v.to_str().ok()).unwrap_or_default(),
            )
        },
        set: |s, v| {
            s.files.cache_control = parse_field_value(last_value(v))?;
            Ok(())
        },
    },
    time!(
        "files.cache_ttl",
        "cache-ttl",
        files.cache_ttl,
        "How long a cached path is valid before it is checked again; 0: check at every request"
    ),
    integer!(
        "files.cache_entries",
        "cache-entries",
        files.cache_entries,
        "Maximum number of cached paths"
    ),
    integer!(
        "files.cache_open_files",
        "cache-open-files",
        files.cache_open_files,
        "Maximum number of files to keep open between requests"
    ),
    size!(
        "files.cache_memory",
        "cache-memory",
        files.cache_memory_bytes,
        "Memory for cached file contents; 0: none"
    ),
    size!(
        "files.cache_max_file_size",
        "cache-max-file-size",
        files.cache_max_file_bytes,
        "Largest file to cache in memory"
    ),
];
