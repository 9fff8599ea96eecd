//! Decoders of JSON: from a message to the trade, and to best bid and offer among its levels.

use crate::messages;
use crate::timing::{Decoder, compare};
use serde::Deserialize;
use simd_json::prelude::*;
use sonic_rs::{JsonValueTrait, LazyValue};
use tautline_feed::json::{JsonError, Scanner};
use tautline_feed::number::Fixed;

/// Decimals of prices and quantities.
const SCALE: u8 = 8;

fn units(text: &str) -> i64 {
    Fixed::parse(text.as_bytes()).unwrap().at(SCALE).unwrap()
}

/// Time, number, price, quantity, and whether the buyer was the maker.
pub type Trade = (u64, u64, i64, i64, bool);

#[derive(Deserialize)]
struct Combined<'a> {
    #[serde(borrow)]
    data: TradeFields<'a>,
}

#[derive(Deserialize)]
struct TradeFields<'a> {
    #[serde(rename = "T")]
    time: u64,
    t: u64,
    p: &'a str,
    q: &'a str,
    m: bool,
}

impl Combined<'_> {
    fn trade(&self) -> Trade {
        let data = &self.data;
        (data.time, data.t, units(data.p), units(data.q), data.m)
    }
}

pub fn our_trade(text: &[u8]) -> Result<Trade, JsonError> {
    let mut json = Scanner::new(text);
    let (mut time, mut id, mut price, mut quantity, mut is_maker) = (0, 0, Fixed::default(), Fixed::default(), false);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        if key != b"data" {
            json.skip()?;
            continue;
        }
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key {
                b"T" => time = json.u64()?,
                b"t" => id = json.u64()?,
                b"p" => price = json.fixed()?,
                b"q" => quantity = json.fixed()?,
                b"m" => is_maker = json.bool()?,
                _ => json.skip()?,
            }
        }
    }
    json.end()?;
    Ok((time, id, price.at(SCALE).unwrap(), quantity.at(SCALE).unwrap(), is_maker))
}

pub fn trades() {
    let decoders = [
        Decoder { name: "tautline-feed", decode: Box::new(|text| our_trade(text).unwrap()) },
        Decoder {
            name: "sonic-rs, struct",
            decode: Box::new(|text| sonic_rs::from_slice::<Combined<'_>>(text).unwrap().trade()),
        },
        Decoder {
            name: "serde_json, struct",
            decode: Box::new(|text| serde_json::from_slice::<Combined<'_>>(text).unwrap().trade()),
        },
        Decoder {
            name: "simd-json, struct",
            decode: Box::new(|text| {
                let mut text = text.to_vec();
                simd_json::from_slice::<Combined<'_>>(&mut text).unwrap().trade()
            }),
        },
        Decoder {
            name: "sonic-rs, lazy fields",
            decode: Box::new(|text| {
                let data = sonic_rs::get(text, ["data"]).unwrap();
                let (mut time, mut id, mut price, mut quantity, mut is_maker) = (0, 0, 0, 0, false);
                for field in sonic_rs::to_object_iter(data.as_raw_str()) {
                    let (key, value): (_, LazyValue<'_>) = field.unwrap();
                    match &*key {
                        "T" => time = value.as_u64().unwrap(),
                        "t" => id = value.as_u64().unwrap(),
                        "p" => price = units(value.as_str().unwrap()),
                        "q" => quantity = units(value.as_str().unwrap()),
                        "m" => is_maker = value.as_bool().unwrap(),
                        _ => {}
                    }
                }
                (time, id, price, quantity, is_maker)
            }),
        },
    ];
    compare("trade", &messages::trades(), &decoders);
}

/// First and last number, best bid and best offer.
pub type Best = (u64, u64, Option<i64>, Option<i64>);

#[derive(Deserialize)]
struct DepthFields<'a> {
    #[serde(rename = "U")]
    first: u64,
    u: u64,
    #[serde(borrow)]
    b: Vec<[&'a str; 2]>,
    a: Vec<[&'a str; 2]>,
}

impl DepthFields<'_> {
    fn best(&self) -> Best {
        let prices = |levels: &[[&str; 2]]| -> Vec<i64> {
            levels
                .iter()
                .map(|[price, quantity]| (units(price), units(quantity)))
                .filter(|level| level.1 > 0)
                .map(|level| level.0)
                .collect()
        };
        (self.first, self.u, prices(&self.b).into_iter().max(), prices(&self.a).into_iter().min())
    }
}

/// Reads the levels of a side, and folds the prices of those that stay.
fn levels(json: &mut Scanner<'_>, better: fn(i64, i64) -> i64) -> Result<Option<i64>, JsonError> {
    let mut best: Option<i64> = None;
    json.begin_array()?;
    while json.next_element()? {
        let level = [Fixed::default(); 2];
        let [price, quantity] = level_of(json, level)?;
        let (price, quantity) = (price.at(SCALE).unwrap(), quantity.at(SCALE).unwrap());
        if quantity > 0 {
            best = Some(best.map_or(price, |best| better(best, price)));
        }
    }
    Ok(best)
}

fn level_of(json: &mut Scanner<'_>, mut level: [Fixed; 2]) -> Result<[Fixed; 2], JsonError> {
    json.begin_array()?;
    let mut index = 0;
    while json.next_element()? {
        match level.get_mut(index) {
            Some(number) => *number = json.fixed()?,
            None => json.skip()?,
        }
        index += 1;
    }
    assert!(index >= 2);
    Ok(level)
}

pub fn our_depth(text: &[u8]) -> Result<Best, JsonError> {
    let mut json = Scanner::new(text);
    let (mut first, mut last, mut bid, mut ask) = (0, 0, None, None);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key {
            b"U" => first = json.u64()?,
            b"u" => last = json.u64()?,
            b"b" => bid = levels(&mut json, i64::max)?,
            b"a" => ask = levels(&mut json, i64::min)?,
            _ => json.skip()?,
        }
    }
    json.end()?;
    Ok((first, last, bid, ask))
}

fn lazy_side(side: &LazyValue<'_>) -> impl Iterator<Item = i64> {
    let levels: Vec<(i64, i64)> = sonic_rs::to_array_iter(side.as_raw_str())
        .map(|level| {
            let level = level.unwrap();
            let mut pair =
                sonic_rs::to_array_iter(level.as_raw_str()).map(|number| units(number.unwrap().as_str().unwrap()));
            (pair.next().unwrap(), pair.next().unwrap())
        })
        .collect();
    levels.into_iter().filter(|level| level.1 > 0).map(|level| level.0)
}

fn tape_side<'a>(side: simd_json::tape::Value<'a, 'a>) -> impl Iterator<Item = i64> + use<'a> {
    let text = |level: &simd_json::tape::Value<'a, 'a>, index| {
        let level = level.as_array().unwrap();
        units(level.get(index).unwrap().into_string().unwrap())
    };
    side.as_array()
        .unwrap()
        .iter()
        .map(move |level| (text(&level, 0), text(&level, 1)))
        .filter(|level| level.1 > 0)
        .map(|level| level.0)
        .collect::<Vec<_>>()
        .into_iter()
}

pub fn depths() {
    let decoders = [
        Decoder { name: "tautline-feed", decode: Box::new(|text| our_depth(text).unwrap()) },
        Decoder {
            name: "sonic-rs, struct",
            decode: Box::new(|text| sonic_rs::from_slice::<DepthFields<'_>>(text).unwrap().best()),
        },
        Decoder {
            name: "serde_json, struct",
            decode: Box::new(|text| serde_json::from_slice::<DepthFields<'_>>(text).unwrap().best()),
        },
        Decoder {
            name: "simd-json, struct",
            decode: Box::new(|text| {
                let mut text = text.to_vec();
                simd_json::from_slice::<DepthFields<'_>>(&mut text).unwrap().best()
            }),
        },
        Decoder {
            name: "simd-json, tape",
            decode: Box::new(|text| {
                let mut text = text.to_vec();
                let tape = simd_json::to_tape(&mut text).unwrap();
                let value = tape.as_value();
                let field = |name| value.get(name).unwrap();
                let number = |name| field(name).as_u64().unwrap();
                (number("U"), number("u"), tape_side(field("b")).max(), tape_side(field("a")).min())
            }),
        },
        Decoder {
            name: "sonic-rs, lazy fields",
            decode: Box::new(|text| {
                let (mut first, mut last, mut bid, mut ask) = (0, 0, None, None);
                for field in sonic_rs::to_object_iter(text) {
                    let (key, value): (_, LazyValue<'_>) = field.unwrap();
                    match &*key {
                        "U" => first = value.as_u64().unwrap(),
                        "u" => last = value.as_u64().unwrap(),
                        "b" => bid = lazy_side(&value).max(),
                        "a" => ask = lazy_side(&value).min(),
                        _ => {}
                    }
                }
                (first, last, bid, ask)
            }),
        },
    ];
    compare("depth", &messages::depths(), &decoders);
}
