//! A page with everything that a run measured, beside the published figures.
//!
//! The page is one file that asks for nothing else. It is made of `maud` templates, which escape every value: files with
//! results may come from elsewhere.

mod chart;
mod claims;
mod draw;
mod figure;
mod figures;
mod measured;
mod page;
pub(crate) mod places;
mod reported;

pub use page::write_html;
