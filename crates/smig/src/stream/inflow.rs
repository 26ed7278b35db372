//! From the engine to the application: the incoming body, with back-pressure.

use smig_proto::{Read, Session, StreamKey};

use super::shared::Shared;
use crate::error::Error;

/// How far an incoming direction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    /// More is to come.
    Open,
    /// It has ended, well or not.
    Ended,
}

/// Moves what the engine has to the application, as far as there is room.
pub(crate) fn feed(session: &mut Session, key: StreamKey, shared: &Shared) -> Feed {
    while shared.has_room() {
        match session.read(key) {
            Read::Data(data) => shared.put_data(data),
            Read::Trailers(trailers) => shared.put_trailers(trailers),
            Read::Pending => return Feed::Open,
            Read::End => {
                shared.put_end();
                return Feed::Ended;
            }
            Read::Reset(error) => {
                shared.fail(Error::from(error));
                return Feed::Ended;
            }
        }
    }
    Feed::Open
}
