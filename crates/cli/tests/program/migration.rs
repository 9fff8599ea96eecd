//! The configurations in `docs/proxy.md`, and those of other proxies with ours beside them in `docs/migration`.

use super::Home;
use super::tls::write_certificate;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use tautline_testkit::certificate::{Authority, Leaf, Validity};

/// A folder with the files that the configurations name.
fn home() -> Home {
    let home = Home::new();
    let authority = Authority::new("Test").unwrap();
    write_certificate(&home, &authority, Validity::Valid);
    for (name, host) in [("www", "www.example"), ("api", "api.example"), ("in", "in.example")] {
        let certificate = authority.issue(&Leaf::new(&[host])).unwrap();
        fs::write(home.0.join(format!("{name}.pem")), &certificate.chain).unwrap();
        fs::write(home.0.join(format!("{name}-key.pem")), &certificate.key).unwrap();
    }
    let read = |name: &str| fs::read_to_string(home.0.join(name)).unwrap();
    let (chain, key) = (read("cert.pem"), read("key.pem"));
    fs::create_dir(home.0.join("static")).unwrap();
    for (name, text) in [
        ("partners.pem", authority.certificate()),
        ("staff.pem", authority.certificate()),
        ("app.pem", chain.as_str()),
        ("app-key.pem", &key),
        ("app-and-key.pem", &(chain.clone() + &key)),
        ("502.html", "<!doctype html><title>Soon</title>"),
        ("502.http", "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"),
    ] {
        fs::write(home.0.join(name), text).unwrap();
    }
    home
}

/// The blocks of a page in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page)).unwrap();
    let begin = format!("```{language}\n");
    text.split(&begin).skip(1).map(|part| part.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// The words of `taut check` about a configuration, unless it is right.
fn faults(home: &Home, text: &str) -> Option<String> {
    // Ports below 1024 are for root.
    fs::write(home.0.join("taut.toml"), text.replace(":443\"", ":8443\"")).unwrap();
    let finished = home.run(&["check", "taut.toml"]);
    (finished.code != Some(0)).then_some(finished.out + &finished.err)
}

#[test]
fn every_configuration_in_the_documents_is_right() {
    let home = home();
    for (page, number) in
        [("migration/nginx.md", 1), ("migration/haproxy.md", 1), ("migration/caddy.md", 2), ("proxy.md", 3)]
    {
        let all = blocks(page, "toml");
        assert_eq!(all.len(), number, "{page}");
        let [first, further @ ..] = all.as_slice() else { panic!("{page} has no configuration") };
        assert_eq!(faults(&home, first), None, "{page}");
        for further in further {
            // A part of the first one, which has the servers. `[acme]` takes the place of `certificates`, and so do others.
            let is_key = further.starts_with("certificates");
            let own = |line: &&str| !(further.starts_with("[acme]") || is_key) || !line.starts_with("certificates");
            let rest = first.lines().filter(own).collect::<Vec<_>>().join("\n");
            let whole = if is_key { format!("{further}\n{rest}") } else { format!("{rest}\n{further}") };
            match faults(&home, &whole) {
                Some(said) if further.starts_with("[acme]") && said.contains("feature") => {}
                said => assert_eq!(said, None, "{page}"),
            }
        }
    }
    let wrong = blocks("migration/nginx.md", "toml").concat().replace("max-connections", "max-conns");
    assert!(faults(&home, &wrong).is_some_and(|said| said.contains("max-connections")));
}

/// Has another proxy check its configuration in a page.
fn others_accept(page: &str, language: &str, own: impl Fn(String) -> String, command: &[&str]) {
    let installed = Command::new(command[0]).arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let all = blocks(page, language);
    assert_eq!(all.len(), 1, "{page}");
    if installed.is_err() {
        println!("SKIPPED: {} is not installed", command[0]);
        return;
    }
    let home = home();
    fs::write(home.0.join("theirs"), own(all.concat())).unwrap();
    let output = home.command(Path::new(command[0]), &command[1..]).output().unwrap();
    assert!(output.status.success(), "{page}: {output:?}");
}

#[test]
fn nginx_accepts_its_configuration() {
    // Without the ports and folders of the system.
    let own = |text: String| {
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|of| format!("{of}_temp_path temp;"));
        text.replace("listen 80;", "listen unix:80.sock;")
            .replace("listen 443 ssl;", "listen unix:443.sock ssl;")
            .replace("http {", &format!("http {{ access_log off; {}", temporary.concat()))
    };
    let global = "error_log stderr; pid nginx.pid;";
    others_accept("migration/nginx.md", "nginx", own, &["nginx", "-t", "-p", ".", "-c", "theirs", "-g", global]);
}

#[test]
fn haproxy_accepts_its_configuration() {
    others_accept("migration/haproxy.md", "haproxy", |text| text, &["haproxy", "-c", "-f", "theirs"]);
}

#[test]
fn caddy_accepts_its_configuration() {
    let command = ["caddy", "adapt", "--adapter", "caddyfile", "--config", "theirs"];
    others_accept("migration/caddy.md", "caddyfile", |text| text, &command);
}

#[test]
fn each_fault_of_a_file_has_a_line_of_its_own() {
    let home = home();
    let two = "plain = true\n[[route]]\nto = \"x\"\n[[route]]\nhosts = [\"a\"]\nto = \"y\"\n[backend.z]\nservers = [\"http://a\"]\n";
    let said = faults(&home, two).unwrap();
    for line in ["taut.toml:3: there is no backend \"x\"", "taut.toml:6: there is no backend \"y\""] {
        assert!(said.lines().any(|told| told.starts_with("taut: ") && told.contains(line)), "{said}");
    }
}
