use tautline::AeadChoice;

/// The AEAD of records that are opened and sealed in place.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct AeadArguments {
    /// Provider of the AEAD of `fused` engines: auto, aws-lc or ring. auto measures, and takes the fastest for each cipher suite
    /// and class of sizes.
    #[arg(help_heading = "TLS", long, value_name = "PROVIDER", default_value_t)]
    aead: AeadChoice,
}

impl AeadArguments {
    /// Makes it the choice of the process. `auto` is the default and measures only when an engine is made.
    pub(crate) fn apply(self) {
        if self.aead != AeadChoice::Auto {
            self.aead.set();
        }
    }
}
