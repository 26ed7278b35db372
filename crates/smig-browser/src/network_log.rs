//! The requests of a page, as the browser's Network events tell of them.

use std::collections::HashMap;

use serde_json::Value;

use crate::devtools::DevToolsEvent;

/// Maximum number of requests: pages have hundreds.
const MAX_REQUESTS: usize = 10_000;
/// Parts of the names of header fields that say who the user is; none of their values leaves this module.
const SECRET_WORDS: [&str; 8] =
    ["cookie", "auth", "token", "secret", "session", "csrf", "xsrf", "api-key"];
/// A URL without an authority, such as `data:`, is cut off after this many characters: it has its content in it.
const MAX_OPAQUE_URL_CHARS: usize = 100;

/// A request and what became of it. Times are seconds of the browser's monotonic clock.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NetworkRequest {
    /// DevTools session that sent it: that of the tab, or of a frame or worker in a process of its own.
    pub session_id: String,
    /// Identifier in its session; the requests of a chain of redirects share it.
    pub request_id: String,
    /// Its URL, without user and fragment.
    pub url: String,
    /// Its method.
    pub method: String,
    /// Header fields as the page set them, without cookies and credentials.
    pub fields: Vec<(String, String)>,
    /// Size of its body in bytes.
    pub body_bytes: u64,
    /// What the browser calls it, such as `Stylesheet`.
    pub resource_type: String,
    /// Its first priority, such as `VeryHigh`.
    pub priority: String,
    /// Who asked for it, as DevTools writes it.
    pub initiator: Value,
    /// When it was made.
    pub started_s: f64,
    /// The same in seconds of wall-clock time since the epoch.
    pub wall_time_s: f64,
    /// Its response, if there was one.
    pub response: Option<NetworkResponse>,
    /// Bytes of the body after decoding, so far.
    pub decoded_bytes: u64,
    /// Bytes of the body on the connection, so far, as the browser estimates them.
    pub encoded_bytes: u64,
    /// How it ended, and when; `None` if it had not.
    pub end: Option<(f64, RequestEnd)>,
    /// Whether it came out of a cache.
    pub from_cache: bool,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestEnd {
    /// Its body is complete; with all bytes on the connection, header fields among them.
    Complete(u64),
    /// It leads to another URL.
    Redirected(String),
    /// It failed, with the browser's reason.
    Failed(String),
}

/// The head of a response.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NetworkResponse {
    /// Status code.
    pub status: u16,
    /// Reason phrase; empty over HTTP/2.
    pub status_text: String,
    /// ALPN identifier of the protocol.
    pub protocol: String,
    /// Media type of the content.
    pub media_type: String,
    /// Header fields, without cookies.
    pub fields: Vec<(String, String)>,
    /// Address of the server.
    pub server_ip: String,
    /// The browser's number of the connection.
    pub connection: u64,
    /// Whether the connection had been used before.
    pub is_reused: bool,
    /// When it was known to the browser.
    pub received_s: f64,
    /// Its phases, if it came over the network.
    pub timing: Option<NetworkTiming>,
}

/// Phases of a request, in ms since `request_s`; `None` where a phase does not apply.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NetworkTiming {
    /// Beginning, in seconds of the monotonic clock.
    pub request_s: f64,
    /// Name resolution.
    pub dns_ms: Option<(f64, f64)>,
    /// Opening of the connection, with TLS.
    pub connect_ms: Option<(f64, f64)>,
    /// TLS handshake.
    pub tls_ms: Option<(f64, f64)>,
    /// Sending of the request.
    pub send_ms: (f64, f64),
    /// End of the response's header section.
    pub head_ms: f64,
}

/// All requests of a page, in the order in which they were made.
#[derive(Debug, Default)]
pub struct NetworkLog {
    requests: Vec<NetworkRequest>,
    /// The last request with this identifier.
    by_id: HashMap<(String, String), usize>,
    /// The last request for a document with this identifier, of any session.
    documents: HashMap<String, usize>,
    open: usize,
    omitted: u64,
}

impl NetworkLog {
    /// Returns the requests so far.
    #[must_use]
    pub fn requests(&self) -> &[NetworkRequest] {
        &self.requests
    }

    /// Returns the requests.
    #[must_use]
    pub fn into_requests(self) -> Vec<NetworkRequest> {
        self.requests
    }

    /// Returns how many requests have not ended.
    #[must_use]
    pub const fn open_requests(&self) -> usize {
        self.open
    }

    /// Returns how many requests were beyond the limit.
    #[must_use]
    pub const fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Takes note of an event. Others than those of the domain Network change nothing.
    pub fn observe(&mut self, event: &DevToolsEvent) {
        let params = &event.params;
        match event.method.as_str() {
            "Network.requestWillBeSent" => self.on_request(&event.session_id, params),
            "Network.requestServedFromCache" => {
                if let Some(request) = self.request_of(&event.session_id, params) {
                    request.from_cache = true;
                }
            }
            "Network.responseReceived" => {
                if let Some(request) = self.request_of(&event.session_id, params) {
                    let response = &params["response"];
                    request.from_cache |=
                        response["fromDiskCache"] == true || response["fromPrefetchCache"] == true;
                    request.response = Some(response_of(response, seconds(&params["timestamp"])));
                    if let Some(kind) = params["type"].as_str() {
                        kind.clone_into(&mut request.resource_type);
                    }
                }
            }
            "Network.dataReceived" => {
                if let Some(request) = self.request_of(&event.session_id, params) {
                    request.decoded_bytes += number(&params["dataLength"]);
                    request.encoded_bytes += number(&params["encodedDataLength"]);
                }
            }
            "Network.loadingFinished" => {
                let end = RequestEnd::Complete(number(&params["encodedDataLength"]));
                self.end(&event.session_id, params, end);
            }
            "Network.loadingFailed" => {
                let reason =
                    params["blockedReason"].as_str().or_else(|| params["errorText"].as_str());
                let end = RequestEnd::Failed(reason.unwrap_or("failed").to_owned());
                self.end(&event.session_id, params, end);
            }
            _ => {}
        }
    }

    fn on_request(&mut self, session_id: &str, params: &Value) {
        let sent = &params["request"];
        let url = without_secrets(sent["url"].as_str().unwrap_or_default());
        let redirect = &params["redirectResponse"];
        if !redirect.is_null() {
            if let Some(previous) = self.request_of(session_id, params) {
                let response = response_of(redirect, seconds(&params["timestamp"]));
                previous.response = Some(response);
            }
            self.end(session_id, params, RequestEnd::Redirected(url.clone()));
        }
        if self.requests.len() == MAX_REQUESTS {
            self.omitted += 1;
            self.by_id.remove(&id_of(session_id, params));
            return;
        }
        let request = NetworkRequest {
            session_id: session_id.to_owned(),
            request_id: text(&params["requestId"]),
            url,
            method: text(&sent["method"]),
            fields: fields(&sent["headers"]),
            body_bytes: sent["postData"].as_str().map_or(0, |data| data.len() as u64),
            resource_type: text(&params["type"]),
            priority: text(&sent["initialPriority"]),
            initiator: initiator_of(&params["initiator"]),
            started_s: seconds(&params["timestamp"]),
            wall_time_s: seconds(&params["wallTime"]),
            ..NetworkRequest::default()
        };
        if request.resource_type == "Document" {
            self.documents.insert(request.request_id.clone(), self.requests.len());
        }
        self.by_id.insert(id_of(session_id, params), self.requests.len());
        self.open += 1;
        self.requests.push(request);
    }

    /// Returns the request of an event. A document in a frame is requested in the session of the page, and arrives in one of its own if
    /// the frame gets another process: there is its body, too.
    fn request_of(&mut self, session_id: &str, params: &Value) -> Option<&mut NetworkRequest> {
        let id = id_of(session_id, params);
        if let Some(index) = self.by_id.get(&id) {
            return self.requests.get_mut(*index);
        }
        let index = *self.documents.get(&id.1)?;
        self.by_id.insert(id, index);
        let request = self.requests.get_mut(index)?;
        session_id.clone_into(&mut request.session_id);
        Some(request)
    }

    fn end(&mut self, session_id: &str, params: &Value, end: RequestEnd) {
        let at_s = seconds(&params["timestamp"]);
        if let Some(request) = self.request_of(session_id, params)
            && request.end.is_none()
        {
            request.end = Some((at_s, end));
            self.open -= 1;
        }
    }
}

fn id_of(session_id: &str, params: &Value) -> (String, String) {
    (session_id.to_owned(), text(&params["requestId"]))
}

fn response_of(response: &Value, received_s: f64) -> NetworkResponse {
    NetworkResponse {
        status: u16::try_from(number(&response["status"])).unwrap_or(0),
        status_text: text(&response["statusText"]),
        protocol: text(&response["protocol"]),
        media_type: text(&response["mimeType"]),
        fields: fields(&response["headers"]),
        server_ip: text(&response["remoteIPAddress"]).trim_matches(['[', ']']).to_owned(),
        connection: number(&response["connectionId"]),
        is_reused: response["connectionReused"] == true,
        received_s,
        timing: timing_of(&response["timing"]),
    }
}

fn timing_of(timing: &Value) -> Option<NetworkTiming> {
    let ms = |key: &str| timing[key].as_f64().filter(|ms| *ms >= 0.0);
    let phase = |start: &str, end: &str| Some((ms(start)?, ms(end)?));
    Some(NetworkTiming {
        request_s: timing["requestTime"].as_f64()?,
        dns_ms: phase("dnsStart", "dnsEnd"),
        connect_ms: phase("connectStart", "connectEnd"),
        tls_ms: phase("sslStart", "sslEnd"),
        send_ms: phase("sendStart", "sendEnd")?,
        head_ms: ms("receiveHeadersEnd")?,
    })
}

/// Returns header fields without those that say who the user is.
fn fields(headers: &Value) -> Vec<(String, String)> {
    let all = headers.as_object().into_iter().flatten();
    let is_public = |name: &str| {
        let name = name.to_ascii_lowercase();
        name == ":authority" || !SECRET_WORDS.iter().any(|word| name.contains(word))
    };
    all.filter(|(name, _)| is_public(name))
        .map(|(name, value)| {
            // The values of a repeated field are in lines of their own.
            let value = value.as_str().unwrap_or_default().replace('\n', ", ");
            let is_url = ["referer", "location"].iter().any(|url| name.eq_ignore_ascii_case(url));
            (name.clone(), if is_url { without_secrets(&value) } else { value })
        })
        .collect()
}

/// Returns a URL without user, password and fragment.
fn without_secrets(url: &str) -> String {
    let url = url.split('#').next().unwrap_or_default();
    let is_scheme = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let (scheme, rest) = match url.split_once(':') {
        Some((name, _)) if is_scheme(name) => url.split_at(name.len() + 1),
        _ => ("", url),
    };
    let Some(rest) = rest.strip_prefix("//") else {
        // Without an authority: relative, or with its content in it, of which nothing is recorded.
        let chars = if scheme.is_empty() { usize::MAX } else { MAX_OPAQUE_URL_CHARS };
        return url.chars().take(chars).collect();
    };
    let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}//{host}{path}")
}

/// Returns who asked for a request, without secrets in the URLs of its stack.
fn initiator_of(initiator: &Value) -> Value {
    match initiator {
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                let value = match value.as_str() {
                    Some(url) if key == "url" => without_secrets(url).into(),
                    _ => initiator_of(value),
                };
                (key.clone(), value)
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Array(items) => items.iter().map(initiator_of).collect(),
        other => other.clone(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn seconds(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// Returns a count: the protocol has integers as fractions, and -1 for unknown ones.
fn number(value: &Value) -> u64 {
    value.as_f64().map_or(0, |number| number as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn log(events: &[(&str, Value)]) -> NetworkLog {
        let mut log = NetworkLog::default();
        for (method, params) in events {
            let (method, params) = ((*method).to_owned(), params.clone());
            log.observe(&DevToolsEvent { method, params, session_id: "S".to_owned() });
        }
        log
    }

    fn request(id: &str, url: &str) -> Value {
        json!({"requestId": id, "timestamp": 10.0, "wallTime": 1.7e9, "type": "Document",
            "request": {"url": url, "method": "GET", "initialPriority": "VeryHigh", "headers":
                {"Accept": "*/*", "Cookie": "a=b", "authorization": "Basic x", "X-Api-Key": "secret", "Referer": "https://u:p@a.example/#f"}},
            "initiator": {"type": "script", "stack": {"callFrames": [{"url": "https://u:p@a.example/x.js#f"}]}}})
    }

    fn response() -> Value {
        json!({"status": 200, "statusText": "", "protocol": "h2", "mimeType": "text/html",
            "remoteIPAddress": "[::1]", "connectionId": 7, "connectionReused": true,
            "headers": {"Content-Type": "text/html", "Set-Cookie": "secret=1", "x": "1\n2"},
            "timing": {"requestTime": 10.1, "dnsStart": -1, "dnsEnd": -1, "connectStart": 1.0, "connectEnd": 5.0,
                "sslStart": 2.0, "sslEnd": 5.0, "sendStart": 5.5, "sendEnd": 6.0, "receiveHeadersEnd": 20.0}})
    }

    #[test]
    fn a_request_is_followed_to_its_end_without_secrets() {
        let log = log(&[
            ("Network.requestWillBeSent", request("1", "https://user:word@a.example/?q=@#top")),
            (
                "Network.responseReceived",
                json!({"requestId": "1", "timestamp": 10.2, "type": "Document", "response": response()}),
            ),
            (
                "Network.dataReceived",
                json!({"requestId": "1", "dataLength": 90, "encodedDataLength": 40}),
            ),
            ("Network.dataReceived", json!({"requestId": "2", "dataLength": 90})),
            (
                "Network.loadingFinished",
                json!({"requestId": "1", "timestamp": 10.3, "encodedDataLength": 140}),
            ),
            ("Page.loadEventFired", json!({})),
        ]);
        let [request] = log.requests() else { panic!("{log:?}") };
        assert_eq!(request.url, "https://a.example/?q=@");
        let names: Vec<_> = request.fields.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Accept", "Referer"]);
        assert!(!format!("{log:?}").contains("secret") && !format!("{log:?}").contains("u:p@"));
        let frame = &request.initiator["stack"]["callFrames"][0];
        assert_eq!(frame["url"], "https://a.example/x.js");
        assert_eq!(request.end, Some((10.3, RequestEnd::Complete(140))));
        assert_eq!((request.decoded_bytes, request.encoded_bytes), (90, 40));
        let response = request.response.as_ref().unwrap();
        assert_eq!((response.connection, response.server_ip.as_str()), (7, "::1"));
        assert_eq!(response.fields[1], ("x".to_owned(), "1, 2".to_owned()));
        let timing = response.timing.unwrap();
        assert_eq!((timing.dns_ms, timing.connect_ms), (None, Some((1.0, 5.0))));
        assert_eq!(log.open_requests(), 0);
    }

    #[test]
    fn urls_lose_users_passwords_and_content() {
        for (url, expected) in [
            ("//u:p@b.example/x", "//b.example/x"),
            ("/a//u@b", "/a//u@b"),
            ("?next=https://u@b.example/", "?next=https://u@b.example/"),
            ("blob:https://a.example/1", "blob:https://a.example/1"),
        ] {
            assert_eq!(without_secrets(url), expected);
        }
        let data = format!("data:image/png;base64,{}", "A".repeat(5_000));
        assert_eq!(without_secrets(&data).len(), MAX_OPAQUE_URL_CHARS);
    }

    #[test]
    fn redirects_are_requests_of_their_own() {
        let mut second = request("1", "https://b.example/");
        second["redirectResponse"] = response();
        second["redirectResponse"]["status"] = json!(301);
        second["timestamp"] = json!(10.5);
        let log = log(&[
            ("Network.requestWillBeSent", request("1", "https://a.example/")),
            ("Network.requestWillBeSent", second),
            ("Network.loadingFailed", json!({"requestId": "1", "errorText": "net::ERR_FAILED"})),
            ("Network.loadingFailed", json!({"requestId": "1", "errorText": "twice"})),
        ]);
        let [first, second] = log.requests() else { panic!("{log:?}") };
        let led_to = RequestEnd::Redirected("https://b.example/".to_owned());
        assert_eq!(first.end, Some((10.5, led_to)));
        assert_eq!(first.response.as_ref().unwrap().status, 301);
        assert_eq!(second.end, Some((0.0, RequestEnd::Failed("net::ERR_FAILED".to_owned()))));
        assert_eq!(log.open_requests(), 0);
    }

    #[test]
    fn a_frame_s_document_arrives_in_its_own_session() {
        let mut log = log(&[("Network.requestWillBeSent", request("1", "https://a.example/"))]);
        let mut in_frame = |id: &str, method: &str, params: Value| {
            let (method, session_id) = (format!("Network.{method}"), "F".to_owned());
            let mut params = params;
            params["requestId"] = json!(id);
            log.observe(&DevToolsEvent { method, params, session_id });
        };
        in_frame("1", "responseReceived", json!({"timestamp": 10.2, "response": response()}));
        in_frame("1", "loadingFinished", json!({"timestamp": 10.3, "encodedDataLength": 140}));
        in_frame("2", "loadingFinished", json!({"timestamp": 10.3}));
        let [request] = log.requests() else { panic!("{log:?}") };
        assert_eq!(request.session_id, "F", "that is where its body is");
        assert_eq!(request.end, Some((10.3, RequestEnd::Complete(140))));
    }

    #[test]
    fn events_without_fields_and_beyond_the_limit_do_no_harm() {
        for method in ["requestWillBeSent", "responseReceived", "dataReceived", "loadingFinished"] {
            log(&[(&format!("Network.{method}"), Value::Null)]);
        }
        let mut full = NetworkLog::default();
        for id in 0..=MAX_REQUESTS {
            let params = request(&id.to_string(), "https://a.example/");
            let method = "Network.requestWillBeSent".to_owned();
            full.observe(&DevToolsEvent { method, params, session_id: String::new() });
        }
        assert_eq!((full.requests().len(), full.omitted()), (MAX_REQUESTS, 1));
    }
}
