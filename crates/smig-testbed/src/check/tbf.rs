//! The rate through the kernel's token bucket filter, over a veth pair, as a
//! reference for the model's rate.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};

use smig_link::{DEFAULT_MTU, LinkSpec, Rate, RateSpec};

use super::rate::{flood, measure_path};
use super::{CheckError, CheckOptions, TbfCheck};
use crate::netns::Host;

const SENDER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);
const RECEIVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);
/// Bytes of the Ethernet header, which the token bucket counts.
const FRAME_HEADER_BYTES: f64 = 14.0;
const RELATIVE_LOAD: f64 = 1.25;

/// Measures the rate of the direction to the client, if it is constant.
pub(super) fn measure(link: &LinkSpec, options: &CheckOptions) -> Result<TbfCheck, CheckError> {
    let RateSpec::Constant(rate) = link.to_client.rate else {
        return Ok(TbfCheck::Skipped { reason: "a token bucket has a constant rate".into() });
    };
    let (from_host, to_host) = (Host::without_links("tbf-from")?, Host::without_links("tbf-to")?);
    if let Err(error) = set_up(&from_host, &to_host, rate) {
        return Ok(TbfCheck::Skipped { reason: error.to_string() });
    }
    let packet_bytes = DEFAULT_MTU as usize;
    let packets =
        flood(rate.as_bits_per_second() as f64 * RELATIVE_LOAD, packet_bytes, options.duration);
    let Some(bits_per_s) = measure_path(&from_host, &to_host, RECEIVER_ADDRESS, packets)? else {
        return Ok(TbfCheck::Skipped { reason: "too few packets were received".into() });
    };
    let bits_per_s_with_headers =
        bits_per_s * (packet_bytes as f64 + FRAME_HEADER_BYTES) / packet_bytes as f64;
    Ok(TbfCheck::Measured {
        expected_mbit_per_s: rate.as_mbit(),
        measured_mbit_per_s: bits_per_s_with_headers / 1e6,
    })
}

fn set_up(from_host: &Host, to_host: &Host, rate: Rate) -> io::Result<()> {
    // `ip` runs in `from_host`; it refers to `to_host` by this process's descriptor.
    let peer_namespace =
        format!("/proc/{}/fd/{}", std::process::id(), to_host.namespace().as_raw_fd());
    ip(from_host, &format!("link add v0 type veth peer name v0 netns {peer_namespace}"))?;
    for (host, address) in [(from_host, SENDER_ADDRESS), (to_host, RECEIVER_ADDRESS)] {
        ip(host, &format!("address add {address}/24 dev v0"))?;
        ip(host, "link set v0 up")?;
    }
    // Bytes sent between two ticks of a 250 Hz kernel timer, but at least two frames.
    let burst = (rate.as_bits_per_second() / 8 / 250).max(2 * 1_514);
    let bits_per_s = rate.as_bits_per_second();
    run_tool(
        from_host,
        "tc",
        &format!("qdisc add dev v0 root tbf rate {bits_per_s}bit burst {burst} limit 150000"),
    )
}

fn ip(host: &Host, arguments: &str) -> io::Result<()> {
    run_tool(host, "ip", arguments)
}

/// Runs an iproute2 program in a host.
fn run_tool(host: &Host, program: &str, arguments: &str) -> io::Result<()> {
    let mut command = Command::new(program);
    command.args(arguments.split(' ')).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::piped());
    let mut child = host.spawn(command).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::other(format!("{program} is not installed; `apt install iproute2` has it"))
        }
        _ => error,
    })?;
    let mut stderr_text = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        io::Read::read_to_string(&mut stderr, &mut stderr_text)?;
    }
    if child.wait()?.success() {
        return Ok(());
    }
    let first = stderr_text.lines().next().unwrap_or("no reason given");
    Err(io::Error::other(format!("{program}: {first}")))
}
