//! Data for operators: snapshots of sessions, and events that name their stream.

use crate::support::{EventRecorder, answer, digest, get, pair, until, url};
use http::{Request, Response};
use smig::{
    BoxError, ConnectionRole, Incoming, MigrationCause, MigrationConfig, MigrationHint,
    MigrationMode, MigrationReason, ObserverEvent, PolicyDecision, SessionSnapshot, Snapshot,
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
    let (watch, mut events) = EventRecorder::new();
    let client =
        client.engine(small_window()).migration(never_migrates()).observer(watch).build().unwrap();
    assert_eq!(client.sessions().await, Snapshot::default());
    assert_eq!(server.sessions().await, Snapshot::default());

    let path = format!("/bytes/{LEN}?secret=1");
    let response = client.request(get(url(&server, &path))).await.unwrap();
    until(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;

    let (here, there) =
        (only_session(client.sessions().await), only_session(server.view().sessions().await));
    assert!(here.can_migrate && there.can_migrate);
    assert_ne!(here.id, there.id, "ids are random, and do not reveal the AppID");
    let roles = |session: &SessionSnapshot| {
        session.connections.iter().map(|conn| conn.role).collect::<Vec<_>>()
    };
    assert_eq!(roles(&here), [ConnectionRole::Interactive, ConnectionRole::Spare]);
    assert_eq!(roles(&there), roles(&here));
    let (mine, theirs) = (here.connections[0].addrs, there.connections[0].addrs);
    assert_eq!((mine.local, mine.peer), (theirs.peer, theirs.local));
    assert_eq!((here.open_streams, here.streams.len()), (1, 1));
    let stream = &there.streams[0];
    let name = stream.label.as_ref().unwrap();
    assert_eq!((&*name.method, &*name.path), ("GET", "/bytes/8388608"));
    assert_eq!(stream.length, Some(LEN as u64));
    assert_eq!(here.streams[0].length, Some(LEN as u64));
    assert_eq!(here.streams[0].label, None, "labels are recorded only if that is configured");
    assert_eq!((stream.migrations, stream.connection), (0, there.connections[0].id));

    response.body().stream_info().unwrap().migrate();
    let moved = until(&mut events, |event| matches!(event, ObserverEvent::Migrated { .. })).await;
    let ObserverEvent::Migrated { stream: Some(stream_ref), why, to, .. } = moved else {
        panic!("{moved:?}")
    };
    assert_eq!(
        (stream_ref.session, stream_ref.connection, why),
        (here.id, to, MigrationCause::Application)
    );
    assert_eq!(stream_ref.stream, here.streams[0].key);
    let after = only_session(client.sessions().await);
    assert_eq!(after.id, here.id);
    assert_eq!((after.streams[0].connection, after.streams[0].migrations), (to, 1));
    let bulk = after.connections.iter().find(|conn| conn.id == to).unwrap();
    assert_eq!((bulk.role, bulk.streams), (ConnectionRole::Bulk, 1));
    assert_eq!(digest(response.into_body()).await.unwrap().1, LEN as u64);
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
    let (watch, mut events) = EventRecorder::new();
    let server = server.observer(watch).start(service_fn(answer_with_hint)).unwrap();
    let client = client.engine(small_window()).build().unwrap();
    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    let opened =
        until(&mut events, |event| matches!(event, ObserverEvent::StreamOpened { .. })).await;
    let ObserverEvent::StreamOpened { stream: Some(opened) } = opened else { panic!("{opened:?}") };
    let migrates = PolicyDecision::Migrates(MigrationReason::Hint);
    let offered = PolicyDecision::Offered(MigrationReason::Hint);
    let is_decision = |event: &ObserverEvent| {
        matches!(event, ObserverEvent::PolicyDecided { stream: Some(at), decision }
        if at.stream == opened.stream && (*decision == migrates || *decision == offered))
    };
    until(&mut events, is_decision).await;
    let body = tokio::spawn(digest(response.into_body()));

    // The last byte may be sent before the answer to the MIGRATE arrives.
    let (mut moved, mut ended) = (None, None);
    while moved.is_none() || ended.is_none() {
        match until(&mut events, |_| true).await {
            event @ ObserverEvent::Migrated { .. } => moved = Some(event),
            event @ ObserverEvent::StreamEnded { .. } => ended = Some(event),
            _ => {}
        }
    }
    assert_eq!(body.await.unwrap().unwrap().1, LEN as u64);
    let Some(ObserverEvent::Migrated { stream: Some(at), from, to, offset, why, .. }) = moved
    else {
        panic!("{moved:?}")
    };
    assert_eq!((at.session, at.stream), (opened.session, opened.stream));
    assert_eq!((from, at.connection), (opened.connection, to));
    assert_eq!(why, MigrationCause::Policy(MigrationReason::Hint));
    assert!(offset < LEN as u64);
    let Some(ObserverEvent::StreamEnded { stream: Some(at), sent, migrations, .. }) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!((at.stream, at.connection), (opened.stream, to));
    assert_eq!((sent, migrations), (LEN as u64, 1));
    assert_eq!((server.stats().streams_ended, server.stats().migrations), (1, 1));
}
