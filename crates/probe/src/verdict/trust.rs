//! Certificates, versions and resumption.

use super::super::certificates::now;
use super::super::facts::{Answer, Certificate, Chain, Facts, Resumption, Scan, Trust};
use super::judgement::{Verdict, fault, note, warning};
use super::staple;

/// Days before its end from which a certificate should have been renewed.
const SOON: i64 = 14;

pub(super) fn judge(facts: &Facts) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    if let Some(chain) = &facts.chain {
        verdicts.extend(certificates(facts, chain));
    }
    if let Some(scan) = &facts.scan {
        verdicts.extend(versions(scan));
    }
    if let Some(resumption) = &facts.resumption {
        verdicts.extend(resumed(resumption));
    }
    verdicts
}

fn certificates(facts: &Facts, chain: &Chain) -> Vec<Verdict> {
    let Some(leaf) = chain.certificates.first() else {
        let remedy = "give the server a certificate";
        return vec![fault("chain.empty", "the server sends no certificate", remedy)];
    };
    let mut verdicts = dates(chain);
    if !chain.name_fits {
        let names = if leaf.names.is_empty() { "no name".to_owned() } else { leaf.names.join(", ") };
        let title = format!("the certificate is for {names}, not for {}", chain.name);
        let remedy = format!("issue it with {} among its names, or use a name that it has", chain.name);
        verdicts.push(fault("certificate.name", title, remedy));
    }
    if chain.trust == Trust::Untrusted && !chain.path_holds {
        verdicts.push(path(chain, leaf));
    }
    for one in chain.certificates.iter().filter(|one| one.weak_key) {
        let title = format!("the key of {} is weak: {}", one.subject, one.key);
        verdicts.push(fault("certificate.weak-key", title, "issue it for an EC P-256 key, or RSA with 2048 bits"));
    }
    // Nobody verifies the signature of an authority's own certificate.
    for one in chain.certificates.iter().filter(|one| one.weak_signature && !(one.is_ca && one.self_issued)) {
        let title = format!("the certificate of {} is signed with a broken hash: {}", one.subject, one.signature);
        verdicts.push(fault("certificate.weak-signature", title, "issue it again with SHA-256"));
    }
    let tls = facts.tls.as_ref();
    if let Some(error) = tls.and_then(|tls| tls.bad_signature.as_ref()) {
        let title = format!("the server's signature does not fit its certificate: {error}");
        verdicts.push(fault("tls.signature", title, "give the server the key that belongs to its certificate"));
    }
    match &chain.ocsp {
        Some(staple) => verdicts.extend(staple::judge(staple, now())),
        None if leaf.must_staple && tls.is_some_and(|tls| !tls.resumed) => verdicts.push(fault(
            "certificate.must-staple",
            "it demands a stapled OCSP response, and none is sent",
            "turn stapling on at the server (nginx: ssl_stapling on; taut serve: --acme or --ocsp)",
        )),
        None => {}
    }
    verdicts
}

fn dates(chain: &Chain) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (index, one) in chain.certificates.iter().enumerate() {
        let what =
            if index == 0 { "the certificate".to_owned() } else { format!("the certificate of {}", one.subject) };
        if one.malformed {
            let title = format!("certificate {} of the chain cannot be read", index + 1);
            verdicts.push(fault(
                "certificate.malformed",
                title,
                "look at the file: is it DER or PEM of a certificate?",
            ));
        } else if one.days_left < 0 {
            // The days left are rounded down, so the days since are one fewer.
            let title = match -one.days_left - 1 {
                0 => format!("{what} expired less than a day ago"),
                since => format!("{what} expired {} ago", days(since)),
            };
            let remedy = "renew it, reload the server, and let a job renew it from now on";
            verdicts.push(fault("certificate.expired", title, remedy));
        } else if one.days_until_valid > 0 {
            let title = format!("{what} begins to be valid in {}", days(one.days_until_valid));
            let remedy = "check the clocks of this machine and of the issuer, or wait";
            verdicts.push(fault("certificate.not-yet-valid", title, remedy));
        } else if index == 0 && one.days_left < SOON {
            let title = format!("{what} expires in {}", days(one.days_left));
            let remedy = "renew it now, and look why the job that renews it did not run";
            verdicts.push(warning("certificate.expires-soon", title, remedy));
        }
    }
    verdicts
}

fn days(count: i64) -> String {
    if count == 1 { "1 day".to_owned() } else { format!("{count} days") }
}

/// The reason why no path leads to a trusted authority.
fn path(chain: &Chain, leaf: &Certificate) -> Verdict {
    let last = chain.certificates.last().unwrap_or(leaf);
    if leaf.self_issued {
        let title = "the certificate is signed by itself: no authority vouches for it";
        let remedy = "get one from an authority, or trust this one by --ca FILE (for development: taut cert)";
        return fault("certificate.self-signed", title, remedy);
    }
    let Some(missing) = &chain.missing else {
        if last.self_issued {
            let title = format!("the chain ends at an authority that is not trusted here: {}", last.subject);
            let remedy =
                "pass its certificate by --ca FILE if it is yours, or get a certificate from a public authority";
            return fault("chain.untrusted", title, remedy);
        }
        let error = chain.error.as_deref().unwrap_or("no reason is known");
        let title = format!("the chain does not verify: {error}");
        return fault("chain.invalid", title, "issue the chain again; openssl verify shows each step");
    };
    match &last.issuer_url {
        Some(url) => fault(
            "chain.incomplete",
            format!("an intermediate certificate is missing: {missing}"),
            format!("append it to the server's certificate file (it is at {url}): many clients do not fetch it"),
        ),
        None => fault(
            "chain.unknown-issuer",
            format!("the issuer is neither sent nor trusted here: {missing}"),
            "if it is an intermediate, append its certificate to the server's certificate file (the fullchain file); \
             if it is an authority of your own, pass it by --ca FILE",
        ),
    }
}

fn versions(scan: &Scan) -> Vec<Verdict> {
    let taken = |name: &str| scan.versions.iter().any(|offer| offer.name == name && offer.answer == Answer::Taken);
    let refused = |name: &str| scan.versions.iter().any(|offer| offer.name == name && offer.answer == Answer::Refused);
    let mut verdicts = Vec::new();
    if refused("TLSv1.3") && taken("TLSv1.2") {
        let title = "TLS 1.2 only: each connection takes a round trip more than with TLS 1.3";
        let remedy = "turn TLS 1.3 on (nginx: ssl_protocols TLSv1.2 TLSv1.3; OpenSSL from 1.1.1 on)";
        verdicts.push(warning("tls.no-1.3", title, remedy));
    }
    let old: Vec<&str> = ["TLSv1.0", "TLSv1.1"].into_iter().filter(|name| taken(name)).collect();
    if !old.is_empty() {
        let title = format!("the server still accepts {}", old.join(" and "));
        verdicts.push(warning(
            "tls.old-version",
            title,
            "turn it off (RFC 8996): browsers have not used it since 2020",
        ));
    }
    verdicts
}

fn resumed(resumption: &Resumption) -> Option<Verdict> {
    if resumption.tickets == 0 {
        let title = "sessions cannot be resumed: every connection pays a full handshake";
        let remedy =
            "turn tickets on (nginx: ssl_session_tickets on; HAProxy: no no-tls-tickets; taut serve: --tickets 2)";
        return Some(warning("resumption.none", title, remedy));
    }
    if resumption.resumes == Some(false) {
        let title = "the server gives tickets, but does not resume from them";
        let remedy = "share the ticket keys among all servers of this address, and keep them over restarts (nginx: \
                      ssl_session_ticket_key; taut serve: --ticket-secret)";
        return Some(warning("resumption.broken", title, remedy));
    }
    let other = resumption.other_address.as_ref().filter(|other| !other.resumes)?;
    let title = format!("a session does not resume at the other address {}", other.address);
    let remedy = "share the ticket keys among the servers, if all of them should resume each other's sessions";
    Some(note("resumption.other-address", title, remedy))
}
