//! Every engine that is built in against every other, both ways: what of the suite concerns two ends.

use crate::libraries;
use tautline::layers::tls::{self, ClientConfig, Content, Error, Facts, Handshake, Opened, ServerConfig};
use tautline::layers::tls_libssl::{Engine, Flavour, fused};
use tautline::layers::tls_rustls::{Engine as Rustls, fused::Engine as Fused};
use tautline::layers::window::Buf;
use tautline_testkit::conformance;

/// One engine to accept with, another to connect with.
#[derive(Clone)]
struct Mixed<S, C> {
    server: S,
    client: C,
    /// Whose configuration it was given: what one end cannot do is asked by its name.
    is_server: bool,
}

/// A session of either.
enum Either<S, C> {
    Server(S),
    Client(C),
}

impl<S: tls::Engine, C: tls::Engine> tls::Engine for Mixed<S, C> {
    type Session = Either<S::Session, C::Session>;

    fn name(&self) -> &'static str {
        if self.is_server { self.server.name() } else { self.client.name() }
    }

    fn accept(&self) -> Result<Self::Session, Error> {
        self.server.accept().map(Either::Server)
    }

    fn connect(&self, host: &str) -> Result<Self::Session, Error> {
        self.client.connect(host).map(Either::Client)
    }
}

impl<S: tls::Session, C: tls::Session> tls::Session for Either<S, C> {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        match self {
            Self::Server(session) => session.handshake(wire, out),
            Self::Client(session) => session.handshake(wire, out),
        }
    }

    fn open<'b>(&mut self, wire: &'b mut [u8], scratch: &'b mut Buf, out: &mut Buf) -> Result<Opened<'b>, Error> {
        let Opened { used, content } = match self {
            Self::Server(session) => session.open(wire, scratch, out)?,
            Self::Client(session) => session.open(wire, scratch, out)?,
        };
        if let Content::Partial = content {
            assert_eq!(used, 0);
        }
        Ok(Opened { used, content })
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        match self {
            Self::Server(session) => session.seal(plain, out),
            Self::Client(session) => session.seal(plain, out),
        }
    }

    fn close(&mut self, out: &mut Buf) {
        match self {
            Self::Server(session) => session.close(out),
            Self::Client(session) => session.close(out),
        }
    }

    fn facts(&self) -> Facts {
        match self {
            Self::Server(session) => session.facts(),
            Self::Client(session) => session.facts(),
        }
    }
}

/// Makes the engine that accepts by one function and the engine that connects by another.
fn mixed<S, C>(
    server: impl Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<S, Error>,
    client: impl Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<C, Error>,
) -> impl Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<Mixed<S, C>, Error> {
    move |server_config, client_config| {
        let is_server = server_config.is_some();
        Ok(Mixed { server: server(server_config, None)?, client: client(None, client_config)?, is_server })
    }
}

/// An engine of this library.
fn libssl(flavour: Flavour) -> impl Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<Engine, Error> {
    move |server, client| Engine::new(flavour, server, client)
}

/// The same with records of our own.
fn fused(flavour: Flavour) -> impl Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<fused::Engine, Error> {
    move |server, client| fused::Engine::new(flavour, server, client)
}

/// Whether this server does not understand why this client refuses its certificate: OpenSSL sends that alert of TLS 1.3
/// unprotected, which others do not accept. They refuse the client then, as they must, with other words.
fn is_deaf(server: Flavour, client: Flavour) -> bool {
    client.name() == "openssl" && matches!(server.name(), "aws-lc" | "boringssl" | "libressl" | "mbedtls" | "wolfssl")
}

/// Tests of the suite, each with all pairs. An engine without a configuration for a role has that role refused, so what
/// needs both roles of one engine stays in `conformance.rs`.
macro_rules! every_pair {
    ($($test:ident)+) => {
        $(
            #[test]
            fn $test() {
                for flavour in libraries() {
                    eprintln!("{flavour} accepts, fused connects");
                    conformance::$test(mixed(libssl(flavour), Fused::new));
                    eprintln!("fused accepts, {flavour} connects");
                    conformance::$test(mixed(Fused::new, libssl(flavour)));
                    eprintln!("{flavour} accepts, rustls connects");
                    conformance::$test(mixed(libssl(flavour), Rustls::new));
                    eprintln!("rustls accepts, {flavour} connects");
                    conformance::$test(mixed(Rustls::new, libssl(flavour)));
                    for other in libraries() {
                        let is_deaf = |server, client| {
                            stringify!($test) == "server_certificates_that_are_refused" && is_deaf(server, client)
                        };
                        if flavour != other && !is_deaf(flavour, other) {
                            eprintln!("{flavour} accepts, {other} connects");
                            conformance::$test(mixed(libssl(flavour), libssl(other)));
                        }
                        if flavour.fused_name().is_some() && !is_deaf(flavour, other) {
                            eprintln!("fused+{flavour} accepts, {other} connects");
                            conformance::$test(mixed(fused(flavour), libssl(other)));
                        }
                        if flavour.fused_name().is_some() && !is_deaf(other, flavour) {
                            eprintln!("{other} accepts, fused+{flavour} connects");
                            conformance::$test(mixed(libssl(other), fused(flavour)));
                        }
                    }
                    if flavour.fused_name().is_some() {
                        eprintln!("fused+{flavour} accepts, fused connects");
                        conformance::$test(mixed(fused(flavour), Fused::new));
                        eprintln!("fused accepts, fused+{flavour} connects");
                        conformance::$test(mixed(Fused::new, fused(flavour)));
                        eprintln!("fused+{flavour} accepts, rustls connects");
                        conformance::$test(mixed(fused(flavour), Rustls::new));
                        eprintln!("rustls accepts, fused+{flavour} connects");
                        conformance::$test(mixed(Rustls::new, fused(flavour)));
                    }
                }
            }
        )+
    };
}

every_pair! {
    every_key_and_version versions_without_common_ground splits data_behind_finished resumption
    resumption_is_off_where_told tickets_are_for_one_server fleets_share_their_tickets names_choose_certificates key_types_stand_side_by_side
    client_certificates client_certificates_that_are_refused server_certificates_that_are_refused protocols
    unverified_servers sizes chunks close_both_ways truncation errors_after_close
}
