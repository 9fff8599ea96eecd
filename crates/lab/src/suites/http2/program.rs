//! Servers of other projects over HTTP/2: their configurations.

use super::super::guest::{self, Installed};
use super::super::running::{MOST, Place};
use crate::Error;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tautline_measure::named;

named! {
    /// A server of another project, that of the distribution.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Program {
        /// WebSockets over HTTP/2, in front of a plain server.
        Haproxy = "haproxy",
        /// Files over HTTP/2. It has no WebSockets there.
        Nginx = "nginx",
        /// Files over HTTP/2.
        H2o = "h2o",
    }
}

impl Program {
    /// The installed program. `Err` says why there is none.
    pub(super) fn find(self) -> Result<Installed<Self>, String> {
        let path = guest::packaged(self.name())?;
        let version = guest::version_of(&path, "-v")?;
        Ok(Installed::new(self, self.name(), path, version))
    }
}

impl Installed<Program> {
    /// The command that runs it, and its configuration. `files` is the folder with the page.
    pub(super) fn command(&self, place: &Place<'_>, files: &str) -> Result<(Command, String), Error> {
        let mut command = Command::new(&self.path);
        let text = match self.program {
            Program::Nginx => {
                command.arg("-p").arg(place.folder).arg("-c").arg(&place.file);
                // One process, which keeps the file open.
                let (http, server) = ("  open_file_cache max=10;\n", format!("    root {files};\n"));
                place.nginx("off", (http, " http2", &server))
            }
            Program::Haproxy => {
                command.args(["-db", "-f"]).arg(&place.file);
                place.haproxy(" alpn h2,http/1.1")?
            }
            Program::H2o => {
                command.args(["-m", "worker", "-c"]).arg(&place.file).env("OPENSSL_CONF", suites(place)?);
                h2o(place, files)
            }
        };
        Ok((command, text))
    }
}

/// Writes the configuration of the library OpenSSL for h2o, whose releases have no setting for the suites of TLS 1.3.
fn suites(place: &Place<'_>) -> Result<PathBuf, Error> {
    let file = place.folder.join("openssl.cnf");
    let text = "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = tls\n\
                [tls]\nCiphersuites = TLS_AES_128_GCM_SHA256\n";
    fs::write(&file, text).map_err(|error| Error::Failed(format!("{}: {error}", file.display())))?;
    Ok(file)
}

/// One thread. Without a user it would give up root, and with it the key in the folder of root.
fn h2o(place: &Place<'_>, files: &str) -> String {
    let Place { listen, chain, key, .. } = place;
    let user = if rustix::process::geteuid().is_root() { "user: root\n" } else { "" };
    format!(
        "{user}num-threads: 1\nmax-connections: {MOST}\nlisten:\n  host: {}\n  port: {}\n  ssl:\n    \
         certificate-file: {}\n    key-file: {}\n    minimum-version: TLSv1.3\n    \
         ocsp-update-interval: 0\n\
         hosts:\n  default:\n    paths:\n      /:\n        file.dir: {files}\n",
        listen.ip(),
        listen.port(),
        chain.display(),
        key.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_configuration_names_the_ends_of_its_server_and_its_certificate() {
        let folder = std::env::temp_dir().join(format!("taut-http2-{}", std::process::id()));
        let place = Place::of_test(&folder);
        for program in Program::ALL {
            let installed = Installed::new(program, program.name(), "/bin/true".into(), "1".to_owned());
            let (command, text) = installed.command(&place, "/the/files").unwrap();
            let to = if program == Program::Haproxy { "127.0.0.1:4002" } else { "/the/files" };
            assert!(command.get_args().any(|argument| argument == place.file), "{command:?}");
            assert!(text.contains("4001") && text.contains(to), "{text}");
            let certificate = if program == Program::Haproxy { "haproxy.pem" } else { "p256-key.pem" };
            assert!(text.contains(certificate), "{text}");
            // The suite is that of the others, by the program's own setting or by that of its library.
            let library = command.get_envs().find(|(name, _)| *name == "OPENSSL_CONF").and_then(|(_, file)| file);
            let library = library.map_or_else(String::new, |file| fs::read_to_string(file).unwrap());
            assert!((text + &library).contains("TLS_AES_128_GCM_SHA256"), "{program:?}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
