//! Streams that migrate between connections while they are open, over real sockets.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::support::{
    EventRecorder, answer, bytes, digest, get, loopback, pair, sha256, url, wait_for_event, within,
};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use smig::{
    Cleartext, CleartextTrust, Client, Connections, MigrationConfig, MigrationMode, ObserverEvent,
    Offers, Origin, Server, Trust,
};
use tower::service_fn;

const LEN: usize = 8 << 20;

fn migrate_at(offsets: &[u64]) -> MigrationConfig {
    let mut rules = MigrationConfig::default();
    rules.mode = MigrationMode::At(offsets.to_vec());
    rules
}

fn never_migrate() -> MigrationConfig {
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
/// possibly after the last byte of the body.
fn is_migration(event: &ObserverEvent) -> bool {
    matches!(event, ObserverEvent::Migrated { .. })
}

#[tokio::test]
async fn a_download_migrates_to_a_spare() {
    let (server, client) = pair();
    let (observer, mut events) = EventRecorder::new();
    let (server_observer, mut server_events) = EventRecorder::new();
    let server = server
        .migration(migrate_at(&[1 << 20]))
        .observer(server_observer)
        .start(service_fn(answer))
        .unwrap();
    let client = client.migration(never_migrate()).observer(observer).build().unwrap();
    let first = client.request(get(url(&server, "/"))).await.unwrap();
    assert_eq!(first.into_body().collect().await.unwrap().to_bytes(), "hello");
    let join_event =
        wait_for_event(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;

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
    let migration_event = wait_for_event(&mut server_events, is_migration).await;
    assert_eq!(server.stats().migrations, 1);
    let ObserverEvent::Joined { conn, addrs: Some(spare) } = join_event else {
        panic!("{join_event:?}")
    };
    let ObserverEvent::Migrated { addrs: Some(to), .. } = migration_event else {
        panic!("{migration_event:?}")
    };
    assert_eq!(conn, segments[1].connection);
    assert_eq!((to.local, to.peer), (spare.peer, spare.local), "both ends name one connection");
}

#[tokio::test]
async fn responses_are_whole_and_none_moves_where_one_window_suffices() {
    // Less than a stream's window: nothing waits for this test.
    const LEN: usize = 50_000;
    let (server, client) = pair();
    let mut rules = never_migrate();
    rules.connections = Connections::Adaptive;
    let server = server.migration(rules).start(service_fn(answer)).unwrap();
    let client = client.migration(never_migrate()).spares(3).build().unwrap();
    let mut bodies = Vec::new();
    for _ in 0..6 {
        let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
        bodies.push(response.into_body());
    }
    for body in bodies {
        assert_eq!(digest(body).await.unwrap(), (sha256(&bytes(LEN)), LEN as u64));
    }
    assert_eq!(server.stats().migrations, 0);
}

#[tokio::test]
async fn events_contain_the_addresses_of_their_connection() {
    let (server, client) = pair();
    let (observer, mut events) = EventRecorder::new();
    let (server_observer, mut server_events) = EventRecorder::new();
    let server = server.observer(server_observer).start(service_fn(answer)).unwrap();
    let client = client.engine(small_window()).spares(0).observer(observer).build().unwrap();
    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    drop(response);
    let is_reset = |event: &ObserverEvent| matches!(event, ObserverEvent::StreamReset { .. });
    let reset_event = wait_for_event(&mut server_events, is_reset).await;
    let is_opening =
        |event: &ObserverEvent| matches!(event, ObserverEvent::ConnectionOpened { .. });
    let open_event = wait_for_event(&mut events, is_opening).await;
    let ObserverEvent::ConnectionOpened { addrs: Some(client_addrs) } = open_event else {
        panic!("{open_event:?}")
    };
    let ObserverEvent::StreamReset { addrs: Some(server_addrs), .. } = reset_event else {
        panic!("{reset_event:?}")
    };
    assert_eq!(client_addrs.peer, server.local_addrs()[0]);
    assert_eq!((server_addrs.local, server_addrs.peer), (client_addrs.peer, client_addrs.local));
    drop(client);
    let is_closing =
        |event: &ObserverEvent| matches!(event, ObserverEvent::ConnectionClosed { .. });
    let close_event = wait_for_event(&mut server_events, is_closing).await;
    let ObserverEvent::ConnectionClosed { addrs: Some(closed_addrs) } = close_event else {
        panic!("{close_event:?}")
    };
    assert_eq!(closed_addrs, server_addrs);
}

#[tokio::test]
async fn a_download_migrates_when_the_server_offers() {
    let (server, client) = pair();
    let mut rules = migrate_at(&[1]);
    rules.offers = Offers::WhenNoSpare;
    let server = server.migration(rules).start(service_fn(answer)).unwrap();
    let (observer, mut events) = EventRecorder::new();
    let client = client
        .engine(small_window())
        .migration(never_migrate())
        .spares(1)
        .observer(observer)
        .build()
        .unwrap();
    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    wait_for_event(&mut events, is_migration).await;
    let info = response.body().stream_info().unwrap();
    let (hash, len) = digest(response.into_body()).await.unwrap();
    assert_eq!((hash, len), (sha256(&bytes(LEN)), LEN as u64));
    // The connection that it left is a spare now. The server does not move it back there.
    assert_eq!(server.stats().migrations, 1);
    let segments = info.segments();
    assert_eq!(segments.len(), 2, "{segments:?}");
    assert_ne!(segments[0].connection, segments[1].connection);
}

#[tokio::test]
async fn an_offer_to_a_retired_session_is_declined() {
    // SMIG-6.2/offer-answered
    let (server, client) = pair();
    // Not before the test reads: the threshold is beyond the window.
    let mut rules = migrate_at(&[4 << 20]);
    rules.offers = Offers::WhenNoSpare;
    let (server_observer, mut server_events) = EventRecorder::new();
    let server =
        server.migration(rules).observer(server_observer).start(service_fn(answer)).unwrap();
    let client =
        client.engine(small_window()).migration(never_migrate()).spares(0).build().unwrap();
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
    wait_for_event(&mut server_events, |event| {
        matches!(event, ObserverEvent::MigrationDeclined { .. })
    })
    .await;
}

#[tokio::test]
async fn an_upload_migrates() {
    let (server, client) = pair();
    let (observer, mut events) = EventRecorder::new();
    let server = server.migration(never_migrate()).start(service_fn(answer)).unwrap();
    let client = client.migration(migrate_at(&[1 << 20])).observer(observer).build().unwrap();
    let first = client.request(get(url(&server, "/"))).await.unwrap();
    drop(first.into_body().collect().await.unwrap());
    wait_for_event(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;

    let upload = Request::post(url(&server, "/digest")).body(Full::new(bytes(LEN))).unwrap();
    let response = client.request(upload).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, &sha256(&bytes(LEN))[..]);
    assert_eq!(client.stats().migrations, 1);
}

#[tokio::test]
async fn a_stream_migrates_several_times() {
    let (server, client) = pair();
    let (observer, mut events) = EventRecorder::new();
    let server = server
        .migration(migrate_at(&[1 << 20, 2 << 20, 4 << 20]))
        .start(service_fn(answer))
        .unwrap();
    let client = client.migration(never_migrate()).spares(2).observer(observer).build().unwrap();
    let first = client.request(get(url(&server, "/"))).await.unwrap();
    drop(first.into_body().collect().await.unwrap());
    wait_for_event(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;
    wait_for_event(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;
    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    let info = response.body().stream_info().unwrap();
    let (hash, len) = digest(response.into_body()).await.unwrap();
    assert_eq!((hash, len), (sha256(&bytes(LEN)), LEN as u64));
    assert_eq!(info.segments().len(), 4, "{:?}", info.segments());
}

#[tokio::test]
async fn the_application_can_request_a_migration() {
    let (server, client) = pair();
    let (observer, mut events) = EventRecorder::new();
    let server = server.migration(never_migrate()).start(service_fn(answer)).unwrap();
    let client = client
        .engine(small_window())
        .migration(never_migrate())
        .observer(observer)
        .build()
        .unwrap();
    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    wait_for_event(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;
    let info = response.body().stream_info().unwrap();
    info.migrate();
    wait_for_event(&mut events, |event| matches!(event, ObserverEvent::Migrated { .. })).await;
    let (hash, len) = digest(response.into_body()).await.unwrap();
    assert_eq!((hash, len), (sha256(&bytes(LEN)), LEN as u64));
    assert_eq!(info.segments().len(), 2, "{:?}", info.segments());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_join_across_workers() {
    let (server, client) = pair();
    let workers = NonZeroUsize::new(2).unwrap();
    let (server_observer, mut server_events) = EventRecorder::new();
    let server =
        server.workers(workers).migration(migrate_at(&[100 << 10])).observer(server_observer);
    let server = server.start(service_fn(answer)).unwrap();
    let expected = sha256(&bytes(LEN));
    // The kernel distributes connections over the workers: some of the joins change workers.
    let mut tasks = tokio::task::JoinSet::new();
    drop(client);
    for _ in 0..12 {
        let builder = Client::builder().trust(Trust::DangerAcceptInvalidCerts);
        let (observer, mut events) = EventRecorder::new();
        let client = builder.migration(never_migrate()).observer(observer).build().unwrap();
        let (hello, big) = (url(&server, "/"), url(&server, &format!("/bytes/{LEN}")));
        tasks.spawn(async move {
            let first = client.request(get(hello)).await.unwrap();
            drop(first.into_body().collect().await.unwrap());
            wait_for_event(&mut events, |event| matches!(event, ObserverEvent::Joined { .. }))
                .await;
            let response = client.request(get(big)).await.unwrap();
            let info = response.body().stream_info().unwrap();
            let (hash, len) = digest(response.into_body()).await.unwrap();
            assert_eq!((hash, len), (expected, LEN as u64));
            (info.segments().len(), client)
        });
    }
    // Every client stays until the end: a spare that joins after its session has ended is refused.
    let mut clients = Vec::new();
    while let Some(done) = tasks.join_next().await {
        let (segments, client) = done.unwrap();
        assert_eq!(segments, 2);
        clients.push(client);
    }
    for _ in 0..12 {
        wait_for_event(&mut server_events, is_migration).await;
    }
    assert!(server.stats().connections_joined >= 12);
    assert_eq!(server.stats().joins_refused, 0);
    assert_eq!(server.stats().migrations, 12);
}

#[tokio::test]
async fn trusted_cleartext_migrates_too() {
    let server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::TrustedNetwork)
        .workers(NonZeroUsize::MIN)
        .migration(migrate_at(&[1 << 20]))
        .start(service_fn(answer))
        .unwrap();
    let (observer, mut events) = EventRecorder::new();
    let client = Client::builder()
        .cleartext(Cleartext::PriorKnowledge(CleartextTrust::TrustedNetwork))
        .migration(never_migrate())
        .observer(observer)
        .build()
        .unwrap();
    let base_url = format!("http://{}", server.local_addrs()[0]);
    drop(client.request(get(format!("{base_url}/"))).await.unwrap());
    wait_for_event(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;
    let response = client.request(get(format!("{base_url}/bytes/{LEN}"))).await.unwrap();
    let info = response.body().stream_info().unwrap();
    let (hash, _) = digest(response.into_body()).await.unwrap();
    assert_eq!(hash, sha256(&bytes(LEN)));
    assert_eq!(info.segments().len(), 2, "{:?}", info.segments());
}

#[tokio::test]
async fn a_shutdown_waits_for_open_streams() {
    let (server, client) = pair();
    let (observer, mut events) = EventRecorder::new();
    let server = server.observer(observer).start(service_fn(answer)).unwrap();
    let client = client.build().unwrap();
    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    wait_for_event(&mut events, |event| matches!(event, ObserverEvent::StreamOpened { .. })).await;
    let again = get(url(&server, "/"));
    let stopping = server.shutdown(Duration::from_secs(60));
    let reading = digest(response.into_body());
    let (stopped, read) = tokio::join!(stopping, reading);
    stopped.unwrap();
    assert_eq!(read.unwrap(), (sha256(&bytes(LEN)), LEN as u64));
    assert!(client.request(again).await.unwrap_err().is_connect());
}

#[tokio::test]
async fn a_response_can_hint_to_migrate_or_to_stay() {
    let (server, client) = pair();
    let (observer, mut events) = EventRecorder::new();
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
    let (server_observer, mut server_events) = EventRecorder::new();
    let server = server.observer(server_observer).start(service).unwrap();
    let client = client.migration(never_migrate()).observer(observer).build().unwrap();
    drop(client.request(get(url(&server, "/"))).await.unwrap());
    wait_for_event(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;
    for (query, max_segments) in [("stay", 1), ("move", 2)] {
        let url = url(&server, &format!("/bytes/{LEN}?{query}"));
        let response = client.request(get(url)).await.unwrap();
        let info = response.body().stream_info().unwrap();
        let (hash, _) = digest(response.into_body()).await.unwrap();
        assert_eq!(hash, sha256(&bytes(LEN)));
        assert!(info.segments().len() <= max_segments, "{query}: {:?}", info.segments());
    }
    wait_for_event(&mut server_events, is_migration).await;
    assert_eq!(server.stats().migrations_initiated, 1);
}

#[tokio::test]
async fn a_declined_migration_is_tried_again() {
    let (server, client) = pair();
    let (server_observer, mut server_events) = EventRecorder::new();
    let mut rules = MigrationConfig::default();
    rules.policy.min_concurrent = 0;
    rules.policy.min_transfer_time = Duration::ZERO;
    let server =
        server.migration(rules).observer(server_observer).start(service_fn(answer)).unwrap();
    let (observer, mut events) = EventRecorder::new();
    let mut config = smig::Config::client();
    // The client follows no migration.
    config.smig.as_mut().unwrap().max_migrations_per_stream = 0;
    let client =
        client.engine(config).migration(never_migrate()).observer(observer).build().unwrap();
    drop(client.request(get(url(&server, "/"))).await.unwrap());
    wait_for_event(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;
    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    let (hash, _) = digest(response.into_body()).await.unwrap();
    assert_eq!(hash, sha256(&bytes(LEN)));
    for _ in 0..2 {
        wait_for_event(&mut server_events, |event| {
            matches!(event, ObserverEvent::MigrationDeclined { .. })
        })
        .await;
    }
}
