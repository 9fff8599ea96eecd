//! The application of `taut feed`: prints, and counts.

use super::ended::Ended;
use super::printer::Printer;
use super::repeats::{Key, Repeats};
use super::tally::Tally;
use super::wording::{Told, words};
use crate::failure::printable;
use crate::output;
use serde_json::json;
use std::sync::mpsc::Sender;
use tautline::{ConnectError, MessageTimes, Stage};
use tautline_feed::number::Fixed;
use tautline_feed::{Book, Feed, LinkId, Listener, Notice, Quote, Scale, Side, SymbolId, Time, Trade};

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Json,
    Quiet,
}

/// The best bids, and the best offers.
type Top = [Vec<Quote>; 2];

pub(super) struct Watch {
    form: Form,
    /// Levels of a side to print.
    levels: usize,
    tally: Box<Tally>,
    /// The last line of each symbol's book.
    tops: Vec<Top>,
    /// Lines of the message that is handled now. They are printed when it has been timed.
    lines: Vec<String>,
    /// Whether the message has brought something to decide on.
    decides: bool,
    /// Sent after a decision.
    order: Option<String>,
    /// The message that was handled last has brought something to decide on.
    has_decided: bool,
    /// When the next order may be sent.
    next_order: Time,
    orders: u64,
    /// The time of the last event.
    now: Time,
    printer: Printer,
    repeats: Repeats,
    ended: Sender<Ended>,
}

/// The shortest time between two orders: subscriptions are sent within the same budget.
const BETWEEN_ORDERS: Time = Time::from_secs(1);

impl Watch {
    pub(super) fn new(form: Form, levels: usize, names: Vec<String>, printer: Printer, ended: Sender<Ended>) -> Self {
        let tops = vec![Top::default(); names.len()];
        Self {
            form,
            levels,
            tally: Box::new(Tally::new(names)),
            tops,
            lines: Vec::new(),
            decides: false,
            order: None,
            has_decided: false,
            next_order: Time::ZERO,
            orders: 0,
            now: Time::ZERO,
            printer,
            repeats: Repeats::default(),
            ended,
        }
    }

    /// Sends this text after decisions.
    pub(super) fn with_order(mut self, order: Option<String>) -> Self {
        self.order = order;
        self
    }

    /// Sends the order after a decision.
    pub(super) fn act(&mut self, feed: &mut Feed, now: Time) {
        let Some(order) = self.order.as_ref().filter(|_| self.has_decided && now >= self.next_order) else { return };
        let Some(link) = feed.links().next() else { return };
        // An order that waits for the budget is not timed, and the next one comes in a second.
        let leaves = feed.send_timed(link, order.clone(), self.orders, now).is_ok_and(|leaves| leaves);
        self.orders += u64::from(leaves);
        self.next_order = now + BETWEEN_ORDERS;
    }

    fn name(&self, symbol: SymbolId) -> &str {
        self.tally.symbols.get(symbol.index()).map_or("", |symbol| &symbol.name)
    }

    /// A line for people, or an event for programs. It does not wait for the next message.
    fn tell(&mut self, told: Told, now: Time) {
        self.now = now;
        let Told { kind, symbol, text, fields: mut event } = told;
        let name = symbol.map(|symbol| self.name(symbol).to_owned());
        if self.form == Form::Json {
            (event["event"], event["time"]) = (json!(kind), json!(now.as_secs_f64()));
            if let Some(name) = name {
                event["symbol"] = json!(name);
            }
            self.lines.push(output::json_line(&event));
            return self.print();
        }
        if self.repeats.admits((kind, symbol), now) {
            let name = name.map(|name| name + ": ").unwrap_or_default();
            output::note(format_args!("{:10.3} {name}{text}", now.as_secs_f64()));
        }
    }

    /// Tells how many notices were not.
    fn sum_up(&self, withheld: Vec<(Key, u64)>) {
        for ((kind, symbol), count) in withheld {
            let name = symbol.map(|symbol| format!("{}: ", self.name(symbol))).unwrap_or_default();
            output::note(format_args!("{:10.3} {name}{count} further notices: {kind}", self.now.as_secs_f64()));
        }
    }

    fn print(&mut self) {
        self.printer.print(&mut self.lines, self.now);
        let withheld = self.repeats.take_over(self.now);
        self.sum_up(withheld);
    }

    fn count(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::Rebuilding { symbol, .. } => _ = self.tally.symbol(*symbol).map(|symbol| symbol.rebuilt += 1),
            Notice::Stale { symbol, .. } => _ = self.tally.symbol(*symbol).map(|symbol| symbol.stale += 1),
            Notice::MissingTrades { symbol, numbers } => {
                // A venue can have any numbers.
                let missing = (numbers.end() - numbers.start()).saturating_add(1);
                let count = self.tally.symbol(*symbol).map(|symbol| &mut symbol.missing);
                _ = count.map(|count| *count = count.saturating_add(missing));
            }
            Notice::Second { first, second, behind, .. } => {
                self.tally.link(*first).first += 1;
                let second = self.tally.link(*second);
                (second.second, second.behind) = (second.second + 1, second.behind + *behind);
            }
            // The last notice has the whole number.
            Notice::Unrecorded { events, .. } => self.tally.unrecorded = (*events).max(1),
            Notice::Connected { link } => self.tally.link(*link).connects += 1,
            Notice::Disconnected { link } => self.tally.link(*link).ends += 1,
            _ => {}
        }
    }
}

/// A number of a book in decimals.
fn decimals(number: i64, decimals: u8) -> String {
    Fixed { mantissa: number, exponent: -i8::try_from(decimals).unwrap_or(0) }.to_string()
}

/// Price and quantity of each level.
fn quotes(side: &[Quote], scale: Scale) -> Vec<[String; 2]> {
    side.iter().map(|one| [decimals(one.price, scale.price), decimals(one.quantity, scale.quantity)]).collect()
}

impl Listener for Watch {
    fn on_trade(&mut self, symbol: SymbolId, trade: &Trade<'_>, now: Time) {
        (self.decides, self.now) = (true, now);
        _ = self.tally.symbol(symbol).map(|symbol| symbol.trades += 1);
        let side = if trade.taker == Side::Bid { "buy" } else { "sell" };
        let Trade { price, quantity, number, .. } = trade;
        let line = match self.form {
            Form::Quiet => return,
            Form::Text => {
                let name = self.name(symbol);
                format!("{:10.3} {name} trade {number}: {side} {quantity} at {price}\n", now.as_secs_f64())
            }
            Form::Json => output::json_line(&json!({
                "event": "trade", "symbol": self.name(symbol), "number": number, "side": side,
                "price": price.to_string(), "quantity": quantity.to_string(), "time": now.as_secs_f64(),
            })),
        };
        self.lines.push(line);
    }

    fn on_book(&mut self, symbol: SymbolId, book: &Book, now: Time) {
        (self.decides, self.now) = (true, now);
        _ = self.tally.symbol(symbol).map(|symbol| symbol.books += 1);
        if self.form == Form::Quiet {
            return;
        }
        let Some(last) = self.tops.get_mut(symbol.index()) else { return };
        let is_same = [Side::Bid, Side::Ask]
            .iter()
            .zip(last.iter())
            .all(|(side, last)| book.levels(*side).take(self.levels).eq(last.iter().copied()));
        if is_same {
            return;
        }
        *last = [Side::Bid, Side::Ask].map(|side| book.levels(side).take(self.levels).collect());
        let [bids, asks] = [&last[0], &last[1]].map(|side| quotes(side, book.scale()));
        let name = self.name(symbol);
        let line = if self.form == Form::Json {
            let (event, time) = ("book", now.as_secs_f64());
            output::json_line(&json!({"event": event, "symbol": name, "bids": bids, "asks": asks, "time": time}))
        } else {
            let side = |side: &[[String; 2]]| side.iter().map(|one| one.join(" x ")).collect::<Vec<_>>().join(", ");
            format!("{:10.3} {name} {} | {}\n", now.as_secs_f64(), side(&bids), side(&asks))
        };
        self.lines.push(line);
    }

    fn on_handled(&mut self, times: Option<&MessageTimes>) {
        if let (Some(times), true) = (times, self.decides) {
            if let Some(age) = times.age() {
                self.tally.to_decision.record(age);
                let before = times.stage(Stage::Total).unwrap_or_default();
                self.tally.decision.record(age.saturating_sub(before));
            }
            self.tally.by_report.add(times);
        }
        self.has_decided = std::mem::take(&mut self.decides);
        self.print();
    }

    fn on_connect_failed(&mut self, link: LinkId, error: &ConnectError) {
        let reason = tautline_lab::load::explain(error);
        let text = format!(": {}", printable(&reason));
        self.tell(Told::link("connect failed", link, &text, json!({"reason": reason})), self.now);
    }

    fn on_notice(&mut self, notice: Notice<'_>, now: Time) {
        self.count(&notice);
        if let Notice::Rebuilding { symbol, .. } = notice {
            _ = self.tops.get_mut(symbol.index()).map(|top| *top = Top::default());
        }
        if let Some(told) = words(&notice) {
            self.tell(told, now);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.print();
        self.printer.tell_losses(self.now);
        let withheld = self.repeats.take_all();
        self.sum_up(withheld);
        // The main thread is gone if the program ends at once.
        let _ = self.ended.send(Ended::Tally(std::mem::take(&mut self.tally)));
    }
}
