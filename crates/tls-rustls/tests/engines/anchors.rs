//! Certificates that are trusted themselves: their limits still count.

use std::process::Command;
use tautline_testkit::certificate::{Authority, Leaf, Usage};
use tautline_testkit::pair::{Failure, Pair, Split};
use tautline_tls::{Certificate, ClientAuth, ClientConfig, Error, Roots, ServerConfig};
use tautline_tls_rustls::Engine;

fn handshake(server: &ServerConfig, client: &ClientConfig) -> Result<(), Failure> {
    let (server, client) = (Engine::server(server).unwrap(), Engine::client(client).unwrap());
    Pair::new(&client, &server, "localhost").unwrap().handshake(&mut Split::Whole)
}

fn trusting(certificate: &Certificate) -> ClientConfig {
    ClientConfig::default().with_roots(Roots::Pem(certificate.chain.clone()))
}

fn is_refused(result: Result<(), Failure>, words: &str) {
    let failure = result.unwrap_err();
    assert!(matches!(&failure.error, Error::Certificate(why) if why.contains(words)), "{failure:?}");
}

/// Has OpenSSL make a certificate that signs itself, with these extensions.
fn made_by_openssl(name: &str, extensions: &[&str]) -> Certificate {
    let folder = std::env::temp_dir().join(format!("tautline-openssl-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem"])
        .args(["-out", "cert.pem"])
        .args(extensions.iter().flat_map(|extension| ["-addext", extension]))
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let certificate = Certificate::new(read("cert.pem"), read("key.pem"));
    std::fs::remove_dir_all(&folder).unwrap();
    certificate
}

#[test]
fn what_openssl_makes_is_accepted() {
    let certificate = made_by_openssl("plain", &[]);
    handshake(&ServerConfig::new([certificate.clone()]), &trusting(&certificate)).unwrap();
}

/// A server's key may have any use that OpenSSL takes for a server's. A client's may not encipher keys alone.
#[test]
fn key_usage_counts_as_for_openssl() {
    for (usage, serves, asks) in [
        ("digitalSignature", true, true),
        ("keyEncipherment", true, false),
        ("keyAgreement", true, true),
        ("cRLSign", false, false),
    ] {
        let own = made_by_openssl(usage, &[&format!("keyUsage=keyCertSign,{usage}")]);
        let server = ServerConfig::new([own.clone()]);
        let results = [
            (serves, handshake(&server, &trusting(&own))),
            (asks, {
                let sound = made_by_openssl("sound", &[]);
                let server =
                    ServerConfig::new([sound.clone()]).with_client_auth(ClientAuth::Required(own.chain.clone()));
                handshake(&server, &trusting(&sound).with_certificate(own))
            }),
        ];
        for (accepted, result) in results {
            match accepted {
                true => result.unwrap(),
                false => is_refused(result, "another use (key usage)"),
            }
        }
    }
}

#[test]
fn the_use_of_a_trusted_certificate_counts() {
    let leaf = Leaf::new(&["localhost"]);
    let for_clients = leaf.with_usage(Usage::Client).signed_by_itself().unwrap();
    let for_servers = leaf.with_usage(Usage::Server).signed_by_itself().unwrap();
    is_refused(handshake(&ServerConfig::new([for_clients.clone()]), &trusting(&for_clients)), "another use");
    let demanding = |roots: &Certificate| {
        ServerConfig::new([for_servers.clone()]).with_client_auth(ClientAuth::Required(roots.chain.clone()))
    };
    let shows = |own: &Certificate| trusting(&for_servers).with_certificate(own.clone());
    // The server says why. The client has finished by then.
    is_refused(handshake(&demanding(&for_servers), &shows(&for_servers)), "another use");
    handshake(&demanding(&for_clients), &shows(&for_clients)).unwrap();
    // Its key may only sign certificates.
    let authority = Authority::new("Test").unwrap();
    let authority = Certificate::new(authority.certificate(), authority.key());
    is_refused(handshake(&demanding(&authority), &shows(&authority)), "another use (key usage)");
}

#[test]
fn another_certificate_of_the_same_name_is_refused() {
    let leaf = Leaf::new(&["localhost"]).with_usage(Usage::Both);
    let (own, other) = (leaf.signed_by_itself().unwrap(), leaf.signed_by_itself().unwrap());
    assert!(handshake(&ServerConfig::new([own.clone()]), &trusting(&other)).is_err());
    let both = [own.chain.clone(), other.chain].concat();
    handshake(&ServerConfig::new([own]), &ClientConfig::default().with_roots(Roots::Pem(both))).unwrap();
}
