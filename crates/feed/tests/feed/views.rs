//! Views of SBE messages, against messages that are written byte by byte.

use crate::encoded::{Bytes, best_bid_ask, depth, instrument, trades};
use crate::fuzz_sbe as fuzz;
use crate::sbe::big::Quote;
use crate::sbe::market::{AnyMessage, BestBidAsk, DepthEvent, Instrument, Phase, Side, TradesEvent};
use proptest::prelude::*;
use proptest::sample::Index;
use std::time::Duration;
use tautline_feed::number::Fixed;
use tautline_feed::sbe::{SbeError, SbeFault, generate};
use tautline_venue::{Access, Kind, Out, Payload, Setup, Venue};

const fn fixed(mantissa: i64, exponent: i8) -> Fixed {
    Fixed { mantissa, exponent }
}

#[test]
fn views_are_those_of_their_schemas() {
    for (xml, source) in [
        (include_str!("../sbe/market.xml"), include_str!("../sbe/market.rs")),
        (include_str!("../sbe/big.xml"), include_str!("../sbe/big.rs")),
    ] {
        assert!(generate(xml).unwrap() == source, "run the example `sbe_views` on the schemas in tests/sbe");
    }
}

#[test]
fn trades_are_read_with_their_groups_and_data() {
    let message = trades(3);
    let event = TradesEvent::decode(&message).unwrap();
    assert_eq!((event.event_time(), event.transact_time()), (1_764_300_000_000_001, 1_764_300_000_000_000));
    assert_eq!((event.price_exponent(), event.quantity_exponent(), event.symbol()), (-2, -5, &b"BTCUSDT"[..]));
    let read: Vec<_> = event.trades().map(|trade| (trade.id(), trade.price(), trade.quantity())).collect();
    assert_eq!(read, [(0, 6_732_145, 120), (1, 6_732_146, 121), (2, 6_732_147, 122)]);
    let flags: Vec<_> =
        event.trades().map(|trade| (trade.flags().buyer_is_maker(), trade.flags().is_best_match())).collect();
    assert_eq!(flags, [(false, true), (true, true), (false, true)]);
    assert_eq!(event.encoded_len(), message.len());
}

#[test]
fn decimals_are_fixed_point_numbers() {
    let message = best_bid_ask();
    let quote = BestBidAsk::decode(&message).unwrap();
    assert_eq!((quote.bid_price(), quote.bid_quantity()), (fixed(6_732_145, -2), fixed(120, -5)));
    assert_eq!((quote.ask_price(), quote.ask_quantity()), (fixed(6_732_146, -2), fixed(-1, 0)));
    assert_eq!((quote.update_id(), quote.symbol()), (77, &b"BTCUSDT"[..]));
}

#[test]
fn every_kind_of_field_is_read() {
    let message = instrument(2);
    let view = Instrument::decode(&message).unwrap();
    assert_eq!((view.id(), view.side(), view.aggressor()), (9, Side::Buy, Side::Sell));
    assert_eq!((view.tick_size(), view.parent(), view.funding()), (Some(fixed(5, -8)), None, Some(0.25)));
    assert_eq!((view.venue(), view.currency(), view.counts()), (&b"XN"[..], "USD", [1, 2, 770]));
    let session = view.session();
    assert_eq!((session.phase(), session.day(), session.reference()), (Phase::Halt, 12, fixed(-3, 1)));
    assert_eq!((view.last_side(), view.lot(), view.limit()), (None, Some(100), Some(8)));
    let legs: Vec<_> = view.legs().collect();
    assert_eq!(legs.len(), 2);
    assert_eq!((legs[0].id(), legs[0].weight(), legs[0].name()), (1, Some(-1), &b"near"[..]));
    assert_eq!(legs[0].fees().map(|fee| fee.fee()).collect::<Vec<_>>(), [fixed(4, -4), fixed(5, -4)]);
    assert_eq!((legs[1].id(), legs[1].fees().len(), legs[1].name()), (2, 0, &b""[..]));
    assert_eq!(view.holidays().map(|holiday| holiday.day()).collect::<Vec<_>>(), [360, 366]);
    assert_eq!((view.symbol(), view.note()), (&b"SPREAD"[..], &b"new"[..]));
}

#[test]
fn older_versions_lack_fields_and_newer_ones_have_more() {
    let old = instrument(0);
    let view = Instrument::decode(&old).unwrap();
    assert_eq!((view.lot(), view.limit(), view.holidays().len()), (None, None, 0));
    assert_eq!((view.symbol(), view.note(), view.encoded_len()), (&b"SPREAD"[..], &b""[..], old.len()));
    assert!(view.legs().all(|leg| leg.weight().is_none()));
    let between = instrument(1);
    let view = Instrument::decode(&between).unwrap();
    assert_eq!((view.lot(), view.limit(), view.holidays().len()), (Some(100), None, 0));
    // Longer blocks, and data at the end, which only the sender knows.
    let new = instrument(3);
    let view = Instrument::decode(&new).unwrap();
    assert_eq!((view.lot(), view.limit(), view.note()), (Some(100), Some(8), &b"new"[..]));
    assert_eq!(view.legs().map(|leg| leg.id()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(view.encoded_len() + 5, new.len());
}

#[test]
fn the_other_order_of_bytes_is_read() {
    let block = Bytes::default().be(&7_u16.to_be_bytes()).be(&[0; 2]).be(&(-5_i32).to_be_bytes()).be(&[0xFE]);
    let block = block.be(&1.5_f32.to_be_bytes()).be(&[0; 3]).0;
    let head = Bytes::default().be(&[0]).be(&16_u32.to_be_bytes()).be(&300_u16.to_be_bytes()).be(&[7]).0;
    let message = [head, block, vec![0, 2, b'o', b'k']].concat();
    let quote = Quote::decode(&message).unwrap();
    assert_eq!((quote.type_(), quote.price(), quote.match_()), (7, fixed(-5, -2), &b"ok"[..]));
    assert!((quote.version_() - 1.5).abs() < f32::EPSILON);
}

#[test]
fn a_cut_anywhere_is_an_error_that_names_the_field() {
    for message in [trades(3), best_bid_ask(), depth(4), instrument(0), instrument(2)] {
        for len in 0..message.len() {
            let error = AnyMessage::decode(&message[..len]).unwrap_err();
            assert!(error.at <= len && !error.field.is_empty(), "{error} at a cut to {len}");
            assert_eq!(error.fault, SbeFault::Short, "{error}");
        }
        fuzz::run(&message);
    }
    let error = BestBidAsk::decode(&best_bid_ask()[..30]).unwrap_err();
    let expected = SbeError { message: "BestBidAsk", field: "bidPrice", at: 30, fault: SbeFault::Short };
    assert_eq!(error, expected);
    assert_eq!(error.to_string(), "`bidPrice` of the binary message `BestBidAsk`, byte 30: the message ends before it");
}

#[test]
fn lengths_that_cannot_be_are_errors() {
    let mut narrow = best_bid_ask();
    narrow[0] = 40;
    let at = 8 + 34;
    let error = BestBidAsk::decode(&narrow).unwrap_err();
    assert_eq!(error, SbeError { message: "BestBidAsk", field: "askPrice", at, fault: SbeFault::BlockLength(40) });
    // A block of version 2 without room for the field of version 2.
    let mut narrow = instrument(2);
    narrow[0] = 60;
    let error = Instrument::decode(&narrow).unwrap_err();
    assert_eq!((error.field, error.fault), ("limit", SbeFault::BlockLength(60)));
    // Four billion entries.
    let mut many = depth(4);
    many[8 + 26 + 2..][..4].fill(0xFF);
    assert_eq!(
        DepthEvent::decode(&many).map_err(|error| (error.field, error.fault)).err(),
        Some(("bids", SbeFault::Short))
    );
    // Four billion entries without bytes.
    many[8 + 26..][..2].fill(0);
    let error = DepthEvent::decode(&many).unwrap_err();
    assert_eq!((error.field, error.fault), ("bids", SbeFault::EmptyEntries));
}

#[test]
fn other_messages_and_schemas_are_refused() {
    let message = best_bid_ask();
    assert_eq!(TradesEvent::decode(&message).unwrap_err().fault, SbeFault::Template(2));
    let mut other = message;
    other[2] = 99;
    assert!(matches!(AnyMessage::decode(&other), Ok(AnyMessage::Unlisted(header)) if header.template == 99));
    other[4] = 42;
    assert_eq!(AnyMessage::decode(&other).unwrap_err().fault, SbeFault::Schema(42));
}

#[test]
fn schemas_that_make_no_sense_are_refused_with_their_line() {
    let market = include_str!("../sbe/market.xml");
    for (from, to, line, reason) in [
        ("<types>", "<types", 5, "invalid name"),
        ("type=\"utcTimestampUs\"/>", "type=\"nothing\"/>", 58, "there is no type `nothing`"),
        (
            "primitiveType=\"uint16\" offset=\"2\"",
            "primitiveType=\"uint16\" offset=\"0\"",
            53,
            "lies in the field before it",
        ),
        ("name=\"buyerIsMaker\">0", "name=\"buyerIsMaker\">8", 48, "the number of a bit"),
        ("<validValue name=\"sell\">2", "<validValue name=\"sell\">1", 41, "is the same"),
        ("<validValue name=\"sell\">2", "<validValue name=\"sell\">256", 41, "is no value of its type"),
        ("valueRef=\"side.sell\"", "valueRef=\"side.none\"", 103, "no value `side.none`"),
        ("<ref name=\"phase\" type=\"phase\"/>", "<ref name=\"phase\" type=\"session\"/>", 51, "within each other"),
        ("name=\"eventTime\"", "name=\"event time\"", 58, "is no name of SBE"),
        ("name=\"transactTime\"", "name=\"event_time\"", 1, "taken already"),
        ("byteOrder=\"littleEndian\"", "byteOrder=\"middle\"", 3, "is no byte order"),
        ("id=\"2\">", "id=\"1\">", 1, "two messages have the id 1"),
        ("dimensionType=\"smallGroup\"", "dimensionType=\"decimal\"", 110, "has no unsigned integer `blockLength`"),
    ] {
        assert!(market.contains(from), "{from}");
        let error = generate(&market.replacen(from, to, 1)).unwrap_err();
        assert!(error.reason.contains(reason) && error.line == line, "{from}: {error}");
    }
}

proptest! {
    #[test]
    fn damaged_messages_are_read_or_refused(
        which in 0..6_usize,
        changes in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..6),
        more in proptest::collection::vec(any::<u8>(), 0..9),
    ) {
        let messages = [trades(5), best_bid_ask(), depth(6), instrument(0), instrument(2), instrument(3)];
        let mut message = [messages[which].clone(), more].concat();
        for (place, byte) in changes {
            let at = place.index(message.len());
            message[at] = byte;
        }
        fuzz::run(&message);
    }

    #[test]
    fn random_bytes_are_read_or_refused(template in 0..6_u16, version in 0..4_u16, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let len = u16::from(bytes.first().copied().unwrap_or(0));
        fuzz::run(&Bytes::default().u16(len).u16(template).u16(41).u16(version).be(&bytes).0);
    }
}

/// The binary messages of the simulated venue, which has an encoder of its own, say what its text says.
#[test]
fn the_simulated_venue_says_the_same_in_binary_and_in_text() {
    let mut venue = Venue::new(Setup::new(Kind::Binance, vec!["BTCUSDT".to_owned()]));
    let mut open = |link, path| {
        let access = Access { address: [127, 0, 0, 1].into(), path, query: "", has_key: true };
        venue.admit(&access, Duration::ZERO).unwrap();
        venue.open(link, &access, Duration::ZERO);
    };
    open(0, "/ws/btcusdt@trade/btcusdt@depth");
    open(1, "/sbe/ws/btcusdt@trade/btcusdt@depth");
    venue.advance(Duration::from_millis(400));
    let (mut texts, mut binaries) = (Vec::new(), Vec::new());
    while let Some(out) = venue.poll_out() {
        match out {
            Out::Message { payload: Payload::Text(text), .. } => {
                texts.push(serde_json::from_str::<serde_json::Value>(&text).unwrap());
            }
            Out::Message { payload: Payload::Binary(bytes), .. } => binaries.push(bytes),
            Out::Close { .. } => unreachable!(),
        }
    }
    assert!(texts.len() > 1000 && texts.len() == binaries.len());
    let decimal = |value: &serde_json::Value| Fixed::parse(value.as_str().unwrap().as_bytes()).unwrap();
    for (text, bytes) in texts.iter().zip(&binaries) {
        match AnyMessage::decode(bytes).unwrap() {
            AnyMessage::TradesEvent(event) => {
                let trade = event.trades().next().unwrap();
                assert_eq!((event.symbol(), &text["t"]), (&b"BTCUSDT"[..], &trade.id().into()));
                assert_eq!(decimal(&text["p"]).at(2), Some(trade.price()));
                assert_eq!(decimal(&text["q"]).at(4), Some(trade.quantity()));
                assert_eq!(text["m"], trade.flags().buyer_is_maker());
            }
            AnyMessage::DepthEvent(event) => {
                assert_eq!((&text["U"], &text["u"]), (&event.first_update_id().into(), &event.last_update_id().into()));
                let side = |name: &str| -> Vec<_> {
                    let pairs = text[name].as_array().unwrap().iter();
                    pairs.map(|pair| (decimal(&pair[0]).at(2), decimal(&pair[1]).at(4))).collect()
                };
                let bids = event.bids().map(|level| (Some(level.price()), Some(level.quantity())));
                let asks = event.asks().map(|level| (Some(level.price()), Some(level.quantity())));
                assert!(side("b").into_iter().eq(bids) && side("a").into_iter().eq(asks));
            }
            other => panic!("{other:?}"),
        }
    }
}
