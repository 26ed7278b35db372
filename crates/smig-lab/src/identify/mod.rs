//! Which congestion control a sender has, by the queue that it fills.
//!
//! After Igor ("Mind the Delay: The Adverse Effects of Delay-Based TCP on HTTP", CoNEXT 2020, section 4.1): an object is
//! fetched over a link so narrow that one initial window fills a round trip, with a queue of 100 packets. A sender that goes by
//! losses fills the queue within two seconds. One that goes by delays stops before. Igor polls its queue each 50 ms; here the link
//! logs every packet.
//!
//! - [`ProbeSpec`]: the link and the object; [`Sender`]: who sends, on this machine; [`probe`] runs one transfer;
//! - [`QueueTrace`]: what was seen;
//! - [`Rule`]: what follows from it, by the paper and by its program;
//! - [`KnownSenders`], [`Classifier`]: which known sender it is like, by the whole [`Series`]; [`Accuracy`]: how well that is told;
//! - [`table`], [`render_svg`]: for readers.

mod accuracy;
mod known;
mod paper;
mod picture;
mod probe;
mod rule;
mod sender;
mod series;
mod spec;
mod table;
mod trace;

pub(crate) use paper::paper_queue;

pub use accuracy::{Accuracy, SenderAccuracy, accuracy_table};
pub use known::{Classification, Classifier, KnownSenders, Sample};
pub use picture::render_svg;
pub use probe::{IdentifyError, TRANSFER_TIMEOUT, probe};
pub use rule::{Family, Rule};
pub use sender::Sender;
pub use series::Series;
pub use spec::ProbeSpec;
pub use table::{Identification, confusion, table};
pub use trace::{QueuePoint, QueueTrace, WindowPoint};
