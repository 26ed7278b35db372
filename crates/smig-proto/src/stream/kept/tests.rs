//! What is kept until an answer or a receipt covers it, and what can be taken of it.

use super::*;
use http::StatusCode;

const C1: ConnId = ConnId(1);
const C2: ConnId = ConnId(2);

fn at(conn: ConnId, frame: u64) -> SentAt {
    SentAt { conn, frame: FrameNumber(frame) }
}

fn head() -> KeptHead {
    let head = ResponseHead { status: StatusCode::OK, headers: HeaderMap::new() };
    KeptHead::Own(head, None, EndStream::No)
}

/// A head and three bodies of ten bytes, of which the last is behind an accepting answer.
fn kept() -> Kept {
    let mut kept = Kept::until_receipt();
    kept.push_head(head(), at(C1, 2));
    kept.push_data(Bytes::from_static(b"0123456789"), EndStream::No, at(C1, 3));
    kept.push_answer(at(C1, 4));
    kept.push_data(Bytes::from_static(b"abcdefghij"), EndStream::No, at(C2, 2));
    kept.push_data(Bytes::from_static(b"ABCDEFGHIJ"), EndStream::Yes, at(C2, 3));
    kept
}

fn text(unsent: &Unsent) -> Vec<u8> {
    unsent.data.concat()
}

#[test]
fn a_receipt_lets_go_of_what_it_covers_without_gap() {
    // SMIG-13.5/no-gap
    let mut kept = kept();
    kept.on_receipt(C2, FrameNumber(3));
    assert_eq!(kept.bytes(), 30, "the answer that binds C2 was not read");
    assert!(kept.lacks_answer_on(C1) && !kept.lacks_answer_on(C2));
    kept.on_receipt(C1, FrameNumber(3));
    assert_eq!(kept.bytes(), 20);
    kept.on_receipt(C1, FrameNumber(4));
    assert!(kept.is_empty());
}

#[test]
fn what_the_peer_lacks_is_taken_from_its_offset_on() {
    let mut all = kept();
    let unsent = all.take_from(0, 30, true).unwrap();
    assert_eq!((unsent.heads.len(), unsent.end), (1, true));
    assert_eq!(text(&unsent), b"0123456789abcdefghijABCDEFGHIJ");
    assert!(all.is_empty());

    let unsent = kept().take_from(25, 30, false).unwrap();
    assert_eq!((unsent.heads.len(), unsent.end), (0, true));
    assert_eq!(text(&unsent), b"FGHIJ");
    let unsent = kept().take_from(30, 30, false).unwrap();
    assert!(text(&unsent).is_empty() && unsent.end, "the end comes again");
}

#[test]
fn what_is_kept_no_more_cannot_be_taken() {
    let mut kept = kept();
    kept.shrink(25 + 3 * FRAME_MEMORY);
    assert_eq!(kept.bytes(), 20);
    assert!(kept.take_from(9, 30, false).is_none());
    assert!(kept.take_from(10, 30, true).is_none(), "the head");
    assert_eq!(text(&kept.take_from(10, 30, false).unwrap()), b"abcdefghijABCDEFGHIJ");
}

#[test]
fn trailers_that_are_kept_no_more_cannot_be_left_out() {
    // SMIG-13.8/absolute: the end has not come.
    let mut kept = Kept::until_receipt();
    kept.push_trailers(HeaderMap::new(), at(C1, 2));
    kept.shrink(0);
    assert!(kept.take_from(0, 0, false).is_none());
}

#[test]
fn what_is_taken_counts_until_it_was_sent_again() {
    // SMIG-13.4/receipts
    let mut kept = kept();
    let before = kept.memory();
    drop(kept.take_from(0, 30, true));
    assert_eq!((kept.memory(), kept.frame_memory(), kept.bytes()), (before, 0, 0));
    kept.on_sent(15);
    assert!(kept.memory() > 0 && kept.memory() < before);
    kept.on_sent(100);
    assert_eq!(kept.memory(), 0);
}

#[test]
fn single_bytes_count_with_the_memory_that_they_take() {
    let mut kept = Kept::until_receipt();
    for frame in 0..10_000 {
        kept.push_data(Bytes::from_static(b"x"), EndStream::No, at(C1, frame));
    }
    kept.shrink(100_000);
    assert!(kept.memory() <= 100_000 && kept.bytes() < 2_000, "{}", kept.bytes());
}

#[test]
fn a_receipt_for_a_first_copy_does_not_cover_the_second() {
    // SMIG-13.15/copies
    let mut kept = kept();
    drop(kept.take_from(20, 30, false));
    kept.push_answer(at(C1, 9));
    kept.push_data(Bytes::from_static(b"ABCDEFGHIJ"), EndStream::Yes, at(C1, 10));
    kept.on_receipt(C2, FrameNumber(100));
    kept.on_receipt(C1, FrameNumber(8));
    assert_eq!(kept.bytes(), 10);
    kept.on_receipt(C1, FrameNumber(10));
    assert!(kept.is_empty());
}

#[test]
fn a_barrier_is_covered_by_its_answer_alone() {
    // SMIG-5.7/replay, SMIG-6.8/resume
    let mut kept = kept();
    kept.begin_barrier(SendState::Body, SendBeforeAnswer::UpToReplayLimit(4), at(C2, 4));
    assert!(kept.may_send() && !kept.has_sent_behind_barrier());
    kept.push_data(Bytes::from_static(b"behind"), EndStream::No, at(C1, 5));
    assert!(!kept.may_send() && kept.has_sent_behind_barrier());
    kept.on_receipt(C1, FrameNumber(9));
    kept.on_receipt(C2, FrameNumber(9));
    assert_eq!(kept.bytes(), 6, "a decline requires it");
    kept.shrink(0);
    assert_eq!(kept.bytes(), 6);
    let (state, unsent) = kept.undo_barrier().unwrap();
    assert_eq!((state, text(&unsent), kept.bytes()), (SendState::Body, b"behind".to_vec(), 0));
    assert!(kept.is_empty() && kept.may_send());
}

#[test]
fn what_was_sent_behind_a_void_barrier_is_covered_by_no_receipt() {
    // SMIG-13.5/no-gap
    let mut kept = kept();
    kept.begin_barrier(SendState::Body, SendBeforeAnswer::UpToReplayLimit(99), at(C2, 4));
    kept.push_data(Bytes::from_static(b"behind"), EndStream::No, at(C1, 5));
    kept.void_barrier();
    kept.on_receipt(C1, FrameNumber(9));
    kept.on_receipt(C2, FrameNumber(9));
    assert_eq!(kept.bytes(), 6);
    assert_eq!(text(&kept.take_from(30, 36, false).unwrap()), b"behind");
    // With nothing behind it, nothing is left.
    kept.begin_barrier(SendState::Body, SendBeforeAnswer::No, at(C2, 4));
    kept.void_barrier();
    assert!(kept.is_empty() && kept.may_send());
}

#[test]
fn an_accepted_barrier_covers_what_was_sent_before() {
    let mut kept = kept();
    kept.begin_barrier(SendState::Body, SendBeforeAnswer::UpToReplayLimit(99), at(C2, 4));
    kept.push_data(Bytes::from_static(b"behind"), EndStream::No, at(C1, 5));
    assert!(!kept.on_accepted());
    assert_eq!(kept.bytes(), 6);
    let mut kept = Kept::until_answer();
    kept.begin_barrier(SendState::Body, SendBeforeAnswer::UpToReplayLimit(99), at(C2, 4));
    kept.push_data(Bytes::from_static(b"behind"), EndStream::No, at(C1, 5));
    assert!(kept.on_accepted());
}
