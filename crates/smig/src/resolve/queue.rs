//! Order of lookups: fair among the clients that share a resolver.
//!
//! Lookups occupy threads for half a minute if no nameserver answers, and their number is limited. A client may
//! have as many lookups running as threads are free: half of the threads if it is alone, a third each if there
//! are two. So the next client finds a free thread, unless several have used up all; then it is the next to get one,
//! since the clients with the fewest running lookups are first. Each client has its own lookups, even for a name
//! that others resolve, so that no client waits in another's queue.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tokio::sync::watch;
use tokio::time::Instant;

use super::LookupOutcome;

/// Maximum number of lookups that run at once.
pub(super) const MAX_RUNNING_LOOKUPS: usize = 128;
/// Maximum number of lookups that wait, per client.
pub(super) const MAX_WAITING_LOOKUPS_PER_CLIENT: usize = 1024;

/// The client has as many waiting lookups as are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueFull;

/// Lookups that wait or run.
#[derive(Default)]
pub(super) struct LookupQueue {
    clients: FxHashMap<Arc<str>, ClientLookups>,
    running_count: usize,
    /// The number of the next lookup, which increases in order of arrival.
    next_number: u64,
}

/// One client, as long as it has lookups.
#[derive(Default)]
struct ClientLookups {
    /// Names may be chosen by an attacker, so the map's hash is keyed against collisions.
    lookups: HashMap<Arc<str>, QueuedLookup>,
    waiting_hosts: BTreeMap<u64, Arc<str>>,
    running_count: usize,
}

struct QueuedLookup {
    number: u64,
    requested_at: Instant,
    is_running: bool,
    outcome: watch::Sender<LookupOutcome>,
}

/// A lookup that may run, until [`LookupQueue::finish`].
#[derive(Clone)]
pub(super) struct RunningLookup {
    client: Arc<str>,
    pub(super) host: Arc<str>,
    /// When the lookup was requested.
    pub(super) requested_at: Instant,
    number: u64,
}

impl LookupQueue {
    /// Joins a lookup of the same client for the name, or appends one to the client's queue.
    pub(super) fn request(
        &mut self,
        client: &Arc<str>,
        host: &str,
        now: Instant,
    ) -> Result<watch::Receiver<LookupOutcome>, QueueFull> {
        if let Some(lookup) =
            self.clients.get(client).and_then(|client_lookups| client_lookups.lookups.get(host))
        {
            return Ok(lookup.outcome.subscribe());
        }
        let client_lookups = self.clients.entry(Arc::clone(client)).or_default();
        // A client has waiting lookups only while none of them may begin, so none that could begin at once is refused.
        if client_lookups.waiting_hosts.len() >= MAX_WAITING_LOOKUPS_PER_CLIENT {
            return Err(QueueFull);
        }
        let (host, number) = (Arc::<str>::from(host), self.next_number);
        self.next_number += 1;
        let (outcome_sender, outcome) = watch::channel(None);
        client_lookups.waiting_hosts.insert(number, Arc::clone(&host));
        client_lookups.lookups.insert(
            host,
            QueuedLookup { number, requested_at: now, is_running: false, outcome: outcome_sender },
        );
        Ok(outcome)
    }

    /// Returns the next lookup that may run: of the clients below their limit, that with the fewest running lookups,
    /// then the earliest. Therefore at most one other lookup starts when one finishes.
    pub(super) fn start_next(&mut self) -> Option<RunningLookup> {
        let free_threads = MAX_RUNNING_LOOKUPS.checked_sub(self.running_count)?;
        let may_start =
            |client_lookups: &ClientLookups| client_lookups.running_count < free_threads;
        let (client, client_lookups) = self
            .clients
            .iter_mut()
            .filter(|(_, client_lookups)| {
                may_start(client_lookups) && !client_lookups.waiting_hosts.is_empty()
            })
            .min_by_key(|(_, client_lookups)| {
                (
                    client_lookups.running_count,
                    client_lookups.waiting_hosts.first_key_value().map(|(number, _)| *number),
                )
            })?;
        let (number, host) = client_lookups.waiting_hosts.pop_first()?;
        let lookup = client_lookups.lookups.get_mut(&host)?;
        lookup.is_running = true;
        client_lookups.running_count += 1;
        self.running_count += 1;
        Some(RunningLookup {
            client: Arc::clone(client),
            host,
            requested_at: lookup.requested_at,
            number,
        })
    }

    /// Removes a finished lookup. Returns the sender of its outcome, for the waiters.
    pub(super) fn finish(
        &mut self,
        running: &RunningLookup,
    ) -> Option<watch::Sender<LookupOutcome>> {
        let client_lookups = self.clients.get_mut(&running.client)?;
        client_lookups.running_count -= 1;
        self.running_count -= 1;
        let lookup = client_lookups.lookups.remove(&running.host);
        self.remove_if_idle(&running.client);
        lookup.map(|lookup| lookup.outcome)
    }

    /// Requeues a lookup for which there is no thread, if another one is running, whose thread can take it later.
    /// Otherwise removes it, and its waiters get an error.
    pub(super) fn requeue(&mut self, running: &RunningLookup) -> Result<(), NoneRunning> {
        if self.running_count == 1 {
            self.finish(running);
            return Err(NoneRunning);
        }
        if let Some(client_lookups) = self.clients.get_mut(&running.client)
            && let Some(lookup) = client_lookups.lookups.get_mut(&running.host)
        {
            lookup.is_running = false;
            client_lookups.running_count -= 1;
            self.running_count -= 1;
            client_lookups.waiting_hosts.insert(running.number, Arc::clone(&running.host));
        }
        Ok(())
    }

    /// Removes a waiter. A lookup without waiters is cancelled, unless it is running.
    pub(super) fn remove_waiter(&mut self, client: &Arc<str>, host: &str) {
        let Some(client_lookups) = self.clients.get_mut(client) else { return };
        let Some(lookup) = client_lookups.lookups.get(host) else { return };
        if lookup.is_running || !lookup.outcome.is_closed() {
            return;
        }
        client_lookups.waiting_hosts.remove(&lookup.number);
        client_lookups.lookups.remove(host);
        self.remove_if_idle(client);
    }

    fn remove_if_idle(&mut self, client: &Arc<str>) {
        if self.clients.get(client).is_some_and(|client_lookups| client_lookups.lookups.is_empty())
        {
            self.clients.remove(client);
        }
    }
}

/// No other lookup is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoneRunning;

#[cfg(test)]
mod tests {
    use super::*;

    struct TestQueue {
        queue: LookupQueue,
        outcomes: Vec<watch::Receiver<LookupOutcome>>,
        running_lookups: Vec<RunningLookup>,
    }

    impl TestQueue {
        fn new() -> Self {
            Self {
                queue: LookupQueue::default(),
                outcomes: Vec::new(),
                running_lookups: Vec::new(),
            }
        }

        fn request(&mut self, client: &str, host: &str) -> Result<(), QueueFull> {
            self.outcomes.push(self.queue.request(&client.into(), host, Instant::now())?);
            self.running_lookups.extend(self.queue.start_next());
            assert!(self.queue.start_next().is_none(), "one request starts at most one lookup");
            Ok(())
        }

        /// Finishes the first lookup of `client`.
        fn finish(&mut self, client: &str) {
            let index =
                self.running_lookups.iter().position(|lookup| &*lookup.client == client).unwrap();
            let running = self.running_lookups.remove(index);
            self.queue.finish(&running).unwrap();
            self.running_lookups.extend(self.queue.start_next());
            assert!(self.queue.start_next().is_none(), "one end starts at most one lookup");
        }

        fn running_of(&self, client: &str) -> usize {
            self.running_lookups.iter().filter(|lookup| &*lookup.client == client).count()
        }
    }

    #[test]
    fn a_client_with_many_lookups_leaves_threads_for_others() {
        let mut test_queue = TestQueue::new();
        for n in 0..500 {
            test_queue.request("greedy", &format!("{n}.example")).unwrap();
        }
        assert_eq!(test_queue.running_of("greedy"), MAX_RUNNING_LOOKUPS / 2);
        // This also holds for a name that waits in another client's queue.
        test_queue.request("modest", "499.example").unwrap();
        assert_eq!(test_queue.running_of("modest"), 1);
        for n in 0..500 {
            test_queue.request("other", &format!("{n}.example")).unwrap();
        }
        for _ in 0..200 {
            test_queue.finish("greedy");
        }
        // The running lookups are shared among the clients that have any, and one thread is left for a new client.
        let (greedy, other) = (test_queue.running_of("greedy"), test_queue.running_of("other"));
        assert!(greedy.abs_diff(other) <= 1, "{greedy}, {other}");
        assert!(greedy + other > MAX_RUNNING_LOOKUPS / 2, "{greedy}, {other}");
        test_queue.request("new", "a.example").unwrap();
        assert_eq!(test_queue.running_of("new"), 1);
    }

    #[test]
    fn every_lookup_runs_and_no_client_is_left_after() {
        let mut test_queue = TestQueue::new();
        for n in 0..3000 {
            test_queue.request(&format!("{}", n % 300), &format!("{n}.example")).unwrap();
        }
        let mut finished = 0;
        while let Some(running) = test_queue.running_lookups.first() {
            let client = Arc::clone(&running.client);
            test_queue.finish(&client);
            finished += 1;
        }
        assert_eq!(
            (finished, test_queue.queue.running_count, test_queue.queue.clients.len()),
            (3000, 0, 0)
        );
    }

    #[test]
    fn the_number_of_waiting_lookups_is_limited_and_cancelled_ones_do_not_count() {
        let mut test_queue = TestQueue::new();
        for n in 0..MAX_RUNNING_LOOKUPS / 2 + MAX_WAITING_LOOKUPS_PER_CLIENT {
            test_queue.request("greedy", &format!("{n}.example")).unwrap();
        }
        assert_eq!(test_queue.request("greedy", "more.example"), Err(QueueFull));
        // A second waiter for a lookup takes no place, and other clients have their own.
        test_queue.request("greedy", "100.example").unwrap();
        test_queue.request("modest", "more.example").unwrap();
        let drop_waiter = |all: &mut TestQueue, n: usize| {
            drop(std::mem::replace(&mut all.outcomes[n], watch::channel(None).1));
            all.queue.remove_waiter(&"greedy".into(), &format!("{n}.example"));
        };
        // The first lookup is running, and number 100 has another waiter.
        drop_waiter(&mut test_queue, 0);
        drop_waiter(&mut test_queue, 100);
        assert_eq!(test_queue.request("greedy", "more.example"), Err(QueueFull));
        drop_waiter(&mut test_queue, 200);
        test_queue.request("greedy", "more.example").unwrap();
        assert_eq!(test_queue.request("greedy", "yet-more.example"), Err(QueueFull));
    }

    #[test]
    fn a_lookup_without_a_thread_waits_for_another_one_to_finish() {
        let mut queue = LookupQueue::default();
        let now = Instant::now();
        let client = Arc::from("");
        let _first = queue.request(&client, "a", now).unwrap();
        let first = queue.start_next().unwrap();
        let _second = queue.request(&client, "b", now).unwrap();
        let second = queue.start_next().unwrap();
        queue.requeue(&second).unwrap();
        assert!(queue.finish(&first).is_some());
        let second = queue.start_next().unwrap();
        assert_eq!(&*second.host, "b");
        assert_eq!(queue.requeue(&second), Err(NoneRunning));
        assert!(queue.start_next().is_none() && queue.clients.is_empty());
    }
}
