use crate::failure::Failure;
use crate::output;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tautline_dev_cert::{Authority, KeyKind, Leaf, Usage, Validity};

/// Make a development authority and certificates.
///
/// Writes ca.pem (the authority that clients trust), cert.pem and key.pem (for the server) and, with --client, client.pem and
/// client-key.pem. The authority's own key is discarded, so it can issue no further certificate.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut cert                                 for localhost, 127.0.0.1 and ::1, in this folder
  taut cert --dir certs chat.test 10.0.0.7
  taut cert --key rsa2048 --force           an RSA key; replaces existing files
  taut serve --cert cert.pem --key key.pem
  taut connect --ca ca.pem wss://localhost:8443/")]
pub(crate) struct Arguments {
    /// DNS names and IP addresses of the certificate.
    #[arg(value_name = "NAME", default_values = LOOPBACK, value_parser = name)]
    names: Vec<String>,
    /// Folder to write to; it is made if it does not exist.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Kind of key.
    #[arg(long, default_value = "p256")]
    key: Key,
    /// Days until the certificates expire; browsers accept at most the default.
    #[arg(long, default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Also make a client certificate for this name.
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Replace existing files.
    #[arg(long)]
    force: bool,
}

/// Days for which certificates are valid. They begin one day earlier, which makes the 397 days that browsers accept.
pub(crate) const DAYS: u32 = 396;

/// Names of a development server.
pub(crate) const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Kind of key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Key {
    /// ECDSA over P-256: fast, and accepted by every client.
    #[default]
    P256,
    /// ECDSA over P-384.
    P384,
    /// RSA with 2048 bits.
    Rsa2048,
    /// RSA with 4096 bits: it takes seconds to make.
    Rsa4096,
    /// Ed25519: browsers reject it.
    Ed25519,
}

impl From<Key> for KeyKind {
    fn from(key: Key) -> Self {
        match key {
            Key::P256 => Self::P256,
            Key::P384 => Self::P384,
            Key::Rsa2048 => Self::Rsa2048,
            Key::Rsa4096 => Self::Rsa4096,
            Key::Ed25519 => Self::Ed25519,
        }
    }
}

/// A DNS name, with `*.` before it for all names one level below, or an IP address.
fn name(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("*.").unwrap_or(text);
    let label = |label: &str| {
        let inner = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (1..=63).contains(&label.len()) && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    if text.parse::<IpAddr>().is_ok() {
        Ok(text.to_owned())
    } else if !text.is_ascii() {
        Err("names must be ASCII: write an international name as xn--…".to_owned())
    } else if host.len() <= 253 && host.split('.').all(label) {
        Ok(text.to_owned())
    } else {
        Err("write a DNS name, as chat.test or *.chat.test, or an IP address".to_owned())
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let names: Vec<&str> = arguments.names.iter().map(String::as_str).collect();
    let files = server_files(&names, arguments.key, arguments.days, arguments.client.as_deref())?;
    write_all(&arguments.dir, &files, arguments.force)?;
    let at = |name| arguments.dir.join(name).display().to_string();
    let mut text: String = files.iter().map(|file| at(file.name) + "\n").collect();
    text += &format!("valid for {} days for {}\n", arguments.days, arguments.names.join(", "));
    text += &format!("serve with it:  taut serve --cert {} --key {}\n", at("cert.pem"), at("key.pem"));
    text += &format!("trust it:       taut connect --ca {} {}\n", at("ca.pem"), url(&arguments.names[0]));
    output::print(text)
}

/// The URL of a server of this name.
fn url(name: &str) -> String {
    if name.contains(':') { format!("wss://[{name}]:8443/") } else { format!("wss://{name}:8443/") }
}

/// Makes an authority and certificates, as files to write.
pub(crate) fn server_files(names: &[&str], key: Key, days: u32, client: Option<&str>) -> Result<Vec<File>, Failure> {
    let validity = Validity::Days(days);
    let authority = Authority::new("Tautline development authority")
        .map_err(|error| Failure::failed(format!("cannot make an authority: {error}")))?;
    let issue = |names: &[&str], usage| {
        authority.issue(&Leaf::new(names).with_key(key.into()).with_usage(usage).with_validity(validity)).map_err(
            |error| {
                let names = names.join(", ");
                Failure::usage(format!("cannot make a certificate for {names}: {error}; names must be ASCII"))
            },
        )
    };
    let server = issue(names, Usage::Server)?;
    let mut files = vec![
        File { name: "ca.pem", content: authority.certificate().as_bytes().to_vec(), secret: false },
        File { name: "cert.pem", content: server.chain, secret: false },
        File { name: "key.pem", content: server.key.to_vec(), secret: true },
    ];
    if let Some(name) = client {
        let client = issue(&[name], Usage::Client)?;
        files.push(File { name: "client.pem", content: client.chain, secret: false });
        files.push(File { name: "client-key.pem", content: client.key.to_vec(), secret: true });
    }
    Ok(files)
}

/// A file to write.
pub(crate) struct File {
    name: &'static str,
    content: Vec<u8>,
    secret: bool,
}

/// Writes all files, or none if one exists and `force` is false.
pub(crate) fn write_all(dir: &Path, files: &[File], force: bool) -> Result<(), Failure> {
    fs::create_dir_all(dir).map_err(|error| Failure::usage(format!("cannot make {}: {error}", dir.display())))?;
    for file in files {
        let path = dir.join(file.name);
        if force {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(unwritable(&path, &error)),
                _ => {}
            }
        } else if path.exists() {
            return Err(Failure::usage(format!(
                "{} exists; pass --force to replace it, or --dir to write elsewhere",
                path.display()
            )));
        }
    }
    for file in files {
        let path = dir.join(file.name);
        let mode = if file.secret { 0o600 } else { 0o644 };
        // A new file, since an existing file (or the target of a link) would keep its mode.
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)
            .and_then(|mut out| out.write_all(&file.content))
            .map_err(|error| unwritable(&path, &error))?;
    }
    Ok(())
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Kind;
    use std::os::unix::fs::PermissionsExt;

    /// A folder that is removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("taut-cert-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn arguments(dir: &Path, force: bool) -> Arguments {
        let names = LOOPBACK.map(str::to_owned).to_vec();
        Arguments { names, dir: dir.to_owned(), key: Key::P256, days: 2, client: Some("bob".into()), force }
    }

    #[test]
    fn only_the_owner_can_read_keys() {
        let dir = Folder::new("modes");
        run(&arguments(&dir.0, false)).unwrap();
        let mode = |name| fs::metadata(dir.0.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("key.pem"), mode("client-key.pem")), (0o600, 0o600));
        for name in ["ca.pem", "cert.pem", "client.pem"] {
            assert!(fs::read_to_string(dir.0.join(name)).unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
        }
    }

    #[test]
    fn files_are_replaced_only_with_force() {
        let dir = Folder::new("force");
        run(&arguments(&dir.0, false)).unwrap();
        fs::set_permissions(dir.0.join("key.pem"), PermissionsExt::from_mode(0o644)).unwrap();
        let before = fs::read(dir.0.join("key.pem")).unwrap();
        let failure = run(&arguments(&dir.0, false)).unwrap_err();
        assert_eq!(failure.kind, Kind::Usage);
        assert!(failure.to_string().contains("--force"), "{failure}");
        assert_eq!(fs::read(dir.0.join("key.pem")).unwrap(), before);
        run(&arguments(&dir.0, true)).unwrap();
        assert_ne!(fs::read(dir.0.join("key.pem")).unwrap(), before);
        assert_eq!(fs::metadata(dir.0.join("key.pem")).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn urls_of_ipv6_addresses_have_brackets() {
        assert_eq!(
            ["chat.test", "10.0.0.7", "::1"].map(url),
            ["wss://chat.test:8443/", "wss://10.0.0.7:8443/", "wss://[::1]:8443/"]
        );
    }

    #[test]
    fn names_are_dns_names_or_addresses() {
        for good in ["localhost", "chat.test", "*.chat.test", "xn--bcher-kva.example", "10.0.0.7", "::1"] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        let long = "a".repeat(64);
        for bad in
            ["", "a b", "https://chat.test", "chat.test:443", "-a", "a..b", "*", "*.*.test", "bücher.example", &long]
        {
            assert!(name(bad).is_err(), "{bad:?}");
        }
    }
}
