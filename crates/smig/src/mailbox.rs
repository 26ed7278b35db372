//! How other tasks reach the task that owns a session: commands, and streams with work to do.
//!
//! Wake-ups are coalesced: at most one between two polls of the owner. A running owner is not woken, because
//! it checks for wake-ups before it sleeps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker};

/// A stream's slot in its driver. Slots are reused; a late wake-up for an old stream is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot(pub(crate) u32);

/// Wakes a driver.
#[derive(Debug, Default)]
pub(crate) struct Notifier(Mutex<Wakeups>);

#[derive(Debug, Default)]
struct Wakeups {
    /// The owner is running, or has been woken and has not run yet.
    is_awake: bool,
    /// There is a reason to run other than a slot.
    woken_for_commands: bool,
    slots: Vec<Slot>,
    waker: Option<Waker>,
}

impl Notifier {
    fn lock(&self) -> MutexGuard<'_, Wakeups> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the owner for `slot`.
    pub(crate) fn wake_slot(&self, slot: Slot) {
        let mut wakeups = self.lock();
        wakeups.slots.push(slot);
        Self::wake(wakeups);
    }

    /// Wakes the owner for its mailbox.
    pub(crate) fn wake_for_command(&self) {
        let mut wakeups = self.lock();
        wakeups.woken_for_commands = true;
        Self::wake(wakeups);
    }

    fn wake(mut wakeups: MutexGuard<'_, Wakeups>) {
        if !wakeups.is_awake {
            wakeups.is_awake = true;
            let waker = wakeups.waker.clone();
            drop(wakeups);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Records that the owner runs, and its waker.
    pub(crate) fn begin_poll(&self, waker: &Waker) {
        let mut wakeups = self.lock();
        wakeups.is_awake = true;
        match &mut wakeups.waker {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// Moves the woken slots into `woken_slots`, which must be empty. Returns `Woken::Yes` if there was one, or if the
    /// owner was woken for its mailbox.
    pub(crate) fn take(&self, woken_slots: &mut Vec<Slot>) -> Woken {
        let mut wakeups = self.lock();
        core::mem::swap(&mut wakeups.slots, woken_slots);
        let woken_for_commands = core::mem::take(&mut wakeups.woken_for_commands);
        if woken_for_commands || !woken_slots.is_empty() { Woken::Yes } else { Woken::No }
    }

    /// Marks the owner as asleep; returns `Woken::Yes` if it must run again instead.
    pub(crate) fn sleep(&self) -> Woken {
        let mut wakeups = self.lock();
        if wakeups.woken_for_commands || !wakeups.slots.is_empty() {
            return Woken::Yes;
        }
        wakeups.is_awake = false;
        Woken::No
    }
}

/// Whether the owner was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Yes,
    No,
}

/// A stream's waker: wakes the owner for its slot, once until the owner has polled the stream.
#[derive(Debug)]
pub(crate) struct SlotWaker {
    notifier: Arc<Notifier>,
    slot: Slot,
    is_woken: AtomicBool,
}

impl SlotWaker {
    pub(crate) const fn new(notifier: Arc<Notifier>, slot: Slot) -> Self {
        Self { notifier, slot, is_woken: AtomicBool::new(false) }
    }

    /// Resets the waker, just before the owner polls the stream.
    pub(crate) fn reset(&self) {
        self.is_woken.store(false, Ordering::Release);
    }
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.notifier.wake_slot(self.slot);
        }
    }
}

/// A driver's command queue.
#[derive(Debug)]
pub(crate) struct Mailbox<C> {
    notifier: Arc<Notifier>,
    /// `None` when it is closed.
    commands: Mutex<Option<Vec<C>>>,
}

impl<C> Mailbox<C> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { notifier: Arc::default(), commands: Mutex::new(Some(Vec::new())) })
    }

    pub(crate) const fn notifier(&self) -> &Arc<Notifier> {
        &self.notifier
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<C>>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command; returns it if the mailbox is closed.
    pub(crate) fn send(&self, command: C) -> Result<(), C> {
        match &mut *self.lock() {
            Some(commands) => commands.push(command),
            None => return Err(command),
        }
        self.notifier.wake_for_command();
        Ok(())
    }

    /// Takes the commands that were sent.
    pub(crate) fn take(&self) -> Vec<C> {
        self.lock().as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Waits for a wake-up, for owners without a driver; then takes the commands, possibly none.
    pub(crate) async fn receive(&self) -> Vec<C> {
        core::future::poll_fn(|cx| {
            self.notifier.begin_poll(cx.waker());
            let woken = self.notifier.take(&mut Vec::new());
            if woken == Woken::No && self.notifier.sleep() == Woken::No {
                return Poll::Pending;
            }
            Poll::Ready(self.take())
        })
        .await
    }

    /// Closes the mailbox; returns the commands that were left.
    pub(crate) fn close(&self) -> Vec<C> {
        self.lock().take().unwrap_or_default()
    }

    /// Closes the mailbox if it is empty. Returns whether it is closed.
    pub(crate) fn close_if_empty(&self) -> bool {
        let mut commands = self.lock();
        if commands.as_ref().is_some_and(Vec::is_empty) {
            *commands = None;
        }
        commands.is_none()
    }

    /// Returns whether it is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct CountingWaker(std::sync::atomic::AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn an_owner_that_runs_is_not_woken_and_does_not_sleep() {
        let count = Arc::new(CountingWaker::default());
        let mailbox = Mailbox::<u8>::new();
        let notifier = mailbox.notifier();
        notifier.begin_poll(&Arc::clone(&count).into());
        mailbox.send(1).unwrap();
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        assert_eq!(notifier.sleep(), Woken::Yes);
        assert_eq!(notifier.take(&mut Vec::new()), Woken::Yes);
        assert_eq!(mailbox.take(), [1]);
        assert_eq!(notifier.sleep(), Woken::No);
        notifier.wake_slot(Slot(3));
        notifier.wake_slot(Slot(3));
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_closed_mailbox_returns_commands() {
        let mailbox = Mailbox::<u8>::new();
        mailbox.send(1).unwrap();
        assert_eq!(mailbox.close(), [1]);
        assert_eq!(mailbox.send(2), Err(2));
    }
}
