// Views of the SBE schema `big`, number 7, version 0.
// Written by `tautline_feed::sbe::generate`: change the schema instead.

use ::tautline_feed::sbe;

/// Number of the schema.
pub const SCHEMA: u32 = 7;

/// The newest version of the schema that these views know.
pub const VERSION: u32 = 0;

const HEADER: sbe::HeaderLayout = sbe::HeaderLayout {
    name: "head",
    size: 8,
    block_length: sbe::Uint { at: 1, size: 4 },
    template: sbe::Uint { at: 5, size: 2 },
    schema: sbe::Uint { at: 7, size: 1 },
    version: sbe::Uint { at: 0, size: 1 },
    order: sbe::Order::Big,
};

/// Reads the header of a message of this schema.
fn header(bytes: &[u8]) -> Result<sbe::Header, sbe::SbeError> {
    let header = HEADER.read(bytes)?;
    if header.schema == SCHEMA {
        return Ok(header);
    }
    let fault = sbe::SbeFault::Schema(header.schema);
    Err(sbe::SbeError { message: HEADER.name, field: "schemaId", at: 7, fault })
}

/// Any message of the schema.
#[derive(Clone, Copy, Debug)]
pub enum AnyMessage<'a> {
    /// A message `quote`.
    Quote(Quote<'a>),
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
            Quote::TEMPLATE => Quote::read(bytes, &header).map(Self::Quote),
            _ => Ok(Self::Unlisted(header)),
        }
    }
}

/// A view of one message `quote`.
#[derive(Clone, Copy, Debug)]
pub struct Quote<'a> {
    base: &'a [u8; 13],
    match_: &'a [u8],
    encoded_len: usize,
}

impl<'a> Quote<'a> {
    /// Number of the message's template.
    pub const TEMPLATE: u32 = 300;

    /// Reads a message `quote`.
    ///
    /// # Errors
    /// If the message is cut, damaged, or another one.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, sbe::SbeError> {
        let header = header(bytes)?;
        if header.template == Self::TEMPLATE { return Self::read(bytes, &header); }
        let fault = sbe::SbeFault::Template(header.template);
        Err(sbe::SbeError { message: "quote", field: "templateId", at: 0, fault })
    }

    /// Bytes of the message, header included. Others may follow it.
    #[must_use]
    pub const fn encoded_len(&self) -> usize { self.encoded_len }

    fn read(bytes: &'a [u8], header: &sbe::Header) -> Result<Self, sbe::SbeError> {
        const FIELDS: &[sbe::Field] = &[            sbe::Field { name: "type", since: 0, at: 0, end: 2 },
            sbe::Field { name: "price", since: 0, at: 4, end: 9 },
            sbe::Field { name: "version", since: 0, at: 9, end: 13 },
        ];
        const LATER: &[sbe::Field] = &[        ];
        let mut cursor = sbe::Cursor::new(bytes, "quote", &HEADER, header);
        let block_length = header.block_length;
        let (base, _) = cursor.block::<13>(block_length, FIELDS, LATER)?;
        let match_: &[u8] = cursor.data("match", &sbe::DataLayout { length: sbe::Uint { at: 0, size: 2 }, at: 2 })?;
        Ok(Self { base, match_, encoded_len: cursor.offset() })
    }

    /// Field `type`.
    #[must_use] #[inline]
    pub fn type_(&self) -> u16 {
        u16::from_be_bytes(sbe::take(self.base, 0))
    }

    /// Field `price`.
    #[must_use] #[inline]
    pub fn price(&self) -> ::tautline_feed::number::Fixed {
        ::tautline_feed::number::Fixed { mantissa: i64::from(i32::from_be_bytes(sbe::take(self.base, 4))), exponent: i8::from_be_bytes(sbe::take(self.base, 8)) }
    }

    /// Field `version`.
    #[must_use] #[inline]
    pub fn version_(&self) -> f32 {
        f32::from_be_bytes(sbe::take(self.base, 9))
    }

    /// Data `match`.
    #[must_use] pub const fn match_(&self) -> &'a [u8] { self.match_ }

}

