//! The rights of clients: tokens, namespaces of topics, and the file that has both.
//!
//! Nothing in here knows connections. A hub resolves the rights of a connection when it subscribes, and keeps them.

mod api_key;
mod events;
mod file;
mod hooks;
mod keys;
mod pattern;
mod rights;
mod table;
#[cfg(test)]
mod tests;
mod token;
mod toml;

pub(crate) use self::api_key::{ApiKey, Scope, find as find_key};
pub(crate) use self::events::EventRules;
pub(crate) use self::hooks::{About, Hooks};
pub(crate) use self::rights::Rights;
#[cfg(test)]
pub(crate) use self::table::Namespace;
pub use self::table::Rules;
pub(crate) use self::table::{Grant, Limits, Terms, Tokens};
pub(crate) use self::token::{Identity, TokenError, grants, is_user};
pub use self::toml::RulesError;
