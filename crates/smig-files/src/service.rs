//! The service: from request to response, over the cache where that knows, else over the disk.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::{Method, Request, Response, request};
use thread_local::ThreadLocal;
use tower_service::Service;

use crate::answer::{answer, page, redirect};
use crate::body::FileBody;
use crate::budget::Budget;
use crate::cache::{Cache, Lookup};
use crate::load::{Failure, Found, Site};
use crate::offload::Offload;
use crate::options::Options;
use crate::path::{RequestPath, is_encoded};
use crate::refusal::{Audience, Refusal, options};
use crate::resource::Resource;
use crate::root::{Patience, Root};

/// Serves the files below one folder.
///
/// Clones share everything. It can be called from any thread; each thread has a cache of its own,
/// so that threads do not wait for each other. The service is always ready and never fails: what
/// goes wrong is in the status of the response.
///
/// The folder is opened once: if its name is given to another folder later (a deployment that
/// swaps a symbolic link, say), make a new `Files`.
#[derive(Debug, Clone)]
pub struct Files {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    site: Arc<Site>,
    budget: Arc<Budget>,
    caches: ThreadLocal<RefCell<Cache>>,
}

impl Files {
    /// Serves the folder `root`.
    ///
    /// # Errors
    ///
    /// If `root` cannot be opened, or is not a folder.
    pub fn new(root: impl AsRef<Path>, options: Options) -> io::Result<Self> {
        let root = root.as_ref();
        let explain = |errno: rustix::io::Errno| {
            let cause = io::Error::from(errno);
            io::Error::new(cause.kind(), format!("cannot serve {}: {cause}", root.display()))
        };
        let budget = Arc::new(Budget::new(&options));
        let root = Root::new(root, options.links).map_err(explain)?;
        let site = Arc::new(Site { root, options });
        Ok(Self { shared: Arc::new(Shared { site, budget, caches: ThreadLocal::new() }) })
    }
}

/// What came of looking at a request without waiting.
enum Glance {
    Answered(Response<FileBody>),
    /// The disk has to be waited for.
    Wait {
        path: RequestPath<'static>,
        known: Option<Arc<Resource>>,
    },
}

impl Shared {
    fn cache(&self) -> &RefCell<Cache> {
        self.caches.get_or(|| {
            let validity = self.site.options.validity;
            RefCell::new(Cache::new(Arc::clone(&self.budget), validity))
        })
    }

    #[inline]
    fn glance<B>(&self, request: &Request<B>) -> Glance {
        let audience = match *request.method() {
            Method::GET => Audience::Client,
            Method::HEAD => Audience::Nobody,
            Method::OPTIONS => return Glance::Answered(options()),
            _ => return Glance::Answered(Refusal::Method.response(Audience::Client)),
        };
        let raw = request.uri().path();
        let now = Instant::now();
        let mut known = None;
        // What is in the cache has been checked, so a path that needs no decoding is looked up
        // before it is checked.
        if !is_encoded(raw) {
            match self.remembered(raw.as_bytes(), request, audience, now) {
                Ok(response) => return Glance::Answered(response),
                Err(stale) => known = stale,
            }
        }
        let path = match RequestPath::parse(raw, self.site.options.hidden) {
            Ok(path) => path,
            Err(refusal) => return Glance::Answered(refusal.response(audience)),
        };
        if is_encoded(raw) {
            match self.remembered(path.canonical(), request, audience, now) {
                Ok(response) => return Glance::Answered(response),
                Err(stale) => known = stale,
            }
        }
        let result = self.site.load(&path, known.as_deref(), Patience::None);
        if matches!(result, Err(Failure::OutOfFiles)) {
            // What is being sent keeps its own.
            self.cache().borrow_mut().close_files();
        }
        if matches!(result, Err(Failure::WouldBlock | Failure::OutOfFiles)) {
            return Glance::Wait { path: path.into_owned(), known };
        }
        Glance::Answered(self.conclude(&path, result, request, audience, now))
    }

    #[inline]
    /// The answer from the cache; the error is what was known but has to be looked at again.
    fn remembered<B>(
        &self,
        key: &[u8],
        request: &Request<B>,
        audience: Audience,
        now: Instant,
    ) -> Result<Response<FileBody>, Option<Arc<Resource>>> {
        let mut cache = self.cache().borrow_mut();
        match cache.lookup(key, now) {
            Lookup::Unknown => Err(None),
            Lookup::Stale(resource) => Err(Some(Arc::clone(resource))),
            Lookup::Fresh(resource) => {
                let chosen = resource.select(request.headers());
                if chosen.is_current() {
                    Ok(answer(chosen, request.headers(), audience))
                } else {
                    Err(None)
                }
            }
        }
    }

    /// Remembers what was found and answers with it.
    fn conclude<T: AsHead>(
        &self,
        path: &RequestPath<'_>,
        result: Result<Found, Failure>,
        request: &T,
        audience: Audience,
        seen: Instant,
    ) -> Response<FileBody> {
        let mut cache = self.cache().borrow_mut();
        match result {
            Ok(Found::File(resource)) => {
                cache.insert(path.canonical(), Arc::clone(&resource), seen);
                drop(cache);
                answer(resource.select(request.headers()), request.headers(), audience)
            }
            Ok(Found::Folder) => redirect(request.uri(), audience),
            Ok(Found::Page(bytes)) => page(bytes, audience),
            Err(failure) => {
                cache.forget(path.canonical());
                match failure {
                    Failure::Refused(refusal) => refusal.response(audience),
                    Failure::WouldBlock => Refusal::Busy.response(audience),
                    Failure::OutOfFiles => {
                        cache.close_files();
                        Refusal::Busy.response(audience)
                    }
                }
            }
        }
    }
}

/// A request's head, with or without the rest.
trait AsHead {
    fn uri(&self) -> &http::Uri;
    fn headers(&self) -> &http::HeaderMap;
}

impl<B> AsHead for Request<B> {
    fn uri(&self) -> &http::Uri {
        Self::uri(self)
    }

    fn headers(&self) -> &http::HeaderMap {
        Self::headers(self)
    }
}

impl AsHead for request::Parts {
    fn uri(&self) -> &http::Uri {
        &self.uri
    }

    fn headers(&self) -> &http::HeaderMap {
        &self.headers
    }
}

impl<B> Service<Request<B>> for Files {
    type Response = Response<FileBody>;
    type Error = Infallible;
    type Future = FilesFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> FilesFuture {
        let state = match self.shared.glance(&request) {
            Glance::Answered(response) => State::Answered(Some(response)),
            Glance::Wait { path, known } => {
                let (head, _) = request.into_parts();
                State::Waiting(Box::new(Waiting::start(
                    Arc::clone(&self.shared),
                    head,
                    path,
                    known,
                )))
            }
        };
        FilesFuture { state }
    }
}

/// The response of [`Files`]. Ready at once unless the disk has to be waited for; dropping it is
/// safe at any time.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct FilesFuture {
    state: State,
}

#[derive(Debug)]
enum State {
    /// `None` after the response was taken.
    Answered(Option<Response<FileBody>>),
    Waiting(Box<Waiting>),
}

/// A request whose path is looked up on a blocking thread.
#[derive(Debug)]
struct Waiting {
    shared: Arc<Shared>,
    head: request::Parts,
    path: Arc<RequestPath<'static>>,
    seen: Instant,
    lookup: Offload<Result<Found, Failure>>,
}

impl Waiting {
    fn start(
        shared: Arc<Shared>,
        head: request::Parts,
        path: RequestPath<'static>,
        known: Option<Arc<Resource>>,
    ) -> Self {
        let path = Arc::new(path);
        let (site, own) = (Arc::clone(&shared.site), Arc::clone(&path));
        let lookup = Offload::start(move || site.load(&own, known.as_deref(), Patience::Blocking));
        Self { shared, head, path, seen: Instant::now(), lookup }
    }

    fn audience(&self) -> Audience {
        if self.head.method == Method::HEAD { Audience::Nobody } else { Audience::Client }
    }
}

impl Future for FilesFuture {
    type Output = Result<Response<FileBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // A response is some 200 bytes; written this way it is moved once and no more.
        if let State::Answered(response) = &mut self.state {
            return match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                // Polled after it was ready: a mistake that need not bring the caller down.
                None => Poll::Ready(Ok(Refusal::Broken.response(Audience::Client))),
            };
        }
        let State::Waiting(waiting) = &mut self.state else { return Poll::Pending };
        let result = ready!(waiting.lookup.poll(context));
        let result = result.unwrap_or(Err(Failure::Refused(Refusal::Busy)));
        let Waiting { shared, head, path, seen, .. } = &**waiting;
        let response = shared.conclude(path, result, head, waiting.audience(), *seen);
        self.state = State::Answered(None);
        Poll::Ready(Ok(response))
    }
}
