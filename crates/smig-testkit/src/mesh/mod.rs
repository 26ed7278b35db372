//! Two engines and several connections in virtual time.
