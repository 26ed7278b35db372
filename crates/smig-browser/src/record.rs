//! Records a load of a page: its requests, and their bodies.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::devtools::{DevTools, DevToolsEvent};
use crate::error::BrowserError;
use crate::network_log::{NetworkLog, NetworkRequest, RequestEnd};
use crate::tab::Tab;

/// A limit that no clock has becomes this one.
const MAX_TIME_LIMIT: Duration = Duration::from_secs(86_400);
/// Bodies that the browser keeps until they are read: of one response, and of all.
const MAX_BODY_BYTES: u64 = 64 << 20;
const MAX_BODIES_BYTES: u64 = 256 << 20;
/// The network is quiet when nothing has been in flight for this long.
const QUIET_TIME: Duration = Duration::from_millis(500);
/// Interval at which it is checked whether the network is quiet.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// How a load is recorded.
#[derive(Debug, Clone, Copy)]
pub struct RecordOptions {
    /// Time until the load event.
    pub time_limit: Duration,
    /// For how long after the load event requests are recorded, at most: less if nothing is in flight for half a second.
    pub after_load: Duration,
}

/// A load of a page.
#[derive(Debug, Clone, PartialEq)]
pub struct PageRecording {
    /// Its requests, in the order in which they were made.
    pub requests: Vec<NetworkRequest>,
    /// Requests beyond the limit.
    pub omitted: u64,
    /// Title of the document.
    pub title: String,
    /// Time of the event `DOMContentLoaded`, in seconds of the browser's monotonic clock.
    pub content_loaded_s: Option<f64>,
    /// Time of the load event.
    pub loaded_s: Option<f64>,
}

/// What happens in the tab while it loads.
struct Progress {
    log: NetworkLog,
    content_loaded_s: Option<f64>,
    loaded_s: Option<f64>,
}

impl Tab {
    /// Loads a page and records its requests. Then calls `on_body` with the index and the body of each that has one which the browser has
    /// kept, decoded, one after the other.
    ///
    /// # Errors
    /// Those of [`Self::load_before`], and those of `on_body`.
    pub fn record<W: Write>(
        &self,
        devtools: &mut DevTools<W>,
        url: &str,
        options: RecordOptions,
        on_body: &mut dyn FnMut(usize, Vec<u8>) -> io::Result<()>,
    ) -> Result<PageRecording, BrowserError> {
        let now = Instant::now();
        let deadline = now.checked_add(options.time_limit).unwrap_or(now + MAX_TIME_LIMIT);
        record_session(devtools, self.session_id())?;
        let mut progress =
            Progress { log: NetworkLog::default(), content_loaded_s: None, loaded_s: None };
        let mut navigation = self.navigate(devtools, url, deadline)?;
        while progress.loaded_s.is_none() {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let event = if remaining.is_zero() { None } else { devtools.next_event(remaining)? };
            let Some(event) = event else {
                return Err(BrowserError::TimedOut(unfinished(url, &progress.log, options)));
            };
            let is_own = event.session_id == self.session_id()
                && event.method == "Page.lifecycleEvent"
                && navigation.is_of(&event);
            if is_own {
                let at_s = event.params["timestamp"].as_f64();
                match event.params["name"].as_str() {
                    Some("DOMContentLoaded") => progress.content_loaded_s = at_s,
                    Some("load") => progress.loaded_s = at_s.or(Some(0.0)),
                    _ => {}
                }
            }
            progress.handle(devtools, &event)?;
            self.check_still_there(url, &mut navigation, &event)?;
        }
        progress.wait_until_quiet(devtools, options.after_load)?;
        // A page may do anything with its title.
        let title = self.evaluate(devtools, "document.title").unwrap_or_default();
        devtools.check_stop()?;
        for (index, request) in progress.log.requests().iter().enumerate() {
            if has_body(request)
                && let Some(body) = body_of(devtools, request)?
            {
                on_body(index, body)?;
            }
        }
        Ok(PageRecording {
            omitted: progress.log.omitted(),
            requests: progress.log.into_requests(),
            title: title.as_str().unwrap_or_default().to_owned(),
            content_loaded_s: progress.content_loaded_s,
            loaded_s: progress.loaded_s,
        })
    }
}

impl Tab {
    /// Makes the browser tell of the requests of this tab, its frames and its workers: [`NetworkLog::follow`] takes the events.
    ///
    /// # Errors
    /// Those of [`DevTools::call`].
    pub fn follow_requests<W: Write>(
        &self,
        devtools: &mut DevTools<W>,
    ) -> Result<(), BrowserError> {
        record_session(devtools, self.session_id())
    }
}

impl Progress {
    fn handle<W: Write>(
        &mut self,
        devtools: &mut DevTools<W>,
        event: &DevToolsEvent,
    ) -> Result<(), BrowserError> {
        self.log.follow(devtools, event)
    }

    fn wait_until_quiet<W: Write>(
        &mut self,
        devtools: &mut DevTools<W>,
        limit: Duration,
    ) -> Result<(), BrowserError> {
        let began = Instant::now();
        let mut quiet_since = began;
        while began.elapsed() < limit && quiet_since.elapsed() < QUIET_TIME {
            let event = devtools.next_event(CHECK_INTERVAL)?;
            let is_request =
                event.as_ref().is_some_and(|event| event.method.starts_with("Network."));
            if let Some(event) = event {
                self.handle(devtools, &event)?;
            }
            if is_request || self.log.open_requests() > 0 {
                quiet_since = Instant::now();
            }
        }
        Ok(())
    }
}

impl NetworkLog {
    /// Takes note of an event, and lets frames and workers go on that wait for it since [`Tab::follow_requests`]. Closes dialogs, which would
    /// keep the page from loading.
    ///
    /// # Errors
    /// Those of [`DevTools::send`].
    pub fn follow<W: Write>(
        &mut self,
        devtools: &mut DevTools<W>,
        event: &DevToolsEvent,
    ) -> Result<(), BrowserError> {
        self.observe(event);
        match event.method.as_str() {
            // A frame of another site, or a worker: it waits until its requests are recorded too.
            "Target.attachedToTarget" => {
                let session = event.params["sessionId"].as_str().unwrap_or_default();
                if !session.is_empty() {
                    start_session(devtools, session)?;
                }
            }
            // A dialog would keep the page from loading.
            "Page.javascriptDialogOpening" => {
                let answer = json!({"accept": false});
                devtools.send(&event.session_id, "Page.handleJavaScriptDialog", answer)?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Makes a session tell of its requests, and of the sessions below it.
fn record_session<W: Write>(
    devtools: &mut DevTools<W>,
    session_id: &str,
) -> Result<(), BrowserError> {
    for (method, params) in recording_commands() {
        devtools.call(session_id, method, params)?;
    }
    Ok(())
}

/// The same for one that waits for it, and may be gone before it answers.
fn start_session<W: Write>(
    devtools: &mut DevTools<W>,
    session_id: &str,
) -> Result<(), BrowserError> {
    for (method, params) in recording_commands() {
        devtools.send(session_id, method, params)?;
    }
    devtools.send(session_id, "Runtime.runIfWaitingForDebugger", json!({}))?;
    Ok(())
}

fn recording_commands() -> [(&'static str, Value); 2] {
    let buffers =
        json!({"maxTotalBufferSize": MAX_BODIES_BYTES, "maxResourceBufferSize": MAX_BODY_BYTES});
    let attach = json!({"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true});
    [("Network.enable", buffers), ("Target.setAutoAttach", attach)]
}

/// Returns whether the browser may have kept its body.
fn has_body(request: &NetworkRequest) -> bool {
    matches!(request.end, Some((_, RequestEnd::Complete(_))))
        && request.response.is_some()
        && request.url.starts_with("http")
}

/// Returns a body; `None` if the browser has not kept it, as of a frame that has gone.
fn body_of<W: Write>(
    devtools: &mut DevTools<W>,
    request: &NetworkRequest,
) -> Result<Option<Vec<u8>>, BrowserError> {
    let params = json!({"requestId": request.request_id});
    let reply = match devtools.call(&request.session_id, "Network.getResponseBody", params) {
        Ok(reply) => reply,
        // The browser's answer is that there is none; whether it has exited shows with the next call.
        Err(BrowserError::Browser(why)) if why.starts_with("Network.getResponseBody: ") => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let body = reply["body"].as_str().unwrap_or_default();
    if reply["base64Encoded"] == true {
        let decoded = STANDARD.decode(body).map_err(BrowserError::unexpected_response)?;
        return Ok(Some(decoded));
    }
    Ok(Some(body.as_bytes().to_vec()))
}

/// Says what a page is still waiting for.
fn unfinished(url: &str, log: &NetworkLog, options: RecordOptions) -> String {
    let open = log.requests().iter().find(|request| request.end.is_none());
    let open = open.map_or_else(
        || "none of its requests is open".to_owned(),
        |request| {
            let shown: String = request.url.chars().take(100).collect();
            format!("{} of its requests are open, such as {shown}", log.open_requests())
        },
    );
    format!("{url} has had no load event after {:?}; {open}", options.time_limit)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use tokio_util::sync::CancellationToken;

    use super::*;

    const OPTIONS: RecordOptions =
        RecordOptions { time_limit: Duration::from_secs(600), after_load: Duration::ZERO };

    /// Bodies by the index of their request.
    type Bodies = Vec<(usize, Vec<u8>)>;

    fn record(messages: &[Value]) -> (Result<PageRecording, BrowserError>, Bodies) {
        let mut input: Vec<u8> =
            messages.iter().flat_map(|m| format!("{m}\0").into_bytes()).collect();
        input.push(0);
        let stop = CancellationToken::default();
        let mut devtools = DevTools::new(Vec::new(), Cursor::new(input), stop).unwrap();
        let mut bodies = Vec::new();
        let recording = Tab::with_session("S").record(
            &mut devtools,
            "https://a.example/",
            OPTIONS,
            &mut |index, body| {
                bodies.push((index, body));
                Ok(())
            },
        );
        (recording, bodies)
    }

    fn event(method: &str, params: &Value) -> Value {
        json!({"method": method, "params": params, "sessionId": "S"})
    }

    fn lifecycle(name: &str, timestamp: f64) -> Value {
        let params = json!({"name": name, "loaderId": "L", "timestamp": timestamp});
        event("Page.lifecycleEvent", &params)
    }

    fn opening() -> Vec<Value> {
        let sent =
            json!({"requestId": "1", "timestamp": 1.0, "request": {"url": "https://a.example/"}});
        vec![
            json!({"id": 1, "result": {}}),
            json!({"id": 2, "result": {}}),
            event("Network.requestWillBeSent", &sent),
            json!({"id": 3, "result": {"loaderId": "L"}}),
        ]
    }

    #[test]
    fn a_load_is_recorded_with_its_bodies() {
        let response = json!({"requestId": "1", "timestamp": 1.1, "response": {"status": 200}});
        let finished = json!({"requestId": "1", "timestamp": 1.2, "encodedDataLength": 9});
        let mut messages = opening();
        messages.extend([
            event("Network.responseReceived", &response),
            event("Network.loadingFinished", &finished),
            lifecycle("DOMContentLoaded", 1.5),
            lifecycle("load", 2.0),
            json!({"id": 4, "result": {"result": {"value": "A title"}}}),
            json!({"id": 5, "result": {"body": "aGFsbG8=", "base64Encoded": true}}),
        ]);
        let (recording, bodies) = record(&messages);
        let recording = recording.unwrap();
        assert_eq!(recording.title, "A title");
        assert_eq!((recording.content_loaded_s, recording.loaded_s), (Some(1.5), Some(2.0)));
        assert_eq!(bodies, [(0, b"hallo".to_vec())]);
        // A body that the browser has not kept is no error.
        *messages.last_mut().unwrap() =
            json!({"id": 5, "error": {"message": "No resource with given identifier found"}});
        let (recording, bodies) = record(&messages);
        assert!(recording.is_ok() && bodies.is_empty());
    }

    #[test]
    fn frames_in_other_processes_are_released_and_dialogs_closed() {
        let mut messages = opening();
        messages.extend([
            event("Target.attachedToTarget", &json!({"sessionId": "F"})),
            event("Page.javascriptDialogOpening", &json!({"type": "alert"})),
            lifecycle("load", 2.0),
            // The numbers 4 to 7 were sent to the frame and the dialog.
            json!({"id": 8, "result": {"result": {"value": ""}}}),
        ]);
        let (recording, _) = record(&messages);
        assert_eq!(recording.unwrap().requests.len(), 1);
    }

    #[test]
    fn a_page_that_leads_to_another_one_is_not_recorded() {
        let navigated = |loader_id: &str, url: &str| {
            event("Page.frameNavigated", &json!({"frame": {"loaderId": loader_id, "url": url}}))
        };
        let mut messages = opening();
        messages
            .extend([navigated("L", "https://a.example/"), navigated("N", "https://b.example/")]);
        let text = record(&messages).0.unwrap_err().to_string();
        assert!(text.contains("https://a.example/ led to https://b.example/ by itself"), "{text}");
    }

    #[test]
    fn a_browser_that_exits_is_an_error() {
        let (recording, _) = record(&opening());
        assert!(recording.unwrap_err().to_string().contains("exited"));
    }
}
