//! Eyes for operators: metrics, health, the heaviest connections and the log level, over HTTP on the machine itself.

mod local;
mod service;
mod view;

pub use local::check as check_admin_address;
pub use service::{Admin, LogLevel};
