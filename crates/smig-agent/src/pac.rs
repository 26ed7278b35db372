//! The proxy auto-configuration (PAC) file that makes browsers use the agent.

use std::net::SocketAddr;

/// The file's media type.
pub(crate) const MEDIA_TYPE: &str = "application/x-ns-proxy-autoconfig";
/// The file's path.
pub(crate) const PATH: &str = "/proxy.pac";

/// Returns the PAC script: all traffic uses the agent, except to `localhost`, its subdomains, and loopback addresses.
/// Other host names without a dot are hosts of the gateway's network. There is no fallback to a direct connection: if
/// the agent is down, requests fail instead of silently bypassing it.
pub(crate) fn script(http: SocketAddr, socks: Option<SocketAddr>) -> String {
    let socks = socks.map(|socks| format!("; SOCKS5 {socks}")).unwrap_or_default();
    format!(
        "function FindProxyForURL(url, host) {{\n\
         \x20 if (host == \"localhost\" || dnsDomainIs(host, \".localhost\") ||\n\
         \x20     /^127(\\.\\d+){{3}}$/.test(host) || host == \"[::1]\" || host == \"::1\") {{\n\
         \x20   return \"DIRECT\";\n\
         \x20 }}\n\
         \x20 return \"PROXY {http}{socks}\";\n\
         }}\n"
    )
}
