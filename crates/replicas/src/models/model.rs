use std::fmt;
use std::str::FromStr;
use tautline_measure::named;

named! {
    /// Relation of threads and connections.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Model {
        /// Loops that share nothing.
        LoopPerCore = "loop-per-core",
        /// Threads that share one poller.
        SharedLoop = "shared-loop",
        /// One loop, and a pool for all of TLS.
        AlwaysOffload = "always-offload",
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Model {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|model| model.name() == name).ok_or_else(|| format!("there is no model {name:?}"))
    }
}
