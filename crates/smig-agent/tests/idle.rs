//! Checks an upper bound on the memory of an idle tunnel, which was measured at 23 KB.

#[path = "agent/support.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use smig_agent::UplinkState;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use support::{Gateway, connect, echo, origin, spec, wait_for_state};

const TUNNEL_COUNT: usize = 150;

/// Bytes that are allocated and not freed. The memory that the kernel reports depends on how the
/// allocator caches free blocks.
static ALLOCATED_BYTES: AtomicUsize = AtomicUsize::new(0);

struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[expect(unsafe_code, reason = "every call is forwarded to the system's allocator")]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        ALLOCATED_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[tokio::test]
async fn memory_of_an_idle_tunnel_is_bounded() {
    let gateway = Gateway::start(spec());
    let agent = gateway.agent(Vec::new()).await;
    wait_for_state(&agent, |state| matches!(state, UplinkState::Up(_))).await;
    let target = origin(echo).await;
    let open = async || {
        let (mut tcp, head) = connect(&agent, target).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        tcp.write_all(&[1; 30_000]).await.unwrap();
        tcp.read_exact(&mut [0; 30_000]).await.unwrap();
        tcp
    };
    let mut tunnels = vec![open().await];
    let allocated_before = ALLOCATED_BYTES.load(Ordering::Relaxed);
    for _ in 0..TUNNEL_COUNT {
        tunnels.push(open().await);
    }
    let bytes_per_tunnel =
        || ALLOCATED_BYTES.load(Ordering::Relaxed).saturating_sub(allocated_before) / TUNNEL_COUNT;
    // Includes the echo server's own buffer of 8 KB.
    let max_bytes_per_tunnel = 32 << 10;
    // Data in flight may need more time.
    for _ in 0..6000 {
        if bytes_per_tunnel() < max_bytes_per_tunnel {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!(
        "{} bytes per tunnel: agent, gateway, and this test's two sockets",
        bytes_per_tunnel()
    );
    assert!(bytes_per_tunnel() < max_bytes_per_tunnel, "{} bytes per tunnel", bytes_per_tunnel());
}
