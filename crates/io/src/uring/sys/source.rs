use super::buffer_ring::Chunk;
use crate::Token;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use tautline_buf::Buf;

/// Indices of connections, listeners and sends stay below this.
pub(in crate::uring) const MAX_INDEX: u32 = 1 << 28;

/// The purpose of a request, as kept in its user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::uring) enum Source {
    Receive(Token),
    /// Reports errors on a connection that is not received from.
    Watch(Token),
    Connect(Token),
    Accept {
        listener: u32,
        generation: u32,
    },
    Send(u32),
    Wake,
    Cancel,
}

impl Source {
    pub(super) fn data(self) -> u64 {
        let (kind, index, generation) = match self {
            Self::Receive(token) => (0, token.index, token.generation),
            Self::Watch(token) => (1, token.index, token.generation),
            Self::Connect(token) => (2, token.index, token.generation),
            Self::Accept { listener, generation } => (3, listener, generation),
            Self::Send(number) => (4, number, 0),
            Self::Wake => (5, 0, 0),
            Self::Cancel => (6, 0, 0),
        };
        u64::from(generation) << 32 | kind << 28 | u64::from(index)
    }

    #[cfg(test)]
    pub(super) const fn call(self) -> crate::faults::Call {
        use crate::faults::Call;
        match self {
            Self::Receive(_) => Call::ReceiveRequest,
            Self::Accept { .. } => Call::AcceptRequest,
            Self::Send(_) => Call::SendRequest,
            Self::Watch(_) | Self::Connect(_) | Self::Wake | Self::Cancel => Call::PollRequest,
        }
    }

    pub(super) fn of(data: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = data.to_le_bytes();
        let low = u32::from_le_bytes([a, b, c, d]);
        let (index, generation) = (low & (MAX_INDEX - 1), u32::from_le_bytes([e, f, g, h]));
        let token = Token { index, generation };
        match low >> 28 {
            0 => Self::Receive(token),
            1 => Self::Watch(token),
            2 => Self::Connect(token),
            3 => Self::Accept { listener: index, generation },
            4 => Self::Send(index),
            5 => Self::Wake,
            _ => Self::Cancel,
        }
    }
}

/// One completion.
pub(in crate::uring) struct Completion<'r> {
    pub(in crate::uring) source: Source,
    pub(in crate::uring) result: Result<u32, Errno>,
    /// The request goes on.
    pub(in crate::uring) more: bool,
    pub(in crate::uring) with: With<'r>,
}

/// The payload of a [`Completion`].
pub(in crate::uring) enum With<'r> {
    Nothing,
    Chunk(Chunk<'r>),
    Accepted(OwnedFd),
    Sent(Token, Buf),
}
