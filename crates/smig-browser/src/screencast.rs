//! What a tab's screen shows, frame by frame.

use std::io::Write;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::devtools::{DevTools, DevToolsEvent};
use crate::error::BrowserError;
use crate::tab::Tab;

/// Width and height of a frame in pixels, at most: small enough that taking them costs little, as Lighthouse has it.
const MAX_SIDE_PX: u32 = 480;
const JPEG_QUALITY: u32 = 70;
/// Limits of what is kept: what a page paints for minutes is no load.
const MAX_FRAMES: usize = 2_000;
const MAX_BYTES: usize = 64 << 20;

/// A frame that was painted.
#[derive(Debug, Clone, PartialEq)]
pub struct ScreencastFrame {
    /// When the browser began it, some frames before it is seen, in ms of wall-clock time since the epoch.
    pub painted_ms: f64,
    /// The picture.
    pub jpeg: Vec<u8>,
}

/// The frames of a tab since the screencast began.
#[derive(Debug)]
pub struct Screencast {
    session_id: String,
    frames: Vec<ScreencastFrame>,
    bytes: usize,
    omitted: usize,
    last_at: Instant,
}

impl Screencast {
    /// Begins: the browser sends a frame whenever the tab was painted, the first one at once. Pass all events to [`Self::observe`].
    ///
    /// # Errors
    /// Those of [`DevTools::call`].
    pub fn start<W: Write>(devtools: &mut DevTools<W>, tab: &Tab) -> Result<Self, BrowserError> {
        let params = json!({"format": "jpeg", "quality": JPEG_QUALITY, "maxWidth": MAX_SIDE_PX,
            "maxHeight": MAX_SIDE_PX, "everyNthFrame": 1});
        devtools.call(tab.session_id(), "Page.startScreencast", params)?;
        Ok(Self {
            session_id: tab.session_id().to_owned(),
            frames: Vec::new(),
            bytes: 0,
            omitted: 0,
            last_at: Instant::now(),
        })
    }

    /// Takes an event's frame, if it has one of this tab, and acknowledges it: the browser sends the next one only then.
    ///
    /// # Errors
    /// The browser has exited.
    pub fn observe<W: Write>(
        &mut self,
        devtools: &mut DevTools<W>,
        event: &DevToolsEvent,
    ) -> Result<(), BrowserError> {
        if event.method != "Page.screencastFrame" || event.session_id != self.session_id {
            return Ok(());
        }
        let params = &event.params;
        let acknowledgement = json!({"sessionId": params["sessionId"]});
        devtools.send(&self.session_id, "Page.screencastFrameAck", acknowledgement)?;
        self.last_at = Instant::now();
        let jpeg = params["data"].as_str().and_then(|data| STANDARD.decode(data).ok());
        let painted_ms = params["metadata"]["timestamp"].as_f64().map(|at_s| at_s * 1e3);
        match (painted_ms, jpeg) {
            (Some(painted_ms), Some(jpeg))
                if self.frames.len() < MAX_FRAMES && self.bytes + jpeg.len() <= MAX_BYTES =>
            {
                self.bytes += jpeg.len();
                self.frames.push(ScreencastFrame { painted_ms, jpeg });
            }
            _ => self.omitted += 1,
        }
        Ok(())
    }

    /// Waits until no frame has come for `quiet`, for `limit` at most: then the screen is final, unless it is animated.
    ///
    /// # Errors
    /// The browser has exited, or was stopped.
    pub fn wait_until_quiet<W: Write>(
        &mut self,
        devtools: &mut DevTools<W>,
        quiet: Duration,
        limit: Duration,
    ) -> Result<(), BrowserError> {
        let deadline = Instant::now() + limit;
        self.last_at = Instant::now();
        loop {
            let until = deadline.min(self.last_at + quiet);
            match devtools.next_event(until.saturating_duration_since(Instant::now()))? {
                Some(event) => self.observe(devtools, &event)?,
                None => return Ok(()),
            }
            if Instant::now() >= deadline {
                return Ok(());
            }
        }
    }

    /// Ends, and returns the frames in the order of their times.
    ///
    /// # Errors
    /// Those of [`DevTools::call`]; [`BrowserError::Incomplete`] if there were more frames than are kept.
    pub fn finish<W: Write>(
        mut self,
        devtools: &mut DevTools<W>,
    ) -> Result<Vec<ScreencastFrame>, BrowserError> {
        devtools.call(&self.session_id, "Page.stopScreencast", json!({}))?;
        if self.omitted > 0 {
            let kept = self.frames.len();
            return Err(BrowserError::Incomplete(format!(
                "the screen changed {} times, and {kept} frames are kept; measure it without frames",
                kept + self.omitted
            )));
        }
        self.frames.sort_by(|a, b| a.painted_ms.total_cmp(&b.painted_ms));
        Ok(self.frames)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use serde_json::Value;
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn frame(session: &str, number: u64, at_s: f64, data: &[u8]) -> Value {
        json!({"method": "Page.screencastFrame", "sessionId": session, "params": {"data": STANDARD.encode(data),
            "metadata": {"timestamp": at_s}, "sessionId": number}})
    }

    fn devtools_with(messages: &[Value]) -> DevTools<Vec<u8>> {
        let input: String = messages.iter().map(|message| format!("{message}\0")).collect();
        let stop = CancellationToken::default();
        DevTools::new(Vec::new(), Cursor::new(input.into_bytes()), stop).unwrap()
    }

    #[test]
    fn frames_of_the_tab_are_kept_in_the_order_of_their_times() {
        let mut devtools = devtools_with(&[
            json!({"id": 1, "result": {}}),
            frame("S", 7, 2.0, b"second"),
            frame("other", 1, 1.5, b"no"),
            frame("S", 8, 1.0, b"first"),
            json!({"method": "Page.loadEventFired", "sessionId": "S"}),
            json!({"id": 4, "result": {}}),
        ]);
        let mut screencast = Screencast::start(&mut devtools, &Tab::with_session("S")).unwrap();
        for _ in 0..4 {
            let event = devtools.next_event(Duration::from_secs(10)).unwrap().unwrap();
            screencast.observe(&mut devtools, &event).unwrap();
        }
        // Two acknowledgements had the numbers 2 and 3, so that the end of the screencast has 4.
        let frames = screencast.finish(&mut devtools).unwrap();
        let frames: Vec<_> =
            frames.iter().map(|frame| (frame.painted_ms, frame.jpeg.as_slice())).collect();
        assert_eq!(frames, [(1_000.0, &b"first"[..]), (2_000.0, b"second")]);
    }

    #[test]
    fn a_screen_that_changes_without_end_is_an_error_and_not_half_a_load() {
        let mut devtools =
            devtools_with(&[json!({"id": 1, "result": {}}), json!({"id": 3, "result": {}})]);
        let mut screencast = Screencast::start(&mut devtools, &Tab::with_session("S")).unwrap();
        screencast.bytes = MAX_BYTES;
        let event = serde_json::from_value(frame("S", 1, 1.0, b"x")).unwrap();
        screencast.observe(&mut devtools, &event).unwrap();
        let error = screencast.finish(&mut devtools).unwrap_err().to_string();
        assert!(error.contains("changed 1 times, and 0 frames are kept"), "{error}");
    }
}
