use crate::codes::{
    TAUT_CLIENT, TAUT_CLIENT_AUTH_NONE, TAUT_CLIENT_AUTH_OPTIONAL, TAUT_CLIENT_AUTH_REQUIRED, TAUT_ERR_STATE,
    TAUT_ERR_VALUE, TAUT_OPTION_EXPORTER, TAUT_OPTION_KEY_LOG, TAUT_OPTION_POST_QUANTUM, TAUT_OPTION_RESUMPTION,
    TAUT_OPTION_TICKETS, TAUT_OPTION_TICKETS_PER_HANDSHAKE, TAUT_OPTION_VERSIONS, TAUT_SERVER,
};
use crate::engine::{self, AnyEngine};
use crate::failure::Failure;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tautline::layers::tls_rustls::check;
use tautline::{Tls, TlsEngine};
use tautline_tls::{
    Certificate, ClientAuth, ClientConfig, KeyExchange, Roots, ServerConfig, Session, TicketSecret, Tickets, Verify,
    Versions,
};

/// A configuration: the settings that the next [`apply`](Config::apply) uses, and the engine that the last one made.
pub(crate) struct Config {
    kind: TlsEngine,
    draft: Mutex<Draft>,
    live: RwLock<Option<Live>>,
}

/// The settings in use.
#[derive(Clone)]
struct Live {
    engine: Arc<dyn AnyEngine>,
    settings: Draft,
}

/// The settings of one role.
#[derive(Clone)]
enum Draft {
    Server(ServerConfig),
    Client(ClientConfig),
}

const FOR_SERVERS: Failure = Failure::new(TAUT_ERR_STATE, "this needs a configuration for servers");
const FOR_CLIENTS: Failure = Failure::new(TAUT_ERR_STATE, "this needs a configuration for clients");

impl Config {
    /// A configuration with the defaults. `engine` is a name, or empty for the default engine.
    pub(crate) fn new(role: u32, engine: &str) -> Result<Self, Failure> {
        let kind = match engine {
            "" => TlsEngine::default(),
            name => name.parse().map_err(|why| Failure::with_text(TAUT_ERR_VALUE, why))?,
        };
        let draft = match role {
            TAUT_CLIENT => Draft::Client(ClientConfig::default()),
            TAUT_SERVER => Draft::Server(ServerConfig::default()),
            _ => return Err(Failure::new(TAUT_ERR_VALUE, "the role is neither TAUT_CLIENT nor TAUT_SERVER")),
        };
        Ok(Self { kind, draft: Mutex::new(draft), live: RwLock::default() })
    }

    /// Restores the defaults of all settings. A client goes on to know its sessions.
    pub(crate) fn reset(&self) -> Result<(), Failure> {
        match &mut *self.draft() {
            Draft::Server(config) => *config = ServerConfig::default(),
            Draft::Client(config) => {
                let sessions = config.sessions.clone();
                *config = ClientConfig::default();
                config.sessions = sessions;
            }
        }
        Ok(())
    }

    /// Makes the settings those of new sessions, or changes nothing if they have an error.
    pub(crate) fn apply(&self) -> Result<(), Failure> {
        let draft = self.draft();
        let live = self.live();
        let engine = match (&*draft, live) {
            (Draft::Server(config), Some(live)) => {
                live.engine.reload(config)?;
                live.engine
            }
            (Draft::Server(config), None) => engine::server(self.kind, config)?,
            (Draft::Client(config), _) => engine::client(self.kind, config)?,
        };
        let live = Live { engine, settings: draft.clone() };
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live);
        Ok(())
    }

    /// Makes a session under the applied settings. `host` is for clients.
    pub(crate) fn session(&self, host: Option<&str>) -> Result<Box<dyn Session>, Failure> {
        let is_server = matches!(*self.draft(), Draft::Server(_));
        let engine = self.applied()?.engine;
        match host {
            None if is_server => Ok(engine.accept()?),
            Some(host) if !is_server => Ok(engine.connect(host)?),
            None => Err(Failure::new(TAUT_ERR_VALUE, "a client's session needs the host's name")),
            Some(_) => Err(Failure::new(TAUT_ERR_VALUE, "a server's session has no host: give NULL")),
        }
    }

    /// The engine of a server's applied settings.
    pub(crate) fn accepting(&self) -> Result<Arc<dyn AnyEngine>, Failure> {
        let Live { engine, settings } = self.applied()?;
        if matches!(settings, Draft::Server(_)) { Ok(engine) } else { Err(FOR_SERVERS) }
    }

    /// The engine of a client's applied settings.
    pub(crate) fn connecting(&self) -> Result<Arc<dyn AnyEngine>, Failure> {
        let Live { engine, settings } = self.applied()?;
        if matches!(settings, Draft::Client(_)) { Ok(engine) } else { Err(FOR_CLIENTS) }
    }

    /// A server's applied settings, for loops.
    pub(crate) fn for_server(&self) -> Result<Tls<ServerConfig, TlsEngine>, Failure> {
        match self.applied()?.settings {
            Draft::Server(config) => Ok(Tls { engine: self.kind, config }),
            Draft::Client(_) => Err(FOR_SERVERS),
        }
    }

    /// A client's applied settings, for a loop.
    pub(crate) fn for_client(&self) -> Result<Tls<ClientConfig, TlsEngine>, Failure> {
        match self.applied()?.settings {
            Draft::Client(config) => Ok(Tls { engine: self.kind, config }),
            Draft::Server(_) => Err(FOR_CLIENTS),
        }
    }

    /// Adds a server's certificate, or replaces a client's, if its key belongs to it.
    pub(crate) fn certificate(&self, certificate: Certificate) -> Result<(), Failure> {
        let mut draft = self.draft();
        // As the engine names it.
        let what = match &*draft {
            _ if !certificate.name.is_empty() => certificate.name.clone(),
            Draft::Server(config) => match config.certificates.len() + 1 {
                1 => "server certificate".to_owned(),
                number => format!("server certificate {number} of {number}"),
            },
            Draft::Client(_) => "client certificate".to_owned(),
        };
        check(&certificate, &what)?;
        match &mut *draft {
            Draft::Server(config) => config.certificates.push(certificate),
            Draft::Client(config) => config.certificate = Some(certificate),
        }
        Ok(())
    }

    pub(crate) fn roots(&self, roots: Roots) -> Result<(), Failure> {
        self.client(|config| config.roots = roots)
    }

    pub(crate) fn client_auth(&self, demand: u32, roots: Vec<u8>) -> Result<(), Failure> {
        let demand = match demand {
            TAUT_CLIENT_AUTH_NONE => ClientAuth::None,
            TAUT_CLIENT_AUTH_OPTIONAL => ClientAuth::Optional(roots),
            TAUT_CLIENT_AUTH_REQUIRED => ClientAuth::Required(roots),
            _ => return Err(Failure::new(TAUT_ERR_VALUE, "there is no such demand on clients")),
        };
        self.server(|config| config.client_auth = demand)
    }

    pub(crate) fn ticket_secret(&self, secret: &[u8], epoch: Duration) -> Result<(), Failure> {
        let source = Arc::new(TicketSecret::new(secret)?);
        self.server(|config| config.tickets = Tickets::Fleet { source, epoch })
    }

    pub(crate) fn alpn(&self, names: Vec<Vec<u8>>) -> Result<(), Failure> {
        match &mut *self.draft() {
            Draft::Server(config) => config.alpn = names,
            Draft::Client(config) => config.alpn = names,
        }
        Ok(())
    }

    pub(crate) fn verify(&self, verify: Option<Arc<dyn Verify>>) -> Result<(), Failure> {
        match &mut *self.draft() {
            Draft::Server(config) => config.verify = verify,
            Draft::Client(config) => config.verify = verify,
        }
        Ok(())
    }

    /// Sets an option that is a number.
    pub(crate) fn set(&self, option: u32, value: u64) -> Result<(), Failure> {
        match option {
            TAUT_OPTION_VERSIONS => {
                let versions = match value {
                    0 => Versions::All,
                    12 => Versions::Tls12,
                    13 => Versions::Tls13,
                    _ => return Err(Failure::new(TAUT_ERR_VALUE, "versions are 0 for all, 12 or 13")),
                };
                self.both(|config| config.versions = versions, |config| config.versions = versions);
            }
            TAUT_OPTION_KEY_LOG => {
                let on = flag(value)?;
                self.both(|config| config.key_log = on, |config| config.key_log = on);
            }
            TAUT_OPTION_EXPORTER => {
                let on = flag(value)?;
                self.both(|config| config.exporter = on, |config| config.exporter = on);
            }
            TAUT_OPTION_TICKETS => {
                let rotate = Duration::from_secs(value);
                let tickets = if rotate.is_zero() { Tickets::Off } else { Tickets::Own { rotate } };
                return self.server(|config| config.tickets = tickets);
            }
            TAUT_OPTION_TICKETS_PER_HANDSHAKE => {
                let most = Failure::new(TAUT_ERR_VALUE, "tickets for each handshake: 1 to 16");
                let tickets = u8::try_from(value).map_err(|_| most)?;
                return self.server(|config| config.tickets_per_handshake = tickets);
            }
            TAUT_OPTION_RESUMPTION => {
                let on = flag(value)?;
                return self.client(|config| config.no_resumption = !on);
            }
            TAUT_OPTION_POST_QUANTUM => {
                let offered = if flag(value)? { KeyExchange::All } else { KeyExchange::Classical };
                return self.client(|config| config.key_exchange = offered);
            }
            _ => return Err(Failure::new(TAUT_ERR_VALUE, "there is no such option")),
        }
        Ok(())
    }

    fn both(&self, server: impl FnOnce(&mut ServerConfig), client: impl FnOnce(&mut ClientConfig)) {
        match &mut *self.draft() {
            Draft::Server(config) => server(config),
            Draft::Client(config) => client(config),
        }
    }

    fn server(&self, change: impl FnOnce(&mut ServerConfig)) -> Result<(), Failure> {
        match &mut *self.draft() {
            Draft::Server(config) => change(config),
            Draft::Client(_) => return Err(FOR_SERVERS),
        }
        Ok(())
    }

    fn client(&self, change: impl FnOnce(&mut ClientConfig)) -> Result<(), Failure> {
        match &mut *self.draft() {
            Draft::Client(config) => change(config),
            Draft::Server(_) => return Err(FOR_CLIENTS),
        }
        Ok(())
    }

    fn draft(&self) -> MutexGuard<'_, Draft> {
        self.draft.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> Option<Live> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn applied(&self) -> Result<Live, Failure> {
        self.live().ok_or(Failure::new(TAUT_ERR_STATE, "taut_tls_config_apply comes first"))
    }
}

pub(crate) fn flag(value: u64) -> Result<bool, Failure> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Failure::new(TAUT_ERR_VALUE, "this option is 0 or 1")),
    }
}
