//! The application reads a body.

use bytes::Bytes;
use http::HeaderMap;

use crate::error::StreamError;
use crate::session::Session;
use crate::stream::{StreamKey, Taken};

/// What [`Session::read`] found.
#[derive(Debug)]
pub enum Read {
    /// Body, in order.
    Data(Bytes),
    /// The trailers; the end follows.
    Trailers(HeaderMap),
    /// All was read.
    End,
    /// Nothing now: [`crate::Event::Readable`] will come.
    Pending,
    /// The stream is over with this error; what was not read is lost.
    Reset(StreamError),
}

impl Session {
    /// Takes the next part of a body, and gives the peer credit for as much more.
    pub fn read(&mut self, key: StreamKey) -> Read {
        let Some(stream) = self.streams.find_mut(key) else { return Read::End };
        if let Some(error) = &stream.over {
            return Read::Reset(error.clone());
        }
        match stream.recv.take() {
            Taken::Data { data, conn, conn_credit, stream_credit } => {
                let increment = stream.recv.window.give_back(stream_credit);
                self.give_back_to(conn, conn_credit);
                if let Some(increment) = increment {
                    self.send_stream_credit(key, increment);
                }
                Read::Data(data)
            }
            Taken::Trailers(trailers) => Read::Trailers(trailers),
            Taken::End => Read::End,
            Taken::Nothing => Read::Pending,
        }
    }
}
