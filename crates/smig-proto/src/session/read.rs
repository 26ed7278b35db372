//! Reading of bodies by the application.

use bytes::Bytes;
use http::HeaderMap;

use crate::error::StreamError;
use crate::session::Session;
use crate::stream::{RecvItem, StreamKey};

/// Result of [`Session::read`].
#[derive(Debug)]
pub enum ReadResult {
    /// Body, in order.
    Data(Bytes),
    /// The trailers; [`Self::End`] follows.
    Trailers(HeaderMap),
    /// Everything has been read.
    End,
    /// No data yet; [`crate::Event::Readable`] follows.
    Pending,
    /// The stream failed with this error; unread data is lost.
    Failed(StreamError),
}

impl Session {
    /// Limits what the peer may have outstanding on a stream, in bytes: sent and not arrived, or not
    /// sent yet; `None`: to the stream's window. Other streams' credit is untouched. The credit that
    /// the peer already has is not taken back, and is never less than a few KiB once the
    /// application has read what has arrived. Nothing happens if the stream has ended.
    pub fn limit_receive_credit(&mut self, key: StreamKey, bytes: Option<u32>) {
        let Some(stream) = self.streams.find_mut(key) else { return };
        if let Some(increment) = stream.recv.window.set_limit(bytes) {
            self.send_window_update(key, increment);
        }
    }

    /// Returns the next part of a body, and returns its credit to the windows.
    pub fn read(&mut self, key: StreamKey) -> ReadResult {
        let Some(stream) = self.streams.find_mut(key) else { return ReadResult::End };
        if let Some(error) = &stream.error {
            return ReadResult::Failed(error.clone());
        }
        match stream.recv.take() {
            RecvItem::Data { data, conn, conn_credit, stream_credit } => {
                let increment = stream.recv.window.give_back(stream_credit);
                self.return_credit(conn, conn_credit);
                if let Some(increment) = increment {
                    self.send_window_update(key, increment);
                }
                ReadResult::Data(data)
            }
            RecvItem::Trailers(trailers) => ReadResult::Trailers(trailers),
            RecvItem::End => ReadResult::End,
            RecvItem::Pending => ReadResult::Pending,
        }
    }
}
