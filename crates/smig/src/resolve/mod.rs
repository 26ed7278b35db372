//! Name resolution: by the system's resolver, cached for seconds. It never delays a shutdown.
//!
//! Names are resolved by getaddrinfo, since only it uses hosts files, search domains, mDNS and whatever else a
//! machine is configured with. It reports no TTL, so an answer is fresh for a fixed time that is shorter than
//! the TTL of most services. When a name can no longer be resolved, its old answer is used for some minutes:
//! servers may outlive their resolvers.
//!
//! getaddrinfo blocks, for half a minute if no nameserver answers. It runs on threads that no runtime waits for.
//! One client's requests for the same name share one lookup, and the number of lookups is limited and shared (`queue`).

mod cache;
mod queue;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::blocking;
use cache::{AddressCache, CachedAnswer};
use queue::{LookupQueue, QueueFull, RunningLookup};

/// How long an answer is fresh.
const FRESH_TIME: Duration = Duration::from_secs(10);
/// How much longer a stale answer is used while there is no newer one.
const STALE_TIME: Duration = Duration::from_secs(300);
/// How long to wait for a newer answer if there is a stale one.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of addresses used of one name.
const MAX_ADDRESSES: usize = 32;

type LookupFn = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;
type CheckFn = dyn Fn(&str, SocketAddr) -> io::Result<()> + Send + Sync;
/// The result of a lookup; `None` while it runs. An error is its kind and text, since all waiters get it.
type LookupOutcome = Option<Result<Arc<[IpAddr]>, (io::ErrorKind, Arc<str>)>>;

/// Resolves names. Cheap to clone; clones share their cache.
#[derive(Clone)]
pub struct Resolver {
    inner: Arc<ResolverInner>,
    /// The client that it resolves for.
    client: Arc<str>,
    fresh_time: Duration,
    check: Option<Arc<CheckFn>>,
}

struct ResolverInner {
    lookup_fn: Box<LookupFn>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    cache: AddressCache,
    queue: LookupQueue,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("fresh", &self.fresh_time).finish_non_exhaustive()
    }
}

impl Default for Resolver {
    fn default() -> Self {
        Self::system()
    }
}

impl Resolver {
    /// Returns the system's resolver; all clients of the process share its cache.
    #[must_use]
    pub fn system() -> Self {
        static SHARED: OnceLock<Resolver> = OnceLock::new();
        SHARED.get_or_init(Self::isolated).clone()
    }

    /// Returns the system's resolver with its own threads and cache: many lookups here delay none elsewhere.
    #[must_use]
    pub fn isolated() -> Self {
        Self::from_fn(system_lookup)
    }

    /// Creates a resolver from a function, which may block.
    pub fn from_fn(
        lookup: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Self {
        let inner =
            Arc::new(ResolverInner { lookup_fn: Box::new(lookup), state: Mutex::default() });
        Self { inner, client: Arc::from(""), fresh_time: FRESH_TIME, check: None }
    }

    /// Sets how long answers are fresh (default 10 s).
    #[must_use]
    pub const fn fresh_for(mut self, limit: Duration) -> Self {
        self.fresh_time = limit;
        self
    }

    /// Returns a resolver for one of several clients that share it. They share the cache, but many lookups for
    /// one client do not delay those for others, and the limit on waiting lookups applies to each.
    #[must_use]
    pub fn for_client(mut self, client: &str) -> Self {
        self.client = client.into();
        self
    }

    /// Filters addresses by `check`, which returns [`io::ErrorKind::PermissionDenied`] with the reason for each
    /// that it refuses, and another error if it cannot decide. Address literals are checked too.
    #[must_use]
    pub fn with_check(
        mut self,
        check: impl Fn(&str, SocketAddr) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.check = Some(Arc::new(check));
        self
    }

    /// Resolves a host to its addresses, in the system's order, of both families. There is no time limit here. If the
    /// future is dropped, a running lookup continues, and its answer is cached.
    ///
    /// # Errors
    /// The name cannot be resolved or has no address; [`io::ErrorKind::PermissionDenied`] with the reason if all
    /// addresses are refused, or the error of the check if it could not decide on one of them;
    /// [`io::ErrorKind::ResourceBusy`] at once if 1,024 other names are waiting already.
    pub async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let addresses = match host.parse::<IpAddr>() {
            Ok(ip) => Arc::from([ip]),
            Err(_) => self.inner.find_addresses(&self.client, host, self.fresh_time).await?,
        };
        let mut socket_addrs =
            addresses.iter().map(|&ip| SocketAddr::new(ip, port)).collect::<Vec<_>>();
        let Some(check) = &self.check else { return Ok(socket_addrs) };
        let mut check_error: Option<io::Error> = None;
        socket_addrs.retain(|addr| match check(host, *addr) {
            Ok(()) => true,
            Err(why) => {
                // The error returned omits the address, which may be a secret of this network.
                tracing::debug!(host, %addr, %why, "address rejected");
                // Undecided may become allowed later: that error takes precedence.
                if check_error
                    .as_ref()
                    .is_none_or(|last| last.kind() == io::ErrorKind::PermissionDenied)
                {
                    check_error = Some(why);
                }
                false
            }
        });
        match check_error {
            Some(refused) if socket_addrs.is_empty() => Err(refused),
            Some(_) | None => Ok(socket_addrs),
        }
    }
}

impl ResolverInner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn find_addresses(
        self: &Arc<Self>,
        client: &Arc<str>,
        host: &str,
        fresh_time: Duration,
    ) -> io::Result<Arc<[IpAddr]>> {
        let (stale_addresses, waiter) = match self.find_or_queue(client, host, fresh_time)? {
            CacheLookup::Usable(addresses) => return Ok(addresses),
            CacheLookup::Pending(stale, waiting) => (stale, waiting),
        };
        let Some(stale_addresses) = stale_addresses else { return waiter.outcome().await };
        match timeout(REFRESH_TIMEOUT, waiter.outcome()).await {
            Ok(Ok(addresses)) => Ok(addresses),
            failed => {
                let error = failed.ok().and_then(Result::err);
                tracing::debug!(host, ?error, "lookup failed, cached addresses are used");
                Ok(stale_addresses)
            }
        }
    }

    /// Returns a cached answer, or the lookup to wait for.
    fn find_or_queue<'a>(
        self: &Arc<Self>,
        client: &'a Arc<str>,
        host: &'a str,
        fresh_time: Duration,
    ) -> io::Result<CacheLookup<'a>> {
        let now = Instant::now();
        let mut state = self.lock();
        let answer = state.cache.get(host);
        let age = |answer: &CachedAnswer| now.saturating_duration_since(answer.requested_at);
        if let Some(answer) = answer.filter(|answer| age(answer) < fresh_time) {
            return Ok(CacheLookup::Usable(Arc::clone(&answer.addresses)));
        }
        let usable = answer.filter(|answer| age(answer) < fresh_time + STALE_TIME);
        let stale_addresses = usable.map(|answer| Arc::clone(&answer.addresses));
        let outcome = match (state.queue.request(client, host, now), &stale_addresses) {
            (Ok(outcome), _) => outcome,
            (Err(QueueFull), Some(stale)) => return Ok(CacheLookup::Usable(Arc::clone(stale))),
            (Err(QueueFull), None) => {
                crate::throttled!(
                    warn,
                    "lookups",
                    client = &**client,
                    "limit reached: queued name lookups"
                );
                let busy = "too many name lookups are queued";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, busy));
            }
        };
        if let Some(next_lookup) = state.queue.start_next() {
            let (inner, thread_lookup) = (Arc::clone(self), next_lookup.clone());
            if let Err(error) =
                blocking::start("resolver", move || inner.run_lookups(thread_lookup))
                && state.queue.requeue(&next_lookup).is_err()
            {
                return stale_addresses.map(CacheLookup::Usable).ok_or(error);
            }
        }
        drop(state);
        let waiter = LookupWaiter { inner: Arc::clone(self), client, host, outcome: Some(outcome) };
        Ok(CacheLookup::Pending(stale_addresses, waiter))
    }

    /// Body of a lookup thread: runs one lookup after another until none may start.
    fn run_lookups(&self, mut lookup: RunningLookup) {
        loop {
            let lookup_result = catch_unwind(AssertUnwindSafe(|| (self.lookup_fn)(&lookup.host)));
            let lookup_result =
                lookup_result.unwrap_or_else(|_| Err(io::Error::other("the lookup panicked")));
            let outcome = match lookup_result.map(deduplicate) {
                Ok(addresses) if addresses.is_empty() => {
                    Err((io::ErrorKind::NotFound, Arc::from("no addresses")))
                }
                Ok(addresses) => Ok(Arc::<[IpAddr]>::from(addresses)),
                Err(error) => Err((error.kind(), Arc::from(error.to_string()))),
            };
            let mut state = self.lock();
            if let Ok(addresses) = &outcome {
                let (since, addresses) = (lookup.requested_at, Arc::clone(addresses));
                state.cache.insert(
                    Arc::clone(&lookup.host),
                    CachedAnswer { requested_at: since, addresses },
                );
            }
            let sender = state.queue.finish(&lookup);
            let next = state.queue.start_next();
            drop(state);
            if let Some(sender) = sender {
                sender.send_replace(Some(outcome));
            }
            match next {
                Some(next) => lookup = next,
                None => return,
            }
        }
    }
}

/// Result of a search in the cache.
enum CacheLookup<'a> {
    /// Fresh, or the best available.
    Usable(Arc<[IpAddr]>),
    /// A stale answer, if there is one, and the lookup to wait for.
    Pending(Option<Arc<[IpAddr]>>, LookupWaiter<'a>),
}

/// A waiter for a lookup. When the last one is dropped, a lookup that is not running is cancelled.
struct LookupWaiter<'a> {
    inner: Arc<ResolverInner>,
    client: &'a Arc<str>,
    host: &'a str,
    outcome: Option<watch::Receiver<LookupOutcome>>,
}

impl LookupWaiter<'_> {
    async fn outcome(mut self) -> io::Result<Arc<[IpAddr]>> {
        let aborted_error = || io::Error::other("the lookup was aborted");
        let outcome = self.outcome.as_mut().ok_or_else(aborted_error)?;
        match outcome.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Ok(addresses))) => Ok(Arc::clone(addresses)),
            Ok(Some(Err((kind, text)))) => Err(io::Error::new(*kind, &**text)),
            Ok(None) | Err(_) => Err(aborted_error()),
        }
    }
}

impl Drop for LookupWaiter<'_> {
    fn drop(&mut self) {
        // The queue counts the waiters by their receivers.
        let has_outcome = self.outcome.take().is_some_and(|outcome| outcome.borrow().is_some());
        if !has_outcome {
            self.inner.lock().queue.remove_waiter(self.client, self.host);
        }
    }
}

fn deduplicate(found: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for ip in found {
        if addresses.len() < MAX_ADDRESSES && !addresses.contains(&ip) {
            addresses.push(ip);
        }
    }
    addresses
}

fn system_lookup(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok((host, 0).to_socket_addrs()?.map(|addr| addr.ip()).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Starts a resolution that has no answer yet.
    fn pending_resolution(
        resolver: &Resolver,
        host: String,
    ) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let resolver = resolver.clone();
        let mut pending = async move { resolver.resolve(&host, 80).await }.boxed();
        assert!((&mut pending).now_or_never().is_none(), "it has an answer already");
        pending
    }

    #[tokio::test]
    async fn concurrent_requests_share_one_lookup_whose_answer_is_cached() {
        let lookups = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&lookups);
        let resolver = Resolver::from_fn(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(vec![ip("2001:db8::1"), ip("192.0.2.1"), ip("2001:db8::1")])
        })
        .fresh_for(Duration::from_secs(3600));
        let resolve_name = || resolver.resolve("a.example", 80);
        let (first, second) = tokio::join!(resolve_name(), resolve_name());
        let expected: Vec<SocketAddr> =
            vec!["[2001:db8::1]:80".parse().unwrap(), "192.0.2.1:80".parse().unwrap()];
        assert_eq!((first.unwrap(), second.unwrap()), (expected.clone(), expected.clone()));
        assert_eq!(resolve_name().await.unwrap(), expected);
        assert_eq!(lookups.load(Ordering::Relaxed), 1);
        assert_eq!(resolver.resolve("::1", 1).await.unwrap(), ["[::1]:1".parse().unwrap()]);
        assert_eq!(lookups.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_stale_answer_is_refreshed_and_used_if_that_fails() {
        let lookups = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&lookups);
        let resolver = Resolver::from_fn(move |_| match counter.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(vec![ip("192.0.2.1")]),
            1 => Ok(vec![ip("192.0.2.2")]),
            _ => Err(io::Error::other("the resolver is gone")),
        })
        .fresh_for(Duration::ZERO);
        let mut addresses = Vec::new();
        for _ in 0..4 {
            addresses.push(resolver.resolve("a.example", 80).await.unwrap()[0].ip().to_string());
        }
        assert_eq!(addresses, ["192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.2"]);
        assert_eq!(lookups.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn a_lookup_that_blocks_holds_no_runtime() {
        let (release, release_receiver) = mpsc::channel::<()>();
        let release_receiver = Mutex::new(release_receiver);
        let resolver = Resolver::from_fn(move |_| {
            // Blocks until the test has ended.
            let _ = release_receiver.lock().unwrap().recv();
            Err(io::Error::other("released"))
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let limit = Duration::from_secs(10);
        let late = runtime.block_on(async { timeout(limit, resolver.resolve("x", 1)).await });
        assert!(late.is_err());
        // A runtime that waited for the lookup would never end.
        drop(runtime);
        drop(release);
    }

    #[tokio::test]
    async fn refused_addresses_are_left_out() {
        let resolver = Resolver::from_fn(|_| Ok(vec![ip("10.0.0.1"), ip("192.0.2.1")])).with_check(
            |host, addr| {
                if host == "192.0.2.8" || (host == "b.example" && addr.ip() == ip("10.0.0.1")) {
                    return Err(io::ErrorKind::ResourceBusy.into());
                }
                if addr.ip() == ip("10.0.0.1") || ["192.0.2.9", "b.example"].contains(&host) {
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, "private"));
                }
                Ok(())
            },
        );
        let found = resolver.resolve("a.example", 80).await.unwrap();
        assert_eq!(found, ["192.0.2.1:80".parse().unwrap()]);
        for literal in ["10.0.0.1", "192.0.2.9"] {
            let error = resolver.resolve(literal, 80).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert_eq!(error.to_string(), "private");
        }
        // The error of an undecided address takes precedence over a refusal.
        for unknown in ["192.0.2.8", "b.example"] {
            let error = resolver.resolve(unknown, 80).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{unknown}");
        }
    }

    #[tokio::test]
    async fn a_queued_lookup_without_waiters_is_cancelled() {
        let looked_up_names = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&looked_up_names);
        let (release, release_receiver) = mpsc::channel::<()>();
        let release_receiver = Mutex::new(release_receiver);
        let resolver = Resolver::from_fn(move |host| {
            log.lock().unwrap().push(host.to_owned());
            let _ = release_receiver.lock().unwrap().recv();
            Ok(vec![ip("192.0.2.1")])
        });
        let names = (0..queue::MAX_RUNNING_LOOKUPS).map(|n| format!("{n}.example"));
        let other_resolutions: Vec<_> =
            names.map(|name| pending_resolution(&resolver, name)).collect();
        drop(pending_resolution(&resolver, "gone.example".to_owned()));
        let kept_resolution = pending_resolution(&resolver, "kept.example".to_owned());
        drop(release);
        kept_resolution.await.unwrap();
        for other in other_resolutions {
            other.await.unwrap();
        }
        assert!(!looked_up_names.lock().unwrap().iter().any(|host| host == "gone.example"));
    }

    #[tokio::test]
    async fn a_client_with_too_many_lookups_is_refused_and_delays_no_other() {
        let (release, release_receiver) = mpsc::channel::<()>();
        let release_receiver = Mutex::new(release_receiver);
        let resolver = Resolver::from_fn(move |host| {
            if host.ends_with(".slow.example") {
                let _ = release_receiver.lock().unwrap().recv();
            }
            Ok(vec![ip("192.0.2.1")])
        });
        let greedy_resolver = resolver.clone().for_client("greedy");
        let names = (0..queue::MAX_RUNNING_LOOKUPS / 2 + queue::MAX_WAITING_LOOKUPS_PER_CLIENT)
            .map(|n| format!("{n}.slow.example"));
        let pending_resolutions: Vec<_> =
            names.map(|name| pending_resolution(&greedy_resolver, name)).collect();
        let refused = greedy_resolver.resolve("more.example", 80).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy, "{refused}");
        // This one waits, but not for the lookups that are blocked until the end.
        resolver.for_client("modest").resolve("a.example", 80).await.unwrap();
        // The cache is shared by all.
        greedy_resolver.resolve("a.example", 80).await.unwrap();
        drop(release);
        for answer in pending_resolutions {
            answer.await.unwrap();
        }
        greedy_resolver.resolve("more.example", 80).await.unwrap();
    }
}
