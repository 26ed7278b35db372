//! What ties a stream to a connection: the address of each direction, and the migration that is
//! about to change it.
//!
//! A migration replaces only this: offsets, windows, buffered body, half-closed state
//! and priority are in the halves of [`super::Stream`]. An address changes only in this file: in
//! [`Binding::begin`], [`Binding::rebind`] and [`Binding::end`], and where an open migration ends
//! without success: [`Binding::revert`], [`Binding::on_answer`] and [`Binding::on_migrate`].

use crate::error::Cause;
use crate::ids::{Cid, ConnId, Side, StreamAddr, StreamId};
use crate::migrate::{
    Answer, Collision, EarlyFrames, LossEffect, MigrationState, Mover, OfferResponse, OpenMigration,
};

#[derive(Debug)]
pub(crate) struct Binding {
    /// The address on which the peer's frames arrive. This side's frames are sent there too, unless
    /// its MIGRATE is unanswered.
    addr: StreamAddr,
    migration: MigrationState,
    /// Former addresses; frames that arrive there are errors (SMIG-5.19/behind-barrier).
    vacated_addrs: Vec<StreamAddr>,
    /// The connection whose scheduler has an entry for the stream, or whose window it waits for.
    scheduled_on: Option<ConnId>,
    /// Number of migrations that this side began, even if declined, and that it followed, and of resumptions.
    migrations: u8,
    /// No ID carries the stream: it has to be resumed.
    is_adrift: bool,
    /// It was resumed, or is adrift: it is not where it was opened.
    was_adrift: bool,
}

impl Binding {
    /// Binds a stream to the connection that opens it.
    pub(crate) const fn new(addr: StreamAddr) -> Self {
        Self {
            addr,
            migration: MigrationState::Idle,
            vacated_addrs: Vec::new(),
            scheduled_on: None,
            migrations: 0,
            is_adrift: false,
            was_adrift: false,
        }
    }

    /// Returns the address on which this side's frames are sent.
    pub(crate) fn send_addr(&self) -> StreamAddr {
        self.open_migration().map_or(self.addr, |open| open.to)
    }

    /// Returns the address on which the peer's frames arrive, up to its barrier. It differs from
    /// [`Self::send_addr`] until the answer to a MIGRATE of this side.
    pub(crate) const fn recv_addr(&self) -> StreamAddr {
        self.addr
    }

    /// Returns the addresses under which the stream is found: one, or two during an open migration; none while it
    /// is adrift.
    pub(crate) fn addrs(&self) -> impl Iterator<Item = StreamAddr> + use<> {
        let addr = (!self.is_adrift).then_some(self.addr);
        [addr, self.open_migration().map(|open| open.to)].into_iter().flatten()
    }

    pub(crate) const fn migration(&self) -> &MigrationState {
        &self.migration
    }

    /// Returns the former addresses.
    pub(crate) fn vacated_addrs(&self) -> &[StreamAddr] {
        &self.vacated_addrs
    }

    pub(crate) const fn migration_count(&self) -> u8 {
        self.migrations
    }

    /// Returns this side's open migration.
    pub(crate) fn open_migration(&self) -> Option<&OpenMigration> {
        match &self.migration {
            MigrationState::Open(open) => Some(open),
            MigrationState::Idle | MigrationState::Offered | MigrationState::OfferReceived => None,
        }
    }

    fn open_migration_mut(&mut self) -> Option<&mut OpenMigration> {
        match &mut self.migration {
            MigrationState::Open(open) => Some(open),
            MigrationState::Idle | MigrationState::Offered | MigrationState::OfferReceived => None,
        }
    }

    /// Returns the buffer for the follower's frames, if `at` is the carrier of an open migration:
    /// its barrier has not arrived.
    pub(crate) fn early_frames_at(&mut self, at: StreamAddr) -> Option<&mut EarlyFrames> {
        self.open_migration_mut().filter(|open| open.to == at).map(|open| &mut open.early_frames)
    }

    /// Records a WINDOW_UPDATE that was sent, in case it was sent on the carrier of an open
    /// migration.
    pub(crate) fn on_window_update_sent(&mut self, increment: u32) {
        if let Some(open) = self.open_migration_mut() {
            open.increments_on_carrier = open.increments_on_carrier.saturating_add(increment);
        }
    }

    /// Returns whether a SETTINGS_INITIAL_WINDOW_SIZE from `conn`'s peer adjusts the send window:
    /// the stream was opened there, and this side's barrier was not sent
    /// (SMIG-7.4/initial-window).
    pub(crate) fn adjusts_send_window(&self, conn: ConnId) -> bool {
        self.adjusts_recv_window(conn) && self.open_migration().is_none()
    }

    /// The same for the receive window and the acknowledgement, until the peer's barrier is read.
    pub(crate) fn adjusts_recv_window(&self, conn: ConnId) -> bool {
        self.addr.conn == conn && self.vacated_addrs.is_empty() && !self.was_adrift
    }

    /// Ends everything that concerns the stream's IDs: it has to be resumed (SMIG-13.7/earlier-void). Returns this
    /// side's open migration, if there is one.
    pub(crate) fn set_adrift(&mut self) -> Option<Box<OpenMigration>> {
        debug_assert!(self.scheduled_on.is_none(), "{self:?}");
        (self.is_adrift, self.was_adrift) = (true, true);
        match core::mem::replace(&mut self.migration, MigrationState::Idle) {
            MigrationState::Open(open) => Some(open),
            MigrationState::Idle | MigrationState::Offered | MigrationState::OfferReceived => None,
        }
    }

    /// Binds a stream that is adrift to the ID of a RESUME.
    pub(crate) fn resume_at(&mut self, to: StreamAddr) {
        debug_assert!(self.is_adrift && self.vacated_addrs.is_empty(), "{self:?}");
        self.is_adrift = false;
        self.addr = to;
        self.migrations = self.migrations.saturating_add(1);
    }

    /// Returns whether no ID carries the stream.
    pub(crate) const fn is_adrift(&self) -> bool {
        self.is_adrift
    }

    /// Server: records an offer (SMIG-6.1/offer).
    pub(crate) fn begin_offer(&mut self) {
        debug_assert!(self.open_migration().is_none(), "{self:?}");
        self.migration = MigrationState::Offered;
    }

    /// The mover's barrier was sent: this side's direction continues at the carrier
    /// (SMIG-5.3/mover-barrier).
    pub(crate) fn begin(&mut self, open: OpenMigration) {
        debug_assert!(self.open_migration().is_none() && self.scheduled_on.is_none(), "{self:?}");
        self.migrations = self.migrations.saturating_add(1);
        self.migration = MigrationState::Open(Box::new(open));
    }

    /// Both directions continue at `to`: the follower has answered, or the mover has read the
    /// follower's barrier (SMIG-5.14/moved, SMIG-5.11/follower-barrier). Returns the address that
    /// the stream has left.
    pub(crate) fn rebind(&mut self, to: StreamAddr, mover: Mover) -> StreamAddr {
        debug_assert!(self.open_migration().is_none(), "{self:?}");
        debug_assert!(self.scheduled_on.is_none_or(|conn| conn == to.conn), "{self:?}");
        if mover == Mover::Peer {
            self.migrations = self.migrations.saturating_add(1);
        }
        let old_addr = core::mem::replace(&mut self.addr, to);
        self.vacated_addrs.push(old_addr);
        old_addr
    }

    /// Abandons this side's open migration, if there is one: its direction is back at the old
    /// address.
    pub(crate) fn revert(&mut self) -> Option<Box<OpenMigration>> {
        match core::mem::replace(&mut self.migration, MigrationState::Idle) {
            MigrationState::Open(open) => Some(open),
            other @ (MigrationState::Idle
            | MigrationState::Offered
            | MigrationState::OfferReceived) => {
                self.migration = other;
                None
            }
        }
    }

    /// Handles an answer that was read at `at`. After [`Answer::Accepted`], [`Self::rebind`]
    /// follows; after [`Answer::Declined`] this side's direction is back at the old address.
    pub(crate) fn on_answer(
        &mut self,
        at: StreamAddr,
        dst: Option<(Cid, StreamId)>,
    ) -> Result<Answer, Cause> {
        self.migration.on_answer(self.addr, at, dst)
    }

    /// See [`MigrationState::on_migrate`].
    pub(crate) fn on_migrate(&mut self, side: Side) -> Collision {
        self.migration.on_migrate(side)
    }

    /// See [`MigrationState::on_offer`].
    pub(crate) fn on_offer(
        &mut self,
        was_declined: bool,
        c1_joined: bool,
    ) -> Result<OfferResponse, Cause> {
        self.migration.on_offer(was_declined, c1_joined)
    }

    /// See [`MigrationState::decline_offer`].
    pub(crate) fn decline_offer(&mut self) -> bool {
        self.migration.decline_offer()
    }

    /// See [`MigrationState::on_connection_lost`].
    pub(crate) fn on_connection_lost(&mut self, lost_conn: ConnId, both_ended: bool) -> LossEffect {
        self.migration.on_connection_lost(lost_conn, both_ended)
    }

    /// See [`MigrationState::on_excluded`].
    pub(crate) fn on_excluded(&mut self, at: StreamAddr) -> bool {
        self.migration.on_excluded(at)
    }

    /// Returns the migration, which ends with the stream. The stream's address stays the last one.
    pub(crate) fn end(&mut self) -> MigrationState {
        self.addr = self.send_addr();
        core::mem::replace(&mut self.migration, MigrationState::Idle)
    }

    /// Ends this side's offer, because the stream is complete.
    pub(crate) fn end_offer(&mut self) {
        if matches!(self.migration, MigrationState::Offered) {
            self.migration = MigrationState::Idle;
        }
    }

    /// Removes and returns the former addresses, because the stream has ended.
    pub(crate) fn take_vacated_addrs(&mut self) -> Vec<StreamAddr> {
        core::mem::take(&mut self.vacated_addrs)
    }

    pub(crate) const fn scheduled_on(&self) -> Option<ConnId> {
        self.scheduled_on
    }

    /// Records an entry in a connection's scheduler, or among those that wait for its window.
    pub(crate) const fn set_scheduled(&mut self, conn: ConnId) {
        self.scheduled_on = Some(conn);
    }

    /// Records that the entry was removed. Returns the connection that had it.
    pub(crate) const fn take_scheduled(&mut self) -> Option<ConnId> {
        self.scheduled_on.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::ids::{AppId, FrameNumber, SentAt};
    use crate::priority::Priority;
    use crate::stream::{
        ExchangeKind, KeyState, Opener, RecvHalf, RecvState, SendBeforeAnswer, SendEnd, SendHalf,
        SendState, StallClock, Stream,
    };
    use crate::time::Instant;
    use crate::wire::EndStream;

    const S1: StreamAddr = StreamAddr { conn: ConnId(1), id: StreamId::new(5) };
    const S2: StreamAddr = StreamAddr { conn: ConnId(2), id: StreamId::new(2) };
    const S3: StreamAddr = StreamAddr { conn: ConnId(3), id: StreamId::new(4) };

    const fn sent_at(frame: u64) -> SentAt {
        SentAt { conn: S1.conn, frame: FrameNumber(frame) }
    }

    fn open_migration_to(carrier: StreamAddr) -> OpenMigration {
        let cid = Cid { app: AppId::new(7), number: carrier.conn.0 };
        OpenMigration::new(carrier, cid, Instant::from_nanos(0), 100)
    }

    /// A server's response of 50 bytes, of which 20 were sent, to a request that has ended.
    fn response() -> Stream {
        let mut send = SendHalf::new(1000, SendState::Head);
        send.on_head(EndStream::No, Some(50));
        assert!(send.queue(vec![b'x'; 50].into()));
        assert!(send.finish(SendEnd::Data));
        assert_eq!(send.take(20, sent_at(1)).bytes, 20);
        Stream {
            opener: Opener::Peer,
            exchange_kind: ExchangeKind::Ordinary,
            binding: Binding::new(S1),
            send,
            recv: RecvHalf::new(1000, RecvState::Ended),
            priority: Priority::sequential(5),
            frame_received: false,
            was_offered_or_declined: false,
            offered_role: None,
            key_state: KeyState::Held,
            stop_due: false,
            stall: StallClock::new(Instant::from_nanos(0)),
            error: None,
            resumption: None,
        }
    }

    /// The state that a migration must not change.
    fn portable_state(stream: &Stream) -> impl PartialEq + core::fmt::Debug + use<> {
        let send = (stream.send.state(), stream.send.queued_bytes(), stream.send.sent_bytes());
        let recv = (stream.recv.state(), stream.recv.received_bytes());
        let windows = (stream.send.window.value(), stream.recv.window.value());
        (send, recv, windows, stream.priority, stream.opener, stream.exchange_kind)
    }

    /// The state that a migration replaces.
    fn bound_state(stream: &Stream) -> (StreamAddr, StreamAddr, Vec<StreamAddr>, u8, bool) {
        let Binding { vacated_addrs: vacated, migrations, .. } = &stream.binding;
        let (send, recv) = (stream.binding.send_addr(), stream.binding.recv_addr());
        (send, recv, vacated.clone(), *migrations, stream.binding.adjusts_send_window(S1.conn))
    }

    #[test]
    fn a_follower_replaces_both_addresses_and_keeps_the_portable_half() {
        let mut stream = response();
        let state_before = portable_state(&stream);
        assert_eq!(bound_state(&stream), (S1, S1, vec![], 0, true));
        // SMIG-5.14/moved, SMIG-7.1/windows-move
        assert_eq!(stream.binding.rebind(S2, Mover::Peer), S1);
        assert_eq!(bound_state(&stream), (S2, S2, vec![S1], 1, false));
        assert_eq!(portable_state(&stream), state_before);
    }

    #[test]
    fn a_mover_replaces_one_address_with_each_barrier() {
        let mut stream = response();
        let state_before = portable_state(&stream);
        stream.send.begin_barrier(SendBeforeAnswer::UpToReplayLimit(1 << 20), sent_at(2));
        stream.binding.begin(open_migration_to(S2));
        // SMIG-7.4/initial-window: its direction has left S1, the follower's has not.
        assert_eq!(bound_state(&stream), (S2, S1, vec![], 1, false));
        assert!(stream.binding.adjusts_recv_window(S1.conn));
        assert_eq!(stream.binding.addrs().collect::<Vec<_>>(), [S1, S2]);
        assert_eq!(portable_state(&stream), state_before);
        let answer = stream.binding.on_answer(S1, Some(open_migration_to(S2).dst()));
        let Ok(Answer::Accepted(open)) = answer else { panic!("{answer:?}") };
        stream.send.on_barrier_accepted();
        assert_eq!(stream.binding.rebind(open.to, Mover::Local), S1);
        assert_eq!(bound_state(&stream), (S2, S2, vec![S1], 1, false));
        assert!(!stream.binding.adjusts_recv_window(S1.conn));
        assert_eq!(portable_state(&stream), state_before);
    }

    #[test]
    fn a_decline_undoes_the_barrier_and_the_frames_after_it() {
        // SMIG-6.8/resume, SMIG-6.9/lost-bytes, SMIG-7.5/undone-barrier
        let mut stream = response();
        let state_before = portable_state(&stream);
        stream.send.begin_barrier(SendBeforeAnswer::UpToReplayLimit(1 << 20), sent_at(2));
        stream.binding.begin(open_migration_to(S2));
        assert!(stream.send.take(30, sent_at(3)).end.is_end());
        assert_ne!(portable_state(&stream), state_before);
        let answer = stream.binding.on_answer(S1, None);
        assert!(matches!(answer, Ok(Answer::Declined(open)) if open.to == S2));
        assert!(stream.send.undo_barrier().is_empty(), "no head was sent on the carrier");
        // The attempt counts.
        assert_eq!(bound_state(&stream), (S1, S1, vec![], 1, true));
        assert_eq!(portable_state(&stream), state_before);
        assert_eq!(stream.send.take(1000, sent_at(4)).bytes, 30);
    }

    #[test]
    fn initial_windows_do_not_adjust_a_migrated_stream() {
        // SMIG-7.4/initial-window
        let mut stream = response();
        stream.binding.rebind(S2, Mover::Peer);
        stream.binding.begin(open_migration_to(S3));
        assert!(stream.binding.revert().is_some());
        assert_eq!(bound_state(&stream), (S2, S2, vec![S1], 2, false));
        for conn in [S1.conn, S2.conn, S3.conn] {
            assert!(!stream.binding.adjusts_send_window(conn));
            assert!(!stream.binding.adjusts_recv_window(conn));
        }
    }

    #[test]
    fn an_ended_stream_keeps_its_last_address() {
        let mut stream = response();
        stream.binding.begin(open_migration_to(S2));
        assert!(matches!(stream.binding.end(), MigrationState::Open(_)));
        assert_eq!((stream.binding.send_addr(), stream.binding.recv_addr()), (S2, S2));
    }
}
