//! Figures as text.

use crate::families::Families;
use crate::figures::Figures;
use crate::plain::to_plain;
use crate::server;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use std::fmt::Error;

impl Figures {
    /// The figures as one whole text of OpenMetrics.
    #[must_use]
    pub fn encode(self) -> String {
        self.encode_with(&Registry::default())
    }

    /// The figures as one whole text, with the application's own metrics behind them.
    #[must_use]
    pub fn encode_with(self, own: &Registry) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut written = String::with_capacity(16 << 10);
        let result = text::encode_registry(&mut written, &registry)
            .and_then(|()| text::encode_registry(&mut written, own))
            .and_then(|()| text::encode_eof(&mut written));
        if result.is_err() {
            // A string takes everything, so a collector of the application failed. Without the end no scraper takes the text.
            written.push_str("# a collector failed\n");
        }
        written
    }

    /// The figures as one whole text of the format 0.0.4, with the application's own metrics behind them.
    #[must_use]
    pub fn encode_plain_with(self, own: &Registry) -> String {
        to_plain(&self.encode_with(own))
    }
}

impl Collector for Figures {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut families = Families(encoder);
        server::encode(self, &mut families)?;
        self.process.as_ref().map_or(Ok(()), |process| process.encode(&mut families))
    }
}
