use super::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::io::Write;
use tautline_engine::Offload;
use tautline_testkit::certificate::{Authority, KeyKind, Leaf};
use tautline_tls::Engine;
use tautline_tls_rustls::fused;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tautline-files-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn authority() -> Authority {
    Authority::new("Test").unwrap()
}

fn issued() -> Certificate {
    authority().issue(&Leaf::new(&["localhost"])).unwrap()
}

fn refused(files: &ServerFiles, words: &[&str]) {
    // Some errors appear when a file is read, others when the configuration is used.
    let result = files.load().and_then(|config| Ok(fused::Engine::server(&config).map(drop)?));
    let error = result.unwrap_err().to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{error} should say {words:?}");
}

#[test]
fn errors_name_the_file() {
    let folder = Folder::new("wrong");
    let (one, other) = (issued(), issued());
    let chain = folder.write("chain.pem", &one.chain);
    let key = folder.write("key.pem", &one.key);
    let good = CertificateFiles::new(chain, key);
    let with = |files: CertificateFiles| ServerFiles::new(ServerConfig::default()).certificate(files);
    fused::Engine::server(&with(good.clone()).load().unwrap()).unwrap();
    for (name, bytes, words) in [
        ("empty.pem", &b""[..], "the file is empty"),
        ("garbage.pem", &[0xff; 300], "it is not PEM"),
        ("missing", &[], "No such file"),
    ] {
        let path = if name == "missing" { folder.0.join(name) } else { folder.write(name, bytes) };
        refused(&with(CertificateFiles { chain: path.clone(), ..good.clone() }), &["the certificate", name, words]);
        refused(&with(CertificateFiles { key: path.clone(), ..good.clone() }), &["the key", name, words]);
        refused(&with(good.clone()).client_roots(path.clone()), &["the authority for client", name, words]);
        if name != "garbage.pem" {
            refused(&with(CertificateFiles { ocsp: Some(path), ..good.clone() }), &["the OCSP response", name, words]);
        }
    }
    let wrong = folder.write("wrong.pem", other.key);
    refused(&with(CertificateFiles { key: wrong, ..good.clone() }), &["chain.pem", "wrong.pem", "does not belong"]);
    let response = folder.write("response.der", "no response");
    refused(&with(CertificateFiles { ocsp: Some(response), ..good.clone() }), &["chain.pem", "OCSP response"]);
    let cut = folder.write("cut.pem", &one.chain[..one.chain.len() / 2]);
    refused(&with(CertificateFiles { chain: cut, ..good.clone() }), &["cut.pem", "PEM"]);
    let swapped = CertificateFiles::new(good.key, good.chain);
    refused(
        &with(swapped),
        &["the certificate", "key.pem", "it is not PEM: it does not contain \"BEGIN CERTIFICATE\""],
    );
}

/// Each certificate has its own demand on clients, and a change of its authorities is a change of the files.
#[test]
fn a_certificate_has_authorities_of_its_own() {
    let folder = Folder::new("own-roots");
    let certificate = issued();
    let chain = folder.write("cert.pem", &certificate.chain);
    let key = folder.write("key.pem", certificate.key.as_slice());
    let roots: Vec<u8> = authority().certificate().into();
    let ca = folder.write("ca.pem", &roots);
    let plain = CertificateFiles::new(&chain, &key);
    let [needs, takes] = [("needs", true), ("takes", false)].map(|(rule, required)| {
        ServerFiles::new(ServerConfig::default())
            .certificate(plain.clone())
            .certificate(plain.clone().with_client_roots(rule, &ca, required))
    });
    let config = needs.load().unwrap();
    assert!(config.certificates[0].client_rule.is_none() && config.client_auth == ClientAuth::None);
    let rule_of = |files: &ServerFiles| files.load().unwrap().certificates[1].client_rule.clone();
    assert!(rule_of(&needs) == Some(ClientRule::new("needs", ClientAuth::Required(roots.clone()))));
    assert!(rule_of(&takes) == Some(ClientRule::new("takes", ClientAuth::Optional(roots))));
    assert!(!needs.have_changed());
    fs::write(&ca, "no authority").unwrap();
    assert!(needs.have_changed());
    let Err(error) = needs.load() else { panic!("it was taken") };
    let said = error.to_string();
    assert!(said.contains("authority for client certificates") && said.contains("ca.pem"), "{said}");
}

#[test]
fn concurrent_reloads_apply_in_the_order_of_reading() {
    let folder = Folder::new("order");
    let files = |name: &str, kind, pipe| {
        let certificate = authority().issue(&Leaf::new(&["localhost"]).with_key(kind)).unwrap();
        let chain = folder.write(&format!("{name}.pem"), certificate.chain);
        let key = folder.0.join(format!("{name}.key"));
        if pipe {
            mknodat(CWD, &key, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        } else {
            fs::write(&key, &certificate.key).unwrap();
        }
        let files = ServerFiles::new(ServerConfig::default());
        (files.certificate(CertificateFiles::new(chain, key.clone())), key, certificate.key)
    };
    let (old, pipe, key) = files("old", KeyKind::P384, true);
    let (new, ..) = files("new", KeyKind::P256, false);
    let engine = fused::Engine::server(&new.load().unwrap()).unwrap();
    let reloader = Reloader::new(engine.clone(), Offload::default());
    let reload = |files: ServerFiles| {
        let reloader = reloader.clone();
        std::thread::spawn(move || reloader.reload_files(&files).unwrap())
    };
    let slow = reload(old);
    // The pipe opens once the slow reload reads from it. That reload is then in the middle of its files.
    let mut pipe = fs::OpenOptions::new().write(true).open(pipe).unwrap();
    let fast = reload(new);
    std::thread::sleep(Duration::from_millis(50));
    pipe.write_all(&key).unwrap();
    drop(pipe);
    slow.join().unwrap();
    fast.join().unwrap();
    assert_eq!(reloader.reloads().done, 2);
    assert_eq!(reloader.key_costs(), engine.key_costs());
    assert_eq!(reloader.key_costs()[0].kind, "ECDSA-256");
}

#[test]
fn client_roots_keep_optional_client_certificates_optional() {
    let folder = Folder::new("roots");
    let roots = folder.write("roots.pem", issued().chain);
    let of = |client_auth| {
        let base = ServerConfig::default().with_client_auth(client_auth);
        ServerFiles::new(base).client_roots(roots.clone()).load().unwrap().client_auth
    };
    assert!(matches!(of(ClientAuth::None), ClientAuth::Required(pem) if !pem.is_empty()));
    assert!(matches!(of(ClientAuth::Required(Vec::new())), ClientAuth::Required(pem) if !pem.is_empty()));
    assert!(matches!(of(ClientAuth::Optional(Vec::new())), ClientAuth::Optional(pem) if !pem.is_empty()));
}

#[test]
fn ticket_secrets_are_read_from_a_file_that_may_change() {
    let folder = Folder::new("secret");
    let path = folder.write("secret", "a".repeat(64));
    let file = TicketFile::new(path.clone());
    assert_eq!(file.secrets().unwrap()[0].bytes(), "a".repeat(64).as_bytes());
    fs::write(&path, format!("{}\n{}\n", "b".repeat(32), "a".repeat(64))).unwrap();
    assert_eq!(file.secrets().unwrap().len(), 2);
    fs::write(&path, "short").unwrap();
    let error = file.secrets().unwrap_err().to_string();
    assert!(error.contains("/secret: ticket secret: 5 bytes are too few"), "{error}");
    fs::remove_file(&path).unwrap();
    assert!(file.secrets().unwrap_err().to_string().contains("cannot read the ticket secret"));
}

#[test]
fn every_kind_of_replacement_is_noticed() {
    let folder = Folder::new("stamps");
    let certificate = issued();
    for version in ["1", "2", "3"] {
        fs::create_dir(folder.0.join(version)).unwrap();
        folder.write(&format!("{version}/chain.pem"), &certificate.chain);
        folder.write(&format!("{version}/key.pem"), &certificate.key);
    }
    let link = |to: &str, name: &str| {
        let _ = fs::remove_file(folder.0.join("new"));
        std::os::unix::fs::symlink(to, folder.0.join("new")).unwrap();
        fs::rename(folder.0.join("new"), folder.0.join(name)).unwrap();
    };
    // Kubernetes replaces a link to a folder.
    link("1", "data");
    let within = folder.0.join("data");
    let files = CertificateFiles::new(within.join("chain.pem"), within.join("key.pem"));
    let files = ServerFiles::new(ServerConfig::default()).certificate(files);
    files.load().unwrap();
    let changed = |what: &str| {
        assert!(files.have_changed(), "{what}");
        let _ = files.load();
        assert!(!files.have_changed(), "{what}: no change since");
    };
    link("2", "data");
    changed("another folder");
    // certbot replaces a link to each file.
    link("../3/chain.pem", "2/chain.pem");
    changed("another link");
    fs::write(folder.0.join("3/chain.pem"), &certificate.chain).unwrap();
    changed("written in place, with the same bytes");
    fs::rename(folder.0.join("1/key.pem"), folder.0.join("2/key.pem")).unwrap();
    changed("another file of the same age and length");
    fs::remove_file(folder.0.join("2/key.pem")).unwrap();
    changed("gone");
    folder.write("2/key.pem", &certificate.key);
    changed("there again");
}
