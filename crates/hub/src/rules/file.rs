//! The file of rules: TOML, as `docs/hub.md` describes it.

use super::api_key::{ApiKey, SCOPES};
use super::events::EventRules;
use super::hooks::{self, About, Hooks};
use super::pattern::Pattern;
use super::rights::{RIGHTS, Rights};
use super::table::{Limits, Namespace, Rules, Terms, Tokens};
use super::toml::{Document, RulesError, Table};
use crate::config::Kind;
use crate::pusher::Secret;
use crate::pusher::app::{App, AppLimits};
use std::ops::BitOr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tautline::{Origins, SlowConsumer};

/// Most bytes of the file, and of each that it names.
const MOST_BYTES: u64 = 1 << 20;
/// Most tables of namespaces.
const MOST_NAMESPACES: usize = 256;
/// Most keys of the HTTP interface, and requests of one in a second unless the table says otherwise.
const MOST_KEYS: usize = 64;
const RATE: u32 = 1_000;
/// Most apps of the Pusher protocol, and the limits of one unless the table says otherwise.
const MOST_APPS: usize = 64;
const APP_LIMITS: AppLimits = AppLimits { connections: 100_000, data: 10 << 10, members: 100, rate: RATE };
/// Bytes that may wait for a slow reader of a plain topic, unless the table says otherwise.
const LAG: u32 = 1 << 20;

const TOP: [&str; 8] = ["tokens", "limits", "namespace", "key", "app", "events", "revoked", "hooks"];
const TOKENS: [&str; 12] = [
    "secrets",
    "public-keys",
    "jwks",
    "audience",
    "issuer",
    "leeway",
    "required",
    "cookie",
    "query",
    "origins",
    "login-within",
    "refresh-before",
];
const KEY: [&str; 5] = ["name", "file", "scopes", "topics", "rate"];
const APP: [&str; 11] = [
    "id",
    "key",
    "file",
    "prefix",
    "enabled",
    "client-events",
    "subscription-counts",
    "max-connections",
    "max-data",
    "max-members",
    "rate",
];
const EVENTS: [&str; 4] = ["origins", "most", "per-address", "retry"];
const LIMITS: [&str; 7] = [
    "sessions-per-user",
    "bad-keys",
    "publishes-per-user",
    "publishes-per-topic",
    "publishes-per-address",
    "subscriptions-per-user",
    "subscriptions-per-address",
];
const NAMESPACE: [&str; 12] = [
    "topics",
    "anyone",
    "users",
    "kind",
    "members",
    "max-members",
    "max-message",
    "publish-rate",
    "slow-readers",
    "max-waiting",
    "asks",
    "tells",
];

impl Rules {
    /// Reads a file of rules, and the files of keys that it names: paths from its folder.
    ///
    /// # Errors
    /// If a file cannot be read or used. The error names the file, the line and the remedy.
    pub fn load(path: &Path) -> Result<Self, RulesError> {
        let text = read(path).map_err(|what| RulesError::of_file(path, what))?;
        let text = String::from_utf8(text).map_err(|_| RulesError::of_file(path, "is no text in UTF-8"))?;
        let document = Document { path, text: &text };
        let parsed = document.parse()?;
        let top = Table::new(document, (parsed.get_ref(), 0..0), &TOP)?;
        let mut rules = Self { files: vec![path.to_owned()], ..Self::closed() };
        let mut files = Files { folder: folder(path), read: &mut rules.files };
        if let Some(table) = top.table("tokens", &TOKENS)? {
            rules.tokens = tokens(&table, &mut files)?;
        }
        if let Some(table) = top.table("limits", &LIMITS)? {
            let sessions = table.number("sessions-per-user", 1..=100_000)?;
            rules.max_sessions = sessions.map_or(rules.max_sessions, |number| number as usize);
            rules.limits = limits(&table)?;
        }
        for table in top.tables("app", &APP, MOST_APPS)? {
            let app = app(&table, &mut files)?;
            if let Some(other) = rules.apps.iter().find(|other| other.id == app.id || other.key == app.key) {
                return Err(table.error("id", format!("the app `{}` has this id or key already", other.id)));
            }
            let share =
                |other: &&Arc<App>| other.prefix.starts_with(&app.prefix) || app.prefix.starts_with(&other.prefix);
            if let Some(other) = rules.apps.iter().find(share) {
                let fault = format!("the apps `{}` and `{}` would share topics: give each a prefix", other.id, app.id);
                return Err(table.error("prefix", fault));
            }
            rules.apps.push(Arc::new(app));
        }
        if let Some(table) = top.table("events", &EVENTS)? {
            rules.events = events(&table)?;
        }
        rules.revoked = top.texts("revoked")?.into_iter().map(str::to_owned).collect();
        let tables = top.tables("namespace", &NAMESPACE, MOST_NAMESPACES)?;
        for table in top.tables("key", &KEY, MOST_KEYS)? {
            let key = api_key(&table, &mut files)?;
            if rules.api_keys.iter().any(|other| other.name == key.name) {
                return Err(table.error("name", format!("two keys have the name `{}`", key.name)));
            }
            rules.api_keys.push(key);
        }
        if let Some(table) = top.table("hooks", &hooks::KEYS)? {
            rules.hooks = Some(Arc::new(read_hooks(&table, &mut files)?));
        }
        let has_hooks = rules.hooks.is_some();
        rules.namespaces = tables.iter().map(|table| namespace(table, has_hooks)).collect::<Result<_, _>>()?;
        Ok(rules)
    }
}

fn limits(table: &Table<'_>) -> Result<Limits, RulesError> {
    let rate = |key| table.number(key, 1..=1_000_000);
    Ok(Limits {
        bad_keys: rate("bad-keys")?.unwrap_or_else(|| Limits::default().bad_keys),
        publishes_per_user: rate("publishes-per-user")?,
        publishes_per_topic: rate("publishes-per-topic")?,
        publishes_per_address: rate("publishes-per-address")?,
        subscriptions_per_user: rate("subscriptions-per-user")?,
        subscriptions_per_address: rate("subscriptions-per-address")?,
    })
}

fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new("."))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("cannot be read: {error}");
    // A pipe or device would wait.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MOST_BYTES {
        return Err("is no file of at most 1 MiB".to_owned());
    }
    std::fs::read(path).map_err(failed)
}

/// The files that a file of rules names, from its folder, and those that were read.
struct Files<'f> {
    folder: &'f Path,
    read: &'f mut Vec<PathBuf>,
}

impl Files<'_> {
    /// Reads a file, and understands it.
    fn content<T>(&mut self, name: &str, understand: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T, RulesError> {
        let path = self.folder.join(name);
        let understood = read(&path).and_then(|bytes| understand(&bytes));
        let understood = understood.map_err(|what| RulesError::of_file(&path, what))?;
        self.read.push(path);
        Ok(understood)
    }
}

fn tokens(table: &Table<'_>, files: &mut Files<'_>) -> Result<Tokens, RulesError> {
    let mut tokens = Tokens::default();
    let keys = &mut tokens.keys;
    for kind in ["secrets", "public-keys", "jwks"] {
        for name in table.texts(kind)? {
            files.content(name, |bytes| match kind {
                "secrets" => keys.add_secret(bytes),
                "public-keys" => keys.add_pem(bytes),
                _ => keys.add_jwks(bytes),
            })?;
        }
    }
    if keys.is_empty() {
        return Err(table.error("", "[tokens] has no key: add `secrets`, `public-keys` or `jwks`"));
    }
    let seconds = |key, most| Ok(table.number(key, 0..=most)?.map(|seconds| Duration::from_secs(seconds.into())));
    tokens.conditions.audience = table.text("audience")?.map(str::to_owned);
    tokens.conditions.issuer = table.text("issuer")?.map(str::to_owned);
    tokens.conditions.leeway = seconds("leeway", 600)?.unwrap_or_default();
    tokens.is_required = table.flag("required")?.unwrap_or_default();
    tokens.cookie = named(table, "cookie")?;
    tokens.query = named(table, "query")?;
    tokens.login = seconds("login-within", 600)?.unwrap_or(tokens.login);
    tokens.refresh = seconds("refresh-before", 3_600)?.unwrap_or(tokens.refresh);
    let pages = origins(table, "any page could use the cookie of its visitors: name the pages")?;
    tokens.origins = pages.unwrap_or(tokens.origins);
    Ok(tokens)
}

/// The pages that may ask; `None` if none is named. `fault` says why they cannot be all.
fn origins(table: &Table<'_>, fault: &str) -> Result<Option<Origins>, RulesError> {
    let origins = table.texts("origins")?;
    if origins.contains(&"*") {
        return Err(table.error("origins", fault));
    }
    if origins.is_empty() {
        return Ok(None);
    }
    Origins::list(origins).map(Some).map_err(|error| table.error("origins", error.to_string()))
}

/// The name of a cookie or parameter.
fn named(table: &Table<'_>, key: &str) -> Result<Option<String>, RulesError> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match table.text(key)? {
        Some(name) if !name.is_empty() && name.bytes().all(is_name) => Ok(Some(name.to_owned())),
        Some(_) => Err(table.error(key, format!("`{key}` is a name of letters, digits, `-` and `_`"))),
        None => Ok(None),
    }
}

fn read_hooks(table: &Table<'_>, files: &mut Files<'_>) -> Result<Hooks, RulesError> {
    let mut content = |name| files.content(name, |bytes| Ok(bytes.to_vec()));
    let secret = content(table.required("secret")?)?;
    let authorities = table.text("authorities")?.map(content).transpose()?;
    Hooks::read(table, &secret, authorities.as_deref())
}

/// Most members of a topic on one host. A list of them is bounded by what hosts tell each other.
fn max_members(table: &Table<'_>, is_counted: bool) -> Result<Option<usize>, RulesError> {
    let most = if is_counted { 100_000_000 } else { 100_000 };
    Ok(table.number("max-members", 0..=most)?.map(|number| number as usize))
}

fn namespace(table: &Table<'_>, has_hooks: bool) -> Result<Namespace, RulesError> {
    let topics: Pattern = table.required("topics")?.parse().map_err(|what: String| table.error("topics", what))?;
    let kind = match table.text("kind")? {
        None => None,
        Some("plain") => Some(Kind::Plain),
        Some("history") => Some(Kind::History),
        Some("latest") => Some(Kind::Latest),
        Some(_) => return Err(table.error("kind", "`kind` is plain, history or latest")),
    };
    let is_counted = match table.text("members")? {
        None | Some("list") => false,
        Some("count") => true,
        Some(_) => return Err(table.error("members", "`members` is list or count")),
    };
    let waiting = table.number("max-waiting", 1_024..=1 << 30)?.unwrap_or(LAG) as usize;
    let slow = match table.text("slow-readers")? {
        None => None,
        Some("disconnect") => Some(SlowConsumer::Disconnect(waiting)),
        Some("drop-newest") => Some(SlowConsumer::DropNewest(waiting)),
        Some("drop-oldest") => Some(SlowConsumer::DropOldest(waiting)),
        Some(_) => return Err(table.error("slow-readers", "`slow-readers` is disconnect, drop-newest or drop-oldest")),
    };
    let terms = Terms {
        kind,
        slow,
        is_counted,
        max_members: max_members(table, is_counted)?,
        max_message: table.number("max-message", 1..=1 << 30)?.map(|number| number as usize),
        publish_rate: table.number("publish-rate", 1..=1_000_000)?,
        about: About::of_namespace(table, has_hooks)?,
    };
    Ok(Namespace { topics, anyone: rights(table, "anyone")?, users: rights(table, "users")?, terms })
}

fn api_key(table: &Table<'_>, files: &mut Files<'_>) -> Result<ApiKey, RulesError> {
    table.required("name")?;
    let name = named(table, "name")?.unwrap_or_default();
    if name.len() > 32 {
        return Err(table.error("name", "a name has at most 32 characters"));
    }
    let rate = table.number("rate", 1..=1_000_000)?.unwrap_or(RATE);
    let mut key = files.content(table.required("file")?, |bytes| ApiKey::new(&name, bytes, rate))?;
    key.scopes = table.named("scopes", "scope", &SCOPES)?;
    for topic in table.texts("topics")? {
        key.topics.push(topic.parse().map_err(|what: String| table.error("topics", what))?);
    }
    Ok(key)
}

fn app(table: &Table<'_>, files: &mut Files<'_>) -> Result<App, RulesError> {
    for key in ["id", "key"] {
        table.required(key)?;
    }
    let (id, key) = (named(table, "id")?.unwrap_or_default(), named(table, "key")?.unwrap_or_default());
    let secret = files.content(table.required("file")?, Secret::new)?;
    let prefix = table.text("prefix")?.unwrap_or_default();
    if prefix.len() > 64 || prefix.starts_with('$') || prefix.contains(char::is_control) {
        return Err(table.error("prefix", "a prefix has at most 64 bytes, and does not begin with `$`"));
    }
    let number = |key, most, default| Ok(table.number(key, 1..=most)?.map_or(default, |number| number as usize));
    let limits = AppLimits {
        connections: number("max-connections", 10_000_000, APP_LIMITS.connections)?,
        data: number("max-data", 1 << 20, APP_LIMITS.data)?,
        members: number("max-members", 100_000, APP_LIMITS.members)?,
        rate: table.number("rate", 1..=1_000_000)?.unwrap_or(APP_LIMITS.rate),
    };
    let (is_enabled, client_events) = (table.flag("enabled")?, table.flag("client-events")?);
    Ok(App {
        id,
        key,
        secret,
        prefix: prefix.to_owned(),
        is_enabled: is_enabled.unwrap_or(true),
        client_events: client_events.unwrap_or_default(),
        counts: table.flag("subscription-counts")?.unwrap_or_default(),
        limits,
    })
}

fn events(table: &Table<'_>) -> Result<EventRules, RulesError> {
    let origins = origins(table, "any page could read with the cookie of its visitors: name the pages")?;
    let mut events = EventRules { origins, ..EventRules::default() };
    let number = |key, most| Ok(table.number(key, 0..=most)?.map(|number| number as usize));
    events.most = number("most", 10_000_000)?.unwrap_or(events.most);
    events.per_address = number("per-address", 10_000_000)?.unwrap_or(events.per_address);
    if let Some(millis) = table.number("retry", 0..=3_600_000)? {
        events.retry = Duration::from_millis(millis.into());
    }
    Ok(events)
}

fn rights(table: &Table<'_>, key: &str) -> Result<Rights, RulesError> {
    Ok(table.named(key, "right", &RIGHTS)?.into_iter().fold(Rights::NONE, BitOr::bitor))
}
