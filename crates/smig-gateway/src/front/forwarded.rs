//! What upstreams are told of the client: `Forwarded` (RFC 7239) or the `X-Forwarded` fields.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};

use crate::config::{ForwardedFields, ForwardedSpec};

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Every field that names a client or what it asked for: none is believed from somebody unknown.
const NAMES: [HeaderName; 7] = [
    FORWARDED,
    FOR,
    PROTO,
    HOST,
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-server"),
    HeaderName::from_static("x-real-ip"),
];

/// Whether a field is one of these.
pub(super) fn is_ours(field: &str) -> bool {
    NAMES.iter().any(|name| name.as_str().eq_ignore_ascii_case(field))
}

/// A client's address, and as a field has it: most sessions have one client, and writing it takes longer
/// than everything else here.
#[derive(Clone, Debug)]
pub(super) struct Client {
    ip: IpAddr,
    text: HeaderValue,
}

impl Client {
    /// The client at `peer`: the one of the last request, if it is the same.
    pub(super) fn at(peer: SocketAddr, last: &mut Option<Self>) -> Option<Self> {
        let ip = peer.ip().to_canonical();
        if last.as_ref().is_none_or(|last| last.ip != ip) {
            let text = HeaderValue::try_from(ip.to_string()).ok()?;
            *last = Some(Self { ip, text });
        }
        last.clone()
    }
}

/// Writes the fields.
pub(super) fn tell(
    spec: &ForwardedSpec,
    headers: &mut HeaderMap,
    client: &Client,
    scheme: &'static str,
    host: Option<&str>,
) {
    let said = headers.keys().any(|name| NAMES.contains(name));
    if said && !spec.trust.iter().any(|network| network.contains(client.ip)) {
        for name in &NAMES {
            headers.remove(name);
        }
    }
    if matches!(spec.send, ForwardedFields::XForwarded | ForwardedFields::Both) {
        extend(headers, &FOR, &client.text);
        // What the first proxy saw is what the client did.
        if !said || !headers.contains_key(PROTO) {
            headers.insert(PROTO, HeaderValue::from_static(scheme));
        }
        if (!said || !headers.contains_key(HOST))
            && let Some(value) = host.and_then(|host| HeaderValue::from_str(host).ok())
        {
            headers.insert(HOST, value);
        }
    }
    if matches!(spec.send, ForwardedFields::Forwarded | ForwardedFields::Both)
        && let Ok(element) = HeaderValue::try_from(element(client.ip, scheme, host))
    {
        extend(headers, &FORWARDED, &element);
    }
}

/// One element of `Forwarded`.
fn element(ip: IpAddr, scheme: &str, host: Option<&str>) -> String {
    let mut element = match ip {
        IpAddr::V4(ip) => format!("for={ip};proto={scheme}"),
        IpAddr::V6(ip) => format!("for=\"[{ip}]\";proto={scheme}"),
    };
    // A host has no quotes: it was read as an authority.
    if let Some(host) = host.filter(|host| !host.contains(['"', '\\'])) {
        let _ = write!(element, ";host=\"{host}\"");
    }
    element
}

/// Puts an element behind those that are there.
fn extend(headers: &mut HeaderMap, name: &HeaderName, element: &HeaderValue) {
    let mut list = Vec::new();
    for value in headers.get_all(name) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    if list.is_empty() {
        headers.insert(name, element.clone());
        return;
    }
    list.extend_from_slice(element.as_bytes());
    if let Ok(value) = HeaderValue::from_maybe_shared(bytes::Bytes::from(list)) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(spec: &str, sent: &[(&'static str, &'static str)], peer: &str) -> HeaderMap {
        let spec: ForwardedSpec = toml::from_str(spec).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let client = Client::at(peer.parse().unwrap(), &mut None).unwrap();
        tell(&spec, &mut headers, &client, "https", Some("a.example"));
        headers
    }

    #[test]
    fn nobody_unknown_is_believed() {
        let sent =
            [("x-forwarded-for", "1.1.1.1"), ("x-real-ip", "1.1.1.1"), ("forwarded", "for=x")];
        let headers = told("trust = ['10.0.0.0/8']", &sent, "192.0.2.1:5");
        assert_eq!(headers["x-forwarded-for"], "192.0.2.1");
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-host"], "a.example");
        assert_eq!(headers.len(), 3);
        assert!(told("send = 'off'", &sent, "192.0.2.1:5").is_empty());
    }

    #[test]
    fn who_is_trusted_is_passed_on() {
        let sent = [
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-for", "2.2.2.2"),
            ("x-forwarded-proto", "http"),
        ];
        let headers = told("trust = ['10.0.0.0/8']", &sent, "10.0.0.1:5");
        assert_eq!(headers["x-forwarded-for"], "1.1.1.1, 2.2.2.2, 10.0.0.1");
        assert_eq!(headers["x-forwarded-proto"], "http");
    }

    #[test]
    fn the_standard_field() {
        let headers = told("send = 'forwarded'", &[], "[2001:db8::1]:5");
        let expected = "for=\"[2001:db8::1]\";proto=https;host=\"a.example\"";
        assert_eq!(headers["forwarded"], expected);
        assert_eq!(headers.len(), 1);
        let sent = [("forwarded", "for=1.1.1.1")];
        let headers = told("send = 'both'\ntrust = ['::1']", &sent, "[::1]:5");
        let expected = "for=1.1.1.1, for=\"[::1]\";proto=https;host=\"a.example\"";
        assert_eq!(headers["forwarded"], expected);
        assert_eq!(headers["x-forwarded-for"], "::1");
    }
}
