use tautline_buf::Buf;
use tautline_tls::{Error, Handshake, Opened, TlsInfo, plain};
use tautline_tls_rustls::fused;

/// TLS or none, so that one type of socket does for both. The choice costs a branch per record.
#[expect(clippy::large_enum_variant, reason = "most connections have TLS, and one piece of memory is better than two")]
pub(crate) enum Session {
    Plain(plain::Session),
    Tls(fused::Session),
}

impl tautline_tls::Session for Session {
    fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        match self {
            Self::Plain(session) => session.handshake(wire, out),
            Self::Tls(session) => session.handshake(wire, out),
        }
    }

    fn open<'b>(&mut self, wire: &'b mut [u8], scratch: &'b mut Buf, out: &mut Buf) -> Result<Opened<'b>, Error> {
        match self {
            Self::Plain(session) => session.open(wire, scratch, out),
            Self::Tls(session) => session.open(wire, scratch, out),
        }
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        match self {
            Self::Plain(session) => session.seal(plain, out),
            Self::Tls(session) => session.seal(plain, out),
        }
    }

    fn update_keys(&mut self, ask: bool, out: &mut Buf) -> Result<(), Error> {
        match self {
            Self::Plain(session) => session.update_keys(ask, out),
            Self::Tls(session) => session.update_keys(ask, out),
        }
    }

    fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        match self {
            Self::Plain(session) => session.export_keying_material(label, context, out),
            Self::Tls(session) => session.export_keying_material(label, context, out),
        }
    }

    fn sent_alert(&self) -> Option<u8> {
        match self {
            Self::Plain(session) => session.sent_alert(),
            Self::Tls(session) => session.sent_alert(),
        }
    }

    fn close(&mut self, out: &mut Buf) {
        match self {
            Self::Plain(session) => session.close(out),
            Self::Tls(session) => session.close(out),
        }
    }

    fn tls_info(&self) -> TlsInfo {
        match self {
            Self::Plain(session) => session.tls_info(),
            Self::Tls(session) => session.tls_info(),
        }
    }
}
