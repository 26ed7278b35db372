//! Fields that describe the client to upstreams: `Forwarded` (RFC 7239) or the `X-Forwarded` fields.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use http::header::{Entry, FORWARDED, HeaderMap, HeaderName, HeaderValue};
use http::uri::Authority;

use crate::config::{ForwardedFields, ForwardedSpec};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Returns whether a field describes the client or its request. Such fields are removed from
/// requests of untrusted peers: servers trust many more than those that are set here.
pub(super) fn is_forwarding_field(field: &str) -> bool {
    const PREFIX: &str = "x-forwarded";
    field.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
        || field.eq_ignore_ascii_case(FORWARDED.as_str())
        || field.eq_ignore_ascii_case("x-real-ip")
}

/// Formatted values of the last request: most requests of a connection have the same, and formatting takes longer
/// than everything else here.
#[derive(Clone, Debug, Default)]
pub(super) struct FieldCache {
    peer: Option<PeerAddr>,
    host: Option<(Authority, HeaderValue)>,
}

/// The address of a connection's peer (the client, or a proxy in front of this one), and its text.
#[derive(Clone, Debug)]
pub(super) struct PeerAddr {
    ip: IpAddr,
    text: HeaderValue,
}

impl FieldCache {
    /// Returns the address of this peer.
    pub(super) fn peer(&mut self, peer: SocketAddr) -> Option<&PeerAddr> {
        let ip = peer.ip().to_canonical();
        if self.peer.as_ref().is_none_or(|peer| peer.ip != ip) {
            let text = HeaderValue::try_from(ip.to_string()).ok()?;
            self.peer = Some(PeerAddr { ip, text });
        }
        self.peer.as_ref()
    }

    /// Returns the authority, byte for byte, as a field value.
    pub(super) fn host(&mut self, authority: &Authority) -> Option<HeaderValue> {
        let cached = self.host.as_ref().filter(|(last, _)| last.as_str() == authority.as_str());
        if let Some((_, host)) = cached {
            return Some(host.clone());
        }
        let host = HeaderValue::from_str(authority.as_str()).ok()?;
        self.host = Some((authority.clone(), host.clone()));
        Some(host)
    }
}

/// Sets the fields.
pub(super) fn set_forwarded(
    spec: &ForwardedSpec,
    headers: &mut HeaderMap,
    peer: &PeerAddr,
    scheme: &'static str,
    host: Option<&HeaderValue>,
) {
    let has_fields = headers.keys().any(|name| is_forwarding_field(name.as_str()));
    if has_fields && !spec.trusted_proxies.iter().any(|network| network.contains(peer.ip)) {
        let names: Vec<_> =
            headers.keys().filter(|name| is_forwarding_field(name.as_str())).cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }
    if matches!(spec.fields, ForwardedFields::XForwarded | ForwardedFields::Both) {
        append_element(headers, &X_FORWARDED_FOR, &peer.text);
        // The value from the first proxy describes the client: keep it.
        if !has_fields || !headers.contains_key(X_FORWARDED_PROTO) {
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
        }
        if (!has_fields || !headers.contains_key(X_FORWARDED_HOST))
            && let Some(host) = host
        {
            headers.insert(X_FORWARDED_HOST, host.clone());
        }
    }
    if matches!(spec.fields, ForwardedFields::Forwarded | ForwardedFields::Both)
        && let Ok(element) = HeaderValue::try_from(format_element(
            peer.ip,
            scheme,
            host.and_then(|host| host.to_str().ok()),
        ))
    {
        append_element(headers, &FORWARDED, &element);
    }
}

/// Formats an element of `Forwarded`.
fn format_element(ip: IpAddr, scheme: &str, host: Option<&str>) -> String {
    let mut element = match ip {
        IpAddr::V4(ip) => format!("for={ip};proto={scheme}"),
        IpAddr::V6(ip) => format!("for=\"[{ip}]\";proto={scheme}"),
    };
    // A host contains no quotes, since it was parsed as an authority.
    if let Some(host) = host.filter(|host| !host.contains(['"', '\\'])) {
        let _ = write!(element, ";host=\"{host}\"");
    }
    element
}

/// Appends an element to the field's list.
fn append_element(headers: &mut HeaderMap, name: &HeaderName, element: &HeaderValue) {
    match headers.entry(name) {
        Entry::Vacant(entry) => drop(entry.insert(element.clone())),
        Entry::Occupied(mut entry) => {
            let mut list = Vec::new();
            for value in entry.iter() {
                list.extend_from_slice(value.as_bytes());
                list.extend_from_slice(b", ");
            }
            list.extend_from_slice(element.as_bytes());
            if let Ok(value) = HeaderValue::from_maybe_shared(bytes::Bytes::from(list)) {
                entry.insert(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded_headers(
        spec: &str,
        sent_fields: &[(&'static str, &'static str)],
        peer: &str,
    ) -> HeaderMap {
        let spec: ForwardedSpec = toml::from_str(spec).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in sent_fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let mut cache = FieldCache::default();
        let host = cache.host(&Authority::from_static("a.example")).unwrap();
        let peer = cache.peer(peer.parse().unwrap()).unwrap();
        set_forwarded(&spec, &mut headers, peer, "https", Some(&host));
        headers
    }

    #[test]
    fn fields_of_untrusted_peers_are_removed() {
        let sent_fields = [
            ("x-forwarded-for", "1.1.1.1"),
            ("x-real-ip", "1.1.1.1"),
            ("forwarded", "for=x"),
            ("x-forwarded-prefix", "//evil"),
            ("x-forwarded-ssl", "on"),
            ("x-forwarded", "for=x"),
        ];
        let headers =
            forwarded_headers("trusted_proxies = ['10.0.0.0/8']", &sent_fields, "192.0.2.1:5");
        assert_eq!(headers["x-forwarded-for"], "192.0.2.1");
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-host"], "a.example");
        assert_eq!(headers.len(), 3);
        assert!(forwarded_headers("fields = 'off'", &sent_fields, "192.0.2.1:5").is_empty());
    }

    #[test]
    fn the_cache_is_used_for_equal_values_only() {
        let mut cache = FieldCache::default();
        for host in ["a.example", "a.example", "A.example", "a.example:1", "a.example"] {
            assert_eq!(cache.host(&Authority::from_static(host)).unwrap(), host);
        }
        for peer in ["10.0.0.1:1", "10.0.0.1:2", "[::ffff:10.0.0.2]:1", "10.0.0.1:1"] {
            let peer: SocketAddr = peer.parse().unwrap();
            let cached = cache.peer(peer).unwrap();
            assert_eq!(cached.text, peer.ip().to_canonical().to_string());
        }
    }

    #[test]
    fn fields_of_trusted_proxies_are_extended() {
        let sent_fields = [
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-for", "2.2.2.2"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-prefix", "/app"),
        ];
        let headers =
            forwarded_headers("trusted_proxies = ['10.0.0.0/8']", &sent_fields, "10.0.0.1:5");
        assert_eq!(headers["x-forwarded-for"], "1.1.1.1, 2.2.2.2, 10.0.0.1");
        assert_eq!(headers["x-forwarded-prefix"], "/app");
        assert_eq!(headers["x-forwarded-proto"], "http");
    }

    #[test]
    fn the_forwarded_field_follows_rfc_7239() {
        let headers = forwarded_headers("fields = 'forwarded'", &[], "[2001:db8::1]:5");
        let expected = "for=\"[2001:db8::1]\";proto=https;host=\"a.example\"";
        assert_eq!(headers["forwarded"], expected);
        assert_eq!(headers.len(), 1);
        let sent_fields = [("forwarded", "for=1.1.1.1")];
        let headers = forwarded_headers(
            "fields = 'both'\ntrusted_proxies = ['::1']",
            &sent_fields,
            "[::1]:5",
        );
        let expected = "for=1.1.1.1, for=\"[::1]\";proto=https;host=\"a.example\"";
        assert_eq!(headers["forwarded"], expected);
        assert_eq!(headers["x-forwarded-for"], "::1");
    }
}
