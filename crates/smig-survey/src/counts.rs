//! Counts: sites by their largest object, sizes of all objects, and excluded entries by reason.
//!
//! Memory grows with the number of sites (about 20 bytes each), never with the number of objects.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};

use serde::{Deserialize, Serialize};

use super::site::Site;
use super::sizes::SizeHistogram;

/// One megabyte, as Table 1 counts it.
const MB: u64 = 1_000_000;

/// The size thresholds of Table 1, in bytes.
pub(super) const THRESHOLDS: [u64; 5] = [MB, 5 * MB, 10 * MB, 25 * MB, 50 * MB];

/// Minimum number of recent objects that are remembered to detect repeats.
const MIN_REMEMBERED_OBJECTS: usize = 1 << 20;

/// Maximum number of sites in the list of the largest objects.
const MAX_LARGEST_OBJECTS: usize = 20;

/// Why an entry was not counted as an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Exclusion {
    /// On a host other than the landing page's.
    OffHost,
    /// Neither http nor https: data, blobs, extensions.
    NotWeb,
    /// The status is not 200, 203 or 206: redirects, errors, cached copies.
    Status,
    /// The object is empty.
    Empty,
    /// No source gives its size.
    NoSize,
    /// Already counted for this site.
    Repeated,
    /// Disallowed by robots.txt.
    Disallowed,
    /// The request failed.
    Failed,
    /// Damaged input.
    Damaged,
}

impl Exclusion {
    /// Returns the reason as text for the table.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::OffHost => "on other hosts",
            Self::NotWeb => "neither http nor https",
            Self::Status => "with a status other than 200, 203, 206",
            Self::Empty => "empty",
            Self::NoSize => "of unknown size",
            Self::Repeated => "repeated",
            Self::Disallowed => "disallowed by robots.txt",
            Self::Failed => "failed",
            Self::Damaged => "damaged",
        }
    }
}

/// A site's largest object, if it is among the largest of the survey.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LargestObject {
    /// The site.
    pub site: Site,
    /// The object.
    pub url: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The counts so far.
#[derive(Debug, Default)]
pub struct SurveyCounts {
    /// The largest object of each site, in bytes, by the site's hash.
    sites: HashMap<u64, u64>,
    sites_by_threshold: [u64; THRESHOLDS.len()],
    sizes: SizeHistogram,
    recent_keys: RecentKeys,
    exclusions: BTreeMap<Exclusion, u64>,
    largest: BTreeMap<Site, (u64, String)>,
}

impl SurveyCounts {
    /// Counts a site, even if it never contributes an object.
    pub fn add_site(&mut self, site: &Site) {
        self.sites.entry(hash(&site)).or_default();
    }

    /// Counts an object of a site. A repeated object counts once if its first occurrence is among the
    /// last million objects.
    pub fn add_object(&mut self, site: &Site, url: &str, bytes: u64) {
        let key = hash(&site);
        let largest = self.sites.entry(key).or_default();
        for (threshold, sites_reached) in THRESHOLDS.iter().zip(&mut self.sites_by_threshold) {
            *sites_reached += u64::from(*largest < *threshold && bytes >= *threshold);
        }
        *largest = bytes.max(*largest);
        if bytes == 0 {
            self.exclude(Exclusion::Empty);
        } else if self.recent_keys.insert(hash(&(key, url))) {
            self.sizes.add(bytes);
            self.add_largest(site, url, bytes);
        } else {
            self.exclude(Exclusion::Repeated);
        }
    }

    /// Counts an entry that is not an object of the survey.
    pub fn exclude(&mut self, reason: Exclusion) {
        *self.exclusions.entry(reason).or_default() += 1;
    }

    /// Adds an object to the list of the largest, if it belongs there.
    fn add_largest(&mut self, site: &Site, url: &str, bytes: u64) {
        if bytes < THRESHOLDS[0] || self.largest.get(site).is_some_and(|known| known.0 >= bytes) {
            return;
        }
        self.largest.insert(site.clone(), (bytes, url.to_owned()));
        if self.largest.len() > MAX_LARGEST_OBJECTS {
            let smallest = self.largest.iter().min_by_key(|(_, known)| known.0);
            if let Some(least) = smallest.map(|(site, _)| site.clone()) {
                self.largest.remove(&least);
            }
        }
    }

    /// Returns the number of sites.
    #[must_use]
    pub fn site_count(&self) -> u64 {
        self.sites.len() as u64
    }

    /// Returns the number of objects.
    #[must_use]
    pub const fn object_count(&self) -> u64 {
        self.sizes.total()
    }

    /// Returns each size threshold with the number of sites that hold an object of at least that size.
    pub(super) fn site_counts_by_threshold(&self) -> impl Iterator<Item = (u64, u64)> {
        THRESHOLDS.into_iter().zip(self.sites_by_threshold)
    }

    pub(super) const fn sizes(&self) -> &SizeHistogram {
        &self.sizes
    }

    pub(super) const fn exclusions(&self) -> &BTreeMap<Exclusion, u64> {
        &self.exclusions
    }

    /// Returns the largest objects in descending order of size.
    pub(super) fn largest(&self) -> Vec<LargestObject> {
        let to_largest = |(site, (bytes, url)): (&Site, &(u64, String))| LargestObject {
            site: site.clone(),
            url: url.clone(),
            bytes: *bytes,
        };
        let mut largest: Vec<_> = self.largest.iter().map(to_largest).collect();
        largest.sort_by_key(|large| std::cmp::Reverse(large.bytes));
        largest
    }
}

/// Hashes a value. With ten million sites, a collision occurs in one of 400,000 surveys.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The most recent keys: at least the last million, at most two million.
#[derive(Debug, Default)]
struct RecentKeys {
    current: HashSet<u64>,
    previous: HashSet<u64>,
}

impl RecentKeys {
    fn insert(&mut self, key: u64) -> bool {
        if self.previous.contains(&key) || !self.current.insert(key) {
            return false;
        }
        if self.current.len() == MIN_REMEMBERED_OBJECTS {
            self.previous = std::mem::take(&mut self.current);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(name: &str) -> Site {
        Site::from_url(&format!("https://{name}/").parse().unwrap()).unwrap()
    }

    #[test]
    fn a_site_counts_once_at_each_size() {
        let mut counts = SurveyCounts::default();
        let (a, b, c) = (site("a.example"), site("b.example"), site("c.example"));
        counts.add_site(&c);
        for (site, url, bytes) in [
            (&a, "https://a.example/1", 999_999),
            (&a, "https://a.example/2", 5_000_000),
            (&a, "https://a.example/3", 30_000_000),
            (&b, "https://b.example/1", 1_000_000),
            (&b, "https://b.example/1", 1_000_000),
            (&b, "https://b.example/0", 0),
        ] {
            counts.add_object(site, url, bytes);
        }
        let reached: Vec<_> = counts.site_counts_by_threshold().map(|(_, sites)| sites).collect();
        assert_eq!(reached, [2, 1, 1, 1, 0]);
        assert_eq!((counts.site_count(), counts.object_count()), (3, 4));
        let left_out: Vec<_> = counts.exclusions().iter().map(|(why, n)| (*why, *n)).collect();
        assert_eq!(left_out, [(Exclusion::Empty, 1), (Exclusion::Repeated, 1)]);
        let largest: Vec<_> = counts.largest().into_iter().map(|large| large.url).collect();
        assert_eq!(largest, ["https://a.example/3", "https://b.example/1"]);
    }

    #[test]
    fn only_the_largest_are_listed() {
        let mut counts = SurveyCounts::default();
        for number in 1..=100 {
            let site = site(&format!("s{number}.example"));
            counts.add_object(&site, &format!("https://{site}/x"), number * MB);
        }
        let largest = counts.largest();
        assert_eq!(largest.len(), MAX_LARGEST_OBJECTS);
        assert_eq!((largest[0].bytes, largest[MAX_LARGEST_OBJECTS - 1].bytes), (100 * MB, 81 * MB));
    }

    #[test]
    fn recent_keys_are_remembered() {
        let mut recent = RecentKeys::default();
        assert!(recent.insert(0));
        let all_new = (1..=MIN_REMEMBERED_OBJECTS as u64).all(|key| recent.insert(key));
        assert!(all_new && !recent.insert(0) && !recent.insert(1));
        assert!(
            recent.current.len() < MIN_REMEMBERED_OBJECTS
                && recent.previous.len() == MIN_REMEMBERED_OBJECTS
        );
    }
}
