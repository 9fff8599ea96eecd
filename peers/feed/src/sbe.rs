//! Views of binary messages, as the tests of our crate generate them: to the trade, and to best bid and offer.

use crate::sbe_others::{Best, Trade, ergo, sbe_gen};
use crate::timing::{Decoder, compare};

#[path = "../../../crates/feed/tests/encoded/mod.rs"]
#[expect(dead_code, reason = "only the tests have messages of every kind")]
mod encoded;
#[path = "../../../crates/feed/tests/sbe/mod.rs"]
mod views;

use tautline_feed::number::Fixed;
use tautline_feed::sbe::SbeError;
use views::market::{AnyMessage, BestBidAsk, DepthEvent, TradesEvent};

fn trade(event: &TradesEvent<'_>) -> Trade {
    let units = |mantissa, exponent| Fixed { mantissa, exponent }.at(8).unwrap();
    event.trades().last().map_or((0, 0, 0, 0), |trade| {
        let price = units(trade.price(), event.price_exponent());
        (event.transact_time(), trade.id(), price, units(trade.quantity(), event.quantity_exponent()))
    })
}

fn best(event: &DepthEvent<'_>) -> Best {
    let units = |mantissa| Fixed { mantissa, exponent: event.price_exponent() }.at(8).unwrap();
    let bid = event.bids().filter(|level| level.quantity() > 0).map(|level| level.price()).max();
    let ask = event.asks().filter(|level| level.quantity() > 0).map(|level| level.price()).min();
    (event.last_update_id(), bid.map(units), ask.map(units))
}

fn any(text: &[u8]) -> Result<i64, SbeError> {
    Ok(match AnyMessage::decode(text)? {
        AnyMessage::TradesEvent(event) => event.event_time(),
        AnyMessage::BestBidAsk(quote) => quote.event_time(),
        AnyMessage::DepthEvent(event) => event.event_time(),
        AnyMessage::Instrument(_) | AnyMessage::Unlisted(_) => 0,
    })
}

pub fn all() {
    let ours = "tautline-feed";
    let trades: Vec<Vec<u8>> = (0..500).map(|_| encoded::trades(1)).collect();
    let decoders = [
        Decoder { name: ours, decode: Box::new(|text| trade(&TradesEvent::decode(text).unwrap())) },
        Decoder { name: "ergo-sbe", decode: Box::new(ergo::trade) },
        Decoder { name: "sbe_gen", decode: Box::new(sbe_gen::trade) },
    ];
    compare("SBE, one trade", &trades, &decoders);
    let quotes: Vec<Vec<u8>> = (0..500).map(|_| encoded::best_bid_ask()).collect();
    let quote = |text: &[u8]| {
        let quote = BestBidAsk::decode(text).unwrap();
        (quote.bid_price(), quote.ask_price())
    };
    let decoders = [
        Decoder { name: ours, decode: Box::new(quote) },
        Decoder { name: "ergo-sbe", decode: Box::new(ergo::quote) },
        Decoder { name: "sbe_gen", decode: Box::new(sbe_gen::quote) },
    ];
    compare("SBE, best bid and ask", &quotes, &decoders);
    let depths: Vec<Vec<u8>> = (0..500).map(|index| encoded::depth(20 + index % 21)).collect();
    let decoders = [
        Decoder { name: ours, decode: Box::new(|text| best(&DepthEvent::decode(text).unwrap())) },
        Decoder { name: "ergo-sbe", decode: Box::new(ergo::best) },
        Decoder { name: "sbe_gen", decode: Box::new(sbe_gen::best) },
    ];
    compare("SBE, depth of 40 to 80 levels", &depths, &decoders);
    let mixed: Vec<Vec<u8>> =
        trades.iter().zip(&quotes).flat_map(|(trade, quote)| [trade.clone(), quote.clone()]).collect();
    let decode: Box<dyn Fn(&[u8]) -> i64> = Box::new(|text| any(text).unwrap());
    compare("SBE, any message", &mixed, &[Decoder { name: ours, decode }]);
}
