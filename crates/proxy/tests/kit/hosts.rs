//! A proxy of three hosts: one asks its clients for nothing, one needs certificates, one takes them.
#![allow(dead_code, reason = "each test binary uses a part of this")]

use crate::kit::{head, raw_config, reader, scripted};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;
use tautline::layers::tls::mixed::Kind;
use tautline::{Certificate, Fused, Server, ServerConfig, ServerFiles, ServerHandle, Tls, http2};
use tautline_dev_cert::{Authority, Leaf, Usage};
use tautline_proxy::edge::Edge;
use tautline_proxy::plan::CertificatePaths;
use tautline_proxy::{Live, Plan, config};

pub(crate) const OPEN: &str = "open.example";
pub(crate) const STRICT: &str = "strict.example";
pub(crate) const LAX: &str = "lax.example";

/// The rules of the hosts in that order.
pub(crate) const RULES: [&str; 3] =
    ["", ", client-ca = \"ca.pem\"", ", client-ca = \"ca.pem\", client-certificate = \"optional\""];

/// The files of a proxy, and its authorities.
pub(crate) struct Hosts {
    folder: PathBuf,
    /// The authority of the hosts.
    pub(crate) authority: Authority,
    /// The authority of clients.
    staff: Authority,
    /// A server that answers with the head of the request, in small letters.
    server: String,
}

impl Hosts {
    /// `name` is that of the test.
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("taut-proxy-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (authority, staff) = (Authority::new("Hosts").unwrap(), Authority::new("Staff").unwrap());
        for host in [OPEN, STRICT, LAX] {
            let Certificate { chain, key, .. } = authority.issue(&Leaf::new(&[host])).unwrap();
            std::fs::write(folder.join(format!("{host}.pem")), chain).unwrap();
            std::fs::write(folder.join(format!("{host}-key.pem")), &key).unwrap();
        }
        std::fs::write(folder.join("ca.pem"), staff.certificate()).unwrap();
        let (server, _) = scripted(|mut stream| {
            let mut reader = reader(&stream);
            while let Some(head) = head(&mut reader) {
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()).unwrap();
            }
        });
        Self { folder, authority, staff, server }
    }

    /// The configuration with these rules.
    pub(crate) fn text(&self, rules: [&str; 3]) -> String {
        let entries: Vec<String> = [OPEN, STRICT, LAX]
            .iter()
            .zip(rules)
            .map(|(host, rule)| format!("  {{ cert = \"{host}.pem\", key = \"{host}-key.pem\"{rule} }},\n"))
            .collect();
        let server = &self.server;
        format!(
            "certificates = [\n{}]\n[[route]]\nto = \"app\"\n[backend.app]\nservers = [{server:?}]\n",
            entries.concat()
        )
    }

    pub(crate) fn parse(&self, text: &str, before: Option<&Plan>) -> Result<Plan, String> {
        config::parse(&self.folder.join("taut.toml"), text, before, Instant::now()).map_err(|faults| faults.to_string())
    }

    /// The proxy with these rules.
    pub(crate) fn start(&self, rules: [&str; 3]) -> (ServerHandle, Live) {
        let plan = self.parse(&self.text(rules), None).unwrap();
        let tls = Tls { engine: Kind(Fused, Fused), config: tls(&plan) };
        let live = Live::new(plan);
        let server = Server::new(tls).config(raw_config()).http2(http2::Limits::default());
        let edges = live.clone();
        let server = server.listen("127.0.0.1:0".parse().unwrap());
        (server.start(move |_| Edge::new(edges.clone())).unwrap(), live)
    }

    /// Replaces the rules of a proxy.
    pub(crate) fn reload(&self, (proxy, live): &(ServerHandle, Live), rules: [&str; 3]) {
        let plan = self.parse(&self.text(rules), Some(&live.plan())).unwrap();
        proxy.reloader().reload(&tls(&plan)).unwrap();
        live.replace(plan);
    }

    /// A certificate of a client.
    pub(crate) fn own(&self) -> Certificate {
        self.staff.issue(&Leaf::new(&["ada.example"]).with_usage(Usage::Client)).unwrap()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The configuration of TLS, as `taut proxy` makes it of a plan.
fn tls(plan: &Plan) -> ServerConfig {
    let files = plan.certificates.iter().map(CertificatePaths::files);
    files.fold(ServerFiles::new(ServerConfig::default()), ServerFiles::certificate).load().unwrap()
}

/// Whether an answer of the server, or of its proxy, tells of the client's certificate.
pub(crate) fn names_ada(answer: &str) -> bool {
    assert!(!answer.contains("forged"), "{answer}");
    let names = answer.contains("x-client-cert-subject: cn=ada.example");
    assert_eq!(answer.contains("x-client-cert"), names, "{answer}");
    names
}
