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

use crate::body::FileBody;
use crate::budget::Budget;
use crate::cache::{Cache, Lookup};
use crate::error_response::{ErrorResponse, SendContent, options_response};
use crate::offload::Offload;
use crate::options::FileOptions;
use crate::path::{RequestPath, is_encoded};
use crate::resolve::{DocumentRoot, Resolution, ResolveError};
use crate::resource::{Representation, Resource};
use crate::response::{
    complete_response, complete_response_with_shared_headers, listing_response, redirect,
    requests_complete_file, respond,
};
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
    shared: Arc<FilesState>,
    headers: HeaderPlace,
    clock: fn() -> Instant,
}

/// Where a response with a complete file has its header fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeaderPlace {
    /// In its head: a copy.
    Head,
    /// In its body, shared by all responses with the file.
    Body,
}

#[derive(Debug)]
struct FilesState {
    document_root: Arc<DocumentRoot>,
    budget: Arc<Budget>,
    caches: ThreadLocal<RefCell<Cache>>,
}

impl Files {
    /// Serves the directory `root`.
    ///
    /// # Errors
    ///
    /// If `root` cannot be opened, or is not a directory.
    pub fn new(root: impl AsRef<Path>, options: FileOptions) -> io::Result<Self> {
        let root = root.as_ref();
        let explain = |errno: rustix::io::Errno| {
            let cause = io::Error::from(errno);
            io::Error::new(cause.kind(), format!("cannot serve {}: {cause}", root.display()))
        };
        let budget = Arc::new(Budget::new(&options));
        let root = Root::new(root, options.symlinks).map_err(explain)?;
        let document_root = Arc::new(DocumentRoot { root, options });
        Ok(Self {
            shared: Arc::new(FilesState { document_root, budget, caches: ThreadLocal::new() }),
            headers: HeaderPlace::Head,
            clock: Instant::now,
        })
    }

    /// Returns the service for a server that sends the header fields of
    /// [`FileBody::shared_headers`]: those of a response with a complete file are only there, not in its head, which saves a
    /// copy for each response.
    #[must_use]
    pub fn with_shared_headers(self) -> Self {
        Self { headers: HeaderPlace::Body, ..self }
    }

    /// Returns the service with another clock, which is read for each request: a server that handles many requests at once
    /// need not read the time for each. Cached files are as old as this clock says
    /// ([`FileOptions::cache_ttl`]).
    #[must_use]
    pub fn with_clock(self, clock: fn() -> Instant) -> Self {
        Self { clock, ..self }
    }
}

/// A response, or the data to build it.
///
/// A response takes about 160 bytes. Building it only when it is polled moves it once instead of
/// five times, and keeps the future small.
#[derive(Debug)]
enum LazyResponse {
    Complete(Arc<Representation>, SendContent),
    Built(Box<Response<FileBody>>),
}

impl LazyResponse {
    fn new(
        representation: &Arc<Representation>,
        request_headers: &HeaderMap,
        send_content: SendContent,
    ) -> Self {
        if requests_complete_file(request_headers) {
            Self::Complete(Arc::clone(representation), send_content)
        } else {
            respond(representation, request_headers, send_content).into()
        }
    }

    fn into_response(self, place: HeaderPlace) -> Response<FileBody> {
        match self {
            Self::Complete(representation, SendContent::Yes)
                if place == HeaderPlace::Body && representation.size() > 0 =>
            {
                complete_response_with_shared_headers(&representation)
            }
            Self::Complete(representation, send_content) => {
                complete_response(&representation, send_content)
            }
            Self::Built(response) => *response,
        }
    }
}

impl From<Response<FileBody>> for LazyResponse {
    fn from(response: Response<FileBody>) -> Self {
        Self::Built(Box::new(response))
    }
}

/// The result of handling a request without blocking.
enum FastPathResult {
    Answered(LazyResponse),
    /// The request must wait for the disk, or is tried once more after cached files were closed.
    Wait {
        path: RequestPath<'static>,
        known_resource: Option<Arc<Resource>>,
    },
}

impl FilesState {
    fn cache(&self) -> &RefCell<Cache> {
        self.caches.get_or(|| {
            let ttl = self.document_root.options.cache_ttl;
            RefCell::new(Cache::new(Arc::clone(&self.budget), ttl))
        })
    }

    fn try_respond_without_blocking<B>(
        &self,
        request: &Request<B>,
        clock: fn() -> Instant,
    ) -> FastPathResult {
        let send_content = match *request.method() {
            Method::GET => SendContent::Yes,
            Method::HEAD => SendContent::No,
            Method::OPTIONS => return FastPathResult::Answered(options_response().into()),
            _ => {
                return FastPathResult::Answered(
                    ErrorResponse::MethodNotAllowed.response(SendContent::Yes).into(),
                );
            }
        };
        let raw_path = request.uri().path();
        let now = clock();
        let mut known_resource = None;
        // Cached paths have been checked, so a path that needs no decoding is looked up before it
        // is checked.
        if !is_encoded(raw_path) {
            match self.lookup_cached(raw_path.as_bytes(), request, send_content, now) {
                Ok(response) => return FastPathResult::Answered(response),
                Err(stale) => known_resource = stale,
            }
        }
        let path = match RequestPath::parse(raw_path, self.document_root.options.hidden_files) {
            Ok(path) => path,
            Err(refusal) => return FastPathResult::Answered(refusal.response(send_content).into()),
        };
        if is_encoded(raw_path) {
            match self.lookup_cached(path.canonical(), request, send_content, now) {
                Ok(response) => return FastPathResult::Answered(response),
                Err(stale) => known_resource = stale,
            }
        }
        let result =
            self.document_root.resolve(&path, known_resource.as_deref(), Blocking::Forbidden);
        if matches!(result, Err(ResolveError::OutOfFiles)) {
            // Responses in progress keep their own descriptors.
            self.cache().borrow_mut().close_files();
        }
        if matches!(result, Err(ResolveError::WouldBlock | ResolveError::OutOfFiles)) {
            return FastPathResult::Wait { path: path.into_owned(), known_resource };
        }
        let head = (request.uri(), request.headers());
        FastPathResult::Answered(self.cache_and_respond(&path, result, head, send_content, now))
    }

    /// Returns the response from the cache; the error is the stale entry, if any, which must be
    /// checked again.
    fn lookup_cached<B>(
        &self,
        key: &[u8],
        request: &Request<B>,
        send_content: SendContent,
        now: Instant,
    ) -> Result<LazyResponse, Option<Arc<Resource>>> {
        let mut cache = self.cache().borrow_mut();
        match cache.lookup(key, now) {
            Lookup::Unknown => Err(None),
            Lookup::Stale(resource) => Err(Some(Arc::clone(resource))),
            Lookup::Fresh(resource) => {
                let chosen = resource.select(request.headers());
                if chosen.is_current() {
                    Ok(LazyResponse::new(chosen, request.headers(), send_content))
                } else {
                    Err(None)
                }
            }
        }
    }

    /// Caches a result and returns its response.
    fn cache_and_respond(
        &self,
        path: &RequestPath<'_>,
        result: Result<Resolution, ResolveError>,
        (uri, headers): (&Uri, &HeaderMap),
        send_content: SendContent,
        checked_at: Instant,
    ) -> LazyResponse {
        let error = match result {
            Ok(Resolution::File(resource)) => {
                let response = LazyResponse::new(resource.select(headers), headers, send_content);
                self.cache().borrow_mut().insert(path.canonical(), resource, checked_at);
                return response;
            }
            Ok(Resolution::Directory) => return redirect(uri, send_content).into(),
            Ok(Resolution::Listing(bytes)) => return listing_response(bytes, send_content).into(),
            Err(error) => error,
        };
        let mut cache = self.cache().borrow_mut();
        cache.remove_path(path.canonical());
        let refusal = match error {
            ResolveError::Refused(refusal) => refusal,
            ResolveError::WouldBlock => ErrorResponse::Busy,
            ResolveError::OutOfFiles => {
                cache.close_files();
                ErrorResponse::Busy
            }
        };
        refusal.response(send_content).into()
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
        let state = match self.shared.try_respond_without_blocking(&request, self.clock) {
            FastPathResult::Answered(response) => FilesFutureState::Answered(response),
            FastPathResult::Wait { path, known_resource } => {
                let (head, _) = request.into_parts();
                FilesFutureState::Waiting(Box::new(PendingResolution::start(
                    Arc::clone(&self.shared),
                    head,
                    path,
                    known_resource,
                    (self.clock)(),
                )))
            }
        };
        FilesFuture { state, headers: self.headers }
    }
}

/// The response future of [`Files`]. Ready at once unless it waits for the disk; cancel safe: it may
/// be dropped at any time.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct FilesFuture {
    state: FilesFutureState,
    headers: HeaderPlace,
}

#[derive(Debug)]
enum FilesFutureState {
    Answered(LazyResponse),
    Waiting(Box<PendingResolution>),
    /// The response was already returned.
    Done,
}

/// A request whose path is resolved on a blocking thread.
#[derive(Debug)]
struct PendingResolution {
    shared: Arc<FilesState>,
    head: request::Parts,
    path: Arc<RequestPath<'static>>,
    checked_at: Instant,
    resolution: Offload<Result<Resolution, ResolveError>>,
}

impl PendingResolution {
    fn start(
        shared: Arc<FilesState>,
        head: request::Parts,
        path: RequestPath<'static>,
        known_resource: Option<Arc<Resource>>,
        now: Instant,
    ) -> Self {
        let path = Arc::new(path);
        let (document_root, lookup_path) = (Arc::clone(&shared.document_root), Arc::clone(&path));
        let resolution = Offload::start(move || {
            document_root.resolve(&lookup_path, known_resource.as_deref(), Blocking::Allowed)
        });
        Self { shared, head, path, checked_at: now, resolution }
    }

    fn finish(&self, result: io::Result<Result<Resolution, ResolveError>>) -> LazyResponse {
        let result = result.unwrap_or(Err(ResolveError::Refused(ErrorResponse::Busy)));
        let Self { shared, head, path, checked_at, .. } = self;
        let send_content =
            if head.method == Method::HEAD { SendContent::No } else { SendContent::Yes };
        shared.cache_and_respond(
            path,
            result,
            (&head.uri, &head.headers),
            send_content,
            *checked_at,
        )
    }
}

impl Future for FilesFuture {
    type Output = Result<Response<FileBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match std::mem::replace(&mut self.state, FilesFutureState::Done) {
            FilesFutureState::Answered(response) => {
                Poll::Ready(Ok(response.into_response(self.headers)))
            }
            FilesFutureState::Waiting(mut pending) => {
                let Poll::Ready(result) = pending.resolution.poll(context) else {
                    self.state = FilesFutureState::Waiting(pending);
                    return Poll::Pending;
                };
                Poll::Ready(Ok(pending.finish(result).into_response(self.headers)))
            }
            // A poll after completion is the caller's error, but need not panic.
            FilesFutureState::Done => {
                Poll::Ready(Ok(ErrorResponse::Internal.response(SendContent::Yes)))
            }
        }
    }
}
