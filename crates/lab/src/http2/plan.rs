use crate::carrier_tls::CarrierTls;
use std::sync::Arc;
use tautline::layers::tls::{Error, Session};

/// Makes the TLS session of a carrier.
pub(super) type MakeSession = Arc<dyn Fn() -> Result<Box<dyn Session>, Error> + Send + Sync>;

/// The settings of carriers.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) session: MakeSession,
    /// Lanes on each carrier.
    pub(super) streams: usize,
    /// Takes what each session has negotiated.
    pub(super) info: Option<CarrierTls>,
}
