//! Order of lookups: fair among the clients that share a resolver.
//!
//! Lookups occupy threads for half a minute if no nameserver answers, and their number is limited. A client may
//! have as many lookups running as there are threads free: alone half of the threads, two clients together two
//! thirds, and one is always left for the next client. Each client has its own lookups, even for a name that
//! others resolve, so that no client waits in another's queue.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Outcome;

/// Maximum number of lookups that run at once.
pub(super) const MAX_UNDER_WAY: usize = 128;
/// Maximum number of lookups that wait, per client.
pub(super) const MAX_WAITING: usize = 1024;

/// The client has as many waiting lookups as are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// Lookups that wait or run.
#[derive(Default)]
pub(super) struct Queue {
    askers: FxHashMap<Arc<str>, Asker>,
    under_way: usize,
    /// The number of the next lookup, which increases in order of arrival.
    number: u64,
}

/// One client, as long as it has lookups.
#[derive(Default)]
struct Asker {
    /// Names may be chosen by an attacker, so the map's hash is keyed against collisions.
    asked: HashMap<Arc<str>, Asked>,
    waiting: BTreeMap<u64, Arc<str>>,
    under_way: usize,
}

struct Asked {
    number: u64,
    since: Instant,
    begun: bool,
    told: watch::Sender<Outcome>,
}

/// The right to run a lookup, until [`Queue::end`].
#[derive(Clone)]
pub(super) struct Turn {
    who: Arc<str>,
    pub(super) host: Arc<str>,
    /// When the lookup was requested.
    pub(super) since: Instant,
    number: u64,
}

impl Queue {
    /// Joins a lookup of the same client for the name, or appends one to the client's queue.
    pub(super) fn ask(
        &mut self,
        who: &Arc<str>,
        host: &str,
        now: Instant,
    ) -> Result<watch::Receiver<Outcome>, Full> {
        if let Some(asked) = self.askers.get(who).and_then(|asker| asker.asked.get(host)) {
            return Ok(asked.told.subscribe());
        }
        let asker = self.askers.entry(Arc::clone(who)).or_default();
        // A lookup that may begin at once does not wait.
        if asker.waiting.len() >= MAX_WAITING {
            return Err(Full);
        }
        let (host, number) = (Arc::<str>::from(host), self.number);
        self.number += 1;
        let (told, outcome) = watch::channel(None);
        asker.waiting.insert(number, Arc::clone(&host));
        asker.asked.insert(host, Asked { number, since: now, begun: false, told });
        Ok(outcome)
    }

    /// Returns the next lookup that may run: of the clients with a free place, that with the fewest running lookups,
    /// then the one that came first. Therefore the end of one lookup lets at most one other begin.
    pub(super) fn begin(&mut self) -> Option<Turn> {
        let free = MAX_UNDER_WAY.checked_sub(self.under_way)?;
        let may = |asker: &Asker| asker.under_way < free;
        let (who, asker) = self
            .askers
            .iter_mut()
            .filter(|(_, asker)| may(asker) && !asker.waiting.is_empty())
            .min_by_key(|(_, asker)| {
                (asker.under_way, asker.waiting.first_key_value().map(|(number, _)| *number))
            })?;
        let (number, host) = asker.waiting.pop_first()?;
        let asked = asker.asked.get_mut(&host)?;
        asked.begun = true;
        asker.under_way += 1;
        self.under_way += 1;
        Some(Turn { who: Arc::clone(who), host, since: asked.since, number })
    }

    /// Ends a lookup. Returns the sender for those that wait for its result.
    pub(super) fn end(&mut self, turn: &Turn) -> Option<watch::Sender<Outcome>> {
        let asker = self.askers.get_mut(&turn.who)?;
        asker.under_way -= 1;
        self.under_way -= 1;
        let asked = asker.asked.remove(&turn.host);
        self.forget_if_idle(&turn.who);
        asked.map(|asked| asked.told)
    }

    /// Returns a lookup for which there is no thread to the queue, if another one that runs can start it when it ends.
    pub(super) fn put_back(&mut self, turn: &Turn) -> Result<(), NobodyElse> {
        if self.under_way == 1 {
            self.end(turn);
            return Err(NobodyElse);
        }
        if let Some(asker) = self.askers.get_mut(&turn.who)
            && let Some(asked) = asker.asked.get_mut(&turn.host)
        {
            asked.begun = false;
            asker.under_way -= 1;
            self.under_way -= 1;
            asker.waiting.insert(turn.number, Arc::clone(&turn.host));
        }
        Ok(())
    }

    /// Removes a waiter. A lookup that has no waiter left is cancelled, unless it has begun.
    pub(super) fn give_up(&mut self, who: &Arc<str>, host: &str) {
        let Some(asker) = self.askers.get_mut(who) else { return };
        let Some(asked) = asker.asked.get(host) else { return };
        if asked.begun || !asked.told.is_closed() {
            return;
        }
        asker.waiting.remove(&asked.number);
        asker.asked.remove(host);
        self.forget_if_idle(who);
    }

    fn forget_if_idle(&mut self, who: &Arc<str>) {
        if self.askers.get(who).is_some_and(|asker| asker.asked.is_empty()) {
            self.askers.remove(who);
        }
    }
}

/// No other lookup is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NobodyElse;

#[cfg(test)]
mod tests {
    use super::*;

    struct Asking {
        queue: Queue,
        answers: Vec<watch::Receiver<Outcome>>,
        turns: Vec<Turn>,
    }

    impl Asking {
        fn new() -> Self {
            Self { queue: Queue::default(), answers: Vec::new(), turns: Vec::new() }
        }

        fn ask(&mut self, who: &str, host: &str) -> Result<(), Full> {
            self.answers.push(self.queue.ask(&who.into(), host, Instant::now())?);
            self.turns.extend(self.queue.begin());
            assert!(self.queue.begin().is_none(), "one question makes one begin");
            Ok(())
        }

        /// Ends the first lookup of `who`.
        fn end(&mut self, who: &str) {
            let turn = self.turns.iter().position(|turn| &*turn.who == who).unwrap();
            let turn = self.turns.remove(turn);
            self.queue.end(&turn).unwrap();
            self.turns.extend(self.queue.begin());
            assert!(self.queue.begin().is_none(), "one end makes one begin");
        }

        fn under_way(&self, who: &str) -> usize {
            self.turns.iter().filter(|turn| &*turn.who == who).count()
        }
    }

    #[test]
    fn who_asks_for_much_leaves_others_their_lookups() {
        let mut all = Asking::new();
        for n in 0..500 {
            all.ask("greedy", &format!("{n}.example")).unwrap();
        }
        assert_eq!(all.under_way("greedy"), MAX_UNDER_WAY / 2);
        // This also holds for a name that waits in another client's queue.
        all.ask("modest", "499.example").unwrap();
        assert_eq!(all.under_way("modest"), 1);
        for n in 0..500 {
            all.ask("other", &format!("{n}.example")).unwrap();
        }
        for _ in 0..200 {
            all.end("greedy");
        }
        // The running lookups are shared among the clients that have any, and one thread is left for a new client.
        let (greedy, other) = (all.under_way("greedy"), all.under_way("other"));
        assert!(greedy.abs_diff(other) <= 1, "{greedy}, {other}");
        assert!(greedy + other > MAX_UNDER_WAY / 2, "{greedy}, {other}");
        all.ask("new", "a.example").unwrap();
        assert_eq!(all.under_way("new"), 1);
    }

    #[test]
    fn every_question_has_its_turn_and_nobody_is_remembered_after() {
        let mut all = Asking::new();
        for n in 0..3000 {
            all.ask(&format!("{}", n % 300), &format!("{n}.example")).unwrap();
        }
        let mut ended = 0;
        while let Some(turn) = all.turns.first() {
            let who = Arc::clone(&turn.who);
            all.end(&who);
            ended += 1;
        }
        assert_eq!((ended, all.queue.under_way, all.queue.askers.len()), (3000, 0, 0));
    }

    #[test]
    fn as_many_wait_as_may_and_those_who_gave_up_leave_their_places() {
        let mut all = Asking::new();
        for n in 0..MAX_UNDER_WAY / 2 + MAX_WAITING {
            all.ask("greedy", &format!("{n}.example")).unwrap();
        }
        assert_eq!(all.ask("greedy", "more.example"), Err(Full));
        // Joining takes no place, and other clients have their own.
        all.ask("greedy", "100.example").unwrap();
        all.ask("modest", "more.example").unwrap();
        let one = |all: &mut Asking, n: usize| {
            drop(std::mem::replace(&mut all.answers[n], watch::channel(None).1));
            all.queue.give_up(&"greedy".into(), &format!("{n}.example"));
        };
        // The first lookup is running, and number 100 has another waiter.
        one(&mut all, 0);
        one(&mut all, 100);
        assert_eq!(all.ask("greedy", "more.example"), Err(Full));
        one(&mut all, 200);
        all.ask("greedy", "more.example").unwrap();
        assert_eq!(all.ask("greedy", "yet-more.example"), Err(Full));
    }

    #[test]
    fn a_turn_that_no_thread_takes_waits_for_another_to_end() {
        let mut queue = Queue::default();
        let now = Instant::now();
        let who = Arc::from("");
        let _first = queue.ask(&who, "a", now).unwrap();
        let first = queue.begin().unwrap();
        let _second = queue.ask(&who, "b", now).unwrap();
        let second = queue.begin().unwrap();
        queue.put_back(&second).unwrap();
        assert!(queue.end(&first).is_some());
        let second = queue.begin().unwrap();
        assert_eq!(&*second.host, "b");
        assert_eq!(queue.put_back(&second), Err(NobodyElse));
        assert!(queue.begin().is_none() && queue.askers.is_empty());
    }
}
