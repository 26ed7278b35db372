//! Fetches one URL: request, body, retries.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{
    CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, IF_RANGE, RANGE, USER_AGENT,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use smig::{ContentRange, Incoming};

use super::clients::Clients;
use super::errors::{self, AttemptError, RetryAdvice};
use super::part_metadata::PartMetadata;
use super::plan::{Destination, IfExists, Job};
use super::report::{FetchOutcome, Report};
use super::screen::{Bar, Screen};
use super::sink::{Hashing, PartialFile, Sink};
use super::upload::Upload;
use crate::exit::{CliError, Exit};

/// Delay before the first retry; it doubles with each further one.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Options and clients that all URLs share.
#[derive(Debug)]
pub(super) struct FetchOptions {
    pub(super) clients: Clients,
    pub(super) screen: Arc<Screen>,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) upload: Upload,
    pub(super) resume: Resume,
    pub(super) retries: u32,
    pub(super) max_time: Option<Duration>,
}

/// Whether to resume a partial file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resume {
    No,
    Yes,
}

impl FetchOptions {
    /// Fetches a URL, with retries.
    pub(super) async fn fetch(&self, job: &Job) -> (Report, Result<(), CliError>) {
        let started_at = Instant::now();
        let mut report = Report::default();
        let result = self.fetch_to_destination(job, &mut report).await;
        report.total_time = started_at.elapsed();
        (report, result)
    }

    async fn fetch_to_destination(&self, job: &Job, report: &mut Report) -> Result<(), CliError> {
        if let Destination::File { path, if_exists: IfExists::Skip } = &job.destination
            && path.exists()
        {
            report.outcome = FetchOutcome::Skipped;
            report.length = path.metadata().map_or(0, |metadata| metadata.len());
            return Ok(());
        }
        let hashing = if job.sha256.is_some() { Hashing::On } else { Hashing::Off };
        // Outlives the future that a timeout drops, so that an empty partial file is removed.
        let mut sink = Sink::open(&job.destination, hashing)?;
        let result = match self.max_time {
            None => self.fetch_with_retries(job, report, &mut sink).await,
            Some(limit) => {
                let fetch = self.fetch_with_retries(job, report, &mut sink);
                tokio::time::timeout(limit, fetch)
                    .await
                    .unwrap_or_else(|_| Err(timeout_error(limit)))
            }
        };
        match result {
            Ok(()) => {
                report.digest = sink.finish(job.sha256)?;
                Ok(())
            }
            Err(failure) => {
                let hint = sink.part().map(describe_part);
                sink.discard_if_empty();
                Err(with_hint(failure, sink.destination_bytes(), hint))
            }
        }
    }

    async fn fetch_with_retries(
        &self,
        job: &Job,
        report: &mut Report,
        sink: &mut Sink,
    ) -> Result<(), CliError> {
        let mut resume = self.resume;
        let mut backoff = INITIAL_BACKOFF;
        loop {
            report.attempts += 1;
            let Err(attempt_error) = self.attempt(job, report, sink, resume).await else {
                return Ok(());
            };
            let Some(delay) = self.retry_delay(&attempt_error, report.attempts, sink, backoff)
            else {
                return Err(attempt_error.failure);
            };
            let seconds = delay.as_secs_f64();
            let why = &attempt_error.failure;
            self.screen.print_info(&format!("{}: {why}; retrying in {seconds} s", job.url));
            tokio::time::sleep(delay).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
            resume = Resume::Yes;
        }
    }

    /// Returns the delay before the next attempt; `None` if there is none.
    fn retry_delay(
        &self,
        attempt_error: &AttemptError,
        attempts: u32,
        sink: &Sink,
        backoff: Duration,
    ) -> Option<Duration> {
        // Data written to a pipe cannot be withdrawn.
        let is_irrevocable = sink.destination_bytes() > 0 && sink.part().is_none();
        if attempts > self.retries || is_irrevocable || !self.upload.is_repeatable() {
            return None;
        }
        match attempt_error.retry_advice {
            RetryAdvice::Never => None,
            RetryAdvice::Safe => Some(backoff),
            RetryAdvice::IfIdempotent if !self.method.is_idempotent() => None,
            RetryAdvice::IfIdempotent => Some(backoff),
            RetryAdvice::After(_) if !self.method.is_idempotent() => None,
            // RFC 9110 section 10.2.3: the server asks not to be sent a request before. --max-time bounds it.
            RetryAdvice::After(time) => Some(time.max(backoff)),
        }
    }

    async fn attempt(
        &self,
        job: &Job,
        report: &mut Report,
        sink: &mut Sink,
        resume: Resume,
    ) -> Result<(), AttemptError> {
        let partial_file = match resume {
            Resume::Yes if self.method == Method::GET => sink.resumable_part(&job.url),
            _ => None,
        };
        if let Some(partial_file) =
            partial_file.as_ref().filter(|left| left.metadata.total == Some(left.length))
        {
            // An earlier attempt received everything but could not rename the file.
            sink.begin(partial_file.length, Some(&partial_file.metadata))?;
            report.resumed_bytes = partial_file.length;
            report.length = partial_file.length;
            return Ok(());
        }
        let bar = self.screen.add_bar(&display_name(job));
        let requested_at = Instant::now();
        let request = self.build_request(job, partial_file.as_ref())?;
        let response = self.clients.for_uri(&job.uri).request(request).await;
        let response = response.map_err(|error| errors::from_request_error(&error))?;
        report.status = Some(response.status());
        report.version = Some(response.version());
        report.time_to_first_byte = Some(requested_at.elapsed());
        let offset = match self.prepare_destination(job, &response, partial_file, sink)? {
            BodyOffset::At(at) => at,
            BodyOffset::RangeRefused => {
                // The server cannot serve the range: fetch all of it.
                sink.begin(0, None)?;
                report.discard_ranges();
                return Box::pin(self.attempt(job, report, sink, Resume::No)).await;
            }
        };
        match offset {
            0 => report.discard_ranges(),
            _ if report.attempts == 1 => report.resumed_bytes = offset,
            _ => {}
        }
        if self.method == Method::HEAD {
            return print_head(&response);
        }
        receive(report, sink, response, offset, &bar).await
    }

    fn build_request(
        &self,
        job: &Job,
        partial_file: Option<&PartialFile>,
    ) -> Result<Request<super::upload::UploadBody>, CliError> {
        let mut request = Request::new(self.upload.body()?);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = job.uri.clone();
        let headers = request.headers_mut();
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("smig/", env!("CARGO_PKG_VERSION"))),
        );
        if let Some(media_type) = self.upload.media_type() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        }
        for name in self.headers.keys() {
            headers.remove(name);
        }
        for (name, value) in &self.headers {
            headers.append(name, value.clone());
        }
        if let Some(partial_file) = partial_file {
            let set = |headers: &mut HeaderMap, name: HeaderName, value: &str| {
                if let Ok(value) = HeaderValue::from_str(value) {
                    headers.insert(name, value);
                }
            };
            set(headers, RANGE, &format!("bytes={}-", partial_file.length));
            set(headers, IF_RANGE, &partial_file.metadata.validator);
        }
        Ok(request)
    }

    /// Returns the offset at which to write the body, and prepares the destination.
    fn prepare_destination(
        &self,
        job: &Job,
        response: &Response<Incoming>,
        partial_file: Option<PartialFile>,
        sink: &mut Sink,
    ) -> Result<BodyOffset, AttemptError> {
        let (status, headers) = (response.status(), response.headers());
        match partial_file {
            Some(partial) if status == StatusCode::PARTIAL_CONTENT => {
                check_range(headers, &partial)?;
                sink.begin(partial.length, Some(&partial.metadata))?;
                Ok(BodyOffset::At(partial.length))
            }
            Some(_) if status == StatusCode::RANGE_NOT_SATISFIABLE => Ok(BodyOffset::RangeRefused),
            partial if status.is_success() => {
                if partial.is_some() {
                    self.screen.print_info(&format!(
                        "{}: the server sent the whole file (it has changed, or cannot be resumed); starting again",
                        job.url
                    ));
                }
                let metadata =
                    PartMetadata::from_response(&job.url, headers, content_length(headers));
                let is_partial_content = status == StatusCode::PARTIAL_CONTENT;
                sink.begin(0, metadata.filter(|_| !is_partial_content).as_ref())?;
                Ok(BodyOffset::At(0))
            }
            _ => Err(errors::from_status(status, headers)),
        }
    }
}

/// Offset of a body in the destination.
enum BodyOffset {
    At(u64),
    RangeRefused,
}

/// Checks that a resumed body covers the rest of the file.
fn check_range(headers: &HeaderMap, partial_file: &PartialFile) -> Result<(), CliError> {
    let fail = |why: String| {
        CliError::new(Exit::Range, format!("cannot resume: {why}; omit --continue to start again"))
    };
    let range = ContentRange::from_headers(headers)
        .ok_or_else(|| fail("the Content-Range of the response is invalid".to_owned()))?;
    if range.first_pos != partial_file.length {
        let (first, length) = (range.first_pos, partial_file.length);
        return Err(fail(format!("the server's range begins at {first}, not at {length}")));
    }
    let total = range.complete_length.or(partial_file.metadata.total);
    if total.is_some_and(|total| range.last_pos + 1 != total)
        || (partial_file.metadata.total.is_some() && total != partial_file.metadata.total)
    {
        return Err(fail("the length of the server's file has changed".to_owned()));
    }
    Ok(())
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reads the complete body.
async fn receive(
    report: &mut Report,
    sink: &mut Sink,
    response: Response<Incoming>,
    offset: u64,
    bar: &Bar,
) -> Result<(), AttemptError> {
    let total = content_length(response.headers()).map(|length| offset + length);
    let mut body = response.into_body();
    report.begin_body(body.stream_info(), offset);
    bar.start(offset, total);
    let result = loop {
        match body.frame().await {
            None => break Ok(()),
            Some(Err(error)) => {
                break Err(errors::incomplete_body(
                    sink.destination_bytes(),
                    total,
                    &error.to_string(),
                ));
            }
            Some(Ok(frame)) => {
                let Some(data) = frame.data_ref() else { continue };
                if let Err(failure) = sink.write(data) {
                    break Err(failure.into());
                }
                bar.add(data.len() as u64);
                report.length = sink.destination_bytes();
            }
        }
    };
    report.end_body(offset, sink.destination_bytes());
    result?;
    match total {
        Some(total) if total != sink.destination_bytes() => Err(errors::incomplete_body(
            sink.destination_bytes(),
            Some(total),
            "the length differs from Content-Length",
        )),
        _ => Ok(()),
    }
}

/// Prints a response's status line and header section.
fn print_head(response: &Response<Incoming>) -> Result<(), AttemptError> {
    use std::io::Write as _;
    let mut text = format!("{:?} {}\n", response.version(), response.status());
    for (name, value) in response.headers() {
        text.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    }
    text.push('\n');
    let fail = |error| CliError::new(Exit::Write, format!("cannot write standard output: {error}"));
    Ok(std::io::stdout().write_all(text.as_bytes()).map_err(fail)?)
}

/// Returns a short name for the progress bar.
pub(super) fn display_name(job: &Job) -> String {
    match &job.destination {
        Destination::File { path, .. } => path
            .file_name()
            .map_or_else(|| job.url.clone(), |name| name.to_string_lossy().into_owned()),
        Destination::Stdout | Destination::Device(_) | Destination::Nowhere => job.url.clone(),
    }
}

fn timeout_error(limit: Duration) -> CliError {
    let seconds = limit.as_secs_f64();
    CliError::new(Exit::Timeout, format!("timed out after {seconds} s (--max-time)"))
}

fn describe_part(part: &Path) -> String {
    if PartMetadata::path_for(part).exists() {
        format!("the partial file is {}; --continue resumes it", part.display())
    } else {
        format!("the partial file is {}", part.display())
    }
}

/// Adds a hint on an incomplete file to the message.
fn with_hint(failure: CliError, destination_bytes: u64, hint: Option<String>) -> CliError {
    match hint {
        Some(hint) if destination_bytes > 0 => {
            CliError::new(failure.exit, format!("{failure}; {hint}"))
        }
        _ => failure,
    }
}
