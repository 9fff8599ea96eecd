use rustls::{AlertDescription, CertificateError, PeerIncompatible};
use std::fmt;
use std::net::IpAddr;
use tautline_tls::Error;
use tautline_tls::alert::Alert;
use tautline_tls::der::date;

/// Converts an error of rustls to ours.
pub(crate) fn describe(error: &rustls::Error) -> Error {
    match error {
        rustls::Error::InvalidCertificate(why) => Error::Certificate(certificate(why)),
        rustls::Error::NoCertificatesPresented => Error::Certificate("none was shown, and one is required".to_owned()),
        rustls::Error::AlertReceived(alert) => Error::Alert(Alert(u8::from(*alert))),
        rustls::Error::DecryptError => {
            Error::Peer("a record does not authenticate: it was changed on the way, or its keys are wrong".to_owned())
        }
        rustls::Error::NoApplicationProtocol => {
            Error::Peer("it offers no application protocol (ALPN) that is configured here".to_owned())
        }
        rustls::Error::PeerIncompatible(why) => Error::Peer(incompatible(why)),
        rustls::Error::PeerMisbehaved(_)
        | rustls::Error::InvalidMessage(_)
        | rustls::Error::InappropriateMessage { .. }
        | rustls::Error::InappropriateHandshakeMessage { .. }
        | rustls::Error::PeerSentOversizedRecord
        | rustls::Error::InvalidEncryptedClientHello(_) => Error::Peer(error.to_string()),
        _ => Error::Library(error.to_string()),
    }
}

/// The alert that rustls sends with an error, by its number, if the error alone decides it.
pub(crate) fn alert_of(error: &rustls::Error) -> Option<Alert> {
    match error {
        rustls::Error::InvalidCertificate(why) => Some(Alert(AlertDescription::from(why.clone()).into())),
        rustls::Error::NoApplicationProtocol => Some(Alert::NO_APPLICATION_PROTOCOL),
        rustls::Error::PeerSentOversizedRecord => Some(Alert::RECORD_OVERFLOW),
        _ => None,
    }
}

/// The reason for which a certificate is rejected here, where rustls has no word for it.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

fn incompatible(why: &PeerIncompatible) -> String {
    match why {
        PeerIncompatible::NoSignatureSchemesInCommon | PeerIncompatible::NoCipherSuitesInCommon => format!(
            "nothing in common with what is configured here ({why:?}); it may not support the certificate's kind of key"
        ),
        PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled
        | PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig => {
            format!("no version of TLS in common with what is configured here ({why:?})")
        }
        _ => format!("incompatible: {why:?}"),
    }
}

/// The reason why a certificate was rejected, in words for its user.
pub(crate) fn certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired => "it has expired".to_owned(),
        CertificateError::ExpiredContext { not_after, .. } => format!("it expired on {}", date(not_after.as_secs())),
        CertificateError::NotValidYet => "it is not valid yet".to_owned(),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("it is not valid before {}; is the clock right?", date(not_before.as_secs()))
        }
        CertificateError::UnknownIssuer => {
            "its issuer is not trusted: add the authority that issued it to the trusted roots, \
             or have the peer send its whole chain"
                .to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names = presented.iter().map(|name| plain_name(name)).collect::<Vec<_>>();
            let names = if names.is_empty() { "no name at all".to_owned() } else { names.join(", ") };
            format!("it is not valid for {}, only for {names}", expected.to_str())
        }
        CertificateError::NotValidForName => "it is not valid for the host's name".to_owned(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is meant for another use (extended key usage): servers need one for server authentication, \
             clients one for client authentication"
                .to_owned()
        }
        CertificateError::Revoked => "it was revoked".to_owned(),
        CertificateError::BadSignature => {
            "a signature does not match: another issuer of the same name made it, or it was changed".to_owned()
        }
        CertificateError::BadEncoding => "it is malformed".to_owned(),
        CertificateError::Other(other) if other.0.is::<Refused>() => other.0.to_string(),
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it belongs to an authority, not to a server or client".to_owned()
        }
        _ => why.to_string(),
    }
}

/// The name in `DnsName("example.com")` or `IpAddress(0::1)`, which is how rustls prints it.
fn plain_name(name: &str) -> String {
    let address = name.strip_prefix("IpAddress(").and_then(|rest| rest.strip_suffix(')'));
    match address.and_then(|address| address.parse::<IpAddr>().ok()) {
        Some(address) => address.to_string(),
        None => name.split('"').nth(1).unwrap_or(name).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::plain_name;

    #[test]
    fn names_of_certificates_are_plain() {
        for (printed, name) in [
            (r#"DnsName("chat.test")"#, "chat.test"),
            ("IpAddress(0::1)", "::1"),
            ("IpAddress(10.0.0.7)", "10.0.0.7"),
            ("DirectoryName", "DirectoryName"),
        ] {
            assert_eq!(plain_name(printed), name);
        }
    }
}
