//! A client comes back when a server's close frame says, within its own bounds, whatever code and reason the frame has.

use super::client_connection::answer;
use crate::fake::{Event, Fake};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tautline_engine::{Closed, Config, Conn, Handler, Reconnect, Shard, Target};
use tautline_tls::plain;
use tautline_ws::{CloseCode, Message, RetryAfter};

/// Keeps what the last close frame said.
#[derive(Default)]
struct Told {
    closed: usize,
    retry_after: Option<Duration>,
}

impl Handler for Told {
    type State = ();

    fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}

    fn on_close(&mut self, _: &mut Conn<'_, ()>, closed: &Closed) {
        self.closed += 1;
        self.retry_after = closed.retry_after();
    }
}

/// Input: one byte for code and bounds, then the reason.
pub(crate) fn run(data: &[u8]) {
    let Some((&way, reason)) = data.split_first() else { return };
    let Ok(reason) = str::from_utf8(&reason[..reason.len().min(123)]) else { return };
    let code = match way % 4 {
        0 => CloseCode::SERVICE_RESTART,
        1 => CloseCode::TRY_AGAIN_LATER,
        2 => CloseCode::GOING_AWAY,
        _ => CloseCode::NORMAL,
    };
    let longest = Duration::from_millis([0, 1, 30_000, u64::MAX][usize::from(way / 4 % 4)]);
    let told = by_the_grammar(reason).filter(|_| way % 4 < 2);
    let read = RetryAfter::read(code, reason);
    assert_eq!(read.map(|after| after.0), told, "{code:?} {reason:?}");
    if let Some(after) = read {
        assert!(after.0 <= RetryAfter::MAX);
        assert_eq!(RetryAfter::read(code, &after.to_string()), read, "written and read again");
    }
    come_back(code, reason, told, longest);
}

/// The hint by its grammar, character for character.
fn by_the_grammar(reason: &str) -> Option<Duration> {
    let mut left = reason.strip_prefix("retry-after=")?.chars().peekable();
    let mut digits = |most: u32| {
        let (mut value, mut count) = (0_u64, 0);
        while let Some(digit) = left.peek().and_then(|char| char.to_digit(10)) {
            left.next();
            (value, count) = (value * 10 + u64::from(digit), count + 1);
            if count > most {
                return None;
            }
        }
        (count > 0).then_some((value, count, left.next()))
    };
    let (seconds, _, next) = digits(7)?;
    let (millis, next) = match next {
        Some('.') => {
            let (fraction, count, next) = digits(3)?;
            (fraction * 10_u64.pow(3 - count), next)
        }
        next => (0, next),
    };
    let ends = next == Some('s') && matches!(left.next(), None | Some(' '));
    ends.then_some(Duration::from_millis(seconds * 1000 + millis))
}

/// Closes a client's connection, and checks when it connects again.
fn come_back(code: CloseCode, reason: &str, told: Option<Duration>, longest: Duration) {
    let first = Duration::from_millis(100);
    let kernel = Fake::default();
    kernel.0.borrow_mut().room = usize::MAX;
    let shard = Shard::new(0, Arc::new(Config::default()), plain::Engine, kernel.clone(), Told::default());
    let mut shard = shard.expect("a shard over a fake driver starts");
    let clock = Rc::new(Cell::new(Duration::from_secs(1)));
    let now = clock.clone();
    shard.danger_simulate(move || now.get(), [7; 32]);
    let target = Target::new("ws://192.0.2.1/").expect("a valid URI");
    shard.connect(Arc::new(target.with_reconnect(Reconnect::new(first, longest))));
    let mut turn = || {
        shard.turn(Some(Duration::ZERO)).expect("a turn over a fake driver succeeds");
        kernel.0.borrow().dialed.len()
    };
    turn();
    kernel.push(Event::Connected(0));
    turn();
    kernel.push(Event::Bytes(0, answer(&kernel.received(0))));
    turn();
    let body = [&code.get().to_be_bytes(), reason.as_bytes()].concat();
    let len = u8::try_from(body.len()).expect("at most 125 bytes");
    kernel.push(Event::Bytes(0, [&[0x88, len], &body[..]].concat()));
    assert_eq!(turn(), 1, "it comes back at once");
    let closed = clock.get();
    kernel.push(Event::Finished(0));
    turn();
    let (least, most) = match told {
        // Up to a quarter more is random.
        Some(told) => (told.min(longest), told.min(longest) * 5 / 4),
        None => (first.min(longest) / 2, first.min(longest)),
    };
    // Attempts are a millisecond apart at least.
    let (least, most) = (least.max(Duration::from_millis(1)), most.max(Duration::from_millis(1)));
    clock.set(closed + least - Duration::from_millis(1));
    assert_eq!(turn(), 1, "it comes back before {least:?}: {reason:?}");
    clock.set(closed + most);
    assert_eq!(turn(), 2, "it comes back after {most:?}: {reason:?}");
    let Told { closed, retry_after } = shard.into_handler();
    assert_eq!((closed, retry_after), (1, told));
}
