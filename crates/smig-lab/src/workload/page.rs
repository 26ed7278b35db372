//! The page player: loads a page as a browser does, without a browser.
//!
//! It requests each resource when it is found, sends the urgencies that Chromium sends, and runs what is to be run on one
//! thread. It neither parses nor paints: documents and styles are as long as the scenario says, and the graph is known.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::event::EventKind;
use super::page_clients::PageClients;
use super::result::{ObjectResult, Outcome, PageLoad};
use super::run::{WorkloadError, WorkloadRun};
use super::transfer::ObjectRequest;
use crate::scenario::{
    ArrivalProcess, Discovery, Page, Resource, ResourceKind, Size, Sizes, TimeSpan, Transfer,
    TransferDirection,
};

/// A longer pause is longer than any run, and would not be a time that the clock has.
const MAX_PAUSE: Duration = Duration::from_secs(365 * 86_400);

/// One load, with the results of its resources in the order of the graph as far as they were requested.
pub(super) type Load = (PageLoad, Vec<ObjectResult>);

/// A load that is in progress.
struct Player {
    run: Arc<WorkloadRun>,
    clients: PageClients,
    name: String,
    client_name: String,
    resources: Vec<Resource>,
    /// Number of the load's first resource in the results.
    first_number: u32,
    /// Held while something runs.
    thread: Mutex<()>,
    document_bytes: watch::Sender<u64>,
}

/// A resource that has arrived and run, or failed.
struct FinishedResource {
    index: usize,
    result: ObjectResult,
    /// That of its transfer, unless the run ended before it had run.
    outcome: Outcome,
    finished_ns: u64,
}

impl WorkloadRun {
    /// Loads a page as often as the scenario says.
    pub(super) async fn run_page(
        self: Arc<Self>,
        name: String,
    ) -> Result<Vec<Load>, WorkloadError> {
        let Some(page) = self.spec.scenario.workload.pages.get(&name).cloned() else {
            return Ok(Vec::new());
        };
        let mut loads = Vec::new();
        let mut next_at = self.began + page.start.0;
        for number in 0..page.loads() {
            tokio::time::sleep_until(next_at.min(self.deadline)).await;
            if Instant::now() >= self.deadline {
                // The loads that are left have failed, of which this is the first.
                loads.push((self.missing_load(&name, number), Vec::new()));
                break;
            }
            match Arc::clone(&self).load_page(&name, number, &page).await {
                Ok(load) => loads.push(load),
                Err(error) => {
                    self.mark_ended(&name);
                    return Err(error);
                }
            }
            next_at = Instant::now() + page.pause.0.min(MAX_PAUSE);
        }
        self.mark_ended(&name);
        Ok(loads)
    }

    /// Returns the result of a load that has not begun within the time limit.
    fn missing_load(&self, name: &str, number: u32) -> PageLoad {
        let now_ns = self.since_began();
        PageLoad::without_times(name, number, (now_ns, now_ns), Outcome::TimedOut)
    }

    async fn load_page(
        self: Arc<Self>,
        name: &str,
        number: u32,
        page: &Page,
    ) -> Result<Load, WorkloadError> {
        let client_name =
            self.spec.scenario.client_of(page.client.as_deref()).unwrap_or_default().to_owned();
        if let Some(browser) = self.browsers.get(&client_name) {
            return self.load_in_browser(browser, name, number, page).await;
        }
        let prepared =
            self.prepared_clients.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        let clients = if page.warm {
            self.open_client(&client_name).map(PageClients::open)
        } else if let Some(clients) = prepared {
            Ok(clients)
        } else {
            PageClients::new(&self.spec, page, &client_name, &self.sessions)
        };
        let fail = |reason| WorkloadError::Open { client: client_name.clone(), reason };
        let clients = clients.map_err(fail)?;
        let ready = timeout_at(self.deadline, clients.ready()).await;
        ready.unwrap_or_else(|_| Err("it did not start in time".to_owned())).map_err(fail)?;
        let resources = page.resources();
        let count = u32::try_from(resources.len()).unwrap_or(u32::MAX);
        let player = Arc::new(Player {
            run: Arc::clone(&self),
            clients,
            name: name.to_owned(),
            client_name,
            resources,
            first_number: number.saturating_mul(count),
            thread: Mutex::new(()),
            document_bytes: watch::Sender::new(0),
        });
        let load = Arc::clone(&player).load(number).await;
        let addresses = self.connections.addresses(|key| player.clients.address(key));
        self.page_addresses.lock().unwrap_or_else(PoisonError::into_inner).extend(addresses);
        load
    }
}

impl Player {
    async fn load(self: Arc<Self>, number: u32) -> Result<Load, WorkloadError> {
        let started_ns = self.run.since_began();
        let mut document_bytes = self.document_bytes.subscribe();
        let mut is_requested = vec![false; self.resources.len()];
        let mut tasks = JoinSet::new();
        let mut finished = Vec::new();
        let mut request_found = |tasks: &mut JoinSet<_>, is_found: &dyn Fn(Discovery) -> bool| {
            for (index, resource) in self.resources.iter().enumerate() {
                if !is_requested[index] && is_found(resource.discovery) {
                    is_requested[index] = true;
                    tasks.spawn(Arc::clone(&self).fetch_and_run(index));
                }
            }
        };
        request_found(&mut tasks, &|discovery| discovery == Discovery::Start);
        loop {
            tokio::select! {
                changed = document_bytes.changed() => {
                    let arrived = if changed.is_ok() { *document_bytes.borrow_and_update() } else { 0 };
                    request_found(&mut tasks, &|discovery| {
                        matches!(discovery, Discovery::Document { bytes } if bytes <= arrived)
                    });
                }
                joined = tasks.join_next() => {
                    let Some(joined) = joined else { break };
                    let resource: FinishedResource = joined.map_err(|_| WorkloadError::Panicked)?;
                    if resource.outcome == Outcome::Complete {
                        let parent = resource.index;
                        let is_complete_document = parent == 0;
                        request_found(&mut tasks, &|discovery| match discovery {
                            Discovery::Parent { index } => index == parent,
                            Discovery::Document { .. } => is_complete_document,
                            Discovery::Start => false,
                        });
                    }
                    finished.push(resource);
                }
            }
        }
        Ok(self.result(number, started_ns, finished))
    }

    /// Requests a resource, and occupies the page's thread when it has arrived, if it runs.
    async fn fetch_and_run(self: Arc<Self>, index: usize) -> FinishedResource {
        let resource = &self.resources[index];
        let transfer = transfer_of(&self.client_name, resource);
        let number = self.first_number + u32::try_from(index).unwrap_or(u32::MAX);
        let result = self.run.new_result(&self.name, number, &transfer);
        self.run.events.send(&result, || EventKind::Requested { at_ns: result.started_ns });
        let request = ObjectRequest {
            transfer: &transfer,
            client: self.clients.of(resource),
            received: (index == 0).then_some(&self.document_bytes),
        };
        let mut result = self.run.transfer_object(result, &request).await;
        self.run.events.send(&result, || EventKind::Ended(Box::new(result.clone())));
        let is_complete = result.outcome == Outcome::Complete;
        let outcome = if is_complete {
            self.occupy_thread(resource.run).await
        } else {
            result.outcome.clone()
        };
        let finished_ns = self.run.since_began();
        result.phases.finished_ns = Some(finished_ns);
        FinishedResource { index, result, outcome, finished_ns }
    }

    async fn occupy_thread(&self, time: Duration) -> Outcome {
        if time.is_zero() {
            return Outcome::Complete;
        }
        let occupied = async {
            let _thread = self.thread.lock().await;
            sleep(time).await;
        };
        match timeout_at(self.run.deadline, occupied).await {
            Ok(()) => Outcome::Complete,
            Err(_) => Outcome::TimedOut,
        }
    }

    /// Returns the mean time at which a picture could be seen; without any, that of the first rendering.
    fn mean_visible_ns(&self, finished: &[FinishedResource], rendered_ns: u64) -> u64 {
        let is_image = |resource: &&FinishedResource| {
            self.resources[resource.index].kind == ResourceKind::Image
        };
        let visible: Vec<_> = finished
            .iter()
            .filter(is_image)
            .map(|resource| u128::from(resource.finished_ns.max(rendered_ns)))
            .collect();
        match visible.len() {
            0 => rendered_ns,
            count => (visible.iter().sum::<u128>() / count as u128) as u64,
        }
    }

    fn result(&self, number: u32, started_ns: u64, mut finished: Vec<FinishedResource>) -> Load {
        finished.sort_by_key(|resource| resource.index);
        let failed = finished.iter().find(|resource| resource.outcome != Outcome::Complete);
        let outcome = failed.map_or(Outcome::Complete, |resource| {
            let name = &self.resources[resource.index].name;
            match &resource.outcome {
                Outcome::Failed(why) => Outcome::Failed(format!("{name}: {why}")),
                other => other.clone(),
            }
        });
        let blocking =
            finished.iter().filter(|resource| self.resources[resource.index].blocks_rendering);
        let is_complete = outcome == Outcome::Complete;
        let rendered_ns =
            blocking.map(|resource| resource.finished_ns).max().filter(|_| is_complete);
        let visible_ns =
            rendered_ns.map(|rendered_ns| self.mean_visible_ns(&finished, rendered_ns));
        let ended_ns = finished.iter().map(|resource| resource.finished_ns).max();
        let times = (started_ns, ended_ns.unwrap_or(started_ns));
        let load = PageLoad {
            rendered_ns,
            visible_ns,
            ..PageLoad::without_times(&self.name, number, times, outcome)
        };
        (load, finished.into_iter().map(|resource| resource.result).collect())
    }
}

/// Returns the transfer of a resource by this client.
pub(super) fn transfer_of(client_name: &str, resource: &Resource) -> Transfer {
    Transfer {
        client: Some(client_name.to_owned()),
        size: Sizes(vec![Size(resource.size)]),
        direction: TransferDirection::Download,
        start: TimeSpan::default(),
        count: None,
        every: None,
        arrival: ArrivalProcess::default(),
        until: None,
        size_class: None,
        priority: Some(resource.kind.priority().to_owned()),
        cancel: None,
    }
}
