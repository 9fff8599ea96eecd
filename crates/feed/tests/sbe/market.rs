// Views of the SBE schema `market`, number 41, version 2.
// Written by `tautline_feed::sbe::generate`: change the schema instead.

use ::tautline_feed::sbe;

/// Number of the schema.
pub const SCHEMA: u32 = 41;

/// The newest version of the schema that these views know.
pub const VERSION: u32 = 2;

const HEADER: sbe::HeaderLayout = sbe::HeaderLayout {
    name: "messageHeader",
    size: 8,
    block_length: sbe::Uint { at: 0, size: 2 },
    template: sbe::Uint { at: 2, size: 2 },
    schema: sbe::Uint { at: 4, size: 2 },
    version: sbe::Uint { at: 6, size: 2 },
    order: sbe::Order::Little,
};

/// Reads the header of a message of this schema.
fn header(bytes: &[u8]) -> Result<sbe::Header, sbe::SbeError> {
    let header = HEADER.read(bytes)?;
    if header.schema == SCHEMA {
        return Ok(header);
    }
    let fault = sbe::SbeFault::Schema(header.schema);
    Err(sbe::SbeError { message: HEADER.name, field: "schemaId", at: 4, fault })
}

/// Any message of the schema.
#[derive(Clone, Copy, Debug)]
pub enum AnyMessage<'a> {
    /// A message `TradesEvent`.
    TradesEvent(TradesEvent<'a>),
    /// A message `BestBidAsk`.
    BestBidAsk(BestBidAsk<'a>),
    /// A message `DepthEvent`.
    DepthEvent(DepthEvent<'a>),
    /// A message `Instrument`.
    Instrument(Instrument<'a>),
    /// The header of a message of a template that the schema does not have.
    Unlisted(sbe::Header),
}

impl<'a> AnyMessage<'a> {
    /// Reads a message of any template.
    ///
    /// # Errors
    /// If the message is cut, damaged or of another schema.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, sbe::SbeError> {
        let header = header(bytes)?;
        match header.template {
            TradesEvent::TEMPLATE => TradesEvent::read(bytes, &header).map(Self::TradesEvent),
            BestBidAsk::TEMPLATE => BestBidAsk::read(bytes, &header).map(Self::BestBidAsk),
            DepthEvent::TEMPLATE => DepthEvent::read(bytes, &header).map(Self::DepthEvent),
            Instrument::TEMPLATE => Instrument::read(bytes, &header).map(Self::Instrument),
            _ => Ok(Self::Unlisted(header)),
        }
    }
}

/// A view of one message `TradesEvent`.
#[derive(Clone, Copy, Debug)]
pub struct TradesEvent<'a> {
    base: &'a [u8; 18],
    trades: sbe::Entries<'a, TradesEventTrades<'a>>,
    symbol: &'a [u8],
    encoded_len: usize,
}

impl<'a> TradesEvent<'a> {
    /// Number of the message's template.
    pub const TEMPLATE: u32 = 1;

    /// Reads a message `TradesEvent`.
    ///
    /// # Errors
    /// If the message is cut, damaged, or another one.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, sbe::SbeError> {
        let header = header(bytes)?;
        if header.template == Self::TEMPLATE { return Self::read(bytes, &header); }
        let fault = sbe::SbeFault::Template(header.template);
        Err(sbe::SbeError { message: "TradesEvent", field: "templateId", at: 0, fault })
    }

    /// Bytes of the message, header included. Others may follow it.
    #[must_use]
    pub const fn encoded_len(&self) -> usize { self.encoded_len }

    fn read(bytes: &'a [u8], header: &sbe::Header) -> Result<Self, sbe::SbeError> {
        const FIELDS: &[sbe::Field] = &[            sbe::Field { name: "eventTime", since: 0, at: 0, end: 8 },
            sbe::Field { name: "transactTime", since: 0, at: 8, end: 16 },
            sbe::Field { name: "priceExponent", since: 0, at: 16, end: 17 },
            sbe::Field { name: "quantityExponent", since: 0, at: 17, end: 18 },
        ];
        const LATER: &[sbe::Field] = &[        ];
        let mut cursor = sbe::Cursor::new(bytes, "TradesEvent", &HEADER, header);
        let block_length = header.block_length;
        let (base, _) = cursor.block::<18>(block_length, FIELDS, LATER)?;
        let trades = sbe::Entries::read(&mut cursor, "trades", &sbe::Dimension { size: 6, block_length: sbe::Uint { at: 0, size: 2 }, count: sbe::Uint { at: 2, size: 4 } })?;
        let symbol: &[u8] = cursor.data("symbol", &sbe::DataLayout { length: sbe::Uint { at: 0, size: 1 }, at: 1 })?;
        Ok(Self { base, trades, symbol, encoded_len: cursor.offset() })
    }

    /// Field `eventTime`.
    #[must_use] #[inline]
    pub fn event_time(&self) -> i64 {
        i64::from_le_bytes(sbe::take(self.base, 0))
    }

    /// Field `transactTime`.
    #[must_use] #[inline]
    pub fn transact_time(&self) -> i64 {
        i64::from_le_bytes(sbe::take(self.base, 8))
    }

    /// Field `priceExponent`.
    #[must_use] #[inline]
    pub fn price_exponent(&self) -> i8 {
        i8::from_le_bytes(sbe::take(self.base, 16))
    }

    /// Field `quantityExponent`.
    #[must_use] #[inline]
    pub fn quantity_exponent(&self) -> i8 {
        i8::from_le_bytes(sbe::take(self.base, 17))
    }

    /// Entries of group `trades`.
    #[must_use] pub const fn trades(&self) -> sbe::Entries<'a, TradesEventTrades<'a>> { self.trades }

    /// Data `symbol`.
    #[must_use] pub const fn symbol(&self) -> &'a [u8] { self.symbol }

}

/// A view of one entry of group `trades`.
#[derive(Clone, Copy, Debug)]
pub struct TradesEventTrades<'a> {
    base: &'a [u8; 25],
    _message: core::marker::PhantomData<&'a [u8]>,
}

impl<'a> TradesEventTrades<'a> {
    /// Field `id`.
    #[must_use] #[inline]
    pub fn id(&self) -> i64 {
        i64::from_le_bytes(sbe::take(self.base, 0))
    }

    /// Field `price`.
    #[must_use] #[inline]
    pub fn price(&self) -> i64 {
        i64::from_le_bytes(sbe::take(self.base, 8))
    }

    /// Field `quantity`.
    #[must_use] #[inline]
    pub fn quantity(&self) -> i64 {
        i64::from_le_bytes(sbe::take(self.base, 16))
    }

    /// Field `flags`.
    #[must_use] #[inline]
    pub fn flags(&self) -> TradeFlags {
        TradeFlags(u8::from_le_bytes(sbe::take(self.base, 24)))
    }

}

impl<'a> sbe::Entry<'a> for TradesEventTrades<'a> {
    const IS_FLAT: bool = true;

    #[inline]
    fn read(cursor: &mut sbe::Cursor<'a>, block_length: u32) -> Result<Self, sbe::SbeError> {
        const FIELDS: &[sbe::Field] = &[            sbe::Field { name: "id", since: 0, at: 0, end: 8 },
            sbe::Field { name: "price", since: 0, at: 8, end: 16 },
            sbe::Field { name: "quantity", since: 0, at: 16, end: 24 },
            sbe::Field { name: "flags", since: 0, at: 24, end: 25 },
        ];
        const LATER: &[sbe::Field] = &[        ];
        let (base, _) = cursor.block::<25>(block_length, FIELDS, LATER)?;
        Ok(Self { base, _message: core::marker::PhantomData })
    }

}

/// A view of one message `BestBidAsk`.
#[derive(Clone, Copy, Debug)]
pub struct BestBidAsk<'a> {
    base: &'a [u8; 52],
    symbol: &'a [u8],
    encoded_len: usize,
}

impl<'a> BestBidAsk<'a> {
    /// Number of the message's template.
    pub const TEMPLATE: u32 = 2;

    /// Reads a message `BestBidAsk`.
    ///
    /// # Errors
    /// If the message is cut, damaged, or another one.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, sbe::SbeError> {
        let header = header(bytes)?;
        if header.template == Self::TEMPLATE { return Self::read(bytes, &header); }
        let fault = sbe::SbeFault::Template(header.template);
        Err(sbe::SbeError { message: "BestBidAsk", field: "templateId", at: 0, fault })
    }

    /// Bytes of the message, header included. Others may follow it.
    #[must_use]
    pub const fn encoded_len(&self) -> usize { self.encoded_len }

    fn read(bytes: &'a [u8], header: &sbe::Header) -> Result<Self, sbe::SbeError> {
        const FIELDS: &[sbe::Field] = &[            sbe::Field { name: "eventTime", since: 0, at: 0, end: 8 },
            sbe::Field { name: "updateId", since: 0, at: 8, end: 16 },
            sbe::Field { name: "bidPrice", since: 0, at: 16, end: 25 },
            sbe::Field { name: "bidQuantity", since: 0, at: 25, end: 34 },
            sbe::Field { name: "askPrice", since: 0, at: 34, end: 43 },
            sbe::Field { name: "askQuantity", since: 0, at: 43, end: 52 },
        ];
        const LATER: &[sbe::Field] = &[        ];
        let mut cursor = sbe::Cursor::new(bytes, "BestBidAsk", &HEADER, header);
        let block_length = header.block_length;
        let (base, _) = cursor.block::<52>(block_length, FIELDS, LATER)?;
        let symbol: &[u8] = cursor.data("symbol", &sbe::DataLayout { length: sbe::Uint { at: 0, size: 1 }, at: 1 })?;
        Ok(Self { base, symbol, encoded_len: cursor.offset() })
    }

    /// Field `eventTime`.
    #[must_use] #[inline]
    pub fn event_time(&self) -> i64 {
        i64::from_le_bytes(sbe::take(self.base, 0))
    }

    /// Field `updateId`.
    #[must_use] #[inline]
    pub fn update_id(&self) -> i64 {
        i64::from_le_bytes(sbe::take(self.base, 8))
    }

    /// Field `bidPrice`.
    #[must_use] #[inline]
    pub fn bid_price(&self) -> ::tautline_feed::number::Fixed {
        ::tautline_feed::number::Fixed { mantissa: i64::from_le_bytes(sbe::take(self.base, 16)), exponent: i8::from_le_bytes(sbe::take(self.base, 24)) }
    }

    /// Field `bidQuantity`.
    #[must_use] #[inline]
    pub fn bid_quantity(&self) -> ::tautline_feed::number::Fixed {
        ::tautline_feed::number::Fixed { mantissa: i64::from_le_bytes(sbe::take(self.base, 25)), exponent: i8::from_le_bytes(sbe::take(self.base, 33)) }
    }

    /// Field `askPrice`.
    #[must_use] #[inline]
    pub fn ask_price(&self) -> ::tautline_feed::number::Fixed {
        ::tautline_feed::number::Fixed { mantissa: i64::from_le_bytes(sbe::take(self.base, 34)), exponent: i8::from_le_bytes(sbe::take(self.base, 42)) }
    }

    /// Field `askQuantity`.
    #[must_use] #[inline]
    pub fn ask_quantity(&self) -> ::tautline_feed::number::Fixed {
        ::tautline_feed::number::Fixed { mantissa: i64::from_le_bytes(sbe::take(self.base, 43)), exponent: i8::from_le_bytes(sbe::take(self.base, 51)) }
    }

    /// Data `symbol`.
    #[must_use] pub const fn symbol(&self) -> &'a [u8] { self.symbol }

}

/// A view of one message `DepthEvent`.
#[derive(Clone, Copy, Debug)]
pub struct DepthEvent<'a> {
    base: &'a [u8; 26],
    bids: sbe::Entries<'a, DepthEventBids<'a>>,
    asks: sbe::Entries<'a, DepthEventAsks<'a>>,
    symbol: &'a [u8],
    encoded_len: usize,
}

impl<'a> DepthEvent<'a> {
    /// Number of the message's template.
    pub const TEMPLATE: u32 = 3;

    /// Reads a message `DepthEvent`.
    ///
    /// # Errors
    /// If the message is cut, damaged, or another one.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, sbe::SbeError> {
        let header = header(bytes)?;
        if header.template == Self::TEMPLATE { return Self::read(bytes, &header); }
        let fault = sbe::SbeFault::Template(header.template);
        Err(sbe::SbeError { message: "DepthEvent", field: "templateId", at: 0, fault })
    }

    /// Bytes of the message, header included. Others may follow it.
    #[must_use]
    pub const fn encoded_len(&self) -> usize { self.encoded_len }

    fn read(bytes: &'a [u8], header: &sbe::Header) -> Result<Self, sbe::SbeError> {
        const FIELDS: &[sbe::Field] = &[            sbe::Field { name: "eventTime", since: 0, at: 0, end: 8 },
            sbe::Field { name: "firstUpdateId", since: 0, at: 8, end: 16 },
            sbe::Field { name: "lastUpdateId", since: 0, at: 16, end: 24 },
            sbe::Field { name: "priceExponent", since: 0, at: 24, end: 25 },
            sbe::Field { name: "quantityExponent", since: 0, at: 25, end: 26 },
        ];
        const LATER: &[sbe::Field] = &[        ];
        let mut cursor = sbe::Cursor::new(bytes, "DepthEvent", &HEADER, header);
        let block_length = header.block_length;
        let (base, _) = cursor.block::<26>(block_length, FIELDS, LATER)?;
        let bids = sbe::Entries::read(&mut cursor, "bids", &sbe::Dimension { size: 6, block_length: sbe::Uint { at: 0, size: 2 }, count: sbe::Uint { at: 2, size: 4 } })?;
        let asks = sbe::Entries::read(&mut cursor, "asks", &sbe::Dimension { size: 6, block_length: sbe::Uint { at: 0, size: 2 }, count: sbe::Uint { at: 2, size: 4 } })?;
        let symbol: &[u8] = cursor.data("symbol", &sbe::DataLayout { length: sbe::Uint { at: 0, size: 1 }, at: 1 })?;
        Ok(Self { base, bids, asks, symbol, encoded_len: cursor.offset() })
    }

    /// Field `eventTime`.
    #[must_use] #[inline]
    pub fn event_time(&self) -> i64 {
        i64::from_le_bytes(sbe::take(self.base, 0))
    }

    /// Field `firstUpdateId`.
    #[must_use] #[inline]
    pub fn first_update_id(&self) -> i64 {
        i64::from_le_bytes(sbe::take(self.base, 8))
    }

    /// Field `lastUpdateId`.
    #[must_use] #[inline]
    pub fn last_update_id(&self) -> i64 {
        i64::from_le_bytes(sbe::take(self.base, 16))
    }

    /// Field `priceExponent`.
    #[must_use] #[inline]
    pub fn price_exponent(&self) -> i8 {
        i8::from_le_bytes(sbe::take(self.base, 24))
    }

    /// Field `quantityExponent`.
    #[must_use] #[inline]
    pub fn quantity_exponent(&self) -> i8 {
        i8::from_le_bytes(sbe::take(self.base, 25))
    }

    /// Entries of group `bids`.
    #[must_use] pub const fn bids(&self) -> sbe::Entries<'a, DepthEventBids<'a>> { self.bids }

    /// Entries of group `asks`.
    #[must_use] pub const fn asks(&self) -> sbe::Entries<'a, DepthEventAsks<'a>> { self.asks }

    /// Data `symbol`.
    #[must_use] pub const fn symbol(&self) -> &'a [u8] { self.symbol }

}

/// A view of one entry of group `bids`.
#[derive(Clone, Copy, Debug)]
pub struct DepthEventBids<'a> {
    base: &'a [u8; 16],
    _message: core::marker::PhantomData<&'a [u8]>,
}

impl<'a> DepthEventBids<'a> {
    /// Field `price`.
    #[must_use] #[inline]
    pub fn price(&self) -> i64 {
        i64::from_le_bytes(sbe::take(self.base, 0))
    }

    /// Field `quantity`.
    #[must_use] #[inline]
    pub fn quantity(&self) -> i64 {
        i64::from_le_bytes(sbe::take(self.base, 8))
    }

}

impl<'a> sbe::Entry<'a> for DepthEventBids<'a> {
    const IS_FLAT: bool = true;

    #[inline]
    fn read(cursor: &mut sbe::Cursor<'a>, block_length: u32) -> Result<Self, sbe::SbeError> {
        const FIELDS: &[sbe::Field] = &[            sbe::Field { name: "price", since: 0, at: 0, end: 8 },
            sbe::Field { name: "quantity", since: 0, at: 8, end: 16 },
        ];
        const LATER: &[sbe::Field] = &[        ];
        let (base, _) = cursor.block::<16>(block_length, FIELDS, LATER)?;
        Ok(Self { base, _message: core::marker::PhantomData })
    }

}

/// A view of one entry of group `asks`.
#[derive(Clone, Copy, Debug)]
pub struct DepthEventAsks<'a> {
    base: &'a [u8; 16],
    _message: core::marker::PhantomData<&'a [u8]>,
}

impl<'a> DepthEventAsks<'a> {
    /// Field `price`.
    #[must_use] #[inline]
    pub fn price(&self) -> i64 {
        i64::from_le_bytes(sbe::take(self.base, 0))
    }

    /// Field `quantity`.
    #[must_use] #[inline]
    pub fn quantity(&self) -> i64 {
        i64::from_le_bytes(sbe::take(self.base, 8))
    }

}

impl<'a> sbe::Entry<'a> for DepthEventAsks<'a> {
    const IS_FLAT: bool = true;

    #[inline]
    fn read(cursor: &mut sbe::Cursor<'a>, block_length: u32) -> Result<Self, sbe::SbeError> {
        const FIELDS: &[sbe::Field] = &[            sbe::Field { name: "price", since: 0, at: 0, end: 8 },
            sbe::Field { name: "quantity", since: 0, at: 8, end: 16 },
        ];
        const LATER: &[sbe::Field] = &[        ];
        let (base, _) = cursor.block::<16>(block_length, FIELDS, LATER)?;
        Ok(Self { base, _message: core::marker::PhantomData })
    }

}

/// A view of one message `Instrument`.
#[derive(Clone, Copy, Debug)]
pub struct Instrument<'a> {
    base: &'a [u8; 53],
    block: &'a [u8],
    version: u32,
    legs: sbe::Entries<'a, InstrumentLegs<'a>>,
    holidays: sbe::Entries<'a, InstrumentHolidays<'a>>,
    symbol: &'a [u8],
    note: &'a [u8],
    encoded_len: usize,
}

impl<'a> Instrument<'a> {
    /// Number of the message's template.
    pub const TEMPLATE: u32 = 4;

    /// Reads a message `Instrument`.
    ///
    /// # Errors
    /// If the message is cut, damaged, or another one.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, sbe::SbeError> {
        let header = header(bytes)?;
        if header.template == Self::TEMPLATE { return Self::read(bytes, &header); }
        let fault = sbe::SbeFault::Template(header.template);
        Err(sbe::SbeError { message: "Instrument", field: "templateId", at: 0, fault })
    }

    /// Bytes of the message, header included. Others may follow it.
    #[must_use]
    pub const fn encoded_len(&self) -> usize { self.encoded_len }

    fn read(bytes: &'a [u8], header: &sbe::Header) -> Result<Self, sbe::SbeError> {
        const FIELDS: &[sbe::Field] = &[            sbe::Field { name: "id", since: 0, at: 0, end: 4 },
            sbe::Field { name: "side", since: 0, at: 4, end: 5 },
            sbe::Field { name: "tickSize", since: 0, at: 5, end: 13 },
            sbe::Field { name: "parent", since: 0, at: 13, end: 21 },
            sbe::Field { name: "venue", since: 0, at: 21, end: 25 },
            sbe::Field { name: "counts", since: 0, at: 25, end: 31 },
            sbe::Field { name: "funding", since: 0, at: 31, end: 39 },
            sbe::Field { name: "session", since: 0, at: 39, end: 52 },
            sbe::Field { name: "lastSide", since: 0, at: 52, end: 53 },
        ];
        const LATER: &[sbe::Field] = &[            sbe::Field { name: "lot", since: 1, at: 53, end: 57 },
            sbe::Field { name: "limit", since: 2, at: 57, end: 65 },
        ];
        let mut cursor = sbe::Cursor::new(bytes, "Instrument", &HEADER, header);
        let block_length = header.block_length;
        let (base, block) = cursor.block::<53>(block_length, FIELDS, LATER)?;
        let legs = sbe::Entries::read(&mut cursor, "legs", &sbe::Dimension { size: 3, block_length: sbe::Uint { at: 0, size: 2 }, count: sbe::Uint { at: 2, size: 1 } })?;
        let holidays = if cursor.version() >= 2 { sbe::Entries::read(&mut cursor, "holidays", &sbe::Dimension { size: 3, block_length: sbe::Uint { at: 0, size: 2 }, count: sbe::Uint { at: 2, size: 1 } })? } else { sbe::Entries::absent(&cursor) };
        let symbol: &[u8] = cursor.data("symbol", &sbe::DataLayout { length: sbe::Uint { at: 0, size: 1 }, at: 1 })?;
        let note: &[u8] = if cursor.version() >= 2 { cursor.data("note", &sbe::DataLayout { length: sbe::Uint { at: 0, size: 1 }, at: 1 })? } else { &[] };
        Ok(Self { base, block, version: cursor.version(), legs, holidays, symbol, note, encoded_len: cursor.offset() })
    }

    /// Field `id`.
    #[must_use] #[inline]
    pub fn id(&self) -> u32 {
        u32::from_le_bytes(sbe::take(self.base, 0))
    }

    /// Field `side`.
    #[must_use] #[inline]
    pub fn side(&self) -> Side {
        Side::from_value(u8::from_le_bytes(sbe::take(self.base, 4)))
    }

    /// Field `tickSize`, if the message has a value.
    #[must_use] #[inline]
    pub fn tick_size(&self) -> Option<::tautline_feed::number::Fixed> {
        if i64::from_le_bytes(sbe::take(self.base, 5)) == -9223372036854775808 { return None; }
        Some(::tautline_feed::number::Fixed { mantissa: i64::from_le_bytes(sbe::take(self.base, 5)), exponent: -8 })
    }

    /// Field `parent`, if the message has a value.
    #[must_use] #[inline]
    pub fn parent(&self) -> Option<u64> {
        if u64::from_le_bytes(sbe::take(self.base, 13)) == 18446744073709551615 { return None; }
        Some(u64::from_le_bytes(sbe::take(self.base, 13)))
    }

    /// Field `venue`.
    #[must_use] #[inline]
    pub fn venue(&self) -> &'a [u8] {
        sbe::text::<4>(self.base, 21)
    }

    /// Field `currency`, which is constant.
    #[must_use]
    pub const fn currency(&self) -> &'static str {
        "USD"
    }

    /// Field `aggressor`, which is constant.
    #[must_use]
    pub const fn aggressor(&self) -> Side {
        Side::Sell
    }

    /// Field `counts`.
    #[must_use] #[inline]
    pub fn counts(&self) -> [u16; 3] {
        core::array::from_fn(|index| u16::from_le_bytes(sbe::take(self.base, 25 + 2 * index)))
    }

    /// Field `funding`, if the message has a value.
    #[must_use] #[inline]
    pub fn funding(&self) -> Option<f64> {
        if f64::from_le_bytes(sbe::take(self.base, 31)).is_nan() { return None; }
        Some(f64::from_le_bytes(sbe::take(self.base, 31)))
    }

    /// Field `session`.
    #[must_use] #[inline]
    pub fn session(&self) -> Session<'a> {
        Session { base: sbe::part(self.base, 39) }
    }

    /// Field `lastSide`, if the message has a value.
    #[must_use] #[inline]
    pub fn last_side(&self) -> Option<Side> {
        if u8::from_le_bytes(sbe::take(self.base, 52)) == 255 { return None; }
        Some(Side::from_value(u8::from_le_bytes(sbe::take(self.base, 52))))
    }

    /// Field `lot`, from version 1 on, if the message has a value.
    #[must_use] #[inline]
    pub fn lot(&self) -> Option<u32> {
        if self.version < 1 { return None; }
        Some(u32::from_le_bytes(sbe::take(self.block, 53)))
    }

    /// Field `limit`, from version 2 on, if the message has a value.
    #[must_use] #[inline]
    pub fn limit(&self) -> Option<u64> {
        if self.version < 2 { return None; }
        if u64::from_le_bytes(sbe::take(self.block, 57)) == 18446744073709551615 { return None; }
        Some(u64::from_le_bytes(sbe::take(self.block, 57)))
    }

    /// Entries of group `legs`.
    #[must_use] pub const fn legs(&self) -> sbe::Entries<'a, InstrumentLegs<'a>> { self.legs }

    /// Entries of group `holidays`, from version 2 on.
    #[must_use] pub const fn holidays(&self) -> sbe::Entries<'a, InstrumentHolidays<'a>> { self.holidays }

    /// Data `symbol`.
    #[must_use] pub const fn symbol(&self) -> &'a [u8] { self.symbol }

    /// Data `note`, from version 2 on.
    #[must_use] pub const fn note(&self) -> &'a [u8] { self.note }

}

/// A view of one entry of group `legs`.
#[derive(Clone, Copy, Debug)]
pub struct InstrumentLegs<'a> {
    base: &'a [u8; 4],
    block: &'a [u8],
    version: u32,
    fees: sbe::Entries<'a, InstrumentLegsFees<'a>>,
    name: &'a [u8],
    _message: core::marker::PhantomData<&'a [u8]>,
}

impl<'a> InstrumentLegs<'a> {
    /// Field `id`.
    #[must_use] #[inline]
    pub fn id(&self) -> u32 {
        u32::from_le_bytes(sbe::take(self.base, 0))
    }

    /// Field `weight`, from version 1 on, if the message has a value.
    #[must_use] #[inline]
    pub fn weight(&self) -> Option<i16> {
        if self.version < 1 { return None; }
        Some(i16::from_le_bytes(sbe::take(self.block, 4)))
    }

    /// Entries of group `fees`.
    #[must_use] pub const fn fees(&self) -> sbe::Entries<'a, InstrumentLegsFees<'a>> { self.fees }

    /// Data `name`.
    #[must_use] pub const fn name(&self) -> &'a [u8] { self.name }

}

impl<'a> sbe::Entry<'a> for InstrumentLegs<'a> {
    const IS_FLAT: bool = false;

    #[inline]
    fn read(cursor: &mut sbe::Cursor<'a>, block_length: u32) -> Result<Self, sbe::SbeError> {
        const FIELDS: &[sbe::Field] = &[            sbe::Field { name: "id", since: 0, at: 0, end: 4 },
        ];
        const LATER: &[sbe::Field] = &[            sbe::Field { name: "weight", since: 1, at: 4, end: 6 },
        ];
        let (base, block) = cursor.block::<4>(block_length, FIELDS, LATER)?;
        let fees = sbe::Entries::read(cursor, "fees", &sbe::Dimension { size: 3, block_length: sbe::Uint { at: 0, size: 2 }, count: sbe::Uint { at: 2, size: 1 } })?;
        let name: &[u8] = cursor.data("name", &sbe::DataLayout { length: sbe::Uint { at: 0, size: 1 }, at: 1 })?;
        Ok(Self { base, block, version: cursor.version(), fees, name, _message: core::marker::PhantomData })
    }

}

/// A view of one entry of group `fees`.
#[derive(Clone, Copy, Debug)]
pub struct InstrumentLegsFees<'a> {
    base: &'a [u8; 9],
    _message: core::marker::PhantomData<&'a [u8]>,
}

impl<'a> InstrumentLegsFees<'a> {
    /// Field `fee`.
    #[must_use] #[inline]
    pub fn fee(&self) -> ::tautline_feed::number::Fixed {
        ::tautline_feed::number::Fixed { mantissa: i64::from_le_bytes(sbe::take(self.base, 0)), exponent: i8::from_le_bytes(sbe::take(self.base, 8)) }
    }

}

impl<'a> sbe::Entry<'a> for InstrumentLegsFees<'a> {
    const IS_FLAT: bool = true;

    #[inline]
    fn read(cursor: &mut sbe::Cursor<'a>, block_length: u32) -> Result<Self, sbe::SbeError> {
        const FIELDS: &[sbe::Field] = &[            sbe::Field { name: "fee", since: 0, at: 0, end: 9 },
        ];
        const LATER: &[sbe::Field] = &[        ];
        let (base, _) = cursor.block::<9>(block_length, FIELDS, LATER)?;
        Ok(Self { base, _message: core::marker::PhantomData })
    }

}

/// A view of one entry of group `holidays`.
#[derive(Clone, Copy, Debug)]
pub struct InstrumentHolidays<'a> {
    base: &'a [u8; 2],
    _message: core::marker::PhantomData<&'a [u8]>,
}

impl<'a> InstrumentHolidays<'a> {
    /// Field `day`.
    #[must_use] #[inline]
    pub fn day(&self) -> u16 {
        u16::from_le_bytes(sbe::take(self.base, 0))
    }

}

impl<'a> sbe::Entry<'a> for InstrumentHolidays<'a> {
    const IS_FLAT: bool = true;

    #[inline]
    fn read(cursor: &mut sbe::Cursor<'a>, block_length: u32) -> Result<Self, sbe::SbeError> {
        const FIELDS: &[sbe::Field] = &[            sbe::Field { name: "day", since: 0, at: 0, end: 2 },
        ];
        const LATER: &[sbe::Field] = &[        ];
        let (base, _) = cursor.block::<2>(block_length, FIELDS, LATER)?;
        Ok(Self { base, _message: core::marker::PhantomData })
    }

}

/// A set `tradeFlags`, with one bit for each choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TradeFlags(pub u8);

impl TradeFlags {
    /// Whether the choice `buyerIsMaker` is made.
    #[must_use]
    pub const fn buyer_is_maker(self) -> bool {
        self.0 & 0x1 != 0
    }

    /// Whether the choice `isBestMatch` is made.
    #[must_use]
    pub const fn is_best_match(self) -> bool {
        self.0 & 0x8 != 0
    }

}

/// A value of the enum `side`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// `buy`.
    Buy,
    /// `sell`.
    Sell,
    /// A value that the schema does not list.
    Unlisted(u8),
}

impl Side {
    /// The value that stands for a number.
    #[must_use]
    pub const fn from_value(value: u8) -> Self {
        match value {
            1 => Self::Buy,
            2 => Self::Sell,
            _ => Self::Unlisted(value),
        }
    }
}

/// A value of the enum `phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// `OPEN`.
    Open,
    /// `HALT`.
    Halt,
    /// A value that the schema does not list.
    Unlisted(u8),
}

impl Phase {
    /// The value that stands for a number.
    #[must_use]
    pub const fn from_value(value: u8) -> Self {
        match value {
            79 => Self::Open,
            72 => Self::Halt,
            _ => Self::Unlisted(value),
        }
    }
}

/// A view of a composite `session`.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    base: &'a [u8; 13],
}

impl<'a> Session<'a> {
    /// Field `phase`.
    #[must_use] #[inline]
    pub fn phase(&self) -> Phase {
        Phase::from_value(u8::from_le_bytes(sbe::take(self.base, 0)))
    }

    /// Field `day`.
    #[must_use] #[inline]
    pub fn day(&self) -> u16 {
        u16::from_le_bytes(sbe::take(self.base, 2))
    }

    /// Field `reference`.
    #[must_use] #[inline]
    pub fn reference(&self) -> ::tautline_feed::number::Fixed {
        ::tautline_feed::number::Fixed { mantissa: i64::from_le_bytes(sbe::take(self.base, 4)), exponent: i8::from_le_bytes(sbe::take(self.base, 12)) }
    }

}

