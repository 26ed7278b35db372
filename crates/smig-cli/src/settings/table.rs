//! Settings of `smig serve` itself: key, flag, kind, help text, and the field that each sets.

use smig_admin::access_log::AccessLogFormat;
use smig_settings::entry::{last_value, show_list, show_text};
use smig_settings::value::parse_bool;
use smig_settings::{ValueKind, word};

use super::model::{ListenSecurity, parse_listen, show_listen};
use super::{Setting, Settings};

/// Formats of the access log.
pub(crate) const ACCESS_LOG_VALUES: [(&str, AccessLogFormat); 4] = [
    ("off", AccessLogFormat::Off),
    ("text", AccessLogFormat::Text),
    ("combined", AccessLogFormat::Combined),
    ("json", AccessLogFormat::Json),
];
fn set_security(
    settings: &mut Settings,
    values: &[String],
    enabled_security: ListenSecurity,
) -> Result<(), String> {
    let is_on = parse_bool(last_value(values))?;
    settings.security = match (is_on, settings.security) {
        (true, ListenSecurity::TrustedCleartext) => ListenSecurity::TrustedCleartext,
        (true, _) => enabled_security,
        // Trusted cleartext is cleartext too: `cleartext = false` ends both.
        (false, security)
            if enabled_security == ListenSecurity::Cleartext || security == enabled_security =>
        {
            ListenSecurity::Tls
        }
        (false, security) => security,
    };
    Ok(())
}

pub(super) const SERVE_SETTINGS: &[Setting] = &[
    Setting {
        key: "server.root",
        flag: "root",
        kind: ValueKind::Text,
        value_name: "DIR",
        help: "Directory to serve, if the command line names none",
        show: |s| {
            show_text(&s.root.as_ref().map_or_else(|| "./public".into(), |p| p.to_string_lossy()))
        },
        set: |s, v| {
            s.root = Some(last_value(v).into());
            Ok(())
        },
    },
    Setting {
        key: "server.listen",
        flag: "listen",
        kind: ValueKind::List,
        value_name: "ADDR:PORT",
        help: "Address to listen on, may be repeated; port 0: any free port; localhost:PORT: both loopback addresses",
        show: |s| show_listen(&s.listen),
        set: |s, v| {
            s.listen = parse_listen(v)?;
            Ok(())
        },
    },
    Setting {
        key: "server.cert",
        flag: "cert",
        kind: ValueKind::Text,
        value_name: "FILE",
        help: "Certificate chain, PEM; without it, a development certificate is created",
        show: |s| {
            show_text(
                &s.certificate.as_ref().map_or_else(|| "cert.pem".into(), |p| p.to_string_lossy()),
            )
        },
        set: |s, v| {
            s.certificate = Some(last_value(v).into());
            Ok(())
        },
    },
    Setting {
        key: "server.key",
        flag: "key",
        kind: ValueKind::Text,
        value_name: "FILE",
        help: "The certificate's private key, PEM",
        show: |s| {
            show_text(&s.key.as_ref().map_or_else(|| "key.pem".into(), |p| p.to_string_lossy()))
        },
        set: |s, v| {
            s.key = Some(last_value(v).into());
            Ok(())
        },
    },
    Setting {
        key: "server.host",
        flag: "host",
        kind: ValueKind::List,
        value_name: "NAME",
        help: "Additional names and addresses for the development certificate, besides localhost, 127.0.0.1 and ::1",
        show: |s| show_list(&s.hosts),
        set: |s, v| {
            s.hosts = v.to_vec();
            Ok(())
        },
    },
    Setting {
        key: "server.cleartext",
        flag: "cleartext",
        kind: ValueKind::Bool,
        value_name: "BOOL",
        help: "Disable TLS: HTTP/1.1, and HTTP/2 with prior knowledge; streams do not migrate",
        show: |s| (s.security != ListenSecurity::Tls).to_string(),
        set: |s, v| set_security(s, v, ListenSecurity::Cleartext),
    },
    Setting {
        key: "server.trust_cleartext",
        flag: "trust-cleartext",
        kind: ValueKind::Bool,
        value_name: "BOOL",
        help: "Disable TLS but migrate streams: for test networks only, without protection from attackers on the path",
        show: |s| (s.security == ListenSecurity::TrustedCleartext).to_string(),
        set: |s, v| set_security(s, v, ListenSecurity::TrustedCleartext),
    },
    word!(
        "server.access_log",
        "access-log",
        "FORMAT",
        ACCESS_LOG_VALUES,
        access_log,
        "Log each request to standard output: off, text, combined or json"
    ),
];
