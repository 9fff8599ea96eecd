use crate::connection::Tickets;
use crate::error::describe;
use crate::secret_log::Secrets;
use crate::session::Exported;
use rustls::ConnectionTrafficSecrets;
use tautline_buf::Buf;
use tautline_tls::alert::Alert;
use tautline_tls::{Error, Handshake, Opened, TlsInfo};
use tautline_tls_records::{self as records, CompactTlsInfo, Keys, Records, Role, Suite};

/// rustls' part of a connection: the handshake, and the records of TLS 1.2.
pub struct Handshaking {
    role: Role,
    session: crate::session::Session,
    logged: Secrets,
}

impl Handshaking {
    pub(super) fn new(role: Role, session: crate::session::Session) -> Self {
        Self { role, session, logged: Secrets::default() }
    }
}

impl tautline_tls::Session for Handshaking {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        Secrets::discard();
        let progress = self.session.handshake(wire, out);
        self.logged.collect();
        progress
    }

    fn open(&mut self, wire: &mut [u8], scratch: &mut Buf, out: &mut Buf) -> Result<Opened, Error> {
        self.session.open(wire, scratch, out)
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        self.session.seal(plain, out)
    }

    fn sent_alert(&self) -> Option<Alert> {
        self.session.sent_alert()
    }

    fn close(&mut self, out: &mut Buf) {
        self.session.close(out);
    }

    fn tls_info(&self) -> TlsInfo {
        self.session.tls_info()
    }
}

impl records::Library for Handshaking {
    fn is_ready(&self) -> bool {
        self.session.is_open_tls13()
    }

    fn into_records(self: Box<Self>, _out: &mut Buf) -> Result<Records, Error> {
        let Self { role, session, logged } = *self;
        let Exported { info, exporter, secrets, tickets } = session.into_keys()?;
        let (theirs, ours) = match role {
            Role::Server => (logged.client, logged.server),
            Role::Client => (logged.server, logged.client),
        };
        let (Some(theirs), Some(ours)) = (theirs, ours) else {
            return Err(Error::Library("rustls did not log the traffic secrets".to_owned()));
        };
        let (suite, key, iv) = parts(&secrets.rx.1)?;
        let rx = Keys::new(suite, theirs, key, iv, secrets.rx.0)?;
        let (suite, key, iv) = parts(&secrets.tx.1)?;
        let tx = Keys::new(suite, ours, key, iv, secrets.tx.0)?;
        let tickets = tickets.map(|tickets| Box::new(tickets) as Box<dyn records::Tickets>);
        let info = CompactTlsInfo::new(suite, info).with_exporter(exporter);
        Ok(Records::new(role, suite, (rx, tx), info, tickets))
    }
}

impl records::Tickets for Tickets {
    fn take(&mut self, body: &[u8]) -> Result<(), (Alert, Error)> {
        self.0.handle_new_session_ticket(body).map_err(|error| {
            let alert = match error {
                rustls::Error::InvalidMessage(_) => Alert::DECODE_ERROR,
                _ => Alert::ILLEGAL_PARAMETER,
            };
            (alert, describe(&error))
        })
    }
}

/// The suite, key and IV in rustls' secrets.
fn parts(secrets: &ConnectionTrafficSecrets) -> Result<(Suite, &[u8], &[u8]), Error> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => Ok((Suite::Aes128Gcm, key.as_ref(), iv.as_ref())),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => Ok((Suite::Aes256Gcm, key.as_ref(), iv.as_ref())),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            Ok((Suite::Chacha20Poly1305, key.as_ref(), iv.as_ref()))
        }
        _ => Err(Error::Library("rustls negotiated a cipher that is unknown here".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::{ALL_CIPHER_SUITES, ALL_KX_GROUPS};
    use tautline_tls::alert::Alert;
    use tautline_tls::{CipherSuite, NamedGroup};

    #[test]
    fn suites_and_groups_of_rustls_have_names() {
        for suite in ALL_CIPHER_SUITES {
            let name = format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
            assert_eq!(CipherSuite::from_name(&name), Some(CipherSuite::from(u16::from(suite.suite()))));
        }
        for group in ALL_KX_GROUPS {
            let name = format!("{:?}", group.name());
            assert_eq!(NamedGroup::from_name(&name), Some(NamedGroup::from(u16::from(group.name()))));
        }
    }

    #[test]
    fn alerts_of_rustls_have_names() {
        for code in 0..=u8::MAX {
            let is_known = !format!("{:?}", rustls::AlertDescription::from(code)).contains('(');
            assert_eq!(is_known, Alert(code).name().is_some(), "{code}");
        }
    }
}
