//! Stapled OCSP responses.

use super::super::facts::{Certified, Staple, Status};
use super::judgement::{Verdict, fault, warning};

/// Seconds by which the clocks of a responder and of this machine may differ.
const CLOCKS: i64 = 300;

/// Judges a response at `now`, in seconds since 1970. One verdict says enough: a response that is of no use for several
/// reasons is replaced once.
pub(super) fn judge(staple: &Staple, now: i64) -> Option<Verdict> {
    let verdict = match &staple.status {
        Status::Good | Status::Revoked | Status::Unknown => return judge_answer(staple, now),
        Status::OtherCertificate => fault(
            "ocsp.other-certificate",
            "the stapled OCSP response is about another certificate: clients that look at it refuse the server",
            "fetch a response whenever the certificate is renewed, and load both together",
        ),
        Status::Refused(why) => warning(
            "ocsp.refused",
            format!("the stapled OCSP response is an error of the responder: {why}"),
            "staple the last good response until the next one has come; ask the certificate's issuer if it goes on",
        ),
        Status::Malformed => fault(
            "ocsp.malformed",
            "the stapled OCSP response cannot be read",
            "staple DER, as openssl ocsp -respout writes it, or nothing",
        ),
    };
    Some(verdict)
}

fn judge_answer(staple: &Staple, now: i64) -> Option<Verdict> {
    if let Certified::Wrong(why) = &staple.certified {
        let title = format!("the signature of the stapled OCSP response does not count: {why}");
        let remedy = "fetch the response from the OCSP URL in the certificate; nobody else can answer";
        return Some(fault("ocsp.signature", title, remedy));
    }
    if staple.status == Status::Revoked {
        let reason = staple.reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        let date = staple.revoked.as_deref().unwrap_or("an unknown date");
        let title = format!("the certificate was revoked on {date}{reason}");
        let remedy = "get another one for a new key, and find out who revoked this one";
        return Some(fault("certificate.revoked", title, remedy));
    }
    if staple.next_update.is_some_and(|next| next + CLOCKS < now) {
        let title = format!("the stapled OCSP response is out of date: it was valid {}", staple.valid);
        let remedy = "let the server fetch responses again (nginx: ssl_stapling with a resolver that works), or let a \
                      job renew the file";
        return Some(fault("ocsp.expired", title, remedy));
    }
    if staple.this_update - CLOCKS > now {
        let title = format!("the stapled OCSP response is not valid yet: {}", staple.valid);
        return Some(fault("ocsp.not-yet-valid", title, "check the clocks of this machine and of the responder"));
    }
    (staple.status == Status::Unknown).then(|| {
        let title = "the responder does not know the certificate: clients that look at the response refuse the server";
        let remedy =
            "if the certificate is new, wait for the responder and staple nothing until then; else ask its issuer";
        fault("ocsp.unknown", title, remedy)
    })
}
