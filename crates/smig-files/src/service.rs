//! The service: from request to response, from the cache on a hit, otherwise from the disk.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{HeaderMap, Method, Request, Response, Uri, request};
use thread_local::ThreadLocal;
use tower_service::Service;

use crate::answer::{answer, is_plain, page, redirect, whole};
use crate::body::FileBody;
use crate::budget::Budget;
use crate::cache::{Cache, Lookup};
use crate::load::{DocumentRoot, ResolveError, Resolved};
use crate::offload::Offload;
use crate::options::Options;
use crate::path::{RequestPath, is_encoded};
use crate::refusal::{ErrorResponse, SendContent, options};
use crate::resource::{Representation, Resource};
use crate::root::{Blocking, Root};

/// Serves the files below one directory.
///
/// Clones share all state. It can be called from any thread; each thread has its own cache, so that
/// threads do not contend. The service is always ready and never fails: errors are reported in the
/// status of the response.
///
/// The directory is opened once: if its name is given to another directory later (for instance by a
/// deployment that swaps a symlink), create a new `Files`.
#[derive(Debug, Clone)]
pub struct Files {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    site: Arc<DocumentRoot>,
    budget: Arc<Budget>,
    caches: ThreadLocal<RefCell<Cache>>,
}

impl Files {
    /// Serves the directory `root`.
    ///
    /// # Errors
    ///
    /// If `root` cannot be opened, or is not a directory.
    pub fn new(root: impl AsRef<Path>, options: Options) -> io::Result<Self> {
        let root = root.as_ref();
        let explain = |errno: rustix::io::Errno| {
            let cause = io::Error::from(errno);
            io::Error::new(cause.kind(), format!("cannot serve {}: {cause}", root.display()))
        };
        let budget = Arc::new(Budget::new(&options));
        let root = Root::new(root, options.links).map_err(explain)?;
        let site = Arc::new(DocumentRoot { root, options });
        Ok(Self { shared: Arc::new(Shared { site, budget, caches: ThreadLocal::new() }) })
    }
}

/// A response, or the data to build it.
///
/// A response takes about 160 bytes. Building it only when it is polled moves it once instead of
/// five times, and keeps the future small.
#[derive(Debug)]
enum LazyResponse {
    Whole(Arc<Representation>, SendContent),
    Other(Box<Response<FileBody>>),
}

impl LazyResponse {
    fn new(of: &Arc<Representation>, request: &HeaderMap, audience: SendContent) -> Self {
        if is_plain(request) {
            Self::Whole(Arc::clone(of), audience)
        } else {
            answer(of, request, audience).into()
        }
    }

    fn into_response(self) -> Response<FileBody> {
        match self {
            Self::Whole(of, audience) => whole(&of, audience),
            Self::Other(response) => *response,
        }
    }
}

impl From<Response<FileBody>> for LazyResponse {
    fn from(response: Response<FileBody>) -> Self {
        Self::Other(Box::new(response))
    }
}

/// The result of handling a request without blocking.
enum FastPath {
    Answered(LazyResponse),
    /// The request must wait for the disk.
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

    fn try_without_blocking<B>(&self, request: &Request<B>) -> FastPath {
        let audience = match *request.method() {
            Method::GET => SendContent::Client,
            Method::HEAD => SendContent::Nobody,
            Method::OPTIONS => return FastPath::Answered(options().into()),
            _ => {
                return FastPath::Answered(
                    ErrorResponse::Method.response(SendContent::Client).into(),
                );
            }
        };
        let raw = request.uri().path();
        let now = Instant::now();
        let mut known = None;
        // Cached paths have been checked, so a path that needs no decoding is looked up before it
        // is checked.
        if !is_encoded(raw) {
            match self.remembered(raw.as_bytes(), request, audience, now) {
                Ok(answer) => return FastPath::Answered(answer),
                Err(stale) => known = stale,
            }
        }
        let path = match RequestPath::parse(raw, self.site.options.hidden) {
            Ok(path) => path,
            Err(refusal) => return FastPath::Answered(refusal.response(audience).into()),
        };
        if is_encoded(raw) {
            match self.remembered(path.canonical(), request, audience, now) {
                Ok(answer) => return FastPath::Answered(answer),
                Err(stale) => known = stale,
            }
        }
        let result = self.site.load(&path, known.as_deref(), Blocking::None);
        if matches!(result, Err(ResolveError::OutOfFiles)) {
            // Responses in progress keep their own descriptors.
            self.cache().borrow_mut().close_files();
        }
        if matches!(result, Err(ResolveError::WouldBlock | ResolveError::OutOfFiles)) {
            return FastPath::Wait { path: path.into_owned(), known };
        }
        let head = (request.uri(), request.headers());
        FastPath::Answered(self.conclude(&path, result, head, audience, now))
    }

    /// Returns the answer from the cache; the error is the stale entry, if any, which must be checked again.
    fn remembered<B>(
        &self,
        key: &[u8],
        request: &Request<B>,
        audience: SendContent,
        now: Instant,
    ) -> Result<LazyResponse, Option<Arc<Resource>>> {
        let mut cache = self.cache().borrow_mut();
        match cache.lookup(key, now) {
            Lookup::Unknown => Err(None),
            Lookup::Stale(resource) => Err(Some(Arc::clone(resource))),
            Lookup::Fresh(resource) => {
                let chosen = resource.select(request.headers());
                if chosen.is_current() {
                    Ok(LazyResponse::new(chosen, request.headers(), audience))
                } else {
                    Err(None)
                }
            }
        }
    }

    /// Caches a result and returns its answer.
    fn conclude(
        &self,
        path: &RequestPath<'_>,
        result: Result<Resolved, ResolveError>,
        (uri, headers): (&Uri, &HeaderMap),
        audience: SendContent,
        seen: Instant,
    ) -> LazyResponse {
        let failure = match result {
            Ok(Resolved::File(resource)) => {
                let answer = LazyResponse::new(resource.select(headers), headers, audience);
                self.cache().borrow_mut().insert(path.canonical(), resource, seen);
                return answer;
            }
            Ok(Resolved::Folder) => return redirect(uri, audience).into(),
            Ok(Resolved::Page(bytes)) => return page(bytes, audience).into(),
            Err(failure) => failure,
        };
        let mut cache = self.cache().borrow_mut();
        cache.forget(path.canonical());
        let refusal = match failure {
            ResolveError::Refused(refusal) => refusal,
            ResolveError::WouldBlock => ErrorResponse::Busy,
            ResolveError::OutOfFiles => {
                cache.close_files();
                ErrorResponse::Busy
            }
        };
        refusal.response(audience).into()
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
        let state = match self.shared.try_without_blocking(&request) {
            FastPath::Answered(answer) => State::Answered(answer),
            FastPath::Wait { path, known } => {
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

/// The response future of [`Files`]. Ready at once unless it waits for the disk; cancel safe: it may
/// be dropped at any time.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct FilesFuture {
    state: State,
}

#[derive(Debug)]
enum State {
    Answered(LazyResponse),
    Waiting(Box<Waiting>),
    /// The response was already returned.
    Done,
}

/// A request whose path is resolved on a blocking thread.
#[derive(Debug)]
struct Waiting {
    shared: Arc<Shared>,
    head: request::Parts,
    path: Arc<RequestPath<'static>>,
    seen: Instant,
    lookup: Offload<Result<Resolved, ResolveError>>,
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
        let lookup = Offload::start(move || site.load(&own, known.as_deref(), Blocking::Blocking));
        Self { shared, head, path, seen: Instant::now(), lookup }
    }

    fn conclude(&self, result: io::Result<Result<Resolved, ResolveError>>) -> LazyResponse {
        let result = result.unwrap_or(Err(ResolveError::Refused(ErrorResponse::Busy)));
        let Self { shared, head, path, seen, .. } = self;
        let audience =
            if head.method == Method::HEAD { SendContent::Nobody } else { SendContent::Client };
        shared.conclude(path, result, (&head.uri, &head.headers), audience, *seen)
    }
}

impl Future for FilesFuture {
    type Output = Result<Response<FileBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Answered(answer) => Poll::Ready(Ok(answer.into_response())),
            State::Waiting(mut waiting) => {
                let Poll::Ready(result) = waiting.lookup.poll(context) else {
                    self.state = State::Waiting(waiting);
                    return Poll::Pending;
                };
                Poll::Ready(Ok(waiting.conclude(result).into_response()))
            }
            // A poll after completion is the caller's error, but need not panic.
            State::Done => Poll::Ready(Ok(ErrorResponse::Broken.response(SendContent::Client))),
        }
    }
}
