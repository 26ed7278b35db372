//! The driver of a server's session, with a handler that answers each request at once, over a real socket.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use smig_proto::{Config, EndStream, Identity, ResponseHead, Security};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::clock;
use crate::connection::ConnectionInfo;
use crate::socket::SocketOptions;
use crate::transport::Transport;

const TIMEOUT: Duration = Duration::from_secs(60);
/// The client's preface, with SETTINGS that are empty.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const BODY: &[u8] = b"the body";

/// How often the task was polled, and its turns.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    polls: usize,
    turns: usize,
}

struct Answering {
    counts: Rc<RefCell<Counts>>,
    /// Whether it has nothing to do in a turn that follows at once.
    is_settled: bool,
}

impl SessionHandler for Answering {
    type Command = ();

    fn on_event(&mut self, turn: &mut TurnCx<'_>, event: Event) {
        if let Event::Request { stream, .. } = event {
            let head = ResponseHead { status: StatusCode::OK, headers: HeaderMap::new() };
            turn.session.send_response(stream, &head, EndStream::No).unwrap();
            turn.session.send_data(stream, Bytes::from_static(BODY), EndStream::Yes).unwrap();
            turn.session.release(stream);
        }
    }

    fn on_command(&mut self, _: &mut TurnCx<'_>, (): ()) {}

    fn on_wake(&mut self, _: &mut TurnCx<'_>, _: Slot) {}

    fn on_turn(&mut self, _: &mut TurnCx<'_>) {
        self.counts.borrow_mut().turns += 1;
    }

    fn is_settled(&self) -> bool {
        self.is_settled
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn is_done(&self) -> bool {
        true
    }

    fn on_end(&mut self) {}
}

async fn socket_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

fn driver(tcp: TcpStream, handler: Answering) -> Driver<Answering> {
    let options = ConnOptions {
        interactive_options: SocketOptions::interactive(),
        bulk_options: SocketOptions::bulk(),
        pacing: Pacing::On,
        receive_pacing: Pacing::Off,
        max_bulk_deferral: Duration::ZERO,
    };
    let now = clock::now();
    let mut session = Session::server(Config::server(), now);
    let mut conns = ConnSet::new(Arc::new(options));
    let transport = Transport::cleartext(tcp).unwrap();
    let info = ConnectionInfo::new(&transport, Security::Ineligible, None);
    conns.add(&mut session, now, transport, info, Identity([0; 32]));
    Driver::new(session, conns, handler, Mailbox::new())
}

/// A GET request for `/`.
fn request(stream_id: u8) -> [u8; 12] {
    [0, 0, 3, 1, 5, 0, 0, 0, stream_id, 0x82, 0x84, 0x87]
}

/// Sends requests one after the other, and returns the counts of all but the first.
async fn run_requests(client: &mut TcpStream, counts: &RefCell<Counts>) -> Counts {
    client.write_all(PREFACE).await.unwrap();
    let mut before = Counts::default();
    for stream_id in [1, 3, 5, 7] {
        client.write_all(&request(stream_id)).await.unwrap();
        let mut received = BytesMut::new();
        while !received.ends_with(BODY) {
            assert!(client.read_buf(&mut received).await.unwrap() > 0, "closed: {received:?}");
        }
        // The driver and the client are on one thread: the task has returned.
        if stream_id == 1 {
            before = *counts.borrow();
        }
    }
    let Counts { polls, turns } = *counts.borrow();
    Counts { polls: polls - before.polls, turns: turns - before.turns }
}

async fn counts_of_requests(is_settled: bool) -> Counts {
    let counts = Rc::<RefCell<Counts>>::default();
    let (mut client, server) = socket_pair().await;
    let mut driver = driver(server, Answering { counts: Rc::clone(&counts), is_settled });
    let polled = Rc::clone(&counts);
    let task = core::future::poll_fn(|cx| {
        polled.borrow_mut().polls += 1;
        Pin::new(&mut driver).poll(cx)
    });
    let client = async {
        tokio::time::timeout(TIMEOUT, run_requests(&mut client, &counts)).await.expect("responses")
    };
    tokio::select! {
        biased;
        () = task => panic!("the session has ended"),
        counts = client => counts,
    }
}

#[tokio::test]
async fn a_request_that_is_answered_at_once_takes_one_turn() {
    let counts = counts_of_requests(true).await;
    // A timer that ends meanwhile takes one more.
    assert!(counts.polls >= 3 && counts.turns < counts.polls + 3, "{counts:?}");
}

#[tokio::test]
async fn a_handler_that_may_have_more_to_do_gets_another_turn() {
    let counts = counts_of_requests(false).await;
    assert!(counts.turns >= counts.polls + 3, "{counts:?}");
}
