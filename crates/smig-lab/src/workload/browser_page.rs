//! A page in a browser: the same results as a player's, by what the page reports.

use std::net::SocketAddr;
use std::sync::PoisonError;

use smig_browser::{BrowserError, PageReport, ResourceTiming};

use super::browser::{BrowserClient, BrowserLoad, page_url};
use super::connections::ConnectionKey;
use super::page::{Load, transfer_of};
use super::result::{ConnectionBytes, ObjectResult, Outcome, PageLoad, RequestPhases};
use super::run::{WorkloadError, WorkloadRun, monotonic_ns};
use super::tile_page::{PICTURE_SIDE_PX, picture_name};
use crate::scenario::{Page, Resource, ResourceKind};

/// The times of a load on the run's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageClock {
    pub(super) navigation_ns: u64,
}

impl PageClock {
    /// `start_monotonic_ns` is the start of the run.
    pub(super) fn new(loaded: &BrowserLoad, start_monotonic_ns: u64) -> Self {
        let navigation = monotonic_ns(loaded.clock.instant_of(loaded.report.origin_ms));
        Self { navigation_ns: navigation.saturating_sub(start_monotonic_ns) }
    }

    pub(super) fn at(self, ms: f64) -> u64 {
        self.navigation_ns + (ms.max(0.0) * 1e6) as u64
    }
}

impl WorkloadRun {
    /// Loads a page once.
    pub(super) async fn load_in_browser(
        &self,
        browser: &BrowserClient,
        name: &str,
        number: u32,
        page: &Page,
    ) -> Result<Load, WorkloadError> {
        let client = self.spec.scenario.client_of(page.client.as_deref()).unwrap_or_default();
        let fail = |reason: &str| WorkloadError::Open {
            client: client.to_owned(),
            reason: reason.to_owned(),
        };
        let server = *self.spec.server_by_client.get(client).ok_or_else(|| fail("no server"))?;
        if let Some(recording) = &page.recording {
            return Ok(self.replay_in_browser(browser, (name, number), (page, recording)).await);
        }
        let directory = page.directory().ok_or_else(|| fail("the page has no tiles"))?;
        let started_ns = self.since_began();
        let url = page_url(server, &directory);
        let loaded = browser.load(url.clone(), self.deadline.into_std()).await;
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                let times = (started_ns, self.since_began());
                let load = PageLoad::without_times(name, number, times, failure(&error));
                return Ok((load, Vec::new()));
            }
        };
        let report = &loaded.report;
        let clock = PageClock::new(&loaded, self.start_monotonic_ns);
        let resources = page.resources();
        let mut load = page_load(name, number, (&resources, browser.protocol()), report, clock);
        load.clock_error_ns = u64::try_from(loaded.clock_error.as_nanos()).ok();
        if let Some(taken) = &loaded.frames {
            self.keep_frames(&mut load, taken);
        }
        let first = number.saturating_mul(u32::try_from(resources.len()).unwrap_or(u32::MAX));
        let objects = (first..).zip(&resources).filter_map(|(number, resource)| {
            let result = self.new_result(name, number, &transfer_of(client, resource));
            let mut result = object_result(result, resource, report, clock)?;
            let response_url = match entry_of(resource, report) {
                Some(entry) => entry.name.as_str(),
                None => url.as_str(),
            };
            if let Some(address) = loaded.local_addresses.get(response_url) {
                result.connections = vec![self.browser_connection(*address, result.bytes)];
            }
            Some(result)
        });
        let objects = objects.collect();
        Ok((load, objects))
    }
}

impl WorkloadRun {
    /// Returns what a connection of a browser carried.
    pub(super) fn browser_connection(&self, local: SocketAddr, bytes: u64) -> ConnectionBytes {
        // A browser's connections are in no pool of ours: their addresses tell them apart.
        let key = ConnectionKey::Address(u32::MAX, local);
        self.page_addresses.lock().unwrap_or_else(PoisonError::into_inner).insert(key, local);
        ConnectionBytes { connection: self.connections.get_or_assign(key), bytes }
    }
}

pub(super) fn failure(error: &BrowserError) -> Outcome {
    match error {
        BrowserError::TimedOut(_) => Outcome::TimedOut,
        error => Outcome::Failed(error.to_string()),
    }
}

/// Returns the report's entry of a picture.
fn entry_of<'a>(resource: &Resource, report: &'a PageReport) -> Option<&'a ResourceTiming> {
    let name = picture_name(resource.name.parse().ok()?);
    report.resources.iter().find(|entry| entry.name.rsplit('/').next() == Some(&name))
}

/// Returns what is wrong with a page, if anything is: everything must have arrived, by this protocol, and something must be painted.
fn fault(resources: &[Resource], report: &PageReport, protocol: &str) -> Option<String> {
    let pictures = resources.iter().filter(|resource| resource.kind == ResourceKind::Image);
    let count = pictures.clone().count();
    let is_drawn = |size: &&(u32, u32)| **size == (PICTURE_SIDE_PX, PICTURE_SIDE_PX);
    let drawn = report.image_sizes.iter().filter(is_drawn).count();
    let arrived = pictures.filter(|picture| {
        entry_of(picture, report).is_some_and(|entry| entry.encoded_body_size == picture.size)
    });
    let complete = arrived.count().min(drawn);
    let other = report.resources.iter().find(|entry| entry.next_hop_protocol != protocol);
    if complete != count {
        Some(format!("{complete} of {count} pictures were complete"))
    } else if let Some(other) = other {
        Some(format!("{} came by {:?}, not {protocol}", other.name, other.next_hop_protocol))
    } else if report.first_contentful_paint_ms.is_none() {
        Some("nothing was painted within a second after the load event".to_owned())
    } else {
        (report.navigation.load_event_end_ms <= 0.0).then(|| "it has no load event".to_owned())
    }
}

fn page_load(
    name: &str,
    number: u32,
    (resources, protocol): (&[Resource], &str),
    report: &PageReport,
    clock: PageClock,
) -> PageLoad {
    let outcome = fault(resources, report, protocol).map_or(Outcome::Complete, Outcome::Failed);
    let pictures_ns = report.resources.iter().map(|entry| clock.at(entry.response_end_ms));
    reported_load((name, number), report, clock, (outcome, pictures_ns.collect()))
}

/// Returns a load with the times that the browser reports, if it is complete. A picture can be seen when it has arrived and something is painted.
pub(super) fn reported_load(
    (name, number): (&str, u32),
    report: &PageReport,
    clock: PageClock,
    (outcome, pictures_ns): (Outcome, Vec<u64>),
) -> PageLoad {
    let is_complete = outcome == Outcome::Complete;
    let painted_ms = report.first_contentful_paint_ms.filter(|_| is_complete);
    let rendered_ns = painted_ms.map(|ms| clock.at(ms));
    let visible_ns = rendered_ns.map(|painted_ns| {
        let visible = pictures_ns.iter().map(|at_ns| u128::from((*at_ns).max(painted_ns)));
        match pictures_ns.len() {
            0 => painted_ns,
            count => (visible.sum::<u128>() / count as u128) as u64,
        }
    });
    let times = (clock.at(0.0), clock.at(report.navigation.load_event_end_ms));
    PageLoad { rendered_ns, visible_ns, ..PageLoad::without_times(name, number, times, outcome) }
}

/// Returns the result of a resource, if the browser reports it.
fn object_result(
    mut result: ObjectResult,
    resource: &Resource,
    report: &PageReport,
    clock: PageClock,
) -> Option<ObjectResult> {
    let (start_ms, connect, first_byte_ms, end_ms, bytes) =
        if resource.kind == ResourceKind::Document {
            let times = report.navigation;
            let connect = (times.connect_start_ms, times.connect_end_ms, times.request_start_ms);
            let (first_ms, end_ms) = (times.response_start_ms, times.response_end_ms);
            (0.0, connect, first_ms, end_ms, report.document_bytes)
        } else {
            let times = entry_of(resource, report)?;
            let connect = (times.connect_start_ms, times.connect_end_ms, times.request_start_ms);
            let (first_ms, end_ms) = (times.response_start_ms, times.response_end_ms);
            (times.start_ms, connect, first_ms, end_ms, times.encoded_body_size)
        };
    let (connect_ms, connected_ms, sent_ms) = connect;
    result.phases = RequestPhases {
        connect_ns: (connected_ms > connect_ms).then(|| clock.at(connect_ms)),
        sent_ns: (sent_ms > 0.0).then(|| clock.at(sent_ms)),
        finished_ns: Some(clock.at(end_ms)),
    };
    result.started_ns = clock.at(start_ms);
    result.first_byte_ns = (first_byte_ms > 0.0).then(|| clock.at(first_byte_ms));
    result.ended_ns = clock.at(end_ms);
    result.bytes = bytes;
    result.outcome = if bytes == resource.size { Outcome::Complete } else { Outcome::Damaged };
    Some(result)
}

#[cfg(test)]
mod tests {
    use smig_browser::NavigationTiming;

    use super::*;

    fn report(pictures: u32) -> PageReport {
        let resource = |index: u32| ResourceTiming {
            name: format!("https://10.99.0.1/tiles/{index}.png"),
            start_ms: 20.0,
            connect_start_ms: 21.0,
            connect_end_ms: 21.0,
            request_start_ms: 22.0,
            response_start_ms: 30.0,
            response_end_ms: 40.0 + f64::from(index),
            encoded_body_size: 500,
            next_hop_protocol: "h2".into(),
        };
        PageReport {
            origin_ms: 5_000.0,
            navigation: NavigationTiming { load_event_end_ms: 60.0, ..NavigationTiming::default() },
            document_bytes: 1_400,
            first_contentful_paint_ms: Some(41.5),
            resources: (0..pictures).map(resource).collect(),
            image_sizes: vec![(8, 8); pictures as usize],
        }
    }

    #[test]
    fn times_are_on_the_clock_of_the_run() {
        let page: Page = toml::from_str("tiles = { objects = 4, total = 2_000 }").unwrap();
        let report = report(4);
        let clock = PageClock { navigation_ns: 900_000_000 };
        let load = page_load("grid", 2, (&page.resources(), "h2"), &report, clock);
        assert_eq!((load.started_ns, load.ended_ns), (900_000_000, 960_000_000));
        assert_eq!(load.rendered_ns, Some(941_500_000));
        // 41.5 twice, 42 and 43.
        assert_eq!(load.visible_ns, Some(942_000_000));
        assert_eq!((load.number, load.outcome), (2, Outcome::Complete));
    }

    #[test]
    fn a_page_of_which_something_is_missing_has_failed() {
        let page: Page = toml::from_str("tiles = { objects = 4, total = 2_000 }").unwrap();
        let outcome = |change: &dyn Fn(&mut PageReport)| {
            let mut report = report(4);
            change(&mut report);
            let clock = PageClock { navigation_ns: 900_000_000 };
            let load = page_load("grid", 0, (&page.resources(), "h2"), &report, clock);
            assert_eq!(load.rendered_ns.is_some(), load.outcome == Outcome::Complete);
            match load.outcome {
                Outcome::Failed(why) => why,
                other => format!("{other:?}"),
            }
        };
        assert_eq!(outcome(&|_| ()), "Complete");
        assert_eq!(
            outcome(&|report| report.image_sizes[1] = (0, 0)),
            "3 of 4 pictures were complete"
        );
        assert_eq!(
            outcome(&|report| drop(report.resources.pop())),
            "3 of 4 pictures were complete"
        );
        assert!(outcome(&|report| report.resources[0].encoded_body_size -= 1).contains("3 of 4"));
        let http1 = outcome(&|report| report.resources[2].next_hop_protocol = "http/1.1".into());
        assert!(http1.contains("2.png") && http1.contains("not h2"), "{http1}");
        assert!(outcome(&|report| report.first_contentful_paint_ms = None).contains("painted"));
        assert!(
            outcome(&|report| report.navigation.load_event_end_ms = 0.0).contains("load event")
        );
    }
}
