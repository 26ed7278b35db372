//! Validation beyond the types of the file: references that must exist, keys that exclude each other.

use std::collections::BTreeMap;

use http::{StatusCode, Uri};
use smig_settings::{Document, ValueAtKey, suggest};

use super::spec::{ListenSecurity, ListenSpec, RouteSpec};
use super::{HeaderRules, HostPattern};
use crate::upstream::UpstreamSpec;

fn key_path(entry_path: &[String], keys: &[&str]) -> Vec<String> {
    entry_path.iter().cloned().chain(keys.iter().map(|&key| key.to_owned())).collect()
}

pub(super) fn listeners(listen: &[ValueAtKey<ListenSpec>], document: &mut Document<'_>) {
    let mut seen_addresses = Vec::new();
    for ValueAtKey { path: entry_path, value } in listen {
        for address in &value.address {
            if address.port() != 0 && seen_addresses.contains(address) {
                document.report(
                    &key_path(entry_path, &["address"]),
                    format!("{address} is configured twice"),
                );
            }
            seen_addresses.push(*address);
        }
        if value.redirect_to_https.is_some() && value.protocol == ListenSecurity::Tls {
            let message = "this listener uses TLS; set protocol = \"cleartext\"";
            document.report(&key_path(entry_path, &["redirect_to_https"]), message);
        }
        if let Some(port) = value.redirect_to_https
            && value.address.iter().any(|address| address.port() == port)
        {
            let message = "this is the listener's own port: redirects would loop";
            document.report(&key_path(entry_path, &["redirect_to_https"]), message);
        }
    }
}

pub(super) fn routes(
    routes: &[ValueAtKey<RouteSpec>],
    upstreams: &[ValueAtKey<UpstreamSpec>],
    document: &mut Document<'_>,
) {
    for ValueAtKey { path: entry_path, value } in upstreams {
        if value.servers.is_empty() {
            document.report(&key_path(entry_path, &["servers"]), "no servers; add at least one");
        }
    }
    let names: Vec<&str> =
        upstreams.iter().filter_map(|placed| placed.path.last()).map(String::as_str).collect();
    // An upstream with faults is missing from the names: that is not a fault of its routes.
    let has_all_names = !document.has_diagnostics();
    let mut route_by_host_and_path = BTreeMap::new();
    for ValueAtKey { path: entry_path, value } in routes {
        let mut report_fault =
            |keys: &[&str], what: String| document.report(&key_path(entry_path, keys), what);
        if let Err((key, what)) = check_action(value) {
            report_fault(&[key], what);
        }
        if let Some(name) = &value.upstream
            && has_all_names
            && !names.contains(&name.as_str())
        {
            let message = match suggest(name, names.iter().copied()) {
                Some(hint) => format!("there is no upstream {name:?}; did you mean {hint:?}?"),
                None => format!("there is no upstream {name:?}; write [upstreams.{name}]"),
            };
            report_fault(&["upstream"], message);
        }
        if let Err(what) = check_path(&value.path) {
            report_fault(&["path"], what);
        }
        if let Some(Err(what)) = value.prefix_rewrite.as_deref().map(check_path) {
            report_fault(&["prefix_rewrite"], what);
        }
        for host in value.host.all() {
            if let Err(what) = host.parse::<HostPattern>() {
                report_fault(&["host"], what);
            }
        }
        for (key, headers) in [
            ("request_headers", &value.request_headers),
            ("response_headers", &value.response_headers),
        ] {
            if let Err((table, name, what)) = HeaderRules::new(headers) {
                report_fault(&[key, table, &name], what);
            }
        }
        let mut hosts: Vec<_> =
            value.host.all().iter().map(|host| host.to_ascii_lowercase()).collect();
        if hosts.is_empty() {
            hosts.push(String::new());
        }
        for host in hosts {
            let index = entry_path.last().cloned().unwrap_or_default();
            if let Some(other) = route_by_host_and_path.insert((host, value.path.clone()), index) {
                report_fault(&["path"], format!("route.{other} is for the same host and path"));
            }
        }
    }
}

/// Checks that a route has exactly one action.
fn check_action(route: &RouteSpec) -> Result<(), (&'static str, String)> {
    let fail = |key, what: &str| Err((key, what.to_owned()));
    let status = route.status.map(StatusCode::from_u16).transpose();
    let Ok(status) = status else { return fail("status", "must be between 100 and 999") };
    match (&route.upstream, &route.redirect, status) {
        (Some(_), Some(_), _) => return fail("redirect", "not allowed with upstream; remove one"),
        (Some(_), None, Some(_)) => return fail("status", "not allowed with upstream; remove one"),
        (None, None, None) => {
            return fail("path", "the route has no action; add upstream, redirect, or status");
        }
        (None, Some(_), Some(status))
            if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) =>
        {
            return fail("status", "a redirect is 301, 302, 303, 307 or 308");
        }
        (None, None, Some(status)) if status.is_informational() => {
            return fail("status", "1xx is not a final status");
        }
        _ => {}
    }
    if let Some(redirect) = &route.redirect {
        let uri: Option<Uri> = redirect.parse().ok();
        let is_absolute = uri.is_some_and(|uri| uri.scheme().is_some() && uri.query().is_none());
        if !is_absolute {
            return fail("redirect", "write an absolute URL without a query: https://example.com");
        }
    }
    if route.body.is_some() && (route.upstream.is_some() || route.redirect.is_some()) {
        return fail("body", "only allowed with status; remove upstream and redirect");
    }
    if route.prefix_rewrite.is_some() && route.upstream.is_none() {
        return fail("prefix_rewrite", "only allowed with upstream");
    }
    Ok(())
}

fn check_path(path: &str) -> Result<(), String> {
    let is_path =
        path.starts_with('/') && path.parse::<Uri>().is_ok_and(|uri| uri.query().is_none());
    if !is_path || path.contains('#') {
        return Err(format!("{path:?} is not a path; write /PATH without a query"));
    }
    if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err(format!("{path:?} has a dot segment; requests with one are rejected"));
    }
    Ok(())
}
