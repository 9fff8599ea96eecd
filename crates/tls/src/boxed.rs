use crate::alert::Alert;
use crate::{Error, Handshake, Helpers, Opened, Session, TlsInfo};
use tautline_buf::Buf;
use tautline_buf::kernel_tls::{Direction, TrafficKeys};

/// A session behind a virtual call for each record: one type for connections with TLS and without.
impl<S: Session + ?Sized> Session for Box<S> {
    fn is_plain(&self) -> bool {
        (**self).is_plain()
    }

    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        (**self).handshake(wire, out)
    }

    fn open(&mut self, wire: &mut [u8], scratch: &mut Buf, out: &mut Buf) -> Result<Opened, Error> {
        (**self).open(wire, scratch, out)
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        (**self).seal(plain, out)
    }

    fn seal_with(&mut self, plain: &[&[u8]], out: &mut Buf, helpers: &dyn Helpers) -> Result<(), Error> {
        (**self).seal_with(plain, out, helpers)
    }

    fn seal_into(&mut self, plain: &[&[u8]], out: &mut [u8]) -> Result<Option<usize>, Error> {
        (**self).seal_into(plain, out)
    }

    fn update_keys(&mut self, ask: bool, out: &mut Buf) -> Result<(), Error> {
        (**self).update_keys(ask, out)
    }

    fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        (**self).export_keying_material(label, context, out)
    }

    fn sent_alert(&self) -> Option<Alert> {
        (**self).sent_alert()
    }

    fn close(&mut self, out: &mut Buf) {
        (**self).close(out);
    }

    fn tls_info(&self) -> TlsInfo {
        (**self).tls_info()
    }

    fn save(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        (**self).save(out)
    }

    fn kernel_keys(&self, direction: Direction) -> Option<TrafficKeys> {
        (**self).kernel_keys(direction)
    }

    fn kernel_took(&mut self, direction: Direction, rekeys: bool) {
        (**self).kernel_took(direction, rekeys);
    }

    fn next_kernel_keys(&mut self) -> Option<TrafficKeys> {
        (**self).next_kernel_keys()
    }

    fn is_kernel_worn_out(&self) -> bool {
        (**self).is_kernel_worn_out()
    }
}
