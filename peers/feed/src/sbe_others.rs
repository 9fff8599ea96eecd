//! The same views by the generators of other crates, from the same schema.

use tautline_feed::number::Fixed;

#[expect(unused, clippy::all, reason = "it is generated")]
mod ergo_views {
    include!(concat!(env!("OUT_DIR"), "/ergo.rs"));
}

#[expect(unused, nonstandard_style, clippy::all, reason = "it is generated")]
mod sbe_gen_views {
    include!(concat!(env!("OUT_DIR"), "/sbe_gen/modules.rs"));
}

/// Time, and number, price and quantity of the last trade.
pub type Trade = (i64, i64, i64, i64);

/// Last update, best bid, best offer.
pub type Best = (i64, Option<i64>, Option<i64>);

fn units(mantissa: i64, exponent: i8) -> i64 {
    Fixed { mantissa, exponent }.at(8).unwrap()
}

/// `ergo-sbe`, by its constructors that check.
pub mod ergo {
    use super::ergo_views::{BestBidAskDecoder, DepthEventDecoder, TradesEventDecoder};
    use super::{Best, Fixed, Trade, units};

    pub fn trade(text: &[u8]) -> Trade {
        let event = TradesEventDecoder::try_decode(text, 0).unwrap();
        event.trades().unwrap().last().map_or((0, 0, 0, 0), |trade| {
            let price = units(trade.price(), event.price_exponent());
            (event.transact_time(), trade.id(), price, units(trade.quantity(), event.quantity_exponent()))
        })
    }

    pub fn quote(text: &[u8]) -> (Fixed, Fixed) {
        let quote = BestBidAskDecoder::try_decode(text, 0).unwrap();
        let (bid, ask) = (quote.bid_price(), quote.ask_price());
        let fixed = |mantissa, exponent| Fixed { mantissa, exponent };
        (fixed(bid.mantissa(), bid.exponent()), fixed(ask.mantissa(), ask.exponent()))
    }

    pub fn best(text: &[u8]) -> Best {
        let event = DepthEventDecoder::try_decode(text, 0).unwrap();
        let bids = event.bids().unwrap().filter(|level| level.quantity() > 0).map(|level| level.price()).max();
        let asks = event.asks().unwrap().filter(|level| level.quantity() > 0).map(|level| level.price()).min();
        let price = |mantissa| units(mantissa, event.price_exponent());
        (event.last_update_id(), bids.map(price), asks.map(price))
    }
}

/// `sbe_gen`, whose caller checks the template and finds the groups.
pub mod sbe_gen {
    use super::sbe_gen_views::message_header::MessageHeader;
    use super::sbe_gen_views::{best_bid_ask, depth_event, trades_event};
    use super::{Best, Fixed, Trade, units};

    fn header(text: &[u8], template: u16) -> (&MessageHeader, &[u8]) {
        let (header, body) = MessageHeader::parse_prefix(text).unwrap();
        assert!(header.template_id.get() == template && header.schema_id.get() == 41);
        (header, body)
    }

    pub fn trade(text: &[u8]) -> Trade {
        let (header, body) = header(text, 1);
        let (event, groups) = trades_event::parse_with_header(body, header).unwrap();
        let (price, quantity) = (*event.price_exponent().unwrap(), *event.quantity_exponent().unwrap());
        let last = trades_event::parse_trades(groups).unwrap().iter().last();
        last.map_or((0, 0, 0, 0), |trade| {
            let time = event.transact_time().unwrap().get();
            let price = units(trade.price().unwrap().get(), price);
            (time, trade.id().unwrap().get(), price, units(trade.quantity().unwrap().get(), quantity))
        })
    }

    pub fn quote(text: &[u8]) -> (Fixed, Fixed) {
        let (header, body) = header(text, 2);
        let (quote, _) = best_bid_ask::parse_with_header(body, header).unwrap();
        let (bid, ask) = (quote.bid_price().unwrap(), quote.ask_price().unwrap());
        let fixed = |mantissa, exponent| Fixed { mantissa, exponent };
        (fixed(bid.mantissa.get(), bid.exponent), fixed(ask.mantissa.get(), ask.exponent))
    }

    pub fn best(text: &[u8]) -> Best {
        let (header, body) = header(text, 3);
        let (event, groups) = depth_event::parse_with_header(body, header).unwrap();
        let mut bids = depth_event::parse_bids(groups).unwrap().iter();
        let bid = bids
            .by_ref()
            .filter(|level| level.quantity().unwrap().get() > 0)
            .map(|level| level.price().unwrap().get())
            .max();
        let asks = depth_event::parse_asks(bids.remainder()).unwrap().iter();
        let asks = asks.filter(|level| level.quantity().unwrap().get() > 0);
        let ask = asks.map(|level| level.price().unwrap().get()).min();
        let exponent = *event.price_exponent().unwrap();
        let price = |mantissa| units(mantissa, exponent);
        (event.last_update_id().unwrap().get(), bid.map(price), ask.map(price))
    }
}
