//! Streams that migrate between connections while they are open, over real sockets.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::support::{
    Watch, answer, bytes, digest, get, loopback, pair, sha256, until, url, within,
};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use smig::{
    Cleartext, CleartextTrust, Client, MigrationConfig, MigrationMode, ObserverEvent, Offers,
    Origin, Server, Trust,
};
use tower::service_fn;

const LEN: usize = 8 << 20;

fn at(offsets: &[u64]) -> MigrationConfig {
    let mut rules = MigrationConfig::default();
    rules.mode = MigrationMode::At(offsets.to_vec());
    rules
}

fn never() -> MigrationConfig {
    let mut rules = MigrationConfig::default();
    rules.mode = MigrationMode::Never;
    rules
}

/// A client configuration whose window is much smaller than `LEN`: as long as the test does not
/// read the body, the server cannot send all of it, so that the awaited event can still occur.
fn small_window() -> smig::Config {
    let mut config = smig::Config::client();
    config.stream_window = 1 << 20;
    config
}

/// Returns whether it is the event of a completed migration. The mover emits it on the answer,
/// possibly after the last byte.
fn is_move(event: &ObserverEvent) -> bool {
    matches!(event, ObserverEvent::Migrated { .. })
}

#[tokio::test]
async fn a_download_moves_to_a_spare() {
    let (server, client) = pair();
    let (watch, mut events) = Watch::new();
    let (seen, mut at_server) = Watch::new();
    let server = server.migration(at(&[1 << 20])).observer(seen).start(service_fn(answer)).unwrap();
    let client = client.migration(never()).observer(watch).build().unwrap();
    let first = client.request(get(url(&server, "/"))).await.unwrap();
    assert_eq!(first.into_body().collect().await.unwrap().to_bytes(), "hello");
    let joined = until(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;

    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    let info = response.body().stream_info().unwrap();
    let (hash, len) = digest(response.into_body()).await.unwrap();
    assert_eq!((hash, len), (sha256(&bytes(LEN)), LEN as u64));
    let segments = info.segments();
    assert_eq!(segments.len(), 2, "{segments:?}");
    assert_eq!(segments[0].end, segments[1].start);
    assert_eq!(segments[1].end, LEN as u64);
    assert_ne!(segments[0].connection, segments[1].connection);
    assert!(segments[0].end >= 1 << 20);
    let moved = until(&mut at_server, is_move).await;
    assert_eq!(server.stats().migrations, 1);
    let ObserverEvent::Joined { conn, ends: Some(spare) } = joined else { panic!("{joined:?}") };
    let ObserverEvent::Migrated { ends: Some(to), .. } = moved else { panic!("{moved:?}") };
    assert_eq!(conn, segments[1].connection);
    assert_eq!((to.local, to.peer), (spare.peer, spare.local), "both ends name one connection");
}

#[tokio::test]
async fn what_is_observed_names_its_connection() {
    let (server, client) = pair();
    let (watch, mut events) = Watch::new();
    let (seen, mut at_server) = Watch::new();
    let server = server.observer(seen).start(service_fn(answer)).unwrap();
    let client = client.engine(small_window()).spares(0).observer(watch).build().unwrap();
    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    drop(response);
    let is_reset = |event: &ObserverEvent| matches!(event, ObserverEvent::StreamReset { .. });
    let reset = until(&mut at_server, is_reset).await;
    let opened = |event: &ObserverEvent| matches!(event, ObserverEvent::ConnectionOpened { .. });
    let opened = until(&mut events, opened).await;
    let ObserverEvent::ConnectionOpened { ends: Some(made) } = opened else { panic!("{opened:?}") };
    let ObserverEvent::StreamReset { ends: Some(on), .. } = reset else { panic!("{reset:?}") };
    assert_eq!(made.peer, server.local_addrs()[0]);
    assert_eq!((on.local, on.peer), (made.peer, made.local));
    drop(client);
    let closed = |event: &ObserverEvent| matches!(event, ObserverEvent::ConnectionClosed { .. });
    let closed = until(&mut at_server, closed).await;
    let ObserverEvent::ConnectionClosed { ends: Some(gone) } = closed else { panic!("{closed:?}") };
    assert_eq!(gone, on);
}

#[tokio::test]
async fn a_download_moves_when_the_server_offers() {
    let (server, client) = pair();
    let mut rules = at(&[100 << 10]);
    rules.offers = Offers::WhenNoSpare;
    let server = server.migration(rules).start(service_fn(answer)).unwrap();
    let (watch, mut events) = Watch::new();
    let client =
        client.engine(small_window()).migration(never()).spares(0).observer(watch).build().unwrap();
    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    until(&mut events, is_move).await;
    let info = response.body().stream_info().unwrap();
    let (hash, len) = digest(response.into_body()).await.unwrap();
    assert_eq!((hash, len), (sha256(&bytes(LEN)), LEN as u64));
    assert!(info.segments().len() >= 2, "{:?}", info.segments());
}

#[tokio::test]
async fn an_offer_to_a_session_that_takes_no_more_requests_is_declined() {
    // SMIG-6.2/offer-answered
    let (server, client) = pair();
    // Not before the test reads: the threshold is beyond the window.
    let mut rules = at(&[4 << 20]);
    rules.offers = Offers::WhenNoSpare;
    let (seen, mut at_server) = Watch::new();
    let server = server.migration(rules).observer(seen).start(service_fn(answer)).unwrap();
    let client = client.engine(small_window()).migration(never()).spares(0).build().unwrap();
    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    let origin = Origin::https("localhost", server.local_addrs()[0].port());
    client.retire(&origin);
    let closed = async {
        while client.has_session(&origin) {
            tokio::task::yield_now().await;
        }
    };
    within("the end of requests", closed).await;
    let read = within("the download", digest(response.into_body())).await.unwrap();
    assert_eq!(read, (sha256(&bytes(LEN)), LEN as u64));
    until(&mut at_server, |event| matches!(event, ObserverEvent::MigrationDeclined { .. })).await;
}

#[tokio::test]
async fn an_upload_moves() {
    let (server, client) = pair();
    let (watch, mut events) = Watch::new();
    let server = server.migration(never()).start(service_fn(answer)).unwrap();
    let client = client.migration(at(&[1 << 20])).observer(watch).build().unwrap();
    let first = client.request(get(url(&server, "/"))).await.unwrap();
    drop(first.into_body().collect().await.unwrap());
    until(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;

    let upload = Request::post(url(&server, "/digest")).body(Full::new(bytes(LEN))).unwrap();
    let response = client.request(upload).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, &sha256(&bytes(LEN))[..]);
    assert_eq!(client.stats().migrations, 1);
}

#[tokio::test]
async fn a_stream_moves_again_and_again() {
    let (server, client) = pair();
    let (watch, mut events) = Watch::new();
    let server =
        server.migration(at(&[1 << 20, 2 << 20, 4 << 20])).start(service_fn(answer)).unwrap();
    let client = client.migration(never()).spares(2).observer(watch).build().unwrap();
    let first = client.request(get(url(&server, "/"))).await.unwrap();
    drop(first.into_body().collect().await.unwrap());
    until(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;
    until(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;
    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    let info = response.body().stream_info().unwrap();
    let (hash, len) = digest(response.into_body()).await.unwrap();
    assert_eq!((hash, len), (sha256(&bytes(LEN)), LEN as u64));
    assert_eq!(info.segments().len(), 4, "{:?}", info.segments());
}

#[tokio::test]
async fn the_application_can_ask_for_a_move() {
    let (server, client) = pair();
    let (watch, mut events) = Watch::new();
    let server = server.migration(never()).start(service_fn(answer)).unwrap();
    let client = client.engine(small_window()).migration(never()).observer(watch).build().unwrap();
    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    until(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;
    let info = response.body().stream_info().unwrap();
    info.migrate();
    until(&mut events, |event| matches!(event, ObserverEvent::Migrated { .. })).await;
    let (hash, len) = digest(response.into_body()).await.unwrap();
    assert_eq!((hash, len), (sha256(&bytes(LEN)), LEN as u64));
    assert_eq!(info.segments().len(), 2, "{:?}", info.segments());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_join_across_workers() {
    let (server, client) = pair();
    let workers = NonZeroUsize::new(2).unwrap();
    let (seen, mut at_server) = Watch::new();
    let server = server.workers(workers).migration(at(&[100 << 10])).observer(seen);
    let server = server.start(service_fn(answer)).unwrap();
    let expected = sha256(&bytes(LEN));
    // The kernel distributes connections over the workers: some of the joins change workers.
    let mut tasks = tokio::task::JoinSet::new();
    drop(client);
    for _ in 0..12 {
        let builder = Client::builder().trust(Trust::DangerAcceptInvalidCerts);
        let (watch, mut events) = Watch::new();
        let client = builder.migration(never()).observer(watch).build().unwrap();
        let (hello, big) = (url(&server, "/"), url(&server, &format!("/bytes/{LEN}")));
        tasks.spawn(async move {
            let first = client.request(get(hello)).await.unwrap();
            drop(first.into_body().collect().await.unwrap());
            until(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;
            let response = client.request(get(big)).await.unwrap();
            let info = response.body().stream_info().unwrap();
            let (hash, len) = digest(response.into_body()).await.unwrap();
            assert_eq!((hash, len), (expected, LEN as u64));
            info.segments().len()
        });
    }
    while let Some(segments) = tasks.join_next().await {
        assert_eq!(segments.unwrap(), 2);
    }
    for _ in 0..12 {
        until(&mut at_server, is_move).await;
    }
    assert!(server.stats().joined >= 12);
    assert_eq!(server.stats().joins_refused, 0);
    assert_eq!(server.stats().migrations, 12);
}

#[tokio::test]
async fn trusted_cleartext_migrates_too() {
    let server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::TrustedNetwork)
        .workers(NonZeroUsize::MIN)
        .migration(at(&[1 << 20]))
        .start(service_fn(answer))
        .unwrap();
    let (watch, mut events) = Watch::new();
    let client = Client::builder()
        .cleartext(Cleartext::PriorKnowledge(CleartextTrust::TrustedNetwork))
        .migration(never())
        .observer(watch)
        .build()
        .unwrap();
    let base = format!("http://{}", server.local_addrs()[0]);
    drop(client.request(get(format!("{base}/"))).await.unwrap());
    until(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;
    let response = client.request(get(format!("{base}/bytes/{LEN}"))).await.unwrap();
    let info = response.body().stream_info().unwrap();
    let (hash, _) = digest(response.into_body()).await.unwrap();
    assert_eq!(hash, sha256(&bytes(LEN)));
    assert_eq!(info.segments().len(), 2, "{:?}", info.segments());
}

#[tokio::test]
async fn a_server_that_stops_lets_streams_finish() {
    let (server, client) = pair();
    let (watch, mut events) = Watch::new();
    let server = server.observer(watch).start(service_fn(answer)).unwrap();
    let client = client.build().unwrap();
    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    until(&mut events, |event| matches!(event, ObserverEvent::StreamOpened { .. })).await;
    let stopping = server.shutdown(Duration::from_secs(60));
    let reading = digest(response.into_body());
    let (stopped, read) = tokio::join!(stopping, reading);
    stopped.unwrap();
    assert_eq!(read.unwrap(), (sha256(&bytes(LEN)), LEN as u64));
    let again: Request<Full<Bytes>> = get("https://localhost:1/");
    assert!(client.request(again).await.unwrap_err().is_connect());
}

#[tokio::test]
async fn a_response_can_ask_to_move_or_to_stay() {
    let (server, client) = pair();
    let (watch, mut events) = Watch::new();
    let service = service_fn(|request: Request<smig::Incoming>| async move {
        let hint = match request.uri().query() {
            Some("move") => smig::MigrationHint::Migrate,
            Some("stay") => smig::MigrationHint::Stay,
            _ => smig::MigrationHint::None,
        };
        let mut response = answer(request).await?;
        response.extensions_mut().insert(hint);
        Ok::<_, smig::BoxError>(response)
    });
    let (seen, mut at_server) = Watch::new();
    let server = server.observer(seen).start(service).unwrap();
    let client = client.migration(never()).observer(watch).build().unwrap();
    drop(client.request(get(url(&server, "/"))).await.unwrap());
    until(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;
    for (query, segments) in [("stay", 1), ("move", 2)] {
        let url = url(&server, &format!("/bytes/{LEN}?{query}"));
        let response = client.request(get(url)).await.unwrap();
        let info = response.body().stream_info().unwrap();
        let (hash, _) = digest(response.into_body()).await.unwrap();
        assert_eq!(hash, sha256(&bytes(LEN)));
        assert!(info.segments().len() <= segments, "{query}: {:?}", info.segments());
    }
    until(&mut at_server, is_move).await;
    assert_eq!(server.stats().migrations_initiated, 1);
}
