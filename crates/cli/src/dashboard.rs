//! `--dashboard`: a page with live figures, and the server behind it.

#[cfg(feature = "proxy")]
mod front;
mod hub;
mod load;
mod page;
mod serve;

#[cfg(feature = "proxy")]
pub(crate) use front::FrontTables;
pub(crate) use hub::HubTables;
pub(crate) use load::LoadDashboard;
pub(crate) use page::{DashboardArguments, Prepared};
pub(crate) use serve::{MakeTables, show_server};
