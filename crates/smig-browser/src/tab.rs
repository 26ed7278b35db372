//! Browser contexts and their tabs, over the DevTools protocol.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::browser::WindowSize;
use crate::devtools::{DevTools, DevToolsEvent};
use crate::error::BrowserError;

/// Time limit of [`Tab::load`].
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// As much is shown of the URL that a page leads to.
const MAX_SHOWN_CHARS: usize = 300;

/// What takes the events of a load.
pub type Observe<'a, W> =
    dyn FnMut(&mut DevTools<W>, &DevToolsEvent) -> Result<(), BrowserError> + 'a;

/// A browser context: a cache and connections of its own.
#[derive(Debug)]
pub struct BrowserContext {
    id: String,
}

impl BrowserContext {
    /// Creates a context. The proxy is a URL.
    ///
    /// # Errors
    /// Those of [`DevTools::call`].
    pub fn create<W: Write>(
        devtools: &mut DevTools<W>,
        proxy_url: Option<&str>,
    ) -> Result<Self, BrowserError> {
        let mut params = json!({"disposeOnDetach": true});
        if let Some(proxy_url) = proxy_url {
            params["proxyServer"] = proxy_url.into();
            params["proxyBypassList"] = "<-loopback>".into();
        }
        let response = devtools.call("", "Target.createBrowserContext", params)?;
        Ok(Self { id: string_field(&response, "browserContextId")? })
    }

    /// Closes its tabs and its connections.
    ///
    /// # Errors
    /// Those of [`DevTools::call`].
    pub fn dispose<W: Write>(self, devtools: &mut DevTools<W>) -> Result<(), BrowserError> {
        let params = json!({"browserContextId": self.id});
        devtools.call("", "Target.disposeBrowserContext", params)?;
        Ok(())
    }
}

/// A document that a tab loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Navigation {
    loader_id: String,
    shown: Shown,
}

/// What a tab shows during a navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// The document before it.
    Previous,
    /// The document, which has replaced the one before it.
    Document,
}

impl Navigation {
    /// Returns whether a lifecycle event is of this document: the empty page before it has some, too.
    #[must_use]
    pub fn is_of(&self, event: &DevToolsEvent) -> bool {
        event.params["loaderId"] == self.loader_id
    }
}

/// A tab in a window of its own, so that it is visible beside others.
#[derive(Debug)]
pub struct Tab {
    target_id: String,
    session_id: String,
}

impl Tab {
    /// Opens an empty tab.
    ///
    /// # Errors
    /// Those of [`DevTools::call`].
    pub fn open<W: Write>(
        devtools: &mut DevTools<W>,
        context: &BrowserContext,
        window: WindowSize,
    ) -> Result<Self, BrowserError> {
        let params = json!({"url": "about:blank", "browserContextId": context.id,
            "newWindow": true, "width": window.width, "height": window.height});
        let target_id =
            string_field(&devtools.call("", "Target.createTarget", params)?, "targetId")?;
        let attach = json!({"targetId": target_id, "flatten": true});
        let session_id =
            string_field(&devtools.call("", "Target.attachToTarget", attach)?, "sessionId")?;
        devtools.call(&session_id, "Page.enable", json!({}))?;
        devtools.call(&session_id, "Page.setLifecycleEventsEnabled", json!({"enabled": true}))?;
        // A page reports 250 resources unless it asks for more.
        let source = "performance.setResourceTimingBufferSize(100000)";
        let script = json!({"source": source});
        devtools.call(&session_id, "Page.addScriptToEvaluateOnNewDocument", script)?;
        // A window of this size has a smaller page, whose rest would not be visible.
        let size = json!({"width": window.width, "height": window.height, "deviceScaleFactor": 1,
            "mobile": false});
        devtools.call(&session_id, "Emulation.setDeviceMetricsOverride", size)?;
        Ok(Self { target_id, session_id })
    }

    /// Returns the DevTools session.
    #[must_use]
    pub fn session_id(&self) -> &str {
        &self.session_id
    }

    /// Returns a tab of which only the DevTools session is known.
    #[cfg(test)]
    pub(crate) fn with_session(session_id: &str) -> Self {
        Self { target_id: "T".into(), session_id: session_id.into() }
    }

    /// Navigates and waits for the load event, a minute at most.
    ///
    /// # Errors
    /// Those of [`Self::load_before`].
    pub fn load<W: Write>(
        &self,
        devtools: &mut DevTools<W>,
        url: &str,
    ) -> Result<(), BrowserError> {
        self.load_before(devtools, url, Instant::now() + LOAD_TIMEOUT)
    }

    /// Navigates and waits for the load event.
    ///
    /// # Errors
    /// [`BrowserError::TimedOut`] if there is none before `deadline`; [`BrowserError::Incomplete`] if the page leads to another one before;
    /// those of [`Self::navigate`] and [`DevTools::next_event`].
    pub fn load_before<W: Write>(
        &self,
        devtools: &mut DevTools<W>,
        url: &str,
        deadline: Instant,
    ) -> Result<(), BrowserError> {
        self.load_observed(devtools, url, deadline, &mut |_, _| Ok(()))
    }

    /// Like [`Self::load_before`]; `observe` is called with each event until the load event, and may answer it.
    ///
    /// # Errors
    /// The same, and those of `observe`.
    pub fn load_observed<W: Write>(
        &self,
        devtools: &mut DevTools<W>,
        url: &str,
        deadline: Instant,
        observe: &mut Observe<'_, W>,
    ) -> Result<(), BrowserError> {
        let mut navigation = self.navigate(devtools, url, deadline)?;
        while let Some(event) =
            devtools.next_event(deadline.saturating_duration_since(Instant::now()))?
        {
            observe(devtools, &event)?;
            self.check_still_there(url, &mut navigation, &event)?;
            if self.is_load_event(&event, &navigation) {
                return Ok(());
            }
        }
        Err(BrowserError::TimedOut(format!("{url} has had no load event")))
    }

    /// Returns whether an event is the load event of the document of this navigation.
    #[must_use]
    pub fn is_load_event(&self, event: &DevToolsEvent, navigation: &Navigation) -> bool {
        event.session_id == self.session_id
            && event.method == "Page.lifecycleEvent"
            && event.params["name"] == "load"
            && navigation.is_of(event)
    }

    /// Fails if an event says that another document has replaced that of a navigation: the page has led to it, by a script or by `Refresh`, and
    /// its own load event will never come.
    pub(crate) fn check_still_there(
        &self,
        url: &str,
        navigation: &mut Navigation,
        event: &DevToolsEvent,
    ) -> Result<(), BrowserError> {
        let frame = &event.params["frame"];
        let is_main_frame = event.session_id == self.session_id && frame["parentId"].is_null();
        if event.method != "Page.frameNavigated" || !is_main_frame {
            return Ok(());
        }
        if frame["loaderId"] == navigation.loader_id {
            navigation.shown = Shown::Document;
            return Ok(());
        }
        // The empty page before it has such an event, too.
        if navigation.shown == Shown::Previous {
            return Ok(());
        }
        // Where a document cannot be loaded, the frame has the URL of an error page.
        let next = frame["unreachableUrl"].as_str().or_else(|| frame["url"].as_str());
        let next: String = next.unwrap_or_default().chars().take(MAX_SHOWN_CHARS).collect();
        Err(BrowserError::Incomplete(format!(
            "{url} led to {next} by itself, before its load event"
        )))
    }

    /// Navigates and waits until the page's first bytes have replaced the previous one.
    ///
    /// # Errors
    /// [`BrowserError::Incomplete`] if the browser shows an error page instead, which has a load event too; those of [`DevTools::call`].
    pub fn navigate<W: Write>(
        &self,
        devtools: &mut DevTools<W>,
        url: &str,
        deadline: Instant,
    ) -> Result<Navigation, BrowserError> {
        let params = json!({"url": url});
        let response = devtools.call_before(deadline, &self.session_id, "Page.navigate", params);
        let response = response.map_err(|error| match error {
            BrowserError::Browser(_) if Instant::now() >= deadline => {
                BrowserError::TimedOut(format!("{url} has had no response"))
            }
            other => other,
        })?;
        match response["errorText"].as_str() {
            None | Some("") => {
                let loader_id = string_field(&response, "loaderId")?;
                Ok(Navigation { loader_id, shown: Shown::Previous })
            }
            Some(error) => Err(BrowserError::Incomplete(format!("{url}: {error}"))),
        }
    }

    /// Evaluates an expression in the page, and awaits its promise.
    ///
    /// # Errors
    /// Also if it throws an exception.
    pub fn evaluate<W: Write>(
        &self,
        devtools: &mut DevTools<W>,
        expression: &str,
    ) -> Result<Value, BrowserError> {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut response = devtools.call(&self.session_id, "Runtime.evaluate", params)?;
        let exception = &response["exceptionDetails"];
        if exception.is_null() {
            return Ok(response["result"]["value"].take());
        }
        let description = exception["exception"]["description"].as_str();
        let text = description.or_else(|| exception["text"].as_str()).unwrap_or_default();
        Err(BrowserError::unexpected_response(format!("the page's script failed: {text}")))
    }

    /// Closes it.
    ///
    /// # Errors
    /// Those of [`DevTools::call`].
    pub fn close<W: Write>(self, devtools: &mut DevTools<W>) -> Result<(), BrowserError> {
        devtools.call("", "Target.closeTarget", json!({"targetId": self.target_id}))?;
        Ok(())
    }
}

fn string_field(response: &Value, name: &str) -> Result<String, BrowserError> {
    response[name]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| BrowserError::unexpected_response(format!("no {name}")))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use tokio_util::sync::CancellationToken;

    use super::*;

    fn tab_and_devtools(input: &'static str) -> (Tab, DevTools<Vec<u8>>) {
        let stop = CancellationToken::default();
        let devtools = DevTools::new(Vec::new(), Cursor::new(input), stop).unwrap();
        (Tab::with_session("S"), devtools)
    }

    #[test]
    fn an_error_page_has_not_loaded() {
        let load = |input| {
            let (tab, mut devtools) = tab_and_devtools(input);
            tab.load(&mut devtools, "https://10.99.0.1/")
        };
        load(
            "{\"method\":\"Page.lifecycleEvent\",\"sessionId\":\"S\",\"params\":{\"name\":\"load\",\"loaderId\":\"L\"}}\0\
             {\"id\":1,\"result\":{\"frameId\":\"F\",\"loaderId\":\"L\"}}\0",
        )
        .unwrap();
        // The load event of the empty page before it, and then the browser exits.
        let earlier = load(
            "{\"method\":\"Page.lifecycleEvent\",\"sessionId\":\"S\",\"params\":{\"name\":\"load\",\"loaderId\":\"E\"}}\0\
             {\"id\":1,\"result\":{\"frameId\":\"F\",\"loaderId\":\"L\"}}\0",
        );
        assert!(earlier.unwrap_err().to_string().contains("exited"));
        let error = load(
            "{\"id\":1,\"result\":{\"errorText\":\"net::ERR_CONNECTION_REFUSED\",\"loaderId\":\"L\"}}\0\
             {\"method\":\"Page.lifecycleEvent\",\"sessionId\":\"S\",\"params\":{\"name\":\"load\",\"loaderId\":\"L\"}}\0",
        );
        let text = error.unwrap_err().to_string();
        assert!(text.contains("https://10.99.0.1/: net::ERR_CONNECTION_REFUSED"), "{text}");
    }

    #[test]
    fn a_page_that_leads_to_another_one_has_not_loaded() {
        let navigated = |session: &str, frame: &str| {
            format!(
                "{{\"method\":\"Page.frameNavigated\",\"sessionId\":\"{session}\",\"params\":{{\"frame\":{{{frame}}}}}}}\0"
            )
        };
        let before = navigated("S", r#""loaderId":"E","url":"about:blank""#);
        let own = navigated("S", r#""loaderId":"L","url":"https://a.example/""#);
        let inner = navigated("S", r#""loaderId":"I","parentId":"F","url":"https://i.example/""#);
        let other = navigated("O", r#""loaderId":"O","url":"https://o.example/""#);
        let loaded = "{\"method\":\"Page.lifecycleEvent\",\"sessionId\":\"S\",\"params\":{\"name\":\"load\",\"loaderId\":\"L\"}}\0";
        let response = "{\"id\":1,\"result\":{\"frameId\":\"F\",\"loaderId\":\"L\"}}\0";
        let load = |events: &str| {
            let stop = CancellationToken::default();
            let input = Cursor::new(format!("{before}{response}{own}{events}{loaded}"));
            let mut devtools = DevTools::new(Vec::new(), input, stop).unwrap();
            Tab::with_session("S").load(&mut devtools, "https://a.example/")
        };
        load(&format!("{inner}{other}")).unwrap();
        let next = navigated("S", r#""loaderId":"N","url":"https://b.example/next""#);
        let text = load(&next).unwrap_err().to_string();
        assert!(
            text.contains("https://a.example/ led to https://b.example/next by itself"),
            "{text}"
        );
        let unreachable = navigated(
            "S",
            r#""loaderId":"N","url":"chrome-error://chromewebdata/","unreachableUrl":"https://c.example/""#,
        );
        let text = load(&unreachable).unwrap_err().to_string();
        assert!(text.contains("led to https://c.example/ by itself"), "{text}");
    }

    #[test]
    fn an_exception_in_the_page_is_an_error() {
        let (tab, mut devtools) = tab_and_devtools(
            "{\"id\":1,\"result\":{\"result\":{\"value\":7}}}\0\
             {\"id\":2,\"result\":{\"exceptionDetails\":{\"text\":\"Uncaught\",\
             \"exception\":{\"description\":\"ReferenceError: x\"}}}}\0",
        );
        assert_eq!(tab.evaluate(&mut devtools, "1 + 6").unwrap(), 7);
        let text = tab.evaluate(&mut devtools, "x").unwrap_err().to_string();
        assert!(text.contains("ReferenceError: x"), "{text}");
    }
}
