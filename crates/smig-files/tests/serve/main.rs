//! The service as a server calls it, over real directories.

mod basics;
mod big;
mod caching;
mod changes;
mod codings;
mod conditions;
mod listing;
mod paths;
mod ranges;
mod site;
