use tautline_buf::Buf;
use tautline_io::{Driver, Token};
use tautline_tls::{Error, Helpers, Session, TlsInfo};

/// The sending part of a [`Session`], as an object-safe trait.
///
/// A virtual call per record costs less than a copy of the outbound code for each engine.
pub(crate) trait Sealer {
    fn is_passthrough(&self) -> bool;
    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error>;
    fn seal_with(&mut self, plain: &[&[u8]], out: &mut Buf, helpers: &dyn Helpers) -> Result<(), Error>;
    fn close(&mut self, out: &mut Buf);
    fn tls_info(&self) -> TlsInfo;
    /// Passes the session's later traffic keys to the kernel, if there are any.
    fn pass_keys(&mut self, driver: &mut dyn Driver, token: Token);
}

impl<S: Session> Sealer for S {
    fn is_passthrough(&self) -> bool {
        S::PASSTHROUGH
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        Session::seal(self, plain, out)
    }

    fn seal_with(&mut self, plain: &[&[u8]], out: &mut Buf, helpers: &dyn Helpers) -> Result<(), Error> {
        Session::seal_with(self, plain, out, helpers)
    }

    fn close(&mut self, out: &mut Buf) {
        Session::close(self, out);
    }

    fn tls_info(&self) -> TlsInfo {
        Session::tls_info(self)
    }

    fn pass_keys(&mut self, driver: &mut dyn Driver, token: Token) {
        while let Some(keys) = self.next_kernel_keys() {
            if let Err(error) = driver.give_keys(token, keys) {
                log::error!("cannot pass later keys to the kernel: {error}");
            }
        }
    }
}
