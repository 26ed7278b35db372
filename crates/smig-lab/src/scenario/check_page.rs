//! Checks a page: its names, and what its client can load.

use super::faults::{Faults, check_name, resolve};
use super::page::Page;
use super::spec::{ClientKind, ClientSpec, Scenario};
use super::tiles::Tiles;

pub(super) fn check_page(name: &str, page: &Page, scenario: &Scenario, faults: &mut Faults) {
    let path = format!("workload.pages.{name}");
    check_name(name, &path, faults);
    for resource in page.resources.keys() {
        check_name(resource, &format!("{path}.resources.{resource}"), faults);
    }
    if scenario.workload.transfers.contains_key(name) {
        faults.add(&path, "a transfer has this name; results would not tell them apart");
    }
    let client = resolve(page.client.as_deref(), &scenario.clients, &path, "client", faults);
    if client.is_some_and(|client| client.kind == ClientKind::Command) {
        let what = "a client of kind \"command\" sends its own requests: it cannot load a page";
        faults.add(&format!("{path}.client"), what);
    }
    if let Some(client) = client.filter(|client| client.kind == ClientKind::Chromium) {
        check_browser_page(&path, page, client, faults);
    }
    for (key, what) in page.faults() {
        faults.add(&format!("{path}.{key}"), what);
    }
}

/// What a browser loads is files: tiles in a document that names them, and nothing that runs.
fn check_browser_page(path: &str, page: &Page, client: &ClientSpec, faults: &mut Faults) {
    let limits = [
        ("warm", page.warm, "each load by a browser opens its own connections"),
        ("har", page.har.is_some(), "the player loads recorded pages; a browser loads tiles only"),
        ("resources", !page.resources.is_empty(), "a browser loads tiles only"),
        (
            "document",
            page.document.is_some() && page.har.is_none(),
            "a browser needs a document that names its tiles",
        ),
    ];
    for (key, _, what) in limits.into_iter().filter(|(_, is_set, _)| *is_set) {
        faults.add(&format!("{path}.{key}"), what);
    }
    if client.link != 0 {
        faults.add(&format!("{path}.client"), "a browser uses the first link");
    }
    if let Some(fault) = page.tiles.as_ref().and_then(Tiles::picture_fault) {
        faults.add(&format!("{path}.tiles"), fault);
    }
}
