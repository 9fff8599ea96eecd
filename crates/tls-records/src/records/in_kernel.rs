use tautline_buf::kernel_tls::Direction;

/// The directions whose records the kernel seals or opens, as a set of bits.
#[derive(Clone, Copy, Default)]
pub(super) struct InKernel(u8);

impl InKernel {
    const TRANSMIT: u8 = 1;
    const RECEIVE: u8 = 2;
    /// The kernel accepts new keys.
    const REKEYS: u8 = 4;

    pub(super) const fn add(&mut self, direction: Direction, rekeys: bool) {
        self.0 |= match direction {
            Direction::Transmit => Self::TRANSMIT,
            Direction::Receive => Self::RECEIVE,
        };
        if rekeys {
            self.0 |= Self::REKEYS;
        }
    }

    pub(super) const fn transmits(self) -> bool {
        self.0 & Self::TRANSMIT != 0
    }

    pub(super) const fn receives(self) -> bool {
        self.0 & Self::RECEIVE != 0
    }

    pub(super) const fn rekeys(self) -> bool {
        self.0 & Self::REKEYS != 0
    }
}
