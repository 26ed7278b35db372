//! What a tab's screen shows, frame by frame.

use std::io::Write;
use std::time::{Duration, Instant, SystemTime};

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
    /// When the browser had it, before it was encoded; the page reports the same picture as painted some frames later.
    pub painted: Instant,
    /// The picture.
    pub jpeg: Vec<u8>,
}

/// What a screencast has taken.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScreencastFrames {
    /// The frames, in the order of their times; none if there were more than are kept, since the last one would not be the final screen.
    pub frames: Vec<ScreencastFrame>,
    /// Their number, if they were not kept.
    pub omitted: usize,
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
        let painted_s = params["metadata"]["timestamp"].as_f64();
        match (painted_s, jpeg) {
            (Some(painted_s), Some(jpeg))
                if self.omitted == 0
                    && self.frames.len() < MAX_FRAMES
                    && self.bytes + jpeg.len() <= MAX_BYTES =>
            {
                self.bytes += jpeg.len();
                let painted = instant_of(painted_s, SystemTime::now(), self.last_at);
                self.frames.push(ScreencastFrame { painted, jpeg });
            }
            _ => {
                self.omitted += 1 + self.frames.len();
                self.frames = Vec::new();
            }
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

    /// Ends, and returns the frames.
    ///
    /// # Errors
    /// Those of [`DevTools::call`].
    pub fn finish<W: Write>(
        mut self,
        devtools: &mut DevTools<W>,
    ) -> Result<ScreencastFrames, BrowserError> {
        devtools.call(&self.session_id, "Page.stopScreencast", json!({}))?;
        self.frames.sort_by_key(|frame| frame.painted);
        Ok(ScreencastFrames { frames: self.frames, omitted: self.omitted })
    }
}

/// Returns the instant of a wall-clock time in seconds since the epoch, by what the wall clock says `now`. A frame's time is converted when the
/// frame arrives, so that setting the clock during a load moves no frame but those on their way.
fn instant_of(at_s: f64, wall: SystemTime, now: Instant) -> Instant {
    let wall = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let ago = Duration::try_from_secs_f64(wall.as_secs_f64() - at_s).unwrap_or_default();
    now.checked_sub(ago).unwrap_or(now)
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
        let taken = screencast.finish(&mut devtools).unwrap();
        let jpegs: Vec<_> = taken.frames.iter().map(|frame| frame.jpeg.as_slice()).collect();
        assert_eq!((jpegs, taken.omitted), (vec![&b"first"[..], b"second"], 0));
    }

    #[test]
    fn a_clock_that_is_set_during_a_load_moves_no_frame() {
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3_600));
        let (began, wall) = (Instant::now(), SystemTime::UNIX_EPOCH + 1_000_000 * second);
        // Each frame arrives a quarter of a second after the browser had it; between them the clock is set.
        let first = instant_of(1_000_000.0, wall + second / 4, began + second / 4);
        for set in [wall + hour, wall - hour] {
            let since_epoch = set.duration_since(SystemTime::UNIX_EPOCH).unwrap();
            let second_s = since_epoch.as_secs_f64() + 1.0;
            let later = instant_of(second_s, set + 5 * second / 4, began + 5 * second / 4);
            assert!((later - first).abs_diff(second) < second / 1_000, "{:?}", later - first);
        }
        // Set back while the frame was on its way: it is not later than its arrival.
        assert_eq!(instant_of(1_000_000.0, wall - hour, began), began);
        assert_eq!(instant_of(f64::NAN, wall, began), began);
    }

    #[test]
    fn of_a_screen_that_changes_without_end_there_are_no_frames_instead_of_half_of_them() {
        let mut devtools =
            devtools_with(&[json!({"id": 1, "result": {}}), json!({"id": 4, "result": {}})]);
        let mut screencast = Screencast::start(&mut devtools, &Tab::with_session("S")).unwrap();
        for (number, bytes) in [(1, 0), (2, MAX_BYTES)] {
            screencast.bytes = bytes;
            let event = serde_json::from_value(frame("S", number, 1.0, b"x")).unwrap();
            screencast.observe(&mut devtools, &event).unwrap();
        }
        let taken = screencast.finish(&mut devtools).unwrap();
        assert_eq!(taken, ScreencastFrames { frames: Vec::new(), omitted: 2 });
    }
}
