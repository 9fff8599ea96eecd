//! Feeds against a made-up venue, whose side is written out.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

mod play;
mod toy;

use play::Play;
use std::time::Duration;
use tautline_feed::{Channel, FeedConfig, Full};

fn config() -> FeedConfig {
    let mut config = FeedConfig::default();
    config.seed = 1;
    config
}

#[test]
fn subscriptions_go_out_in_batches_on_few_connections_within_both_budgets() {
    let mut play = Play::new(config(), Channel::Trades, 6);
    play.pass(100);
    // Four streams of a connection, two of a request, six messages of the address.
    let first = ["1 hello", "1 sub trade 1 S0 S1", "1 sub trade 2 S2 S3", "2 hello", "2 sub trade 3 S4 S5"];
    assert_eq!(play.done(), first);
    assert_eq!(play.seen(), ["connected 1", "connected 2"]);
    for at in 0..3 {
        play.feed.send(play.links[0], format!("order {at}"), play.now).unwrap();
    }
    play.pass(0);
    assert_eq!(play.done(), ["1 order 0"], "the sixth message of the address");
    assert_eq!(play.feed.waiting(play.links[0]), [0, 2, 0]);
    play.pass(1000);
    assert_eq!(play.done(), ["1 order 1", "1 order 2"]);
}

#[test]
fn orders_pass_subscriptions_that_wait_and_are_refused_when_too_many_wait() {
    let mut play = Play::new(config(), Channel::Trades, 1);
    play.pass(100);
    assert_eq!(play.done(), ["1 hello", "1 sub trade 1 S0"]);
    play.say(1, "ok 1");
    let link = play.links[0];
    (0..2).for_each(|_| play.feed.send(link, "filler".to_owned(), play.now).unwrap());
    play.feed.unsubscribe(play.symbols[0], Channel::Trades);
    play.feed.subscribe(play.symbols[0], Channel::Trades, play.now);
    play.pass(100);
    assert_eq!(play.feed.waiting(link), [0, 0, 2]);
    play.feed.send(link, "order".to_owned(), play.now).unwrap();
    play.done();
    play.pass(1000);
    assert_eq!(play.done(), ["1 order", "1 unsub trade 2 S0", "1 sub trade 3 S0"]);
    let full = (0..5000).find_map(|_| play.feed.send(link, "order".to_owned(), play.now).err());
    assert!(matches!(full, Some(Full { .. })));
}

#[test]
fn a_subscription_is_requested_again_until_it_is_confirmed() {
    let mut play = Play::new(config(), Channel::Trades, 2);
    play.pass(100);
    assert_eq!(play.done(), ["1 hello", "1 sub trade 1 S0 S1"]);
    play.say(1, "no 1 S1");
    play.say(1, "other");
    assert_eq!(play.seen(), ["connected 1", "rejected 1 not today"]);
    play.pass(4_000);
    let done = play.done();
    assert_eq!(done, ["1 unsub trade 2 S1", "1 sub trade 3 S1"]);
    play.say(1, "ok 3");
    play.pass(2_000);
    assert_eq!(play.seen(), ["unconfirmed 0"]);
    assert_eq!(play.done(), ["1 unsub trade 4 S0", "1 sub trade 5 S0"]);
    play.say(1, "ok 5");
    play.pass(10_000);
    assert_eq!((play.seen().len(), play.done().len()), (0, 0), "both are confirmed");
}

#[test]
fn symbols_of_a_request_that_is_rejected_are_requested_alone() {
    let mut play = Play::new(config(), Channel::Trades, 2);
    play.pass(100);
    assert_eq!(play.done(), ["1 hello", "1 sub trade 1 S0 S1"]);
    play.feed.received(play.links[0], b"no 1", play.now, &mut play.log);
    play.pass(4_000);
    let subscribes = |line: &String| line.contains(" sub ");
    let done: Vec<_> = play.done().into_iter().filter(subscribes).collect();
    assert_eq!(done, ["1 sub trade 3 S0", "1 sub trade 5 S1"]);
}

#[test]
fn a_connection_that_confirms_nothing_is_replaced() {
    let mut play = Play::new(config(), Channel::Trades, 1);
    for _ in 0..400 {
        play.pass(50);
        play.say(1, "other");
    }
    let seen = play.seen();
    assert!(seen.iter().filter(|line| *line == "unconfirmed 0").count() >= 3, "{seen:?}");
    assert!(seen.contains(&"replacing 1".to_owned()) && seen.contains(&"connected 2".to_owned()), "{seen:?}");
}

#[test]
fn one_symbol_moves_to_a_connection_of_its_own_without_the_others() {
    let mut play = Play::new(config(), Channel::Trades, 3);
    assert_eq!(play.confirm(), ["1 hello", "1 sub trade 1 S0 S1", "1 sub trade 2 S2"]);
    for symbol in 0..3 {
        play.say(1, &format!("trade S{symbol} 10"));
    }
    play.seen();
    play.feed.isolate(play.symbols[1], Channel::Trades, play.now);
    assert_eq!(play.confirm(), ["2 hello", "2 sub trade 3 S1"]);
    play.pass(200);
    assert_eq!(play.done(), [""; 0], "the old connection goes on until the new one delivers");
    play.say(1, "trade S1 11");
    play.say(2, "trade S1 11");
    play.say(2, "trade S1 12");
    play.pass(200);
    assert_eq!(play.done(), ["1 unsub trade 4 S1"]);
    play.say(1, "trade S1 13");
    play.say(1, "trade S0 11");
    play.say(2, "trade S1 13");
    let seen = ["connected 2", "trade 1 11", "second 1 2 0ns", "trade 1 12", "trade 0 11", "trade 1 13"];
    assert_eq!(play.seen(), seen);
    let link_of =
        |play: &Play, symbol: usize| play.feed.links_of(play.symbols[symbol], Channel::Trades).last().unwrap();
    assert_eq!([0, 1, 2].map(|symbol| link_of(&play, symbol).number()), [1, 2, 1]);
}

#[test]
fn a_stream_ends_when_it_is_not_wanted_and_may_be_wanted_again() {
    let mut play = Play::new(config(), Channel::Book, 2);
    play.confirm();
    play.pass(100);
    play.done();
    let snapshot = |play: &mut Play, symbol: usize, last: u64| {
        let text = format!("snapshot S{symbol} 0 {last} bid 100 {last}");
        let fetch = play.fetches.remove(0);
        play.feed.fetched(fetch, Ok(text.as_bytes()), play.now, &mut play.log);
    };
    snapshot(&mut play, 0, 10);
    snapshot(&mut play, 1, 10);
    assert!(play.feed.book(play.symbols[0]).is_some());
    play.feed.unsubscribe(play.symbols[0], Channel::Book);
    play.pass(100);
    assert_eq!(play.done(), ["1 unsub book 2 S0"]);
    play.seen();
    play.say(1, "book S0 11 11 bid 100 11");
    play.say(1, "book S1 11 11 bid 100 11");
    assert_eq!(play.seen(), ["book 1 11"]);
    assert!(play.feed.book(play.symbols[0]).is_none());
    play.feed.subscribe(play.symbols[0], Channel::Book, play.now);
    play.feed.subscribe(play.symbols[0], Channel::Book, play.now);
    assert_eq!(play.confirm(), ["1 sub book 3 S0"]);
    play.pass(100);
    play.say(1, "book S0 21 21 bid 100 21");
    snapshot(&mut play, 0, 20);
    assert_eq!(play.seen(), ["live 0", "book 0 21"]);
    // A connection without streams is closed.
    (0..2).for_each(|at| play.feed.unsubscribe(play.symbols[at], Channel::Book));
    play.pass(100);
    assert_eq!(play.done(), ["fetch 0", "close 1"]);
}

#[test]
fn a_connection_is_replaced_before_its_end_without_a_loss() {
    let mut play = Play::new(config(), Channel::Trades, 1);
    play.confirm();
    play.say(1, "trade S0 1");
    play.say(1, "bye");
    play.pass(100);
    assert_eq!(play.done(), ["2 hello", "2 sub trade 2 S0"]);
    play.say(1, "trade S0 2");
    play.say(2, "ok 2");
    play.pass(100);
    play.say(1, "trade S0 3");
    assert_eq!(play.done(), [""; 0]);
    play.say(2, "trade S0 3");
    play.say(2, "trade S0 4");
    play.pass(100);
    assert_eq!(play.done(), ["close 1"]);
    play.say(1, "trade S0 5");
    play.say(2, "trade S0 5");
    let seen = [
        "connected 1",
        "trade 0 1",
        "replacing 1",
        "connected 2",
        "trade 0 2",
        "trade 0 3",
        "second 1 2 0ns",
        "trade 0 4",
        "replaced 1 by 2",
        "trade 0 5",
    ];
    assert_eq!(play.seen(), seen);
}

#[test]
fn a_successor_takes_over_at_once_if_the_old_connection_ends() {
    let mut play = Play::new(config(), Channel::Trades, 1);
    play.confirm();
    play.say(1, "bye");
    play.confirm();
    play.feed.closed(play.links[0], play.now, &mut play.log);
    play.say(2, "trade S0 7");
    play.pass(1000);
    assert_eq!(play.seen(), ["connected 1", "replacing 1", "connected 2", "disconnected 1", "trade 0 7"]);
    assert_eq!(play.done(), [""; 0]);
}

#[test]
fn a_successor_that_does_not_deliver_is_replaced_itself() {
    let mut play = Play::new(config(), Channel::Trades, 2);
    play.confirm();
    play.say(1, "bye");
    // The second connection answers nothing. The old one goes on meanwhile.
    let mut third = Vec::new();
    for number in 0..400 {
        play.pass(100);
        play.say(1, &format!("trade S0 {number}"));
        play.say(1, &format!("trade S1 {number}"));
        if play.links.len() >= 3 {
            third = play.confirm();
            break;
        }
    }
    assert!(third.iter().any(|line| line.starts_with("3 sub trade")), "{third:?}");
    play.say(3, "trade S0 1000");
    play.pass(200);
    assert_eq!(play.done(), [""; 0], "one stream is not delivered yet");
    play.say(3, "trade S1 1000");
    play.pass(200);
    assert_eq!(play.done(), ["close 1"]);
}

#[test]
fn redundant_connections_show_who_was_first_and_what_is_missing() {
    let mut config = config();
    config.copies = 2;
    let mut play = Play::new(config, Channel::Trades, 1);
    assert_eq!(play.confirm(), ["1 hello", "1 sub trade 1 S0", "2 hello", "2 sub trade 2 S0"]);
    play.seen();
    play.say(2, "trade S0 1");
    play.now += Duration::from_millis(3);
    play.say(1, "trade S0 1");
    play.say(1, "trade S0 5");
    play.say(2, "trade S0 3");
    play.pass(90);
    assert_eq!(play.seen(), ["trade 0 1", "second 2 1 3ms", "trade 0 5", "trade 0 3"]);
    play.pass(100);
    assert_eq!(play.seen(), ["missing 2..=2", "missing 4..=4"]);
    let copies = play.feed.copies(play.symbols[0]).unwrap();
    assert_eq!((copies.first, copies.duplicates), (3, 1));
}

#[test]
fn pings_of_the_venue_are_answered_and_a_silent_connection_is_cut() {
    let mut play = Play::new(config(), Channel::Trades, 1);
    play.confirm();
    play.say(1, "ping 77");
    assert_eq!(play.done(), ["1 77"]);
    play.say(1, &format!("ping {}", "7".repeat(2000)));
    assert_eq!(play.done(), [""; 0], "a venue cannot have the feed keep its texts");
    play.pass(19_000);
    play.say(1, "");
    play.seen();
    play.pass(19_000);
    assert!(!play.seen().contains(&"silent 1".to_owned()), "a message that cannot be read shows life");
    play.pass(1_500);
    assert!(play.seen().contains(&"silent 1".to_owned()));
    assert!(play.done().contains(&"close 1".to_owned()));
    play.pass(1_000);
    assert!(play.seen().contains(&"connected 2".to_owned()) || play.links.len() > 1);
}

#[test]
fn a_stream_that_falls_silent_is_subscribed_again_ever_more_seldom() {
    let mut config = config();
    config.stale_after = Duration::from_secs(10);
    let mut play = Play::new(config, Channel::Trades, 2);
    play.confirm();
    let mut stale = Vec::new();
    for tenth in 0..1_000 {
        play.pass(100);
        play.say(1, &format!("trade S0 {tenth}"));
        for line in play.done() {
            let words: Vec<_> = line.split(' ').collect();
            if words[1] == "sub" {
                play.say(1, &format!("ok {}", words[3]));
            }
        }
        stale.extend(play.seen().into_iter().filter(|line| line.starts_with("stale")).map(|_| tenth / 10));
    }
    assert_eq!(stale.len(), 3, "{stale:?}");
    assert!(stale[1] - stale[0] >= 19 && stale[2] - stale[1] >= 38, "{stale:?}");
}

#[test]
fn a_gap_of_a_book_is_mended_by_a_snapshot_that_is_late_enough() {
    let mut play = Play::new(config(), Channel::Book, 1);
    play.confirm();
    play.pass(100);
    assert_eq!(play.done(), ["fetch 0"]);
    let snapshot = |play: &mut Play, text: Result<&str, &str>| {
        let fetch = play.fetches.pop().unwrap();
        play.feed.fetched(fetch, text.map(str::as_bytes), play.now, &mut play.log);
    };
    snapshot(&mut play, Err("503"));
    play.pass(500);
    assert_eq!(play.done(), ["fetch 0"]);
    snapshot(&mut play, Ok("snapshot S0 0 10 bid 100 10"));
    play.say(1, "book S0 11 12 bid 100 12");
    assert_eq!(play.seen(), ["connected 1", "failed 0 503", "live 0", "book 0 10", "book 0 12"]);
    play.say(1, "book S0 14 15 bid 100 15");
    assert_eq!(play.seen(), ["rebuilding 0: update 13 had to follow, and 14 came"]);
    assert!(play.feed.book(play.symbols[0]).is_none());
    play.pass(90);
    assert_eq!(play.done(), [""; 0], "another connection may have it");
    play.pass(100);
    assert_eq!(play.done(), ["fetch 0"]);
    snapshot(&mut play, Ok("snapshot S0 0 12 bid 100 12"));
    play.pass(1000);
    assert_eq!(play.done(), ["fetch 0"], "the first was too old");
    snapshot(&mut play, Ok("snapshot S0 0 13 bid 100 13"));
    assert_eq!(play.seen(), ["failed 0 it is older than the changes that have come", "live 0", "book 0 15"]);
    play.pass(1000);
    assert_eq!(play.done(), [""; 0]);
}

#[test]
fn a_book_whose_faults_repeat_is_not_fetched_without_end() {
    let mut play = Play::new(config(), Channel::Book, 1);
    play.confirm();
    let mut fetched = 0;
    for round in 1..=600_u64 {
        play.pass(100);
        if let Some(fetch) = play.fetches.pop() {
            fetched += 1;
            let snapshot = format!("snapshot S0 0 {} ask 100 1", round * 10);
            play.feed.fetched(fetch, Ok(snapshot.as_bytes()), play.now, &mut play.log);
            play.say(1, &format!("book S0 {} {} bid 100 1", round * 10 + 1, round * 10 + 1));
            assert!(play.seen().last().unwrap().contains("is not below the offer"));
        }
        play.say(1, "other");
    }
    // In a minute: the waits double from a quarter of a second to half a minute.
    assert!((5..=10).contains(&fetched), "{fetched}");
}

#[test]
fn a_fetch_without_an_answer_is_given_up() {
    let mut play = Play::new(config(), Channel::Book, 1);
    play.confirm();
    play.pass(9_000);
    play.say(1, "other");
    play.pass(2_000);
    assert_eq!(play.seen(), ["connected 1", "failed 0 no answer came in time"]);
    assert_eq!(play.done(), ["fetch 0", "fetch 0"]);
    let late = play.fetches[0];
    play.feed.fetched(late, Ok(b"snapshot S0 0 10 bid 100 10"), play.now, &mut play.log);
    assert!(play.feed.book(play.symbols[0]).is_none(), "the late answer is not that of the second request");
}
