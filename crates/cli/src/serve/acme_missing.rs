//! `--acme` in a build without the feature `acme`: it says so.

use super::privilege::PrivilegeArguments;
use crate::failure::Failure;
use std::convert::Infallible;
use std::path::PathBuf;
use tautline::{Address, Admin, PreparedServer, Reloader, ServerFiles, TlsEngine};

/// Certificates by themselves (ACME), which this build has not.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AcmeArguments {
    /// Order and renew certificates by ACME: not in this build.
    #[arg(long, hide = true, value_name = "DOMAIN", num_args = 1..)]
    acme: Vec<String>,
}

/// The certificate of a server, which nothing makes here.
pub(super) struct Service(Infallible);

/// A thread that renews.
pub(super) struct Renewing(Infallible);

impl AcmeArguments {
    pub(super) const fn is_on(&self) -> bool {
        !self.acme.is_empty()
    }

    /// Takes the names of a configuration, which [`check`](Self::check) refuses.
    #[cfg(feature = "proxy")]
    #[expect(clippy::unnecessary_wraps, reason = "as with the feature acme")]
    pub(super) fn take(&mut self, ordered: &tautline_proxy::plan::Ordered) -> Result<(), Failure> {
        self.acme.clone_from(&ordered.names);
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "as with the feature acme")]
    pub(super) const fn folder(&self) -> Option<PathBuf> {
        None
    }

    pub(super) fn open(&self, engine: TlsEngine, _: &PrivilegeArguments) -> Result<Option<Service>, Failure> {
        self.check(engine).map(|()| None)
    }

    pub(super) fn check(&self, _: TlsEngine) -> Result<(), Failure> {
        if self.is_on() {
            return Err(Failure::usage(
                "--acme: this build orders no certificates: build taut with the feature `acme`, or pass --cert and --key",
            ));
        }
        Ok(())
    }

    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with the feature acme")]
    pub(super) const fn check_addresses(&self, _: &[Address]) -> Result<(), Failure> {
        Ok(())
    }
}

impl Service {
    pub(super) const fn files(&self, _: ServerFiles) -> ServerFiles {
        match self.0 {}
    }

    pub(super) const fn show(&self, _: Admin) -> Admin {
        match self.0 {}
    }

    pub(super) const fn prepare_http(
        &self,
        _: &mut PreparedServer,
        _: usize,
    ) -> Result<Option<PreparedServer>, Failure> {
        match self.0 {}
    }

    pub(super) const fn renew(&self, _: &ServerFiles, _: Reloader) -> Result<Renewing, Failure> {
        match self.0 {}
    }
}
