/// Something that came or went on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// When it did, in nanoseconds of the recorder's clock, such as those since 1970.
    pub at: u64,
    /// The application's number of the connection.
    pub connection: u32,
    /// Which way it went.
    pub direction: Direction,
    /// The kind of event.
    pub kind: Kind,
    /// The bytes of the message, without a frame around them. Events without any have none.
    pub payload: &'a [u8],
}

/// The way of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the venue to the program.
    In,
    /// From the program to the venue.
    Out,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The connection opened. The payload may have its URL.
    Opened,
    /// A message of text.
    Text,
    /// A message of binary data.
    Binary,
    /// A ping.
    Ping,
    /// A pong.
    Pong,
    /// The connection ended. The payload may have the reason.
    Closed,
    /// The body of an HTTP request or response, such as a snapshot.
    Http,
    /// Events that could not be recorded. [`Event::lost`] has their number.
    Lost,
    /// A kind that the application has, or a later version of this crate: its number is 8 to 127.
    Other(u8),
}

impl Event<'_> {
    /// The number of events that are missing here, if this event tells of it.
    #[must_use]
    pub fn lost(&self) -> Option<u64> {
        let count = self.payload.try_into().ok().map(u64::from_le_bytes);
        count.filter(|_| self.kind == Kind::Lost)
    }
}

/// The kinds with a name, by their numbers in a file.
const NAMED: [Kind; 8] =
    [Kind::Opened, Kind::Text, Kind::Binary, Kind::Ping, Kind::Pong, Kind::Closed, Kind::Http, Kind::Lost];

impl Kind {
    /// Its number in a file, of 7 bits.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Other(number) => number & 0x7F,
            named => (0..).zip(NAMED).find(|(_, one)| *one == named).map_or(0, |(number, _)| number),
        }
    }

    pub(super) fn from_number(number: u8) -> Self {
        let number = number & 0x7F;
        NAMED.get(usize::from(number)).copied().unwrap_or(Self::Other(number))
    }
}
