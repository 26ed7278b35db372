//! Reads a recording within limits: the file, its entries, the bodies' sizes and their sum.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::marker::PhantomData;
use std::path::Path;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::entry::Har;
use super::error::HarError;
use super::graph::RecordedPage;

/// Maximum size of a file: recordings with bodies in them have tens of megabytes.
pub const MAX_FILE_BYTES: u64 = 256 << 20;
/// Maximum number of entries: pages have hundreds.
const MAX_ENTRIES: usize = 10_000;

/// Reads the recording in a file. `name` is how the file is called in errors.
///
/// # Errors
/// [`HarError`].
pub fn read_file(path: &Path, name: &str) -> Result<RecordedPage, HarError> {
    read(&read_bytes(path, name)?[..], name)
}

/// Reads a file that may be a recording.
pub(crate) fn read_bytes(path: &Path, name: &str) -> Result<Vec<u8>, HarError> {
    let fail = |cause: String| HarError::Read { name: name.to_owned(), cause };
    let file = File::open(path).map_err(|error| fail(error.to_string()))?;
    let metadata = file.metadata().map_err(|error| fail(error.to_string()))?;
    if metadata.is_dir() {
        return Err(fail("it is a directory; name the HAR file in it".to_owned()));
    }
    if metadata.len() > MAX_FILE_BYTES {
        let message = format!(
            "it has {} MB, and {} MB are the limit: save it without content, or record fewer pages in one file",
            metadata.len() >> 20,
            MAX_FILE_BYTES >> 20
        );
        return Err(HarError::content(name, "file", message));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    // What goes on beyond the limit is cut off, and then is no JSON: devices and pipes have no size.
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(|error| fail(error.to_string()))?;
    Ok(bytes)
}

/// Reads a recording: the first page in it. `name` is how it is called in errors.
///
/// # Errors
/// [`HarError`].
pub fn read(input: impl Read, name: &str) -> Result<RecordedPage, HarError> {
    let har: Har = smig_survey::parse_har(input.take(MAX_FILE_BYTES), name)?;
    RecordedPage::from_entries(&har.log.entries, name)
}

/// Deserializes entries, up to the limit.
pub(crate) fn limited_entries<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Entries<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array of entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = seq.next_element()? {
                if entries.len() == MAX_ENTRIES {
                    return Err(A::Error::custom(format_args!(
                        "more than {MAX_ENTRIES} entries: record one page only"
                    )));
                }
                entries.push(entry);
            }
            Ok(entries)
        }
    }

    deserializer.deserialize_seq(Entries(PhantomData))
}
