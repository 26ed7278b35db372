//! The agent over real sockets, with a forward proxy as its gateway.

mod http_proxy;
mod port_forward;
mod socks5;
mod support;
