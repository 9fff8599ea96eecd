use tautline_buf::kernel_tls::Direction;
use tautline_io::KernelTls;

/// Which directions of a connection go to the kernel: a set of flags in one byte, since there may be many connections.
#[derive(Clone, Copy, Default)]
pub(crate) struct Handover(u8);

impl Handover {
    /// Sending is to go to the kernel.
    pub(crate) const TRANSMIT: u8 = 1;
    /// Receiving is to go to the kernel.
    pub(crate) const RECEIVE: u8 = 2;
    /// Receiving is to go to the kernel too, if the kernel can replace keys.
    const RECEIVE_IF_REKEYS: u8 = 4;
    /// Sending is with the kernel.
    pub(crate) const TRANSMITS: u8 = 8;
    /// Receiving is with the kernel.
    const RECEIVES: u8 = 16;

    pub(crate) const fn new(wanted: KernelTls) -> Self {
        Self(match wanted {
            KernelTls::Off => 0,
            KernelTls::Auto => Self::TRANSMIT | Self::RECEIVE_IF_REKEYS,
            KernelTls::Transmit => Self::TRANSMIT,
            KernelTls::Receive => Self::RECEIVE,
            KernelTls::Both => Self::TRANSMIT | Self::RECEIVE,
        })
    }

    /// Whether there is anything to do or to watch.
    pub(crate) const fn is_active(self) -> bool {
        self.0 != 0
    }

    /// Whether a direction is with the kernel, which may need further keys for it.
    pub(crate) const fn in_kernel(self) -> bool {
        self.has(Self::TRANSMITS | Self::RECEIVES)
    }

    pub(crate) const fn has(self, what: u8) -> bool {
        self.0 & what != 0
    }

    /// The kernel took the keys of `direction`. `rekeys` if it can replace them later.
    pub(crate) const fn took(&mut self, direction: Direction, rekeys: bool) {
        match direction {
            Direction::Transmit => self.0 = self.0 & !Self::TRANSMIT | Self::TRANSMITS,
            Direction::Receive => self.0 = self.0 & !Self::RECEIVE | Self::RECEIVES,
        }
        if self.has(Self::RECEIVE_IF_REKEYS) {
            self.0 &= !Self::RECEIVE_IF_REKEYS;
            if rekeys {
                self.0 |= Self::RECEIVE;
            }
        }
    }

    /// The kernel or the driver refused keys: no further direction goes to the kernel.
    pub(crate) const fn refused(&mut self) {
        self.0 &= Self::TRANSMITS | Self::RECEIVES;
    }
}
