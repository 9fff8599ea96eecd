//! The interface to C as an [`Engine`] with [`Session`]s, for the tests that are written for those traits.
//!
//! Every step is a call that a C program could make.
#![allow(dead_code, reason = "each test program uses a part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "runs inside tests, which fail by panicking")]

use core::ffi::{CStr, c_char};
use std::ffi::CString;
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use tautline_buf::Buf;
use tautline_capi::sys::*;
use tautline_tls::alert::Alert;
use tautline_tls::{
    Capabilities, CipherSuite, ClientAuth, ClientConfig, Content, Engine, Error, Handshake, KeyExchange, NO_EXPORTER,
    NamedGroup, Opened, PeerCertificates, Plain, ProtocolVersion, Roots, ServerConfig, Session, Tickets, TlsInfo,
    Verify, Versions,
};

/// An error of the interface as one of the traits'.
pub(crate) fn error(code: Code, text: &str, alert: i32) -> Error {
    let text = text.split_once(": ").map_or(text, |(_, text)| text).to_owned();
    match code {
        TAUT_ERR_CONFIG => Error::Config(text),
        TAUT_ERR_PEER => Error::Peer(text),
        TAUT_ERR_ALERT => Error::Alert(Alert(u8::try_from(alert).unwrap())),
        TAUT_ERR_CERTIFICATE => Error::Certificate(text),
        TAUT_ERR_LIBRARY | TAUT_ERR_INTERNAL => Error::Library(text),
        _ => Error::ApiMisuse("a call that does not fit"),
    }
}

/// Calls a function of a configuration, with an error to fill.
pub(crate) fn call(function: impl FnOnce(*mut ErrorDetail) -> Code) -> Result<(), Error> {
    let mut text = [0_u8; 512];
    // SAFETY: all fields may be zero.
    let mut detail: ErrorDetail = unsafe { zeroed() };
    detail.size = size_of::<ErrorDetail>();
    detail.text = text.as_mut_ptr().cast();
    detail.room = text.len();
    let code = function(&raw mut detail);
    assert_eq!(code, detail.code);
    if code == TAUT_OK {
        Ok(())
    } else {
        Err(error(code, CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap(), detail.alert))
    }
}

/// A configuration, released on drop.
pub(crate) struct Config(pub(crate) *const TlsConfig);

// SAFETY: the interface permits all calls on a configuration from all threads.
unsafe impl Send for Config {}
// SAFETY: as above.
unsafe impl Sync for Config {}

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: the reference is given up.
        unsafe { taut_tls_config_release(self.0) };
    }
}

impl Config {
    pub(crate) fn new(role: u32, engine: &str) -> Result<Self, Error> {
        let name = CString::new(engine).unwrap();
        let mut made = Self(null());
        // SAFETY: valid pointers.
        call(|error| unsafe { taut_tls_config_new(role, name.as_ptr(), &raw mut made.0, error) })?;
        Ok(made)
    }

    pub(crate) fn apply(&self) -> Result<(), Error> {
        // SAFETY: a configuration.
        call(|error| unsafe { taut_tls_config_apply(self.0, error) })
    }

    pub(crate) fn set(&self, option: u32, value: u64) -> Result<(), Error> {
        // SAFETY: a configuration.
        call(|error| unsafe { taut_tls_config_set(self.0, option, value, error) })
    }

    fn certificate(&self, given: &tautline_tls::Certificate) -> Result<(), Error> {
        let name = CString::new(given.name.as_str()).unwrap();
        let certificate = CertificatePem {
            size: size_of::<CertificatePem>(),
            chain: slice(&given.chain),
            key: slice(&given.key),
            ocsp: slice(&given.ocsp),
            name: name.as_ptr(),
        };
        // SAFETY: valid pointers.
        call(|error| unsafe { taut_tls_config_certificate(self.0, &raw const certificate, error) })
    }

    fn versions(&self, versions: Versions) -> Result<(), Error> {
        let number = match versions {
            Versions::Tls12 => 12,
            Versions::Tls13 => 13,
            _ => 0,
        };
        self.set(TAUT_OPTION_VERSIONS, number)
    }

    fn alpn(&self, names: &[Vec<u8>]) -> Result<(), Error> {
        let names: Vec<Slice> = names.iter().map(|name| slice(name)).collect();
        // SAFETY: valid pointers.
        call(|error| unsafe { taut_tls_config_alpn(self.0, names.as_ptr(), names.len(), error) })
    }

    fn verify(&self, verify: Option<&Arc<dyn Verify>>) -> Result<(), Error> {
        let Some(verify) = verify else { return Ok(()) };
        let user = Box::into_raw(Box::new(Arc::clone(verify))).cast();
        // SAFETY: the callback takes this pointer, and the other function frees it.
        call(|error| unsafe { taut_tls_config_verify(self.0, Some(decide), user, Some(forget), error) })
    }

    pub(crate) fn fill_server(&self, config: &ServerConfig) -> Result<(), Error> {
        // SAFETY: a configuration.
        call(|error| unsafe { taut_tls_config_reset(self.0, error) })?;
        config.certificates.iter().try_for_each(|certificate| self.certificate(certificate))?;
        let (demand, roots) = match &config.client_auth {
            ClientAuth::Required(roots) => (TAUT_CLIENT_AUTH_REQUIRED, &roots[..]),
            ClientAuth::Optional(roots) => (TAUT_CLIENT_AUTH_OPTIONAL, &roots[..]),
            _ => (TAUT_CLIENT_AUTH_NONE, &[][..]),
        };
        // SAFETY: valid pointers.
        call(|error| unsafe { taut_tls_config_client_auth(self.0, demand, roots.as_ptr(), roots.len(), error) })?;
        self.alpn(&config.alpn)?;
        self.versions(config.versions)?;
        match &config.tickets {
            Tickets::Off => self.set(TAUT_OPTION_TICKETS, 0)?,
            Tickets::Own { rotate } => self.set(TAUT_OPTION_TICKETS, rotate.as_secs())?,
            Tickets::Fleet { epoch, source } => {
                let secrets = source.secrets()?;
                let (secret, epoch) = (secrets[0].bytes(), epoch.as_secs());
                // SAFETY: valid pointers.
                call(|error| unsafe {
                    taut_tls_config_ticket_secret(self.0, secret.as_ptr(), secret.len(), epoch, error)
                })?;
            }
            _ => panic!("tickets that are unknown here"),
        }
        self.set(TAUT_OPTION_TICKETS_PER_HANDSHAKE, config.tickets_per_handshake.into())?;
        self.set(TAUT_OPTION_KEY_LOG, config.key_log.into())?;
        self.set(TAUT_OPTION_EXPORTER, config.exporter.into())?;
        self.verify(config.verify.as_ref())
    }

    pub(crate) fn fill_client(&self, config: &ClientConfig) -> Result<(), Error> {
        match &config.roots {
            Roots::Pem(pem) => {
                // SAFETY: valid pointers.
                call(|error| unsafe { taut_tls_config_roots(self.0, pem.as_ptr(), pem.len(), error) })?;
            }
            // SAFETY: a configuration.
            Roots::DangerNone => call(|error| unsafe { taut_tls_config_danger_no_roots(self.0, error) })?,
            _ => {}
        }
        config.certificate.as_ref().map_or(Ok(()), |certificate| self.certificate(certificate))?;
        self.alpn(&config.alpn)?;
        self.versions(config.versions)?;
        self.set(TAUT_OPTION_RESUMPTION, (!config.no_resumption).into())?;
        self.set(TAUT_OPTION_POST_QUANTUM, (config.key_exchange == KeyExchange::All).into())?;
        self.set(TAUT_OPTION_KEY_LOG, config.key_log.into())?;
        self.set(TAUT_OPTION_EXPORTER, config.exporter.into())?;
        self.verify(config.verify.as_ref())
    }
}

pub(crate) fn slice(bytes: &[u8]) -> Slice {
    Slice { data: bytes.as_ptr(), len: bytes.len() }
}

pub(crate) fn window(bytes: &mut [u8]) -> Window {
    Window { data: bytes.as_mut_ptr(), len: bytes.len() }
}

pub(crate) fn io() -> TlsIo {
    // SAFETY: all fields may be zero.
    let mut io: TlsIo = unsafe { zeroed() };
    io.size = size_of::<TlsIo>();
    io
}

/// The callback of [`Config::verify`].
unsafe extern "C" fn decide(user: *mut core::ffi::c_void, peer: *const TlsPeer) -> u32 {
    // SAFETY: the interface passes the pointer of `verify`, and a peer that lives during the call.
    let verify = unsafe { &*user.cast::<Arc<dyn Verify>>() };
    // SAFETY: as above.
    let peer = unsafe { &*peer };
    // SAFETY: the slices live during the call.
    let bytes = |slice: &Slice| unsafe { core::slice::from_raw_parts(slice.data, slice.len) };
    // SAFETY: as above.
    let chain = unsafe { core::slice::from_raw_parts(peer.certificates, peer.certificates_count) };
    let chain: Vec<&[u8]> = chain.iter().map(bytes).collect();
    let host = core::str::from_utf8(bytes(&peer.host)).unwrap();
    let reason = core::str::from_utf8(bytes(&peer.reason)).unwrap();
    let rejected = (peer.accepted == 0).then(|| Error::Certificate(reason.to_owned()));
    let peer = PeerCertificates::new(&chain, (!host.is_empty()).then_some(host), rejected.as_ref());
    match verify.verify(&peer) {
        Ok(()) => TAUT_ACCEPT,
        Err(_) => TAUT_REJECT,
    }
}

unsafe extern "C" fn forget(user: *mut core::ffi::c_void) {
    // SAFETY: `Config::verify` made this pointer, and this is its last use.
    drop(unsafe { Box::from_raw(user.cast::<Arc<dyn Verify>>()) });
}

/// The interface as an engine. `IN_PLACE` leaves plaintext where its records were.
#[derive(Clone)]
pub(crate) struct CEngine<const IN_PLACE: bool> {
    config: Arc<Config>,
    is_server: bool,
    can: &'static Capabilities,
}

impl<const IN_PLACE: bool> CEngine<IN_PLACE> {
    pub(crate) fn new(
        can: &'static Capabilities,
        server: Option<&ServerConfig>,
        client: Option<&ClientConfig>,
    ) -> Result<Self, Error> {
        let is_server = server.is_some();
        let config = Config::new(if is_server { TAUT_SERVER } else { TAUT_CLIENT }, can.engine)?;
        server.map_or(Ok(()), |server| config.fill_server(server))?;
        client.map_or(Ok(()), |client| config.fill_client(client))?;
        config.apply()?;
        Ok(Self { config: Arc::new(config), is_server, can })
    }

    fn session(&self, host: *const c_char) -> Result<CSession<IN_PLACE>, Error> {
        let mut session = CSession { tls: null_mut(), checks: true };
        // SAFETY: valid pointers.
        call(|error| unsafe { taut_tls_new(self.config.0, host, &raw mut session.tls, error) })?;
        Ok(session)
    }
}

impl<const IN_PLACE: bool> Engine for CEngine<IN_PLACE> {
    type Session = CSession<IN_PLACE>;

    fn capabilities(&self) -> &'static Capabilities {
        self.can
    }

    fn accept(&self) -> Result<Self::Session, Error> {
        if !self.is_server {
            return Err(Error::ApiMisuse("for servers"));
        }
        self.session(null())
    }

    fn connect(&self, host: &str) -> Result<Self::Session, Error> {
        if self.is_server {
            return Err(Error::ApiMisuse("for clients"));
        }
        self.session(CString::new(host).unwrap().as_ptr())
    }

    fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        // Two threads that fill one configuration at the same time would mix their settings.
        static RELOADING: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _one = RELOADING.lock().unwrap();
        self.config.fill_server(config)?;
        self.config.apply()
    }
}

/// A session of the interface. It frees the session on drop.
pub(crate) struct CSession<const IN_PLACE: bool> {
    pub(crate) tls: *mut TlsSession,
    /// Every window is large enough, and the counters must say so.
    pub(crate) checks: bool,
}

// SAFETY: any thread may use a session.
unsafe impl<const IN_PLACE: bool> Send for CSession<IN_PLACE> {}

impl<const IN_PLACE: bool> CSession<IN_PLACE> {
    /// Makes one call and appends its output to `out`.
    fn run(
        &self,
        io: &mut TlsIo,
        out: &mut Buf,
        room: usize,
        function: unsafe extern "C" fn(*mut TlsSession, *mut TlsIo) -> Code,
    ) -> Result<(), Error> {
        io.out = window(&mut out.reserve(room)[..room]);
        // SAFETY: a session, and windows of this call.
        let code = unsafe { function(self.tls, &raw mut *io) };
        out.commit(io.written);
        if code == TAUT_OK { Ok(()) } else { Err(self.error(code)) }
    }

    fn error(&self, code: Code) -> Error {
        let mut found = Ok(());
        if ![TAUT_ERR_STATE, TAUT_ERR_FAILED].contains(&code) {
            found = call(|error| {
                // SAFETY: a session, and the error of `call`.
                assert_eq!(unsafe { taut_tls_error(self.tls, error) }, TAUT_OK);
                // SAFETY: as above.
                unsafe { (*error).code }
            });
        }
        found.err().unwrap_or_else(|| error(code, "", -1))
    }

    pub(crate) fn counters(&self) -> (u64, u64) {
        let mut counters = TlsCounters { size: size_of::<TlsCounters>(), spills: 0, carries: 0 };
        // SAFETY: valid pointers.
        assert_eq!(unsafe { taut_tls_get_counters(self.tls, &raw mut counters) }, TAUT_OK);
        (counters.spills, counters.carries)
    }
}

impl<const IN_PLACE: bool> Drop for CSession<IN_PLACE> {
    fn drop(&mut self) {
        if !self.tls.is_null() {
            assert!(!self.checks || std::thread::panicking() || self.counters() == (0, 0), "no window was too small");
            // SAFETY: a session, used for the last time.
            assert_eq!(unsafe { taut_tls_free(self.tls) }, TAUT_OK);
        }
    }
}

/// Room for the largest flight of a handshake.
const FLIGHT: usize = 64 << 10;

impl<const IN_PLACE: bool> Session for CSession<IN_PLACE> {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        let mut io = io();
        io.r#in = window(wire);
        self.run(&mut io, out, FLIGHT, taut_tls_handshake)?;
        match io.want {
            TAUT_WANT_NONE => Ok((io.taken, Handshake::Complete)),
            TAUT_WANT_READ => Ok((io.taken, Handshake::Pending)),
            other => panic!("{other}"),
        }
    }

    fn open(&mut self, wire: &mut [u8], scratch: &mut Buf, out: &mut Buf) -> Result<Opened, Error> {
        scratch.clear();
        let mut io = io();
        io.max_records = 1;
        io.r#in = window(wire);
        io.plain = if IN_PLACE { io.r#in } else { window(&mut scratch.reserve(16_384)[..16_384]) };
        self.run(&mut io, out, 1024, taut_tls_open)?;
        assert_eq!((io.plain_waiting, io.out_waiting), (0, 0));
        let plain = io.plain_offset..io.plain_offset + io.plain_len;
        let content = if io.want == TAUT_WANT_CLOSED {
            Content::Closed
        } else if io.records == 0 {
            assert_eq!(io.want, TAUT_WANT_READ);
            Content::Partial
        } else if io.plain_len == 0 {
            Content::Control
        } else if IN_PLACE {
            Content::Data(Plain::in_wire(plain))
        } else {
            scratch.commit(io.plain_len);
            Content::Data(Plain::in_scratch(io.plain_len))
        };
        Ok(Opened { used: io.taken, content })
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        let slices: Vec<Slice> = plain.iter().map(|chunk| slice(chunk)).collect();
        let len: usize = plain.iter().map(|chunk| chunk.len()).sum();
        let mut io = io();
        (io.data, io.data_count) = (slices.as_ptr(), slices.len());
        // A KeyUpdate that is due needs a little more than the header file's formula.
        self.run(&mut io, out, len + len.div_ceil(16_384) * 30 + 64, taut_tls_seal)?;
        assert_eq!((io.taken, io.want), (len, TAUT_WANT_NONE));
        Ok(())
    }

    fn update_keys(&mut self, ask: bool, out: &mut Buf) -> Result<(), Error> {
        let mut io = io();
        io.out = window(&mut out.reserve(64)[..64]);
        // SAFETY: a session, and windows of this call.
        let code = unsafe { taut_tls_key_update(self.tls, ask.into(), &raw mut io) };
        out.commit(io.written);
        if code == TAUT_OK { Ok(()) } else { Err(self.error(code)) }
    }

    fn close(&mut self, out: &mut Buf) {
        let _ = self.run(&mut io(), out, 128, taut_tls_close);
    }

    fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let (label, context, out) = (slice(label), slice(context), window(out));
        // SAFETY: valid pointers.
        let code =
            unsafe { taut_tls_export(self.tls, label.data, label.len, context.data, context.len, out.data, out.len) };
        if code == TAUT_OK { Ok(()) } else { Err(NO_EXPORTER) }
    }

    fn sent_alert(&self) -> Option<Alert> {
        // SAFETY: all fields may be zero.
        let mut detail: ErrorDetail = unsafe { zeroed() };
        detail.size = size_of::<ErrorDetail>();
        // SAFETY: valid pointers.
        assert_eq!(unsafe { taut_tls_error(self.tls, &raw mut detail) }, TAUT_OK);
        u8::try_from(detail.alert).ok().map(Alert)
    }

    fn tls_info(&self) -> TlsInfo {
        // SAFETY: all fields may be zero.
        let mut facts: TlsFacts = unsafe { zeroed() };
        facts.size = size_of::<TlsFacts>();
        // SAFETY: valid pointers.
        assert_eq!(unsafe { taut_tls_get_facts(self.tls, &raw mut facts) }, TAUT_OK);
        let text = |text: &[c_char]| {
            let bytes: Vec<u8> = text.iter().map(|&byte| byte.cast_unsigned()).take_while(|&byte| byte != 0).collect();
            String::from_utf8(bytes).unwrap()
        };
        let certificate = |number| {
            let mut len = 0;
            let null = null_mut();
            // SAFETY: valid pointers.
            let code = unsafe { taut_tls_peer_certificate(self.tls, number, null, 0, &raw mut len) };
            assert_eq!(code, TAUT_ERR_SIZE);
            let mut der = vec![0; len];
            // SAFETY: as above.
            let code = unsafe { taut_tls_peer_certificate(self.tls, number, der.as_mut_ptr(), len, &raw mut len) };
            assert_eq!(code, TAUT_OK);
            der
        };
        let mut info = TlsInfo::default();
        info.version = ProtocolVersion::from_name(&text(&facts.version));
        info.suite = CipherSuite::from_name(&text(&facts.suite));
        info.group = NamedGroup::from_name(&text(&facts.group));
        info.alpn = (facts.alpn_len > 0).then(|| facts.alpn[..facts.alpn_len].to_vec());
        info.server_name = Some(text(&facts.server_name)).filter(|name| !name.is_empty());
        info.resumed = facts.resumed == 1;
        info.peer_certificates = (0..facts.peer_certificates).map(certificate).collect();
        info
    }
}
