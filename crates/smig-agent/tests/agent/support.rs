//! An agent and its gateway on loopback.

use std::fmt::Display;

use smig::{ClientBuilder, Trust};
use smig_agent::{self as agent, Agent, AgentOptions, Credentials, PortForward, UplinkState};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// The gateway, as its own tests start it.
#[path = "../../../smig-gateway/tests/forward/support.rs"]
#[expect(dead_code, reason = "the gateway's tests use the rest")]
mod gateway;

pub(crate) use gateway::*;

impl Gateway {
    /// A client that trusts the gateway.
    pub(crate) fn client_builder(&self) -> ClientBuilder {
        agent::client_builder().trust(Trust::Pem(self.identity.certificate.clone().into()))
    }

    /// An agent that uses the gateway, on free ports.
    pub(crate) async fn agent(&self, forwards: Vec<PortForward>) -> Agent {
        let options = AgentOptions { forwards, ..self.agent_options() };
        Agent::start(options, self.client_builder()).await.unwrap()
    }

    pub(crate) fn agent_options(&self) -> AgentOptions {
        AgentOptions {
            credentials: Credentials::bearer(TOKEN),
            http: vec![loopback()],
            socks: vec![loopback()],
            ..AgentOptions::new(self.origin.clone())
        }
    }
}

/// Waits for a state of the connection between the agent and the gateway.
pub(crate) async fn wait_for_state(
    agent: &Agent,
    predicate: impl FnMut(&UplinkState) -> bool,
) -> UplinkState {
    agent.uplink_state().wait_for(predicate).await.unwrap().clone()
}

/// Opens a tunnel through an agent's HTTP proxy.
pub(crate) async fn connect(agent: &Agent, target: impl Display) -> (TcpStream, String) {
    let mut tcp = TcpStream::connect(agent.http_addrs()[0]).await.unwrap();
    let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    tcp.write_all(head.as_bytes()).await.unwrap();
    let head = read_head(&mut tcp).await;
    (tcp, head)
}
