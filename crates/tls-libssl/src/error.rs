use crate::flavour::Flavour;
use crate::sys::{Connection, Failure, failure, verify};
use tautline_tls::Error;
use tautline_tls::alert::Alert;

/// Converts an error of the library to ours.
pub(crate) fn describe(why: &Failure, connection: &Connection, expected: &str, flavour: Flavour) -> Error {
    let reason = &why.reason;
    match why.kind {
        failure::ALERT => Error::Alert(Alert(why.alert)),
        failure::CERTIFICATE => Error::Certificate(certificate(why, connection, expected)),
        failure::NO_CERTIFICATE => Error::Certificate("none was shown, and one is required".to_owned()),
        failure::NO_ALPN => Error::Peer("it offers no application protocol (ALPN) that is configured here".to_owned()),
        failure::BAD_RECORD => {
            Error::Peer("a record does not authenticate: it was changed on the way, or its keys are wrong".to_owned())
        }
        failure::VERSION => Error::Peer(format!("no version of TLS in common with what is configured here ({reason})")),
        failure::NO_CIPHER => Error::Peer(format!(
            "nothing in common with what is configured here ({reason}); it may not support the certificate's kind of key"
        )),
        failure::LIBRARY => Error::Library(format!("{}: {reason}", flavour.title())),
        failure::MEMORY => Error::Library("no memory for what must be sent".to_owned()),
        _ => Error::Peer(format!("{reason} (in the words of {})", flavour.title())),
    }
}

/// The reason why a certificate was rejected, in words for its user.
fn certificate(why: &Failure, connection: &Connection, expected: &str) -> String {
    match why.verify {
        verify::EXPIRED => format!("it expired on {}", connection.refused_validity().until),
        verify::NOT_YET => {
            format!("it is not valid before {}; is the clock right?", connection.refused_validity().from)
        }
        verify::ISSUER => "its issuer is not trusted: add the authority that issued it to the trusted roots, \
             or have the peer send its whole chain"
            .to_owned(),
        verify::NAME => {
            let names: Vec<_> = connection.refused_names().iter().map(ToString::to_string).collect();
            let names = if names.is_empty() { "no name at all".to_owned() } else { names.join(", ") };
            format!("it is not valid for {expected}, only for {names}")
        }
        verify::PURPOSE => "it is meant for another use (extended key usage): servers need one for server \
             authentication, clients one for client authentication"
            .to_owned(),
        verify::SIGNATURE => {
            "a signature does not match: another issuer of the same name made it, or it was changed".to_owned()
        }
        verify::AUTHORITY => "its issuer is not a certificate authority".to_owned(),
        verify::REVOKED => "it was revoked".to_owned(),
        _ => why.reason.clone(),
    }
}
