//! Data for operators: snapshots of sessions, and events that name their stream.

use std::num::NonZeroUsize;

use crate::support::{EventRecorder, answer, digest, get, loopback, pair, url, wait_for_event};
use http::{Request, Response};
use smig::{
    BoxError, BulkHint, BulkReason, ConnectionRole, Incoming, MigrationCause, MigrationConfig,
    MigrationHint, MigrationMode, MigrationReason, ObserverEvent, Pacing, PolicyDecision,
    SessionSnapshot, Snapshot,
};
use tower::service_fn;

const LEN: usize = 8 << 20;

fn never_migrates() -> MigrationConfig {
    let mut rules = MigrationConfig::default();
    rules.mode = MigrationMode::Never;
    rules
}

/// A window too small for a complete transfer before the body is read.
fn small_window() -> smig::Config {
    let mut config = smig::Config::client();
    config.stream_window = 256 << 10;
    config
}

fn only_session(snapshot: Snapshot) -> SessionSnapshot {
    assert_eq!((snapshot.sessions.len(), snapshot.sessions_omitted), (1, 0), "{snapshot:?}");
    snapshot.sessions.into_iter().next().unwrap()
}

#[tokio::test]
async fn both_endpoints_show_a_stream_and_its_migration() {
    let (server, client) = pair();
    let server = server
        .migration(never_migrates())
        .request_label_limit(16)
        .start(service_fn(answer))
        .unwrap();
    let (observer, mut events) = EventRecorder::new();
    let client = client
        .engine(small_window())
        .migration(never_migrates())
        .observer(observer)
        .build()
        .unwrap();
    assert_eq!(client.sessions().await, Snapshot::default());
    assert_eq!(server.sessions().await, Snapshot::default());

    let path = format!("/bytes/{LEN}?secret=1");
    let response = client.request(get(url(&server, &path))).await.unwrap();
    wait_for_event(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;

    let (client_session, server_session) =
        (only_session(client.sessions().await), only_session(server.view().sessions().await));
    assert!(client_session.can_migrate && server_session.can_migrate);
    assert_ne!(client_session.id, server_session.id, "ids are random, and do not reveal the AppID");
    let roles = |session: &SessionSnapshot| {
        session.connections.iter().map(|conn| conn.role).collect::<Vec<_>>()
    };
    assert_eq!(roles(&client_session), [ConnectionRole::Interactive, ConnectionRole::Spare]);
    assert_eq!(roles(&server_session), roles(&client_session));
    let (client_addrs, server_addrs) =
        (client_session.connections[0].addrs, server_session.connections[0].addrs);
    assert_eq!((client_addrs.local, client_addrs.peer), (server_addrs.peer, server_addrs.local));
    assert_eq!((client_session.open_streams, client_session.streams.len()), (1, 1));
    let stream = &server_session.streams[0];
    let label = stream.label.as_ref().unwrap();
    assert_eq!((&*label.method, &*label.path), ("GET", "/bytes/8388608"));
    assert_eq!(stream.length, Some(LEN as u64));
    assert_eq!(client_session.streams[0].length, Some(LEN as u64));
    assert_eq!(
        client_session.streams[0].label, None,
        "labels are recorded only if that is configured"
    );
    assert_eq!((stream.migrations, stream.connection), (0, server_session.connections[0].id));

    response.body().stream_info().unwrap().migrate();
    let migration_event =
        wait_for_event(&mut events, |event| matches!(event, ObserverEvent::Migrated { .. })).await;
    let ObserverEvent::Migrated { stream: Some(stream_ref), why, to, .. } = migration_event else {
        panic!("{migration_event:?}")
    };
    assert_eq!(
        (stream_ref.session, stream_ref.connection, why),
        (client_session.id, to, MigrationCause::Application)
    );
    assert_eq!(stream_ref.stream, client_session.streams[0].key);
    let session_after = only_session(client.sessions().await);
    assert_eq!(session_after.id, client_session.id);
    assert_eq!((session_after.streams[0].connection, session_after.streams[0].migrations), (to, 1));
    let bulk = session_after.connections.iter().find(|conn| conn.id == to).unwrap();
    assert_eq!((bulk.role, bulk.streams), (ConnectionRole::Bulk, 1));
    assert_eq!(digest(response.into_body()).await.unwrap().1, LEN as u64);
}

/// A snapshot has a maximum number of sessions: those of one worker must not take all the places.
#[tokio::test]
async fn the_youngest_session_is_the_first_of_a_snapshot_whichever_worker_has_it() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = smig::Server::builder()
        .listen_cleartext(loopback(), smig::CleartextTrust::None)
        .workers(NonZeroUsize::new(4).unwrap())
        .start(service_fn(answer))
        .unwrap();
    // The kernel distributes the connections among the workers.
    let mut connections = Vec::new();
    for _ in 0..32 {
        let mut tcp = tokio::net::TcpStream::connect(server.local_addrs()[0]).await.unwrap();
        tcp.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        // The session has begun when its SETTINGS arrive.
        tcp.read_u8().await.unwrap();
        connections.push(tcp);
    }
    let snapshot = server.sessions().await;
    let peers: Vec<_> = snapshot.sessions.iter().map(|session| session.peer).collect();
    let youngest_first: Vec<_> =
        connections.iter().rev().map(|tcp| tcp.local_addr().unwrap()).collect();
    assert_eq!(peers, youngest_first);
}

/// Serves the path with the hint that the query names.
async fn answer_with_bulk_hint(
    request: Request<Incoming>,
) -> Result<Response<crate::support::Body>, BoxError> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let mut response = answer(request).await?;
    match &*query {
        "interactive" => drop(response.extensions_mut().insert(BulkHint::Interactive)),
        "migrate" => drop(response.extensions_mut().insert(MigrationHint::Migrate)),
        _ => {}
    }
    Ok(response)
}

#[tokio::test]
async fn snapshots_say_why_a_stream_is_bulk() {
    for (pacing, path, bulk) in [
        (Pacing::On, "/bytes/8388608", Some(BulkReason::Size)),
        (Pacing::On, "/bytes/8388608?interactive", None),
        (Pacing::On, "/bytes/8388608?migrate", Some(BulkReason::Hint)),
        (Pacing::Off, "/bytes/8388608", None),
    ] {
        let (server, client) = pair();
        let mut engine = smig::Config::server();
        engine.smig = None;
        let server =
            server.engine(engine).pacing(pacing).start(service_fn(answer_with_bulk_hint)).unwrap();
        let client = client.engine(small_window()).build().unwrap();
        let response = client.request(get(url(&server, path))).await.unwrap();
        let session = only_session(server.view().sessions().await);
        assert_eq!(session.streams[0].bulk, bulk, "{path}");
        assert_eq!(session.connections[0].pacing_cap, None, "this path is too short for pacing");
        assert_eq!(digest(response.into_body()).await.unwrap().1, LEN as u64);
    }
}

/// The same response, with a hint to migrate it.
async fn answer_with_hint(
    request: Request<Incoming>,
) -> Result<Response<crate::support::Body>, BoxError> {
    let mut response = answer(request).await?;
    response.extensions_mut().insert(MigrationHint::Migrate);
    Ok(response)
}

#[tokio::test]
async fn events_follow_a_stream_from_its_opening_to_its_end() {
    let (server, client) = pair();
    let (observer, mut events) = EventRecorder::new();
    let server = server.observer(observer).start(service_fn(answer_with_hint)).unwrap();
    let client = client.engine(small_window()).build().unwrap();
    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    let opened =
        wait_for_event(&mut events, |event| matches!(event, ObserverEvent::StreamOpened { .. }))
            .await;
    let ObserverEvent::StreamOpened { stream: Some(opened_stream) } = opened else {
        panic!("{opened:?}")
    };
    let migrates = PolicyDecision::Migrates(MigrationReason::Hint);
    let offered = PolicyDecision::Offered(MigrationReason::Hint);
    let is_decision = |event: &ObserverEvent| {
        matches!(event, ObserverEvent::PolicyDecided { stream: Some(at), decision }
        if at.stream == opened_stream.stream && (*decision == migrates || *decision == offered))
    };
    wait_for_event(&mut events, is_decision).await;
    let body = tokio::spawn(digest(response.into_body()));

    // The last byte may be sent before the answer to the MIGRATE arrives.
    let (mut migration_event, mut end_event) = (None, None);
    while migration_event.is_none() || end_event.is_none() {
        match wait_for_event(&mut events, |_| true).await {
            event @ ObserverEvent::Migrated { .. } => migration_event = Some(event),
            event @ ObserverEvent::StreamCompleted { .. } => end_event = Some(event),
            _ => {}
        }
    }
    assert_eq!(body.await.unwrap().unwrap().1, LEN as u64);
    let Some(ObserverEvent::Migrated {
        stream: Some(stream_ref),
        from,
        to,
        transferred_bytes,
        why,
        ..
    }) = migration_event
    else {
        panic!("{migration_event:?}")
    };
    assert_eq!(
        (stream_ref.session, stream_ref.stream),
        (opened_stream.session, opened_stream.stream)
    );
    assert_eq!((from, stream_ref.connection), (opened_stream.connection, to));
    assert_eq!(why, MigrationCause::Policy(MigrationReason::Hint));
    assert!(transferred_bytes < LEN as u64);
    let Some(ObserverEvent::StreamCompleted { stream: Some(stream_ref), sent, migrations, .. }) =
        end_event
    else {
        panic!("{end_event:?}")
    };
    assert_eq!((stream_ref.stream, stream_ref.connection), (opened_stream.stream, to));
    assert_eq!((sent, migrations), (LEN as u64, 1));
    assert_eq!((server.stats().streams_completed, server.stats().migrations), (1, 1));
}
