use super::{Outcome, Replica, Sequence};
use crate::Time;
use crate::book::{Book, Scale};
use crate::fault::Fault;
use crate::message::{Depth, Level, Side};
use crate::number::Fixed;

const NOW: Time = Time::from_secs(9);

fn level(price: i64, quantity: i64) -> Level {
    let fixed = |mantissa| Fixed { mantissa, exponent: 0 };
    Level { side: Side::Bid, price: fixed(price), quantity: fixed(quantity) }
}

fn depth(is_snapshot: bool, first: u64, last: u64, levels: &[Level]) -> Depth<'_> {
    Depth { symbol: "", is_snapshot, first, last, checksum: None, time: 0, levels }
}

fn replica(sequence: Sequence) -> Replica {
    Replica::new(Book::new(Scale::new(0, 0), 10), sequence, false, None)
}

/// Updates 1 to 40 in changes of one to three: update `n` sets the quantity at price `n % 7` to `n`.
fn changes() -> Vec<(u64, u64, Vec<Level>)> {
    let mut changes = Vec::new();
    let mut first = 1;
    while first <= 40 {
        let last = (first + first % 3).min(40);
        changes.push((first, last, (first..=last).map(updated).collect()));
        first = last + 1;
    }
    changes
}

fn updated(number: u64) -> Level {
    level(number as i64 % 7, number as i64)
}

fn book_at(last: u64) -> Vec<Level> {
    (last.saturating_sub(6).max(1)..=last).map(updated).collect()
}

fn expected(last: u64) -> Book {
    let mut book = Book::new(Scale::new(0, 0), 10);
    book.apply(&book_at(last)).unwrap();
    book
}

#[test]
fn a_snapshot_joins_changes_at_any_place_and_in_either_order() {
    let changes = changes();
    let last_of = |count: usize| if count == 0 { 0 } else { changes[count - 1].1 };
    for snapshot_last in 1..=40 {
        for arrives_after in 0..=changes.len() {
            let mut replica = replica(Sequence::Updates);
            for (at, (first, last, levels)) in changes.iter().enumerate() {
                if at == arrives_after {
                    replica.on_depth(&depth(true, 0, snapshot_last, &book_at(snapshot_last)), NOW);
                }
                replica.on_depth(&depth(false, *first, *last, levels), NOW);
                let known = snapshot_last.max(last_of(at + 1));
                if at >= arrives_after {
                    assert_eq!(
                        replica.book(),
                        Some(&expected(known)),
                        "{snapshot_last} after {arrives_after}, at {at}"
                    );
                } else {
                    assert!(replica.book().is_none());
                }
            }
        }
    }
}

#[test]
fn a_snapshot_before_the_first_change_is_too_old() {
    let mut replica = replica(Sequence::Updates);
    let changes = changes();
    for (first, last, levels) in &changes[8..] {
        assert_eq!(replica.on_depth(&depth(false, *first, *last, levels), NOW), Outcome::Held);
    }
    let first = changes[8].0;
    assert_eq!(replica.on_depth(&depth(true, 0, first - 2, &book_at(first - 2)), NOW), Outcome::TooOld);
    assert_eq!(replica.on_depth(&depth(true, 0, first - 1, &book_at(first - 1)), NOW), Outcome::Applied);
    assert_eq!(replica.book(), Some(&expected(40)));
}

#[test]
fn missing_and_swapped_changes_are_noticed_and_joined_when_they_come() {
    let changes = changes();
    for missing in 1..changes.len() - 2 {
        let mut replica = replica(Sequence::Updates);
        replica.on_depth(&depth(true, 0, 0, &[]), NOW);
        for (at, (first, last, levels)) in changes.iter().enumerate() {
            if at != missing {
                let outcome = replica.on_depth(&depth(false, *first, *last, levels), NOW);
                assert_eq!(outcome, if at < missing { Outcome::Applied } else { Outcome::Held });
                // A second copy, of a further connection.
                assert_eq!(replica.on_depth(&depth(false, *first, *last, levels), NOW), Outcome::Ignored);
            }
        }
        assert_eq!((replica.behind_since(), replica.is_live()), (Some(NOW), false));
        let (first, last, levels) = &changes[missing];
        assert_eq!(replica.gap(), Fault::Gap { expected: *first, got: last + 1 });
        assert_eq!(replica.on_depth(&depth(false, *first, *last, levels), NOW), Outcome::Applied);
        assert_eq!(replica.book(), Some(&expected(40)));
    }
}

#[test]
fn a_snapshot_mends_a_gap_and_an_older_one_does_not() {
    let changes = changes();
    let mut replica = replica(Sequence::Updates);
    replica.on_depth(&depth(true, 0, 20, &book_at(20)), NOW);
    for (first, last, levels) in changes.iter().filter(|(first, ..)| *first > 25) {
        assert_eq!(replica.on_depth(&depth(false, *first, *last, levels), NOW), Outcome::Held);
    }
    assert_eq!(replica.on_depth(&depth(true, 0, 19, &book_at(19)), NOW), Outcome::TooOld);
    assert_eq!(replica.on_depth(&depth(true, 0, 21, &book_at(21)), NOW), Outcome::TooOld);
    assert_eq!(replica.on_depth(&depth(true, 0, 30, &book_at(30)), NOW), Outcome::Applied);
    assert_eq!(replica.book(), Some(&expected(40)));
    assert_eq!(replica.on_depth(&depth(true, 0, 30, &book_at(30)), NOW), Outcome::Ignored);
}

#[test]
fn a_lost_connection_is_no_loss_if_no_update_came_meanwhile() {
    let mut replica = replica(Sequence::Updates);
    replica.on_depth(&depth(true, 0, 20, &book_at(20)), NOW);
    replica.detach(NOW);
    assert!(replica.book().is_none());
    assert_eq!(replica.gap(), Fault::Lost);
    assert_eq!(replica.on_depth(&depth(false, 21, 21, &[updated(21)]), NOW), Outcome::Applied);
    assert_eq!(replica.book(), Some(&expected(21)));
    replica.detach(NOW);
    assert_eq!(replica.on_depth(&depth(true, 0, 21, &book_at(21)), NOW), Outcome::Applied);
}

#[test]
fn changes_without_numbers_need_a_snapshot_first_and_after_a_fault() {
    let sum = |book: &Book| book.levels(Side::Bid).map(|quote| u32::try_from(quote.quantity).unwrap_or(0)).sum();
    let mut replica = Replica::new(Book::new(Scale::new(0, 0), 10), Sequence::Checksums, false, Some(sum));
    fn of(is_snapshot: bool, checksum: Option<u32>, levels: &[Level]) -> Depth<'_> {
        Depth { checksum, ..depth(is_snapshot, 0, 0, levels) }
    }
    assert_eq!(replica.on_depth(&of(false, Some(1), &[level(1, 1)]), NOW), Outcome::Ignored);
    assert_eq!(replica.on_depth(&of(true, Some(5), &[level(1, 5)]), NOW), Outcome::Applied);
    assert_eq!(replica.on_depth(&of(false, Some(7), &[level(2, 2)]), NOW), Outcome::Applied);
    let broken = Outcome::Broken(Fault::Checksum { venue: 7, ours: 8 });
    assert_eq!(replica.on_depth(&of(false, Some(7), &[level(3, 1)]), NOW), broken);
    assert!(replica.is_empty());
    assert_eq!(replica.on_depth(&of(false, Some(7), &[level(2, 2)]), NOW), Outcome::Ignored);
    assert_eq!(replica.on_depth(&of(true, None, &[level(1, 5)]), NOW), Outcome::Applied);
    replica.detach(NOW);
    assert!(replica.is_empty());
}

#[test]
fn the_scale_is_learned_from_snapshots_and_from_what_did_not_fit() {
    let fine = |exponent| Level { price: Fixed { mantissa: 12345, exponent }, ..level(0, 1) };
    let mut replica = Replica::new(Book::new(Scale::new(0, 0), 10), Sequence::Messages, true, None);
    assert_eq!(replica.on_depth(&depth(true, 0, 0, &[fine(-2)]), NOW), Outcome::Applied);
    assert_eq!(replica.book().unwrap().scale(), Scale::new(2, 0));
    assert_eq!(replica.on_depth(&depth(false, 0, 0, &[fine(-3)]), NOW), Outcome::Broken(Fault::Inexact));
    assert_eq!(replica.on_depth(&depth(true, 0, 0, &[fine(-2)]), NOW), Outcome::Applied);
    assert_eq!(replica.on_depth(&depth(false, 0, 0, &[fine(-3)]), NOW), Outcome::Applied);
}

#[test]
fn changes_that_wait_are_bounded() {
    let mut replica = replica(Sequence::Updates);
    let levels = vec![level(1, 1); 1000];
    let mut broken = 0;
    for number in 1..1000 {
        match replica.on_depth(&depth(false, number, number, &levels), NOW) {
            Outcome::Held => {}
            outcome => {
                assert_eq!(outcome, Outcome::Broken(Fault::Overflow));
                broken += 1;
            }
        }
        assert!(replica.held_levels <= super::MOST_LEVELS && replica.held.len() <= 200);
    }
    assert_eq!(broken, 4);
}

#[test]
fn a_venue_whose_numbers_go_backwards_is_followed() {
    // It begins anew, or has sent one change far ahead.
    for ahead in [1_000_000, 1 << 62] {
        let mut replica = replica(Sequence::Updates);
        replica.on_depth(&depth(true, 0, 0, &[]), NOW);
        assert_eq!(replica.on_depth(&depth(false, 1, ahead, &[updated(1)]), NOW), Outcome::Applied);
        let mut next = 1..;
        let mut come = |replica: &mut Replica| {
            let number = next.next().unwrap();
            replica.on_depth(&depth(false, number, number, &[updated(number)]), NOW)
        };
        for _ in 1..super::MOST_OLD {
            assert_eq!(come(&mut replica), Outcome::Ignored);
        }
        let fault = Fault::Backwards { expected: ahead + 1, got: super::MOST_OLD.into() };
        assert_eq!(come(&mut replica), Outcome::Broken(fault));
        assert!(replica.is_empty());
        assert_eq!(come(&mut replica), Outcome::Held);
        assert_eq!(replica.on_depth(&depth(true, 0, 128, &book_at(128)), NOW), Outcome::Applied);
        assert_eq!(replica.book(), Some(&expected(129)));
    }
}

#[test]
fn changes_that_all_snapshots_are_too_old_for_are_dropped() {
    let mut replica = replica(Sequence::Updates);
    assert_eq!(replica.on_depth(&depth(false, 1 << 62, 1 << 62, &[updated(1)]), NOW), Outcome::Held);
    for number in 20..24 {
        assert_eq!(replica.on_depth(&depth(true, 0, number, &book_at(number)), NOW), Outcome::TooOld);
    }
    assert_eq!(replica.on_depth(&depth(false, 24, 24, &[updated(24)]), NOW), Outcome::Held);
    assert_eq!(replica.on_depth(&depth(true, 0, 23, &book_at(23)), NOW), Outcome::Applied);
    assert_eq!(replica.book(), Some(&expected(24)));
}
