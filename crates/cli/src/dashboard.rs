//! `--dashboard`: a page with live figures, and the server behind it.

mod load;
mod page;
mod serve;

pub(crate) use load::LoadDashboard;
pub(crate) use page::{DashboardArguments, Prepared};
pub(crate) use serve::show_server;
