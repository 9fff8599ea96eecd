//! Certificates of a server by ACME (RFC 8555): ordered, renewed and kept in a folder, without a tool beside the server.
//!
//! An [`Acme`] is one certificate for one or more host names. [`Acme::renew`] runs on a thread of its own, never on a loop. The
//! server reads [`Acme::certificate_file`] when it changes, and answers the authority by [`Acme::challenges`] (TLS-ALPN-01) or
//! [`Acme::http_answer`] (HTTP-01).
//!
//! Most users want `Tls::with_acme` of the crate `tautline` (feature `acme`), or `taut serve --acme`.
//!
//! # Parts
//! [`Plan`](plan::Plan) decides when to order, without a clock or a network. `order` talks to the authority. `folder` has the
//! files and the lock by which one process of several orders. An order in progress is one of the files: an upgrade in its midst
//! goes on with it, and all processes of the folder can answer its challenges.
//!
//! # Crates that were compared
//! `instant-acme` 0.8 is the protocol alone: it takes the HTTP client as a trait, has orders that can be resumed by their URL,
//! and has ARI (RFC 9773), account bindings, profiles and HTTP-01. `rustls-acme` 0.15 is a whole service: its state machine owns
//! the order, its cache stores certificates only, and it has neither ARI nor bindings. It renews without jitter, and it stands
//! on `async-io`, `chrono` and an older `rcgen`, which nothing else here needs. So the protocol is `instant-acme`'s, and the
//! parts that must survive upgrades are here.
//!
//! # OCSP
//! If the certificate names a responder, `staple` keeps its response beside the certificate, in the same file: a rename
//! replaces both, and all processes of the folder read them. [`Responses`](responses::Responses) decides when to fetch, without
//! a clock or a network, and `ocsp` asks and verifies. A revoked certificate is replaced. A certificate that must be stapled
//! (RFC 7633) is not used before its first response has come.
//!
//! Let's Encrypt ended its OCSP responders in August 2025, and its certificates name none: then nothing is fetched.
#![forbid(unsafe_code)]

mod acme;
mod answers;
mod chain;
mod clock;
mod config;
mod error;
mod failure;
mod failures;
mod folder;
mod leaf;
mod ocsp;
mod order;
pub mod plan;
mod random;
mod renewal;
mod report;
pub mod responses;
mod staple;
mod status;
mod transport;

pub use acme::Acme;
pub use config::{AccountBinding, AcmeConfig, LETS_ENCRYPT};
pub use error::Error;
pub use plan::{FailureKind, Time};
pub use renewal::Renewal;
pub use report::Report;
pub use status::Status;
