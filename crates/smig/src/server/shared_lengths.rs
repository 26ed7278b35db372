//! What shared header fields say about their body, found once for each map.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use http::HeaderMap;
use http::header::DATE;

use crate::stream::content_length;

/// Number of maps that are known. Others are read for each response.
const MAX_MAPS: usize = 64;

/// The lengths that the shared header fields of recent responses announce. A map is dropped with its last owner, but its
/// address is that of no other map until one takes its place here.
#[derive(Debug, Default)]
pub(super) struct SharedLengths(RefCell<Vec<Option<Known>>>);

#[derive(Debug)]
struct Known {
    headers: Weak<HeaderMap>,
    length: Option<u64>,
}

impl SharedLengths {
    /// Returns the content-length among the fields; `None` if they cannot be sent as they are, because there is none, or
    /// because a date is among them.
    pub(super) fn announced_by(&self, headers: &Arc<HeaderMap>) -> Option<u64> {
        let mut places = self.0.borrow_mut();
        if places.is_empty() {
            places.resize_with(MAX_MAPS, || None);
        }
        let place = places.get_mut(place_of(headers))?;
        match place {
            Some(known) if known.headers.as_ptr() == Arc::as_ptr(headers) => known.length,
            place => {
                let length = read_length(headers);
                *place = Some(Known { headers: Arc::downgrade(headers), length });
                length
            }
        }
    }
}

/// Maps that were allocated one after the other have different places.
fn place_of(headers: &Arc<HeaderMap>) -> usize {
    Arc::as_ptr(headers).addr() / size_of::<HeaderMap>() % MAX_MAPS
}

fn read_length(headers: &HeaderMap) -> Option<u64> {
    // Comparing a few names is cheaper than a hash.
    if headers.keys().any(|name| *name == DATE) { None } else { content_length(headers) }
}

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_LENGTH, ETAG};
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn map(fields: &[(HeaderName, &'static str)]) -> Arc<HeaderMap> {
        let fields = fields.iter().cloned();
        Arc::new(fields.map(|(name, value)| (name, HeaderValue::from_static(value))).collect())
    }

    #[test]
    fn each_map_has_its_length_however_many_there_are() {
        let lengths = SharedLengths::default();
        let maps: Vec<_> = ["1", "20", "300"].into_iter().cycle().take(3 * MAX_MAPS).collect();
        let maps: Vec<_> = maps.iter().map(|length| map(&[(CONTENT_LENGTH, length)])).collect();
        for _ in 0..2 {
            for (index, headers) in maps.iter().enumerate() {
                let expected = [1, 20, 300][index % 3];
                assert_eq!(lengths.announced_by(headers), Some(expected));
                assert_eq!(lengths.announced_by(headers), Some(expected));
            }
        }
    }

    #[test]
    fn a_map_with_a_date_or_without_a_length_is_not_sent_as_it_is() {
        let lengths = SharedLengths::default();
        for headers in [
            map(&[(ETAG, "1")]),
            map(&[(CONTENT_LENGTH, "1"), (DATE, "Mon, 23 Nov 2026 00:00:00 GMT")]),
            map(&[(CONTENT_LENGTH, "many")]),
        ] {
            assert_eq!([0; 2].map(|_| lengths.announced_by(&headers)), [None; 2], "{headers:?}");
        }
    }

    #[test]
    fn a_map_is_dropped_with_its_last_owner_and_its_place_is_not_believed() {
        let lengths = SharedLengths::default();
        for length in ["1", "2", "3"] {
            let headers = map(&[(CONTENT_LENGTH, length)]);
            assert_eq!(lengths.announced_by(&headers), length.parse().ok());
            let observed = Arc::downgrade(&headers);
            // If its memory were reused, the next one would probably have its address.
            drop(headers);
            assert!(observed.upgrade().is_none());
        }
    }
}
