//! The figures of Tautline's servers in OpenMetrics, which Prometheus and its like read.
//!
//! A [`Figures`] is a copy of what a server counts, and a [`Collector`]: the encoder of `prometheus-client` writes it. Nothing
//! here runs while messages pass. Loops count into memory of their own, and a scrape reads it.
//!
//! Most users want `Admin` of the crate `tautline` (feature `metrics`), which serves all this over HTTP.
//!
//! ```
//! use tautline_engine::{Counters, Outcomes};
//! use tautline_metrics::{Figures, LoopFigures};
//!
//! let mut figures = Figures::default();
//! figures.loops.push(LoopFigures::new(0, true, Counters::default(), Outcomes::default()));
//! let text = figures.encode();
//! assert!(text.contains("tautline_messages_total{direction=\"received\"} 0\n"));
//! assert!(text.ends_with("# EOF\n"));
//! ```
#![forbid(unsafe_code)]

mod certificate;
mod families;
mod figures;
mod plain;
mod process;
mod server;
mod text;

pub use certificate::CertificateExpiry;
pub use figures::{AcmeFigures, Figures, LoopFigures, ReloadFigures, ResponseFigures, UpgradeFigures};
pub use process::ProcessFigures;
pub use prometheus_client;
pub use prometheus_client::collector::Collector;

/// The `Content-Type` of [`Figures::encode_plain_with`].
pub const PLAIN_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The `Content-Type` of [`Figures::encode_with`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
