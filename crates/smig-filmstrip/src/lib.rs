//! What a page's screen showed while it was loaded.
//!
//! [`evaluate`] takes the frames that a browser painted, and derives the visual progress of each and the [`VisualTimes`] of the load:
//! SpeedIndex as Lighthouse and WebPageTest define it, exactly and with Lighthouse's fast mode, its perceptual variant, and when 85 % and all of
//! the final screen were there. It knows nothing of browsers and clocks: a frame's time is that since the navigation.

mod evaluation;
mod image;
mod progress;
mod similarity;

pub use evaluation::{Evaluation, Frame, VisualTimes, evaluate};
pub use image::FrameError;
pub use progress::{Examination, VisualProgress};
