//! `--proxy-protocol-from` and `--forwarded-from`.

use super::tls::eventually;
use super::{Home, Served};
use std::fs::read_to_string;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";

/// Sends bytes in pieces, and returns the answer. It is empty if the server resets the connection.
fn answer(port: &str, bytes: &[u8], piece: usize) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    for piece in bytes.chunks(piece) {
        // The server may have hung up.
        let _ = stream.write_all(piece);
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The addresses in the access log, once it has this number of lines.
fn clients(home: &Home, count: usize) -> Vec<String> {
    let lines = || read_to_string(home.0.join("access.log")).unwrap();
    eventually("the lines are written", || lines().lines().count() >= count);
    lines().lines().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect()
}

fn serve(home: &Home, options: &[&str]) -> Served {
    home.serve(&[&["--plain", "-v", "--access-log", "access.log"], options].concat())
}

#[test]
fn the_client_of_a_header_is_in_the_access_log_and_a_wrong_header_in_the_log() {
    let home = Home::new();
    let server = serve(&home, &["--proxy-protocol-from", "10.0.0.0/8,127.0.0.1"]);
    let v1 = format!("PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n{GET}\r\n");
    for piece in [1, 1_000] {
        assert!(answer(server.port(), v1.as_bytes(), piece).starts_with("HTTP/1.1 200 "));
    }
    let v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x08\xc6\x33\x64\x01\x12\x67\x01\xbb".as_slice();
    let get = format!("{GET}\r\n");
    assert!(answer(server.port(), &[v2, get.as_bytes()].concat(), 7).starts_with("HTTP/1.1 200 "));
    assert_eq!(clients(&home, 3), ["192.0.2.7:4711", "192.0.2.7:4711", "192.0.2.8:4711"]);
    let long = [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff".as_slice(), &[0; 64 << 10]].concat();
    for wrong in [get.as_bytes(), b"PROXY TCP9 x\r\n", &long] {
        assert_eq!(answer(server.port(), wrong, 100_000), "", "{wrong:?}");
    }
    let refused = home.run(&["connect", &server.url]);
    assert!(refused.code == Some(3) && refused.err.contains("(PROXY protocol)"), "{refused:?}");
    let said = server.stop().err;
    for line in [
        "refused: it sent no header of the PROXY protocol",
        "refused: it sent a malformed header",
        "more than 4096 bytes",
    ] {
        let found = said.lines().any(|logged| logged.contains("127.0.0.1:") && logged.contains(line));
        assert!(found, "{line}: {said}");
    }
}

#[test]
fn a_header_that_nobody_expects_is_named_in_the_log() {
    let home = Home::new();
    for options in [&["--plain", "-v"][..], &["-v"]] {
        let server = home.serve(options);
        let header = format!("PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n{GET}\r\n");
        assert!(!answer(server.port(), header.as_bytes(), 1_000).starts_with("HTTP/1.1 200 "));
        let said = server.stop().err;
        let line = "the first bytes look like a header of the PROXY protocol, version 1; if this peer is a proxy";
        assert!(said.contains(line), "{options:?}: {said}");
    }
}

#[test]
fn requests_of_listed_proxies_name_their_client() {
    let home = Home::new();
    let server = serve(&home, &["--forwarded-from", "127.0.0.0/8", "--forwarded-from", "10.0.0.0/8"]);
    let request = format!("{GET}X-Forwarded-For: 198.51.100.1, 192.0.2.7, 10.0.0.3\r\n\r\n");
    assert!(answer(server.port(), request.as_bytes(), 1_000).starts_with("HTTP/1.1 200 "));
    assert_eq!(clients(&home, 1), ["192.0.2.7:0"]);
}

#[cfg(feature = "proxy")]
#[test]
fn a_proxy_of_ours_passes_the_client_of_the_proxy_before_it_on() {
    let home = Home::new();
    let server = serve(&home, &["--forwarded-from", "127.0.0.1"]);
    let to = server.url.replace("ws://", "http://");
    let header = format!("PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n{GET}\r\n");
    let field = format!("{GET}X-Forwarded-For: 10.9.9.9, 192.0.2.8\r\n\r\n");
    for (option, request) in [("--proxy-protocol-from", header), ("--forwarded-from", field)] {
        let proxy = home.proxy(&["--plain", "--to", &to, option, "127.0.0.1"]);
        assert!(answer(proxy.port(), request.as_bytes(), 1_000).starts_with("HTTP/1.1 200 "), "{option}");
    }
    assert_eq!(clients(&home, 2), ["192.0.2.7:0", "192.0.2.8:0"]);
    let lines = read_to_string(home.0.join("access.log")).unwrap();
    assert!(lines.lines().all(|line| line.contains(" direct=127.0.0.1:")), "{lines}");
}

#[test]
fn options_that_cannot_be_right_are_refused() {
    let home = Home::new();
    for (options, word) in [
        (&["--proxy-protocol-from", "10.0.0.1/8"][..], "10.0.0.0/8"),
        (&["--forwarded-from", "proxy.example"], "ADDRESS/BITS"),
        (&["--forwarded-header", "x-real-ip", "--forwarded-from", "unix"], "x-forwarded-for"),
        (&["--others-without-header"], "--proxy-protocol-from"),
    ] {
        let said = home.run(&[&["serve", "--plain"], options].concat());
        assert!(said.code == Some(2) && said.err.contains(word), "{options:?}: {said:?}");
    }
}

/// A running HAProxy, which ends on drop.
struct HaProxy(Child);

impl Drop for HaProxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// HAProxy writes headers of both versions in front of `taut serve`, and reads those that we write.
#[test]
fn haproxy_and_we_read_each_others_headers() {
    if Command::new("haproxy").arg("-v").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: there is no haproxy (apt-get install haproxy)");
        return;
    }
    let home = Home::new();
    let server = serve(&home, &["--proxy-protocol-from", "127.0.0.1"]);
    let ports: Vec<u16> = (0..4).map(|_| free_port()).collect();
    let sends = [
        "send-proxy",
        "send-proxy-v2",
        "send-proxy-v2 proxy-v2-options crc32c,unique-id",
        "send-proxy-v2 proxy-v2-options ssl,cert-cn,crc32c",
    ];
    let mut config = "defaults\n mode tcp\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n".to_owned();
    for (number, (port, send)) in ports.iter().zip(sends).enumerate() {
        // The last one also reads a header, which this test writes.
        let reads = if number == 3 { " accept-proxy" } else { "" };
        config += &format!(
            "listen l{number}\n bind 127.0.0.1:{port}{reads}\n unique-id-format %[uuid]\n \
             server s 127.0.0.1:{} {send}\n",
            server.port()
        );
    }
    std::fs::write(home.0.join("haproxy.cfg"), config).unwrap();
    let haproxy = Command::new("haproxy").arg("-db").arg("-f").arg(home.0.join("haproxy.cfg")).spawn().unwrap();
    let _running = HaProxy(haproxy);
    let mut expected = Vec::new();
    for (number, port) in ports.iter().enumerate() {
        eventually("haproxy listens", || TcpStream::connect(("127.0.0.1", *port)).is_ok());
        let mut stream = TcpStream::connect(("127.0.0.1", *port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let client = if number == 3 {
            let mut header = tautline::layers::buf::Buf::new();
            let named =
                tautline::ProxyHeader::new("192.0.2.9:99".parse().unwrap(), "198.51.100.1:443".parse().unwrap());
            named.write_v2(true, &mut header).unwrap();
            stream.write_all(header.filled()).unwrap();
            "192.0.2.9:99".to_owned()
        } else {
            stream.local_addr().unwrap().to_string()
        };
        write!(stream, "{GET}\r\n").unwrap();
        let mut answer = String::new();
        match stream.read_to_string(&mut answer) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{answer}"),
        }
        assert!(answer.starts_with("HTTP/1.1 200 "), "{number}: {answer}");
        expected.push(client);
        assert_eq!(clients(&home, expected.len()), expected, "{}", sends[number]);
    }
}

/// HAProxy as a server of `taut proxy`: it believes our headers, and names the client in a field.
#[cfg(feature = "proxy")]
#[test]
fn haproxy_behind_a_proxy_of_ours_knows_the_client() {
    if Command::new("haproxy").arg("-v").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: there is no haproxy (apt-get install haproxy)");
        return;
    }
    let home = Home::new();
    let port = free_port();
    let config = format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         frontend f\n bind 127.0.0.1:{port} accept-proxy\n \
         http-request return status 200 content-type text/plain lf-string \"%ci:%cp %fi:%fp|\"\n"
    );
    std::fs::write(home.0.join("haproxy.cfg"), config).unwrap();
    let haproxy = Command::new("haproxy").arg("-db").arg("-f").arg(home.0.join("haproxy.cfg")).spawn().unwrap();
    let _running = HaProxy(haproxy);
    eventually("haproxy listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    for version in ["v1", "v2", "v2-tls"] {
        let text = format!(
            "[[route]]\nto = \"app\"\n[backend.app]\nservers = [\"http://127.0.0.1:{port}\"]\n\
             proxy-protocol = {version:?}\ncheck = {{ path = \"/\" }}\n"
        );
        std::fs::write(home.0.join("taut.toml"), text).unwrap();
        let proxy = home.proxy(&["--plain", "--config", "taut.toml"]);
        for _ in 0..2 {
            let mut stream = TcpStream::connect(("127.0.0.1", proxy.port().parse().unwrap())).unwrap();
            write!(stream, "{GET}\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            let named = format!("{} 127.0.0.1:{}|", stream.local_addr().unwrap(), proxy.port());
            assert!(answer.ends_with(&named), "{version}: {answer:?}, and not {named}");
        }
        let said = proxy.stop().err;
        assert!(!said.contains("unhealthy"), "{version}: {said}");
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
