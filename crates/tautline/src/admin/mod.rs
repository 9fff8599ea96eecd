//! Eyes for operators: metrics, health, connections and the log level, over HTTP.

mod accepts;
mod local;
mod query;
mod service;
mod token;
mod view;

pub use local::check as check_admin_address;
pub use service::{Admin, LogLevel};
pub use token::{AdminToken, InvalidAdminToken};
