//! The configuration of telemetry.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use smig::{Error, Trust};

/// The path that is appended to an endpoint.
const TRACES_PATH: &str = "/v1/traces";
/// The environment variable of the endpoint.
const ENDPOINT_VAR: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Why a collector cannot be configured, if the feature is not compiled in.
pub(super) const NOT_BUILT: &str =
    "this smig was built without OpenTelemetry; build with --features opentelemetry";

/// Configuration of the exporter of request spans.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetrySpec {
    /// The collector: `http://host:port` or `https://host:port`. `/v1/traces` is appended unless the
    /// URL ends in it.
    #[serde(deserialize_with = "deserialize_endpoint")]
    pub endpoint: Uri,
    /// Header fields of each request to the collector, such as `authorization`.
    #[serde(default, deserialize_with = "deserialize_headers")]
    pub headers: HeaderMap,
    /// The service name; unless set, `OTEL_SERVICE_NAME` from the environment, or `smig-gateway` or
    /// `smig-agent`.
    pub service_name: Option<String>,
    /// The sampling ratio of traces that start here, 0 to 1; unless set, `OTEL_TRACES_SAMPLER`, or all of them.
    /// For all others the client's sampling decision applies, unless `OTEL_TRACES_SAMPLER` names a sampler that ignores it.
    #[serde(default, deserialize_with = "deserialize_ratio")]
    pub sample_ratio: Option<f64>,
    /// CA certificates for the collector, PEM; the system's unless set.
    pub ca: Option<PathBuf>,
}

impl TelemetrySpec {
    /// A collector, with defaults for all else.
    ///
    /// # Errors
    /// `endpoint` is not an `http://` or `https://` URL, or the feature `opentelemetry` is not compiled in.
    pub fn new(endpoint: &str) -> Result<Self, String> {
        let endpoint = parse_endpoint(endpoint)?;
        let headers = HeaderMap::new();
        Ok(Self { endpoint, headers, service_name: None, sample_ratio: None, ca: None })
    }

    /// Reads the endpoint from the environment: `OTEL_EXPORTER_OTLP_ENDPOINT`; `None` if it is not set.
    ///
    /// # Errors
    /// The value is not an `http://` or `https://` URL, or the feature `opentelemetry` is not compiled in.
    pub fn from_environment() -> Result<Option<Self>, String> {
        let value = std::env::var(ENDPOINT_VAR).unwrap_or_default();
        if value.is_empty() {
            return Ok(None);
        }
        Self::new(&value).map(Some).map_err(|why| format!("{ENDPOINT_VAR}: {why}"))
    }

    /// The URL that spans are sent to.
    #[must_use]
    pub fn traces_url(&self) -> String {
        let base = self.endpoint.to_string();
        let base = base.trim_end_matches('/');
        if base.ends_with(TRACES_PATH) { base.to_owned() } else { format!("{base}{TRACES_PATH}") }
    }

    /// Checks that the files it names can be used.
    ///
    /// # Errors
    /// The CA certificates cannot be read.
    pub fn check_files(&self) -> Result<(), Error> {
        if self.ca.is_some() {
            self.trust().client_config()?;
        }
        Ok(())
    }

    pub(super) fn trust(&self) -> Trust {
        self.ca.clone().map_or(Trust::System, Trust::File)
    }
}

fn parse_endpoint(text: &str) -> Result<Uri, String> {
    if cfg!(not(feature = "opentelemetry")) {
        return Err(NOT_BUILT.to_owned());
    }
    let invalid_endpoint = || {
        format!(
            "{text:?} is not the URL of a collector; write http://HOST:PORT or https://HOST:PORT (OTLP over HTTP)"
        )
    };
    let uri: Uri = text.parse().map_err(|_| invalid_endpoint())?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().filter(|_| is_http).ok_or_else(invalid_endpoint)?;
    if authority.as_str().contains('@') {
        return Err("remove the user; set headers = { authorization = \"...\" }".to_owned());
    }
    if uri.query().is_some() {
        return Err("remove the query".to_owned());
    }
    Ok(uri)
}

fn deserialize_endpoint<'de, D: Deserializer<'de>>(from: D) -> Result<Uri, D::Error> {
    parse_endpoint(&String::deserialize(from)?).map_err(D::Error::custom)
}

fn deserialize_headers<'de, D: Deserializer<'de>>(from: D) -> Result<HeaderMap, D::Error> {
    let mut headers = HeaderMap::new();
    for (name, value) in BTreeMap::<String, String>::deserialize(from)? {
        let name: HeaderName =
            name.parse().map_err(|_| D::Error::custom(format!("{name:?} is not a field name")))?;
        // The value is often a secret.
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| D::Error::custom(format!("the value of {name} is not a field value")))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

fn deserialize_ratio<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let ratio = f64::deserialize(from)?;
    if !(0.0..=1.0).contains(&ratio) {
        return Err(D::Error::custom("this takes a number from 0 (none) to 1 (all)"));
    }
    Ok(Some(ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "opentelemetry"))]
    #[test]
    fn a_build_without_opentelemetry_rejects_a_collector() {
        let text = "endpoint = 'http://127.0.0.1:4318'";
        let error = toml::from_str::<TelemetrySpec>(text).unwrap_err().to_string();
        assert!(error.contains(NOT_BUILT), "{error}");
        assert_eq!(TelemetrySpec::new("http://127.0.0.1:4318").unwrap_err(), NOT_BUILT);
    }

    #[cfg(feature = "opentelemetry")]
    #[test]
    fn the_traces_path_is_appended_to_the_endpoint() {
        let traces = |text| TelemetrySpec::new(text).unwrap().traces_url();
        assert_eq!(traces("http://127.0.0.1:4318"), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(traces("http://127.0.0.1:4318/"), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(traces("https://a.example/otlp"), "https://a.example/otlp/v1/traces");
        assert_eq!(traces("http://a:1/v1/traces"), "http://a:1/v1/traces");
        for bad in ["", "127.0.0.1:4318", "grpc://a:4317", "http://u:p@a", "http://a/?x"] {
            assert!(TelemetrySpec::new(bad).is_err(), "{bad}");
        }
    }

    #[cfg(feature = "opentelemetry")]
    #[test]
    fn header_values_are_not_in_debug_output() {
        let text = "endpoint = 'http://a'\nheaders = { authorization = 'Bearer secret' }";
        let spec: TelemetrySpec = toml::from_str(text).unwrap();
        assert_eq!(spec.headers["authorization"], "Bearer secret");
        assert!(!format!("{spec:?}").contains("secret"));
    }
}
