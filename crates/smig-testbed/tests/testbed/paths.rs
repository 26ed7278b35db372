//! Several links to one address of the server.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use smig_link::Rate;
use smig_testbed::netns::{DeviceState, HostSpec, LinkSetup, SubflowUse, Testbed};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::tcp::link;

/// A limit for what takes milliseconds.
const LIMIT: Duration = Duration::from_secs(20);

fn two_links() -> Result<Testbed> {
    let testbed = Testbed::builder(link(Rate::mbit(20), 10, 100));
    Ok(testbed.add_link(LinkSetup::new(link(Rate::mbit(5), 40, 100))).start()?)
}

/// Connects to the address that all links lead to, over the link of a device or any; returns the client's address as the server sees
/// it, once the server has answered.
fn connect(testbed: &Testbed, device: Option<String>) -> Result<IpAddr> {
    let (port_tx, port_rx) = std::sync::mpsc::channel();
    let server = testbed.server().run(move || -> io::Result<IpAddr> {
        let listener = TcpListener::bind(("0.0.0.0", 0))?;
        // Where the client does not come, too, the thread ends.
        SockRef::from(&listener).set_read_timeout(Some(LIMIT))?;
        port_tx.send(listener.local_addr()?.port()).map_err(io::Error::other)?;
        let (mut stream, peer) = listener.accept()?;
        stream.write_all(b"here")?;
        Ok(peer.ip())
    })?;
    let address = SocketAddr::new(Testbed::SHARED_ADDRESS.into(), port_rx.recv()?);
    let client = testbed.client().run(move || -> io::Result<[u8; 4]> {
        let mut socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind_device(device.as_deref().map(str::as_bytes))?;
        socket.set_read_timeout(Some(LIMIT))?;
        socket.connect_timeout(&address.into(), LIMIT)?;
        let mut answer = [0; 4];
        socket.read_exact(&mut answer)?;
        Ok(answer)
    })?;
    let answer = client.join().ok().context("the client panicked")??;
    ensure!(&answer == b"here");
    Ok(server.join().ok().context("the server panicked")??)
}

pub(crate) fn all_links_lead_to_one_address() -> Result<()> {
    let testbed = two_links()?;
    for (index, expected) in ["10.99.0.2", "10.99.1.2"].into_iter().enumerate() {
        let from = connect(&testbed, testbed.client().device_name_on(index))?;
        ensure!(from.to_string() == expected, "over link {index}: {from}");
        let counts: Vec<_> =
            testbed.reports().iter().map(|report| report.to_client.delivered_packets).collect();
        ensure!(counts[index] > 0 && (index == 1 || counts[1] == 0), "{counts:?}");
    }
    let unbound = connect(&testbed, None)?;
    ensure!(unbound.to_string() == "10.99.0.2", "{unbound}");
    ensure!(testbed.device_drops()? == 0, "the devices dropped packets");
    Ok(())
}

pub(crate) fn a_link_goes_down_and_comes_back() -> Result<()> {
    let testbed = two_links()?;
    testbed.client().set_device_state(0, DeviceState::Down)?;
    let instead = connect(&testbed, None)?;
    ensure!(instead.to_string() == "10.99.1.2", "{instead}");
    ensure!(connect(&testbed, Some("link0".to_owned())).is_err(), "over a link that is down");
    ensure!(testbed.client().device_drops_on(1)? == 0, "the other link's device dropped packets");
    ensure!(testbed.client().device_drops_on(2).is_err(), "of a link that there is not");
    testbed.client().set_device_state(0, DeviceState::Up)?;
    let again = connect(&testbed, None)?;
    ensure!(again.to_string() == "10.99.0.2", "{again}");
    let error = testbed.client().set_device_state(2, DeviceState::Down).unwrap_err();
    ensure!(error.to_string().contains("there is no link 2"), "{error}");
    Ok(())
}

pub(crate) fn mptcp_uses_both_links() -> Result<()> {
    let testbed = |subflow_use| -> Result<Testbed> {
        let testbed = Testbed::builder(link(Rate::mbit(20), 10, 100));
        let client = HostSpec::default().subflows(subflow_use);
        let second = LinkSetup::new(link(Rate::mbit(10), 40, 100));
        Ok(testbed.add_link(second).client(client).start()?)
    };
    if !mptcp_is_possible() {
        eprintln!("this kernel has no MPTCP, or it is off: net.mptcp.enabled");
        return Ok(());
    }
    for (subflow_use, both) in [(SubflowUse::Always, true), (SubflowUse::Backup, false)] {
        let testbed = testbed(subflow_use)?;
        let bytes = 2_000_000;
        ensure!(download_by_mptcp(&testbed, bytes)? == bytes);
        let by_link: Vec<_> =
            testbed.reports().iter().map(|report| report.to_client.delivered_bytes).collect();
        ensure!(by_link[0] > 500_000, "{subflow_use:?}: {by_link:?}");
        // A backup has a handshake, and no data while the first one works.
        ensure!((by_link[1] > 200_000) == both && by_link[1] > 40, "{subflow_use:?}: {by_link:?}");
    }
    Ok(())
}

fn mptcp_is_possible() -> bool {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).is_ok()
}

fn download_by_mptcp(testbed: &Testbed, bytes: usize) -> Result<usize> {
    let (port_tx, port_rx) = std::sync::mpsc::channel();
    let server = testbed.server().run(move || -> io::Result<()> {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP))?;
        listener.bind(&SocketAddr::from(([0, 0, 0, 0], 0)).into())?;
        listener.listen(1)?;
        listener.set_read_timeout(Some(LIMIT))?;
        let address = listener.local_addr()?.as_socket().ok_or(io::ErrorKind::Other)?;
        port_tx.send(address.port()).map_err(io::Error::other)?;
        let (mut socket, _) = listener.accept()?;
        // The second subflow joins after the first exchange.
        socket.read_exact(&mut [0])?;
        socket.write_all(&vec![7; bytes])
    })?;
    let address = SocketAddr::new(Testbed::SHARED_ADDRESS.into(), port_rx.recv()?);
    let client = testbed.client().run(move || -> io::Result<usize> {
        let mut socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP))?;
        socket.set_read_timeout(Some(LIMIT))?;
        socket.connect_timeout(&address.into(), LIMIT)?;
        socket.write_all(&[1])?;
        let mut received = Vec::new();
        socket.read_to_end(&mut received)
    })?;
    let received = client.join().ok().context("the client panicked")??;
    server.join().ok().context("the server panicked")??;
    Ok(received)
}
