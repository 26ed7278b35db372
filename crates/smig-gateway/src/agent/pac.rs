//! The file that tells browsers to use the agent.

use std::net::SocketAddr;

/// What the file is served as.
pub(super) const MEDIA_TYPE: &str = "application/x-ns-proxy-autoconfig";
/// Where it is.
pub(super) const PATH: &str = "/proxy.pac";

/// Everything goes by the agent but names of this machine. No way around it is given: a program that
/// finds the agent away fails, and does not go out by another way unnoticed.
pub(super) fn script(http: SocketAddr, socks: Option<SocketAddr>) -> String {
    let socks = socks.map(|socks| format!("; SOCKS5 {socks}")).unwrap_or_default();
    format!(
        "function FindProxyForURL(url, host) {{\n\
         \x20 if (isPlainHostName(host) || dnsDomainIs(host, \".localhost\") ||\n\
         \x20     shExpMatch(host, \"127.*\") || host == \"[::1]\" || host == \"::1\") {{\n\
         \x20   return \"DIRECT\";\n\
         \x20 }}\n\
         \x20 return \"PROXY {http}{socks}\";\n\
         }}\n"
    )
}
