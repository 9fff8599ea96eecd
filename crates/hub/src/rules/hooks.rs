//! The table `[hooks]`: the application that is asked, and about what.

use super::toml::{RulesError, Table};
use crate::http_client::HttpClient;
use std::ops::BitOr;
use std::time::Duration;
use tautline::http::HeaderName;

/// Least bytes of the secret that signs requests.
const LEAST_SECRET: usize = 32;
/// Most names of headers that are passed on.
const MOST_HEADERS: usize = 16;

pub(super) const KEYS: [&str; 9] =
    ["url", "secret", "authorities", "asks", "tells", "headers", "within", "at-once", "waiting"];

/// The application that a hub asks.
#[derive(Debug)]
pub(crate) struct Hooks {
    pub(crate) client: HttpClient,
    pub(crate) secret: Box<[u8]>,
    /// Events of connections that it is asked and told about.
    pub(crate) about: About,
    /// Headers of clients that it gets.
    pub(crate) headers: Vec<HeaderName>,
    /// The time in which it has to answer.
    pub(crate) within: Duration,
    /// Most requests at a time, and most that wait.
    pub(crate) at_once: usize,
    pub(crate) waiting: usize,
}

/// Events that an application is asked or told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct About(u8);

/// Their names in the file of rules.
const ASKS: [(&str, About); 2] = [("subscribe", About::SUBSCRIBE), ("publish", About::PUBLISH)];
const TELLS: [(&str, About); 2] = [("unsubscribe", About::UNSUBSCRIBE), ("presence", About::PRESENCE)];

impl About {
    pub(crate) const CONNECT: Self = Self(1);
    pub(crate) const SUBSCRIBE: Self = Self(2);
    pub(crate) const PUBLISH: Self = Self(4);
    pub(crate) const DISCONNECT: Self = Self(8);
    pub(crate) const UNSUBSCRIBE: Self = Self(16);
    pub(crate) const PRESENCE: Self = Self(32);

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Events that a namespace asks and tells.
    pub(super) fn of_namespace(table: &Table<'_>, has_hooks: bool) -> Result<Self, RulesError> {
        let about = named(table, "asks", &ASKS)? | named(table, "tells", &TELLS)?;
        if about != Self::default() && !has_hooks {
            return Err(
                table.error("asks", "a namespace that asks or tells needs a table [hooks] with `url` and `secret`")
            );
        }
        Ok(about)
    }
}

impl BitOr for About {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

fn named(table: &Table<'_>, key: &str, known: &[(&str, About)]) -> Result<About, RulesError> {
    Ok(table.named(key, "event", known)?.into_iter().fold(About::default(), BitOr::bitor))
}

impl Hooks {
    /// Understands the table. `secret` and `authorities` are the contents of the files that it names.
    pub(super) fn read(table: &Table<'_>, secret: &[u8], authorities: Option<&[u8]>) -> Result<Self, RulesError> {
        let secret = secret.trim_ascii();
        if secret.len() < LEAST_SECRET {
            let what = format!("has fewer than {LEAST_SECRET} bytes; make one by `openssl rand -hex 32`");
            return Err(table.error("secret", format!("the file of `secret` {what}")));
        }
        let about = named(table, "asks", &[("connect", About::CONNECT)])?
            | named(table, "tells", &[("disconnect", About::DISCONNECT)])?;
        let names = table.texts("headers")?;
        if names.len() > MOST_HEADERS {
            return Err(table.error("headers", format!("more than {MOST_HEADERS} headers")));
        }
        let header = |name: &&str| {
            HeaderName::try_from(*name).map_err(|_| table.error("headers", format!("{name:?} is no name of a header")))
        };
        let headers = names.iter().map(header).collect::<Result<_, _>>()?;
        let at_once = table.number("at-once", 1..=256)?.unwrap_or(16) as usize;
        let client = HttpClient::new(table.required("url")?, authorities, at_once);
        Ok(Self {
            client: client.map_err(|what| table.error("url", what))?,
            secret: secret.into(),
            about,
            headers,
            within: Duration::from_secs(table.number("within", 1..=30)?.unwrap_or(5).into()),
            at_once,
            waiting: table.number("waiting", 0..=10_000)?.unwrap_or(1_000) as usize,
        })
    }
}
