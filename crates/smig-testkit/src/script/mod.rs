//! A frame-level peer that follows a script.
