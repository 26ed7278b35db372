//! The incoming body, from the engine to the application, with back-pressure.

use smig_proto::{ReadResult, Session, StreamKey};

use super::shared::SharedStream;
use crate::error::Error;

/// State of the incoming direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyRecvState {
    /// More data may arrive.
    Open,
    /// Complete or failed.
    Ended,
}

/// Passes data from the engine to the application while the buffer has room.
pub(crate) fn deliver(
    session: &mut Session,
    key: StreamKey,
    shared: &SharedStream,
) -> BodyRecvState {
    while shared.check_room() {
        match session.read(key) {
            ReadResult::Data(data) => shared.put_data(data),
            ReadResult::Trailers(trailers) => shared.put_trailers(trailers),
            ReadResult::Pending => return BodyRecvState::Open,
            ReadResult::End => {
                shared.put_end();
                return BodyRecvState::Ended;
            }
            ReadResult::Failed(error) => {
                shared.fail(Error::from(error));
                return BodyRecvState::Ended;
            }
        }
    }
    BodyRecvState::Open
}
