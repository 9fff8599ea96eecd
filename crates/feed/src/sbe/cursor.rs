use super::error::{SbeError, SbeFault};

/// The order of the bytes of a schema's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The lowest byte comes first.
    Little,
    /// The highest byte comes first.
    Big,
}

/// An unsigned integer within a header: its offset, and its size of 1, 2, 4 or 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uint {
    /// Offset from the first byte of the header.
    pub at: usize,
    /// Size in bytes.
    pub size: usize,
}

/// The parts of the header of all messages of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderLayout {
    /// The name of the composite.
    pub name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// `blockLength`.
    pub block_length: Uint,
    /// `templateId`.
    pub template: Uint,
    /// `schemaId`.
    pub schema: Uint,
    /// `version`.
    pub version: Uint,
    /// The order of their bytes.
    pub order: Order,
}

/// The header of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the message's first block.
    pub block_length: u32,
    /// Number of the message's template.
    pub template: u32,
    /// Number of its schema.
    pub schema: u32,
    /// Version of the schema that its sender has.
    pub version: u32,
}

/// The parts of the header of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    /// Size in bytes.
    pub size: usize,
    /// `blockLength`, the length of one entry without the groups and data in it.
    pub block_length: Uint,
    /// `numInGroup`, the number of entries.
    pub count: Uint,
}

/// The length before data of any length, and where the data begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataLayout {
    /// `length`.
    pub length: Uint,
    /// Offset of the data.
    pub at: usize,
}

/// A field of a block: what an error says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in the schema.
    pub name: &'static str,
    /// The first version that has it.
    pub since: u32,
    /// Offset in its block.
    pub at: usize,
    /// Offset behind it.
    pub end: usize,
}

/// A place in a message, for generated code that reads its blocks, groups and data in order.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    version: u32,
    order: Order,
    message: &'static str,
}

impl HeaderLayout {
    /// Reads the header of a message.
    ///
    /// # Errors
    /// If the message is shorter.
    #[inline]
    pub fn read(&self, bytes: &[u8]) -> Result<Header, SbeError> {
        let part = |part: Uint| number(bytes, 0, part, self.order).and_then(|value| u32::try_from(value).ok());
        let read = || {
            Some(Header {
                block_length: part(self.block_length)?,
                template: part(self.template)?,
                schema: part(self.schema)?,
                version: part(self.version)?,
            })
        };
        match read() {
            Some(header) if bytes.len() >= self.size => Ok(header),
            _ => Err(SbeError { message: self.name, field: self.name, at: bytes.len(), fault: SbeFault::Short }),
        }
    }
}

impl<'a> Cursor<'a> {
    /// Begins behind the header of a message.
    #[must_use]
    #[inline]
    pub const fn new(bytes: &'a [u8], message: &'static str, layout: &HeaderLayout, header: &Header) -> Self {
        Self { bytes, at: layout.size, version: header.version, order: layout.order, message }
    }

    /// Offset from the first byte of the header.
    #[must_use]
    #[inline]
    pub const fn offset(&self) -> usize {
        self.at
    }

    /// The version of the schema that the message's sender has.
    #[must_use]
    #[inline]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// Reads a block of a length that the message gives. Returns the part that every version has, and the whole.
    ///
    /// # Errors
    /// If the message ends within the block, or a field of the message's version has no room in it.
    #[inline]
    pub fn block<const N: usize>(
        &mut self,
        len: u32,
        fields: &'static [Field],
        later: &'static [Field],
    ) -> Result<(&'a [u8; N], &'a [u8]), SbeError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(block) = rest.get(..len as usize) else { return Err(self.short(fields, later, rest.len())) };
        let Some(base) = block.first_chunk() else { return Err(self.narrow(fields, later, len)) };
        if later.iter().any(|field| field.since <= self.version && field.end > block.len()) {
            return Err(self.narrow(fields, later, len));
        }
        self.at += block.len();
        Ok((base, block))
    }

    /// Reads the header of a group: the length of an entry's block, and the number of entries.
    ///
    /// # Errors
    /// If the message ends within it, or it promises entries without bytes.
    #[inline]
    pub fn dimension(&mut self, name: &'static str, layout: &Dimension) -> Result<(u32, u32), SbeError> {
        let part = |part| number(self.bytes, self.at, part, self.order).and_then(|value| u32::try_from(value).ok());
        let (Some(len), Some(count)) = (part(layout.block_length), part(layout.count)) else {
            return Err(self.wrong(name, self.at, SbeFault::Short));
        };
        self.at += layout.size;
        if self.at > self.bytes.len() {
            return Err(self.wrong(name, self.bytes.len(), SbeFault::Short));
        }
        Ok((len, count))
    }

    /// Passes entries that have no groups and no data in them.
    ///
    /// # Errors
    /// If the message ends before the last one does, or they have no bytes.
    #[inline]
    pub(super) fn pass(&mut self, name: &'static str, len: u32, count: u32) -> Result<(), SbeError> {
        if len == 0 && count > 0 {
            return Err(self.wrong(name, self.at, SbeFault::EmptyEntries));
        }
        let all = u64::from(len) * u64::from(count);
        let left = self.bytes.len().saturating_sub(self.at);
        match usize::try_from(all) {
            Ok(all) if all <= left => self.at += all,
            _ => return Err(self.wrong(name, self.bytes.len(), SbeFault::Short)),
        }
        Ok(())
    }

    /// Reads data of any length.
    ///
    /// # Errors
    /// If the message ends before the data do.
    #[inline]
    pub fn data(&mut self, name: &'static str, layout: &DataLayout) -> Result<&'a [u8], SbeError> {
        let read = || {
            let len = usize::try_from(number(self.bytes, self.at, layout.length, self.order)?).ok()?;
            self.bytes.get(self.at.checked_add(layout.at)?..)?.get(..len)
        };
        let Some(data) = read() else { return Err(self.wrong(name, self.at, SbeFault::Short)) };
        self.at += layout.at + data.len();
        Ok(data)
    }

    #[cold]
    pub(super) const fn wrong(&self, field: &'static str, at: usize, fault: SbeFault) -> SbeError {
        SbeError { message: self.message, field, at, fault }
    }

    /// The error of a message that ends within a block.
    #[cold]
    fn short(&self, fields: &'static [Field], later: &'static [Field], left: usize) -> SbeError {
        let mut all = fields.iter().chain(later);
        let field = all.find(|field| field.end > left).map_or("block", |field| field.name);
        self.wrong(field, self.bytes.len(), SbeFault::Short)
    }

    /// The error of a block in which a field of its version has no room.
    #[cold]
    fn narrow(&self, fields: &'static [Field], later: &'static [Field], len: u32) -> SbeError {
        let mut all = fields.iter().chain(later.iter().filter(|field| field.since <= self.version));
        let field = all.find(|field| field.end > len as usize);
        let (name, at) = field.map_or(("block", 0), |field| (field.name, field.at));
        self.wrong(name, self.at + at, SbeFault::BlockLength(len))
    }
}

/// Bytes of a block at an offset that lies within it. Bytes behind its end would be zeros.
#[must_use]
#[inline(always)]
pub fn take<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
    block.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

/// The bytes of a composite at an offset that lies within a block.
#[must_use]
#[inline(always)]
pub fn part<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block.get(at..).and_then(<[u8]>::first_chunk).unwrap_or(const { &[0; N] })
}

/// A text of a fixed size at an offset that lies within a block, without the zeros that fill it up.
#[must_use]
#[inline]
pub fn text<const N: usize>(block: &[u8], at: usize) -> &[u8] {
    let whole = part::<N>(block, at);
    whole.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// An unsigned integer of a header that begins at an offset of the message.
#[inline]
fn number(bytes: &[u8], start: usize, part: Uint, order: Order) -> Option<u64> {
    let at = start.checked_add(part.at)?;
    let bytes = bytes.get(at..at.checked_add(part.size)?)?;
    let value = match (order, bytes.len()) {
        (_, 1) => u64::from(take::<1>(bytes, 0)[0]),
        (Order::Little, 2) => u64::from(u16::from_le_bytes(take(bytes, 0))),
        (Order::Little, 4) => u64::from(u32::from_le_bytes(take(bytes, 0))),
        (Order::Little, _) => u64::from_le_bytes(take(bytes, 0)),
        (Order::Big, 2) => u64::from(u16::from_be_bytes(take(bytes, 0))),
        (Order::Big, 4) => u64::from(u32::from_be_bytes(take(bytes, 0))),
        (Order::Big, _) => u64::from_be_bytes(take(bytes, 0)),
    };
    Some(value)
}
