//! Inspects every frame that an engine writes. Two correct engines must not report errors of each other; and
//! the frames show which cases a sequence covers. Can corrupt frames, to test the checks themselves.

use std::collections::BTreeSet;

use crate::mesh::link::Side;

const FRAME_HEADER_BYTES: usize = 9;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const MIGRATE: u8 = 0xf5;
const SMIG_ACK: u8 = 2;

/// A fault to inject, for tests of the checks themselves. The number is how many frames of that
/// kind pass unchanged first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultInjection {
    /// Two bytes of a DATA frame are swapped.
    SwapBytes(u32),
    /// A stream's WINDOW_UPDATE is lost.
    DropStreamCredit(u32),
    /// A connection's WINDOW_UPDATE is lost.
    DropConnectionCredit(u32),
    /// A DATA frame is lost.
    DropData(u32),
    /// A DATA frame gets END_STREAM.
    EndEarly(u32),
    /// An answer to MIGRATE is lost.
    DropAnswer(u32),
    /// A RST_STREAM is lost.
    DropReset(u32),
}

/// A MIGRATE that was sent and not answered.
#[derive(Debug)]
struct OpenMigration {
    link: usize,
    stream: u32,
    side: Side,
    destination: Option<(u32, u32)>,
    /// DATA or HEADERS were sent on the carrier.
    carrier_used: bool,
}

#[derive(Debug, Default)]
pub(crate) struct FrameInspector {
    pub(crate) fault_injection: Option<FaultInjection>,
    pub(crate) violations: Vec<String>,
    /// The cases that occurred.
    pub(crate) cases: BTreeSet<&'static str>,
    open_migrations: Vec<OpenMigration>,
    draining_links: BTreeSet<usize>,
    /// The sequence paused so long that timeouts of connections may have expired.
    pub(crate) timeouts_expected: bool,
    /// Every frame as text, if enabled.
    pub(crate) log: Option<Vec<String>>,
}

/// Where a frame was sent.
#[derive(Clone, Copy)]
pub(crate) struct FrameSource {
    pub(crate) link: usize,
    /// The ConnNo.
    pub(crate) conn_no: u32,
    pub(crate) side: Side,
}

impl FrameInspector {
    /// Inspects complete frames; returns the bytes to send.
    pub(crate) fn inspect(&mut self, source: FrameSource, bytes: Vec<u8>) -> Vec<u8> {
        let preface_len = if bytes.starts_with(PREFACE) { PREFACE.len() } else { 0 };
        let mut frames = Vec::new();
        let mut start = preface_len;
        while start < bytes.len() {
            let Some(length) = frame_length(&bytes[start..]) else {
                self.violations
                    .push(format!("poll_transmit wrote a partial frame on link {}", source.link));
                return bytes;
            };
            self.inspect_frame(source, &bytes[start..start + length]);
            frames.push(start..start + length);
            start += length;
        }
        if self.fault_injection.is_none() {
            return bytes;
        }
        let mut out = bytes[..preface_len].to_vec();
        for range in frames {
            let mut frame = bytes[range].to_vec();
            if self.inject_fault(&mut frame) {
                out.extend_from_slice(&frame);
            }
        }
        out
    }

    fn inspect_frame(&mut self, source: FrameSource, frame: &[u8]) {
        let (kind, flags, stream) = (frame[3], frame[4], read_u32(&frame[5..9]) & 0x7fff_ffff);
        let payload = &frame[FRAME_HEADER_BYTES..];
        if let Some(log) = &mut self.log {
            log.push(describe(source, kind, flags, stream, payload));
        }
        match kind {
            RST_STREAM => self.inspect_reset(source, stream, read_u32(payload)),
            GOAWAY => self.inspect_goaway(source, read_u32(&payload[4..])),
            MIGRATE => self.inspect_migrate(source, flags, stream, payload),
            DATA | HEADERS => {
                let location = Some((source.conn_no, stream));
                for migration in self
                    .open_migrations
                    .iter_mut()
                    .filter(|m| m.side == source.side && m.destination == location)
                {
                    migration.carrier_used = true;
                }
            }
            _ => {}
        }
    }

    fn inspect_reset(&mut self, source: FrameSource, stream: u32, code: u32) {
        // NO_ERROR, INTERNAL_ERROR (of an application), REFUSED_STREAM, CANCEL.
        if !matches!(code, 0 | 2 | 7 | 8) {
            self.violations.push(format!(
                "RST_STREAM({code:#x}) on {}/{stream} by {:?}",
                source.link, source.side
            ));
        }
        if code == 7 {
            self.cases.insert("refused stream");
        }
        let location = Some((source.conn_no, stream));
        let involves = |m: &&OpenMigration| {
            m.destination == location || (m.link == source.link && m.stream == stream)
        };
        if self.open_migrations.iter().any(|m| involves(&m)) {
            self.cases.insert("reset during a migration");
        }
        if code != 0 || source.side != Side::Server {
            return;
        }
        self.cases.insert("upload stopped");
        // After a decline, the response would have to be sent again (SMIG-8.19/stop-after-answer).
        let is_own_migration =
            |m: &&OpenMigration| involves(m) && m.side == Side::Server && m.destination.is_some();
        if self.open_migrations.iter().any(|m| is_own_migration(&m)) {
            self.violations.push(format!("NO_ERROR on {}/{stream} before the answer", source.link));
        } else if self.open_migrations.iter().any(|m| involves(&m)) {
            self.cases.insert("upload stopped during its own migration");
        }
    }

    fn inspect_goaway(&mut self, source: FrameSource, code: u32) {
        // SETTINGS_TIMEOUT, and ENHANCE_YOUR_CALM for a header block that took too long.
        if code != 0 && !(self.timeouts_expected && matches!(code, 4 | 0xb)) {
            self.violations
                .push(format!("GOAWAY({code:#x}) on link {} by {:?}", source.link, source.side));
        }
        self.cases.insert("goaway");
        self.draining_links.insert(source.link);
    }

    fn inspect_migrate(&mut self, source: FrameSource, flags: u8, stream: u32, payload: &[u8]) {
        let (link, side) = (source.link, source.side);
        let (conn_no, carrier) = (read_u32(&payload[8..]), read_u32(&payload[12..]));
        let destination = (conn_no != 0).then_some((conn_no, carrier));
        if flags & SMIG_ACK == 0 {
            if self
                .open_migrations
                .iter()
                .any(|m| m.link == link && m.stream == stream && m.side != side)
            {
                self.cases.insert(if destination.is_some() {
                    "collision"
                } else {
                    "offer in a collision"
                });
            }
            self.open_migrations.push(OpenMigration {
                link,
                stream,
                side,
                destination,
                carrier_used: false,
            });
            if self.draining_links.contains(&link) {
                self.cases.insert("MIGRATE on a connection that is going away");
            }
            self.cases.insert(match (destination, side) {
                (None, _) => "offer",
                (Some(_), Side::Client) => "MIGRATE by client",
                (Some(_), Side::Server) => "MIGRATE by server",
            });
            return;
        }
        let index = self
            .open_migrations
            .iter()
            .position(|m| m.link == link && m.stream == stream && m.side != side);
        if let Some(migration) = index.map(|index| self.open_migrations.swap_remove(index)) {
            if destination.is_none() && migration.carrier_used {
                self.cases.insert("decline after the carrier was used");
            }
            if destination.is_none() && migration.destination.is_none() {
                self.cases.insert("offer declined");
            }
            // The answerer's own MIGRATE there, if any, was abandoned or answers an offer.
            self.open_migrations.retain(|m| m.link != link || m.stream != stream);
        }
        self.cases.insert(if destination.is_some() { "accepting answer" } else { "decline" });
    }

    /// Handles the failure of a connection.
    pub(crate) fn on_cut(&mut self, link: usize, conn_no: u32) {
        if self.open_migrations.iter().any(|m| m.link == link) {
            self.cases.insert("old connection lost during a migration");
        }
        if self
            .open_migrations
            .iter()
            .any(|m| m.destination.is_some_and(|(to, _)| to == conn_no && conn_no != 0))
        {
            self.cases.insert("new connection lost during a migration");
        }
        self.open_migrations.retain(|m| m.link != link);
    }

    /// Corrupts the frame if it is the selected one. Returns false if the frame is dropped.
    fn inject_fault(&mut self, frame: &mut [u8]) -> bool {
        let (kind, flags) = (frame[3], frame[4]);
        let stream = read_u32(&frame[5..9]);
        let has_two_payload_bytes = frame.len() > FRAME_HEADER_BYTES + 1;
        let is_candidate = match self.fault_injection {
            Some(FaultInjection::SwapBytes(_) | FaultInjection::DropData(_)) => {
                kind == DATA && has_two_payload_bytes
            }
            Some(FaultInjection::EndEarly(_)) => {
                kind == DATA && has_two_payload_bytes && flags & 1 == 0
            }
            Some(FaultInjection::DropStreamCredit(_)) => kind == WINDOW_UPDATE && stream != 0,
            Some(FaultInjection::DropConnectionCredit(_)) => kind == WINDOW_UPDATE && stream == 0,
            Some(FaultInjection::DropAnswer(_)) => kind == MIGRATE && flags & SMIG_ACK != 0,
            Some(FaultInjection::DropReset(_)) => kind == RST_STREAM,
            None => false,
        };
        if !is_candidate
            || self.fault_injection.as_mut().is_some_and(|injection| injection.count_down())
        {
            return true;
        }
        let injection = self.fault_injection.take();
        self.cases.insert("fault injected");
        match injection {
            Some(FaultInjection::SwapBytes(_)) => {
                let body = &mut frame[FRAME_HEADER_BYTES..];
                let at = (1..body.len()).find(|&at| body[at] != body[0]);
                if let Some(at) = at {
                    body.swap(0, at);
                }
                true
            }
            Some(FaultInjection::EndEarly(_)) => {
                frame[4] |= 1;
                true
            }
            _ => false,
        }
    }
}

impl FaultInjection {
    /// Counts a frame of the kind; returns true if it is to pass unchanged.
    const fn count_down(&mut self) -> bool {
        let (Self::SwapBytes(n)
        | Self::DropStreamCredit(n)
        | Self::DropConnectionCredit(n)
        | Self::DropData(n)
        | Self::EndEarly(n)
        | Self::DropAnswer(n)
        | Self::DropReset(n)) = self;
        if *n == 0 {
            return false;
        }
        *n -= 1;
        true
    }
}

fn frame_length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.get(..FRAME_HEADER_BYTES)?;
    let length = FRAME_HEADER_BYTES + (read_u32(&[0, head[0], head[1], head[2]]) as usize);
    (bytes.len() >= length).then_some(length)
}

fn read_u32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn describe(source: FrameSource, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> String {
    let arrow = if source.side == Side::Client { "->" } else { "<-" };
    let summary = match kind {
        DATA => format!("DATA {}", payload.len()),
        HEADERS => "HEADERS".to_owned(),
        RST_STREAM => format!("RST_STREAM {:#x}", read_u32(payload)),
        4 => "SETTINGS".to_owned(),
        5 => format!("PUSH_PROMISE {}", read_u32(payload)),
        6 => "PING".to_owned(),
        GOAWAY => format!("GOAWAY last {} code {:#x}", read_u32(payload), read_u32(&payload[4..])),
        WINDOW_UPDATE => format!("WINDOW_UPDATE {}", read_u32(payload)),
        MIGRATE => format!("MIGRATE to C{} S{}", read_u32(&payload[8..]), read_u32(&payload[12..])),
        0xf6 => "JOIN".to_owned(),
        other => format!("type {other:#x}"),
    };
    format!(
        "link {} (C{}) {arrow} S{stream} {summary} flags {flags:#x}",
        source.link, source.conn_no
    )
}
