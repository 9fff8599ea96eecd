//! Any bytes are a message or an error. A message that is accepted is accepted without the bytes behind it, and cut it is not.

use crate::sbe::market::{AnyMessage, Instrument};
use tautline_feed::number::Fixed;
use tautline_feed::sbe::SbeError;

/// Reads any bytes as a message.
pub(crate) fn run(data: &[u8]) {
    match AnyMessage::decode(data) {
        Ok(AnyMessage::TradesEvent(event)) => {
            let trades: Vec<_> = event.trades().map(|trade| (trade.id(), trade.price(), trade.quantity())).collect();
            assert_eq!(trades.len(), event.trades().len());
            let _ = (event.event_time(), event.price_exponent(), event.symbol());
            exact(data, event.encoded_len());
        }
        Ok(AnyMessage::BestBidAsk(quote)) => {
            let _ = (quote.bid_price().at(8), quote.ask_quantity().at(8), quote.symbol());
            exact(data, quote.encoded_len());
        }
        Ok(AnyMessage::DepthEvent(event)) => {
            let bids: Vec<i64> = event.bids().map(|level| level.price()).collect();
            let asks: Vec<i64> = event.asks().map(|level| level.quantity()).collect();
            assert_eq!((bids.len(), asks.len()), (event.bids().len(), event.asks().len()));
            exact(data, event.encoded_len());
        }
        Ok(AnyMessage::Instrument(instrument)) => {
            instrument_parts(&instrument);
            exact(data, instrument.encoded_len());
        }
        Ok(AnyMessage::Unlisted(header)) => assert!(header.template == 0 || header.template > 4),
        Err(error) => fault(data, error),
    }
}

fn instrument_parts(instrument: &Instrument<'_>) {
    let session = instrument.session();
    let _ = (session.phase(), session.day(), session.reference());
    let _ = (instrument.side(), instrument.tick_size(), instrument.parent(), instrument.venue(), instrument.counts());
    let _ = (instrument.funding(), instrument.last_side(), instrument.lot(), instrument.limit(), instrument.note());
    let mut legs = 0;
    for leg in instrument.legs() {
        let fees: Vec<Fixed> = leg.fees().map(|fee| fee.fee()).collect();
        assert_eq!(fees.len(), leg.fees().len());
        let _ = (leg.id(), leg.weight(), leg.name());
        legs += 1;
    }
    assert_eq!(legs, instrument.legs().len());
    let holidays: Vec<u16> = instrument.holidays().map(|holiday| holiday.day()).collect();
    assert_eq!(holidays.len(), instrument.holidays().len());
}

/// Checks that the message has this length and no byte less.
fn exact(data: &[u8], len: usize) {
    assert!(AnyMessage::decode(&data[..len]).is_ok());
    for cut in [len.saturating_sub(1), len / 2] {
        if cut < len {
            fault(&data[..cut], AnyMessage::decode(&data[..cut]).expect_err("a cut message"));
        }
    }
}

fn fault(data: &[u8], error: SbeError) {
    assert!(error.at <= data.len(), "{error} in {} bytes", data.len());
    assert!(!error.message.is_empty() && !error.field.is_empty());
}
