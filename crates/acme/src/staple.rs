//! Keeps an OCSP response beside the certificate in use.

use crate::acme::Shared;
use crate::clock::now;
use crate::failure::printable;
use crate::leaf::{self, Leaf};
use crate::ocsp::{Question, Word};
use crate::order::CERTIFICATE;
use crate::plan::Life;
use crate::responses::Responses;
use std::io;
use tautline_tls::der::date;

/// The responses for the certificate of one folder.
pub(crate) struct Staples<'a> {
    shared: &'a Shared,
    pub(crate) plan: Responses,
}

/// The end of a request.
pub(crate) enum Fetched {
    /// The certificate is good: the response is stored.
    Good,
    /// The certificate was revoked, as this text says.
    Revoked(String),
    Failed,
}

impl<'a> Staples<'a> {
    pub(crate) const fn new(shared: &'a Shared, seed: u64) -> Self {
        Self { shared, plan: Responses::new(seed) }
    }

    /// Plans for this certificate, which may be the one before, with another response.
    pub(crate) fn hold(&mut self, leaf: Option<&Leaf>, is_new: bool) {
        let leaf = leaf.filter(|leaf| self.shared.config.stapling && leaf.responder.is_some());
        let held = leaf.and_then(Leaf::response_life);
        match held {
            held if is_new => self.plan.begin(leaf.is_some(), held, now()),
            Some(held) => self.plan.hold(held, now()),
            // That of a revoked certificate was removed.
            None => {}
        }
    }

    /// Asks the responder, and stores its response. A failure leaves the response before in its place.
    pub(crate) async fn fetch(&mut self) -> Fetched {
        let Some(leaf) = self.shared.leaf() else {
            self.plan.stop();
            return Fetched::Failed;
        };
        let asked = match Question::of(&leaf.der, leaf.issuer.as_deref()) {
            Ok(question) => question.ask(&self.shared.transport, now()).await,
            Err(why) => Err(why),
        };
        let failed = match asked {
            Ok((response, Word::Good(life))) => match self.store(&leaf, Some(&response)) {
                Ok(()) => {
                    self.good(life);
                    return Fetched::Good;
                }
                Err(error) => format!("cannot store the response: {error}"),
            },
            Ok((_, Word::Revoked(at, reason))) => {
                self.plan.stop();
                // The server must not say any more that the certificate is good.
                if let Err(error) = self.store(&leaf, None) {
                    log::error!("acme: cannot remove the OCSP response of a revoked certificate: {error}");
                }
                let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
                let names = leaf.names.join(", ");
                let at = date(at.as_secs());
                return Fetched::Revoked(format!("the authority revoked the certificate for {names} on {at}{reason}"));
            }
            Err(why) => printable(&why),
        };
        self.fail(&leaf, &failed);
        Fetched::Failed
    }

    fn good(&mut self, life: Life) {
        self.plan.hold(life, now());
        self.shared.status().responses += 1;
        log::info!("acme: an OCSP response, valid until {}, is stapled to the certificate", date(life.end.as_secs()));
    }

    fn fail(&mut self, leaf: &Leaf, why: &str) {
        let pause = self.plan.fail(now()).as_secs();
        self.shared.status().response_failures += 1;
        let left = match leaf.response_life().filter(|life| life.end > now()) {
            Some(life) => format!("the present one serves until {}", date(life.end.as_secs())),
            None if leaf.must_be_stapled => "clients reject the certificate, which must be stapled".to_owned(),
            None => "none is stapled".to_owned(),
        };
        let message = format!("acme: no new OCSP response: {why}; {left}; the next attempt is in {pause} seconds");
        // Most clients do without a response.
        if leaf.must_be_stapled { log::error!("{message}") } else { log::warn!("{message}") }
    }

    /// Puts another response into the file, if the certificate is still this one.
    fn store(&self, leaf: &Leaf, response: Option<&[u8]>) -> io::Result<()> {
        let file = self.shared.folder.read(CERTIFICATE)?.map(zeroize::Zeroizing::new).unwrap_or_default();
        if Leaf::read(&file).is_ok_and(|now| now.der == leaf.der && now.response.as_deref() != response) {
            self.shared.folder.amend(CERTIFICATE, &leaf::with_response(&file, response))?;
        }
        Ok(())
    }
}
