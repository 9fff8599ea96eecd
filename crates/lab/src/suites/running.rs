//! Servers of other projects that have a configuration of their own, beside ours.

use super::guest::{self, Guest, Installed};
use super::{Certificates, Key, Lab, Process};
use crate::{Error, load};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tautline::{Roots, Target};

/// A server that runs.
pub(super) enum Live {
    Ours(Process),
    Other(Running),
}

impl Live {
    /// The process that was started first.
    pub(super) fn pid(&self) -> u32 {
        match self {
            Self::Ours(process) => process.pid(),
            Self::Other(running) => running.guest.pid(),
        }
    }

    /// The server as a target of the load generator.
    pub(super) fn server(&self) -> Result<load::Server, Error> {
        match self {
            Self::Ours(process) => process.server(),
            Self::Other(running) => running.server(),
        }
    }

    /// The server for requests of HTTP.
    pub(super) fn http(&self) -> Result<load::Server, Error> {
        let mut server = self.server()?;
        let address = server.target.address.take();
        server.target = Target::raw(&format!("https://127.0.0.1:{}/", server.target.port())).map_err(Error::failed)?;
        server.target.address = address;
        Ok(server)
    }
}

/// The response to each request for [`PATH`]: its bytes, and their number.
pub(super) const BODY: usize = 1024;
pub(super) const PATH: &str = "/kib.txt";

pub(super) fn body() -> Vec<u8> {
    (b'a'..=b'z').cycle().take(BODY).collect()
}

/// Makes the folder with that file.
pub(super) fn files(certificates: &Certificates) -> Result<PathBuf, Error> {
    let files = certificates.folder().join("files");
    let written = fs::create_dir(&files).and_then(|()| fs::write(files.join(&PATH[1..]), body()));
    written.map_err(|error| Error::Failed(format!("{}: {error}", files.display())))?;
    Ok(files)
}

/// A server of another project that runs.
pub(super) struct Running {
    guest: Guest,
    authority: String,
    /// The file of its configuration.
    pub(super) file: PathBuf,
}

impl Running {
    /// Starts a program on the server's CPU, in front of the server at `backend`, and waits until it accepts connections. `make`
    /// returns its command, and the text of its configuration.
    pub(super) fn start<P>(
        lab: &Lab<'_>,
        installed: &Installed<P>,
        certificates: &Certificates,
        backend: SocketAddr,
        make: impl FnOnce(&Place<'_>) -> Result<(Command, String), Error>,
    ) -> Result<Self, Error> {
        let failed = |why: String| Error::Failed(format!("cannot start {}: {why}", installed.title()));
        let listen = guest::free_address().map_err(failed)?;
        let (folder, (chain, key)) = (certificates.folder(), certificates.paths(Key::P256));
        let file = folder.join(format!("{}-{}.conf", installed.name, listen.port()));
        let place = Place { listen, backend, folder, file, chain, key };
        let (mut command, text) = make(&place)?;
        let Place { file, .. } = place;
        fs::write(&file, text).map_err(|error| failed(format!("{}: {error}", file.display())))?;
        let log = file.with_extension("log");
        let guest = Guest::start(&mut command, listen, lab.placement.server, &log).map_err(failed)?;
        Ok(Self { guest, authority: certificates.authority().to_owned(), file })
    }

    fn server(&self) -> Result<load::Server, Error> {
        let mut server = load::Server::new(&format!("wss://{}/", self.guest.address))?;
        server.target.address = Some(self.guest.address.into());
        server.tls.roots = Roots::Pem(self.authority.clone().into_bytes());
        server.pid = Some(self.guest.pid());
        Ok(server)
    }
}

/// Clients at a time, and requests of a connection, that no program may refuse. Each client takes two descriptors.
pub(super) const MOST: u32 = 5_000;
pub(super) const REQUESTS: u32 = 1_000_000_000;

/// The places that a configuration names.
pub(super) struct Place<'a> {
    pub(super) listen: SocketAddr,
    /// The server behind.
    pub(super) backend: SocketAddr,
    /// The folder for files of the program itself.
    pub(super) folder: &'a Path,
    /// The file of the configuration.
    pub(super) file: PathBuf,
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
}

impl Place<'_> {
    /// A configuration of nginx with one worker. `http` and `server` have further lines of these blocks, and `options` is for its
    /// listener.
    pub(super) fn nginx(&self, master: &str, (http, options, server): (&str, &str, &str)) -> String {
        let Place { listen, folder, file, chain, key, .. } = self;
        let (folder, chain, key, port) = (folder.display(), chain.display(), key.display(), listen.port());
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("  {name}_temp_path {folder}/{name}-{port};\n"))
            .concat();
        format!(
            "daemon off;\nmaster_process {master};\nworker_processes 1;\n\
             pid {};\nerror_log stderr warn;\nevents {{ worker_connections {}; }}\n\
             http {{\n  access_log off;\n{temporary}{http}  \
             server {{\n    listen {listen} ssl{options};\n    keepalive_requests {REQUESTS};\n    \
             ssl_certificate {chain};\n    ssl_certificate_key {key};\n    ssl_protocols TLSv1.3;\n    \
             ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;\n{server}  }}\n}}\n",
            file.with_extension("pid").display(),
            2 * MOST + 100
        )
    }

    /// A configuration of HAProxy with one thread, whose listener has these options.
    pub(super) fn haproxy(&self, options: &str) -> Result<String, Error> {
        let Place { listen, backend, folder, chain, key, .. } = self;
        let failed = |error: std::io::Error| Error::Failed(format!("cannot write a certificate: {error}"));
        // It takes both from one file.
        let both = [fs::read(chain).map_err(failed)?, fs::read(key).map_err(failed)?].concat();
        let file = folder.join("haproxy.pem");
        if !file.exists() {
            fs::write(&file, both).map_err(failed)?;
        }
        Ok(format!(
            "global\n  nbthread 1\n  maxconn {MOST}\n  ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256\n  \
             ssl-default-bind-options ssl-min-ver TLSv1.3\n\
             defaults\n  mode http\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n  timeout tunnel 1h\n\
             frontend clients\n  bind {listen} ssl crt {}{options}\n  default_backend servers\n\
             backend servers\n  server one {backend}\n",
            file.display()
        ))
    }
}

#[cfg(test)]
impl<'a> Place<'a> {
    /// Places in an empty folder, with a certificate.
    pub(super) fn of_test(folder: &'a Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        let (chain, key) = (folder.join("p256.pem"), folder.join("p256-key.pem"));
        fs::write(&chain, "CHAIN\n").unwrap();
        fs::write(&key, "KEY\n").unwrap();
        let (listen, backend) = ("127.0.0.1:4001".parse().unwrap(), "127.0.0.1:4002".parse().unwrap());
        Self { listen, backend, folder, file: folder.join("one.conf"), chain, key }
    }
}
