//! Estimates from the scenario alone how long a run takes, and how busy it keeps a processor.

use std::time::Duration;

use smig_link::LinkSpec;

use crate::scenario::{Discovery, Page, Resource, Scenario, Transfer, TransferDirection};

/// Time for setup and teardown.
const SETUP_AND_TEARDOWN_TIME: Duration = Duration::from_secs(1);

/// What a run without traffic takes, and the processor time in it: measured with a page of 40 kB over a fast link. The estimate of the
/// duration has more, so that it holds on slower machines, too.
const IDLE_RUN_TIME: Duration = Duration::from_millis(150);
const IDLE_RUN_PROCESSOR_SECONDS: f64 = 0.1;

/// Processor time of both hosts and the link for each bit, with TLS: measured with a page of 9 MB.
const PROCESSOR_SECONDS_PER_BIT: f64 = 2.5e-9;

/// No run takes longer: what is due after it does not happen.
const MAX_TIME_LIMIT: Duration = Duration::from_secs(30 * 86_400);

/// Maximum number of a transfer's objects whose sizes are summed.
const MAX_SUMMED_SIZES: u32 = 1_000;

/// Estimates the duration of a run.
#[must_use]
pub fn estimated_duration(scenario: &Scenario) -> Duration {
    traffic_time(scenario).saturating_add(SETUP_AND_TEARDOWN_TIME)
}

/// Estimates how many processors a run keeps busy, on average.
#[must_use]
pub fn estimated_load(scenario: &Scenario) -> f64 {
    let page_bits =
        scenario.workload.pages.values().map(|page| page_bytes(page) as f64 * 8.0).sum::<f64>();
    let transfers = scenario.workload.transfers.values();
    let transfer_bits = transfers.map(|transfer| {
        transfer_bits(transfer, bits_per_second(&scenario.link, transfer.direction))
    });
    let bits = page_bits + transfer_bits.sum::<f64>();
    let seconds = traffic_time(scenario).saturating_add(IDLE_RUN_TIME).as_secs_f64();
    (IDLE_RUN_PROCESSOR_SECONDS + bits * PROCESSOR_SECONDS_PER_BIT) / seconds
}

/// Estimates the time from the start of the workload to its end.
fn traffic_time(scenario: &Scenario) -> Duration {
    let transfers =
        || scenario.workload.transfers.values().filter(|transfer| transfer.until.is_none());
    let seconds_of = |direction| {
        let rate = bits_per_second(&scenario.link, direction);
        let of_direction = transfers().filter(|transfer| transfer.direction == direction);
        of_direction.map(|transfer| transfer_bits(transfer, rate)).sum::<f64>() / rate
    };
    let pages = || scenario.workload.pages.values();
    let page_bits: f64 = pages().map(|page| page_bytes(page) as f64 * 8.0).sum();
    let page_seconds = page_bits / bits_per_second(&scenario.link, TransferDirection::Download);
    let seconds = (seconds_of(TransferDirection::Download) + page_seconds)
        .max(seconds_of(TransferDirection::Upload));
    let starts = transfers().map(|transfer| transfer.start.0);
    let first_start = starts.chain(pages().map(|page| page.start.0)).min().unwrap_or_default();
    let of_pages: Duration = pages()
        .map(|page| page_time(page, scenario.link.grown_round_trip()))
        .fold(Duration::ZERO, Duration::saturating_add);
    let end_by_rate = first_start
        .saturating_add(Duration::from_secs_f64(seconds.min(1e6)))
        .saturating_add(of_pages);
    let last_times = transfers().map(last_scheduled_time).chain(pages().map(last_load_time));
    let end_by_schedule = last_times.max().unwrap_or_default();
    end_by_rate.max(end_by_schedule).saturating_add(scenario.workload.settle.0)
}

/// Returns the time after which unfinished transfers are aborted.
pub(super) fn time_limit(scenario: &Scenario) -> Duration {
    let limit = scenario.workload.time_limit.map(|limit| limit.0);
    let default = || estimated_duration(scenario).saturating_mul(4);
    limit.unwrap_or_else(|| default().saturating_add(Duration::from_secs(60)).min(MAX_TIME_LIMIT))
}

/// Returns the link's mean rate in a direction, in bits per second.
fn bits_per_second(link: &LinkSpec, direction: TransferDirection) -> f64 {
    let spec = match direction {
        TransferDirection::Download => &link.to_client,
        TransferDirection::Upload => &link.to_server,
    };
    spec.rate.mean_bits_per_second() as f64
}

/// Returns the bits of a transfer; `rate` is the link's rate in its direction in bits per second, for cancels by
/// time. The sizes of many objects are those of the first ones.
fn transfer_bits(transfer: &Transfer, rate: f64) -> f64 {
    let count = transfer.max_objects();
    let summed_count = count.min(MAX_SUMMED_SIZES);
    let sizes = (0..summed_count).map(|number| transfer.size_of(number) as f64);
    let mut bytes = sizes.sum::<f64>() * f64::from(count) / f64::from(summed_count.max(1));
    if let Some(cancel) = &transfer.cancel
        && transfer.direction == TransferDirection::Download
    {
        let size_limit_bytes = cancel.at.map_or(f64::INFINITY, |at| at.0 as f64);
        let time_limit_bytes =
            cancel.after.map_or(f64::INFINITY, |after| after.0.as_secs_f64() * rate / 8.0);
        bytes = bytes.min(size_limit_bytes.min(time_limit_bytes) * f64::from(count));
    }
    bytes * 8.0
}

fn last_scheduled_time(transfer: &Transfer) -> Duration {
    let intervals = transfer.max_objects().saturating_sub(1);
    let interval = transfer.every.map_or(Duration::ZERO, |every| every.0);
    let cancel_after = transfer.cancel.as_ref().and_then(|cancel| cancel.after);
    let last = transfer.start.0.saturating_add(interval.saturating_mul(intervals));
    last.saturating_add(cancel_after.map_or(Duration::ZERO, |after| after.0))
}

/// Returns the bytes of all loads of a page.
fn page_bytes(page: &Page) -> u64 {
    let sizes = page.resources().into_iter().map(|resource| resource.size);
    sizes.fold(0, u64::saturating_add).saturating_mul(u64::from(page.loads()))
}

/// Returns the time of all loads of a page that no rate shortens: round trips, what runs, pauses.
fn page_time(page: &Page, round_trip: Duration) -> Duration {
    let resources = page.resources();
    let runs = resources.iter().map(|resource| resource.run);
    let runs = runs.fold(Duration::ZERO, Duration::saturating_add);
    // Two for the connection, and one for each resource that another one asks for, as if all were in a row; the document's one
    // after the other over six connections.
    let is_asked_for =
        |resource: &&Resource| matches!(resource.discovery, Discovery::Parent { .. });
    let named = match &page.recording {
        Some(_) => resources.iter().filter(is_asked_for).count(),
        None => page.resources.len(),
    };
    let rounds = 4 + named + (resources.len() - named).div_ceil(6);
    let each = round_trip.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
    each.saturating_add(runs).saturating_add(page.pause.0).saturating_mul(page.loads())
}

/// Returns when the last load of a page begins, if loads took no time.
fn last_load_time(page: &Page) -> Duration {
    page.start.0.saturating_add(page.pause.0.saturating_mul(page.loads().saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::parse;

    fn seconds(transfers: &str) -> u64 {
        seconds_on("paper-wired", transfers)
    }

    fn seconds_on(link: &str, transfers: &str) -> u64 {
        let text = format!(
            "link = '{link}'\n[servers.s]\nkind = 'smig'\n[clients.c]\nkind = 'smig'\n\
             [workload]\nsettle = '0'\n{transfers}"
        );
        let campaign = parse(&text, "test", std::path::Path::new("/"), &|_| Ok(())).unwrap();
        (estimated_duration(&campaign.conditions[0].scenario) - SETUP_AND_TEARDOWN_TIME).as_secs()
    }

    #[test]
    fn duration_depends_on_link_rate_and_schedule() {
        let big = "transfers.big.size = '50MB'\n";
        assert_eq!(seconds(big), 40);
        assert_eq!(seconds(&format!("{big}transfers.big.start = '5s'\n")), 45);
        assert_eq!(seconds(&format!("{big}transfers.big.cancel.after = '10s'\n")), 10);
        assert_eq!(seconds(&format!("{big}transfers.big.cancel.at = '5MB'\n")), 4);
        assert_eq!(
            seconds("transfers.x = { size = '1kB', every = '1s', count = 21, start = '2s' }\n"),
            22
        );
        // 12 Mbit/s to the client, 5 to the server.
        assert_eq!(seconds_on("lte-like", big), 33);
        let upload = format!("{big}transfers.big.direction = 'upload'\n");
        assert_eq!(seconds_on("lte-like", &upload), 80);
        let many = "transfers.x = { size = '10kB', count = 5000, arrival = 'one-by-one' }\n";
        assert_eq!(seconds(many), 40);
        let until = format!("{big}transfers.x = {{ size = '1kB', every = '1s', until = 'big' }}\n");
        assert_eq!(seconds(&until), 40);
        let page =
            "pages.p = { tiles = { objects = 10, total = '1MB' }, count = 10, pause = '1s' }\n";
        // 10 MB, ten pauses, and six round trips of 50 ms for each.
        assert_eq!(seconds(page), 8 + 10 + 3);
        assert_eq!(seconds(&format!("{big}{page}")), 40 + 21);
        // 5 ms that grow to 305: a load has six round trips.
        assert_eq!(seconds_on("slowdown", page), 1 + 10 + 18);
        let endless = "transfers.x = { size = 1, count = 9, every = '5000000000000000h' }\n";
        assert_eq!(seconds(endless), Duration::MAX.as_secs() - 1);
    }

    #[test]
    fn a_run_is_a_load_by_its_traffic_and_by_its_setup() {
        let load = |link: &str, tiles: &str| {
            let text = format!(
                "link = '{link}'\n[servers.s]\nkind = 'smig'\n[clients.c]\nkind = 'smig'\n\
                 [workload]\nsettle = '0'\npages.p = {{ tiles = {{ {tiles} }} }}\n"
            );
            let campaign = parse(&text, "test", std::path::Path::new("/"), &|_| Ok(())).unwrap();
            estimated_load(&campaign.conditions[0].scenario)
        };
        let (large, small) = ("objects = 6, total = '9MB'", "objects = 6, total = '40kB'");
        // 0.28 s of a processor in 1.1 s, 0.1 s in 0.2 s.
        assert!((0.2..0.3).contains(&load("fiber", large)), "{}", load("fiber", large));
        assert!((0.4..0.6).contains(&load("fiber", small)), "{}", load("fiber", small));
        assert!((0.05..0.15).contains(&load("slowdown", large)), "{}", load("slowdown", large));
        assert!((0.03..0.1).contains(&load("slowdown", small)), "{}", load("slowdown", small));
    }
}
