//! `taut proxy`: in front of a server of ours and of scripted ones.

use super::admin::exchange;
use super::tls::{eventually, hang_up, openssl_is_there};
use super::{Finished, Home, Served};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use tautline_dev_cert::{Authority, Leaf, Usage};

/// A server that answers each request with its own name and the target that it was asked for. Returns its URL.
fn named(name: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || answer(stream, name));
        }
    });
    url
}

fn answer(mut stream: TcpStream, name: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let body = format!("{name} {}", head.split(' ').nth(1).unwrap());
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

impl Home {
    pub(super) fn proxy(&self, arguments: &[&str]) -> Served {
        self.proxy_by(Path::new(env!("CARGO_BIN_EXE_taut")), arguments, |_| {})
    }

    /// Starts a proxy of another build, after a change to its command.
    pub(super) fn proxy_by(&self, program: &Path, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Served {
        let mut all = vec!["proxy", "--listen", "127.0.0.1:0"];
        all.extend(arguments);
        let mut command = self.command(program, &all);
        change(&mut command);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").map(str::to_owned);
        let Some(url) = url else { panic!("{:?}", Finished::of(child.wait_with_output().unwrap())) };
        Served { child: Some(child), url }
    }
}

/// A connection that is kept.
struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    fn of(served: &Served) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", served.port().parse().unwrap())).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    /// Returns the status line and the body.
    fn get(&mut self, target: &str) -> (String, String) {
        write!(self.stream, "GET {target} HTTP/1.1\r\nHost: app.example\r\n\r\n").unwrap();
        let (mut status, mut length) = (String::new(), 0);
        self.reader.read_line(&mut status).unwrap();
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).unwrap();
            match line.to_ascii_lowercase().strip_prefix("content-length: ") {
                Some(count) => length = count.trim().parse().unwrap(),
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).unwrap();
        (status.trim().to_owned(), String::from_utf8(body).unwrap())
    }
}

/// A client of a WebSocket: writes a line, and reads the echo.
struct Echo {
    child: std::process::Child,
    input: std::process::ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}

impl Echo {
    fn through(home: &Home, arguments: &[&str]) -> Self {
        let mut all = vec!["connect"];
        all.extend(arguments);
        let mut child = home.taut(&all).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn echoes(&mut self, text: &str) {
        writeln!(self.input, "{text}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), text);
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn requests_and_websockets_reach_the_server_behind() {
    let home = Home::new();
    let echo = home.serve(&["--plain"]);
    let proxy = home.proxy(&["--plain", "--to", &echo.url.replace("ws://", "http://")]);
    Echo::through(&home, &[&proxy.url]).echoes("hello");
    let web = home.proxy(&["--plain", "--to", &named("web")]);
    let mut client = Client::of(&web);
    for target in ["/a", "/b?c=d"] {
        assert_eq!(client.get(target), ("HTTP/1.1 200 OK".to_owned(), format!("web {target}")));
    }
    assert_eq!(proxy.stop().code, Some(0));
}

#[test]
fn clients_with_tls_reach_a_server_without() {
    let home = Home::new();
    let echo = home.serve(&["--plain"]);
    let proxy = home.proxy(&["--to", &echo.url.replace("ws://", "http://")]);
    assert!(proxy.url.starts_with("wss://"), "{}", proxy.url);
    Echo::through(&home, &[&format!("wss://localhost:{}/", proxy.port())]).echoes("hello");
    assert_eq!(proxy.stop().code, Some(0));
}

#[test]
fn a_server_that_is_down_is_a_502() {
    let home = Home::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = home.proxy(&["--plain", "--to", &format!("http://{free}")]);
    let mut client = Client::of(&proxy);
    assert_eq!(client.get("/").0, "HTTP/1.1 502 Bad Gateway");
    assert_eq!(client.get("/").0, "HTTP/1.1 502 Bad Gateway", "the connection goes on");
}

#[test]
fn a_reload_changes_routes_under_live_connections() {
    let home = Home::new();
    let echo = home.serve(&["--plain"]);
    let (one, two) = (named("one"), named("two"));
    let config = |api: &str| {
        format!(
            "plain = true\n[[route]]\nto = \"echo\"\n[[route]]\npath = \"/api\"\nrewrite = \"/\"\nto = \"api\"\n\
             [backend.echo]\nservers = [{:?}]\n[backend.api]\nservers = [{api:?}]\n",
            echo.url.replace("ws://", "http://")
        )
    };
    let file = home.0.join("taut.toml");
    fs::write(&file, config(&one)).unwrap();
    let mut proxy = home.proxy(&["--config", "taut.toml"]);
    let log = lines(&mut proxy);
    let (mut socket, mut client) = (Echo::through(&home, &[&proxy.url]), Client::of(&proxy));
    socket.echoes("before");
    assert_eq!(client.get("/api/x").1, "one /x");
    fs::write(&file, config(&two)).unwrap();
    hang_up(&proxy);
    eventually("the other server", || client.get("/api/x").1 == "two /x");
    socket.echoes("after");
    // A fault changes nothing, and the next good file is read by itself.
    fs::write(&file, config("127.0.0.1:1").replace("\"echo\"", "\"ech\"")).unwrap();
    hang_up(&proxy);
    // The file is read before it changes again.
    let line = line_with(&log, "nothing changes: ");
    let both = ["did you mean \"echo\"?; taut.toml:", "is no server"].map(|said| line.contains(said));
    assert_eq!(both, [true; 2], "{line}");
    assert_eq!(client.get("/api/x").1, "two /x");
    fs::write(&file, config(&one)).unwrap();
    eventually("the first server again", || client.get("/api/x").1 == "one /x");
    socket.echoes("still");
    drop(socket);
    assert_eq!(proxy.stop().code, Some(0));
}

#[test]
fn check_reports_each_fault_of_a_configuration_by_line() {
    let home = Home::new();
    let file = home.0.join("taut.toml");
    fs::write(&file, "plain = true\n[[route]]\nto = \"ap\"\n[backend.app]\nservers = [\"127.0.0.1:1\"]\n").unwrap();
    let wrong = home.run(&["check", "taut.toml"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    for said in ["taut.toml:3: there is no backend \"ap\": did you mean \"app\"?", "taut.toml:5: "] {
        assert!(wrong.err.contains(said), "{wrong:?}");
    }
    let same = home.run(&["proxy", "--config", "taut.toml"]);
    assert_eq!((same.code, same.err.contains("taut.toml:3: ")), (Some(2), true), "{same:?}");
    fs::write(&file, "plain = true\n[[route]]\nto = \"app\"\n[backend.app]\nservers = [\"http://127.0.0.1:1\"]\n")
        .unwrap();
    let right = home.run(&["check", "taut.toml"]);
    assert_eq!((right.code, right.out.as_str()), (Some(0), "the files and options can be used\n"), "{right:?}");
    assert_eq!(home.run(&["check", "taut.toml", "--plain"]).code, Some(2));
}

#[test]
fn operators_see_routes_and_servers() {
    let home = Home::new();
    let (web, admin) = (named("web"), home.0.join("admin.sock"));
    let echo = home.serve(&["--plain"]);
    let chat = format!("http://127.0.0.1:{}", echo.port());
    let gone = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let text = format!(
        "plain = true\n[[route]]\nname = \"the site\"\nto = \"app\"\n[[route]]\npath = \"/gone\"\nto = \"gone\"\n\
         [[route]]\nname = \"chat\"\npath = \"/chat\"\nmessages = {{ rate = 100 }}\nto = \"chat\"\n\
         [limits]\nrequests = {{ per-second = 1000 }}\n\
         [backend.app]\nservers = [{web:?}]\n[backend.gone]\nservers = [{gone:?}]\nfailures = 1\n\
         [backend.chat]\nservers = [{chat:?}]\n"
    );
    fs::write(home.0.join("taut.toml"), text).unwrap();
    let at = format!("unix:{}", admin.display());
    let proxy = home.proxy(&["--config", "taut.toml", "--admin", &at, "--access-log", "access.log"]);
    let mut client = Client::of(&proxy);
    assert_eq!(client.get("/a").1, "web /a");
    assert!(client.get("/gone").0.contains(" 502 "));
    let mut socket = Echo::through(&home, &[&format!("{}/chat", proxy.url.trim_end_matches('/'))]);
    socket.echoes("hello");
    let metrics = exchange(&admin, "GET /metrics", "").1;
    let place = format!("backend=\"app\",server={web:?}");
    let of_chat = format!("backend=\"chat\",server={chat:?}");
    let away = format!("backend=\"gone\",server={gone:?}");
    for line in [
        "taut_proxy_requests_total{route=\"the site\",status=\"2xx\"} 1\n".to_owned(),
        "taut_proxy_requests_total{route=\"*/gone\",status=\"5xx\"} 1\n".to_owned(),
        "taut_proxy_bytes_total{route=\"the site\",direction=\"sent\"} 6\n".to_owned(),
        format!("taut_proxy_server_requests_total{{{place},status=\"2xx\"}} 1\n"),
        format!("taut_proxy_server_connections{{{place},state=\"idle\"}} 1\n"),
        format!("taut_proxy_server_bytes_total{{{place},direction=\"received\"}} 6\n"),
        format!("taut_proxy_server_connect_seconds_count{{{place}}} 1\n"),
        format!("taut_proxy_server_head_seconds_bucket{{le=\"+Inf\",{place}}} 1\n"),
        format!("taut_proxy_server_up{{{place}}} 1\n"),
        format!("taut_proxy_server_up{{{away}}} 0\n"),
        format!("taut_proxy_server_failures_total{{{away}}} 1\n"),
        format!("taut_proxy_server_ejections_total{{{away}}} 1\n"),
        "tautline_proxy_headers_refused_total 0\n".to_owned(),
        "taut_proxy_messages_total{route=\"chat\",direction=\"received\"} 1\n".to_owned(),
        "taut_proxy_messages_total{route=\"chat\",direction=\"sent\"} 1\n".to_owned(),
        "taut_proxy_messages_total{route=\"the site\",direction=\"sent\"} 0\n".to_owned(),
        "taut_proxy_bytes_total{route=\"chat\",direction=\"sent\"} 5\n".to_owned(),
        "taut_proxy_messages_dropped_total{route=\"chat\"} 0\n".to_owned(),
        "taut_proxy_closed_total{route=\"chat\",rule=\"rate\"} 0\n".to_owned(),
        format!("taut_proxy_server_connections{{{of_chat},state=\"tunnel\"}} 1\n"),
        format!("taut_proxy_server_messages_total{{{of_chat},direction=\"sent\"}} 1\n"),
        "taut_proxy_backend_waiting{backend=\"chat\"} 0\n".to_owned(),
        "taut_proxy_backend_waits_total{backend=\"chat\",wait=\"full\"} 0\n".to_owned(),
        "taut_proxy_limited_total{limit=\"requests\"} 0\n".to_owned(),
    ] {
        assert!(metrics.contains(&line), "no {line} in {metrics}");
    }
    let lines = || fs::read_to_string(home.0.join("access.log")).unwrap_or_default();
    // The end of the connection lets the last line be written.
    drop(client);
    eventually("both lines are written", || lines().lines().count() == 2);
    drop(socket);
    let lines = lines();
    for part in [
        "\"GET /a\" 200 ",
        " route=\"the site\" ",
        " backend=app ",
        &format!(" server={web} "),
        " connect=0.",
        " head=0.",
    ] {
        assert!(lines.lines().next().unwrap().contains(part), "no {part} in {lines}");
    }
    let id = lines.split(" request_id=").nth(1).unwrap().split(' ').next().unwrap();
    assert_eq!(id.len(), 32, "{lines}");
    assert!(lines.lines().nth(1).unwrap().contains(" route=*/gone ") && !lines.contains("cut"), "{lines}");
    assert_eq!(proxy.stop().code, Some(0));
}

#[test]
fn options_without_effect_are_refused() {
    let home = Home::new();
    let run = |option: &[&str]| home.run(&[&["proxy", "--plain", "--to", "http://127.0.0.1:1"], option].concat());
    for (option, said) in [
        (&["--deflate"][..], "unexpected argument"),
        (&["--max-message", "1k"], "unexpected argument"),
        (&["--origin", "https://a.example"], "unexpected argument"),
        (&["--config", "x"], "cannot be used with"),
    ] {
        let refused = run(option);
        assert!(refused.code == Some(2) && refused.err.contains(said), "{option:?}: {refused:?}");
    }
    let help = home.run(&["proxy", "--help"]).out;
    assert!(
        help.contains("--access-log") && !help.contains("--max-message") && !help.contains("--subprotocol"),
        "{help}"
    );
    assert!(home.run(&["proxy", "--to", "3000"]).err.contains("write http://HOST:PORT"));
    assert!(home.run(&["proxy"]).err.contains("--config"));
}

#[cfg(feature = "harden")]
#[test]
fn a_hardened_proxy_reaches_a_unix_socket() {
    let home = Home::new();
    let echo = home.serve(&["--plain", "--unix", "echo.sock"]);
    let to = format!("unix:{}/echo.sock", home.0.display());
    let proxy = home.proxy(&["--plain", "--to", &to, "--harden"]);
    Echo::through(&home, &[&proxy.url]).echoes("hello");
    assert_eq!((proxy.stop().code, echo.stop().code), (Some(0), Some(0)));
}

#[test]
fn a_hardened_proxy_serves_files_and_names_what_a_reload_cannot_add() {
    let home = Home::new();
    for folder in ["www", "etc", "other"] {
        fs::create_dir(home.0.join(folder)).unwrap();
    }
    fs::write(home.0.join("www/index.html"), "start").unwrap();
    let file = home.0.join("etc/taut.toml");
    let text = format!("plain = true\n[[route]]\nfiles = {:?}\n", home.0.join("www"));
    fs::write(&file, &text).unwrap();
    assert_eq!(home.run(&["check", "etc/taut.toml", "--harden"]).code, Some(0));
    let mut proxy = home.proxy(&["--config", "etc/taut.toml", "--harden"]);
    let log = lines(&mut proxy);
    let mut client = Client::of(&proxy);
    assert_eq!(client.get("/").1, "start");
    let unix = "[[route]]\npath = \"/app\"\nto = \"app\"\n[backend.app]\nservers = [\"unix:/run/app.sock\"]\n";
    fs::write(&file, format!("{text}{unix}")).unwrap();
    hang_up(&proxy);
    let said = line_with(&log, "nothing changes: ");
    assert!(said.contains("first server at a Unix socket") && said.contains("taut upgrade"), "{said}");
    let other = format!("[[route]]\npath = \"/other\"\nfiles = {:?}\n", home.0.join("other"));
    fs::write(&file, format!("{text}{other}")).unwrap();
    hang_up(&proxy);
    // A kernel without Landlock closes no folder.
    let said = line_with(&log, "reloaded");
    assert!(said.contains("taut upgrade") || said.contains(": 2 routes"), "{said}");
    assert_eq!(client.get("/").1, "start");
    assert_eq!(proxy.stop().code, Some(0));
}

/// The lines of a server's log from now on.
fn lines(served: &mut Served) -> Receiver<String> {
    let (tell, told) = channel();
    let log = BufReader::new(served.child.as_mut().unwrap().stderr.take().unwrap());
    thread::spawn(move || log.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
    told
}

/// The next line with this text.
fn line_with(log: &Receiver<String>, text: &str) -> String {
    loop {
        let line = log.recv_timeout(Duration::from_secs(30)).unwrap();
        if line.contains(text) {
            return line;
        }
    }
}

/// A server whose answers are the heads of requests, in small letters.
fn telling() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|count| count > 0) {}
                let body = head.to_ascii_lowercase();
                let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            });
        }
    });
    url
}

/// The answer to a request of `openssl s_client` for this name in TLS and this host.
fn secured(home: &Home, served: &Served, name: &str, host: &str, options: &[&str]) -> String {
    let mut client = Command::new("openssl");
    client.args(["s_client", "-connect", &format!("127.0.0.1:{}", served.port()), "-servername", name, "-quiet"]);
    client.args(["-ign_eof"]).args(options).current_dir(&home.0);
    let mut child = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let forged = "X-Client-Cert-Verified: true\r\nX_Client_Cert_Subject: CN=forged\r\nClient-Cert: forged\r\n";
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{forged}\r\n");
    // A server that wants a certificate may have hung up.
    let _ = child.stdin.take().unwrap().write_all(request.as_bytes());
    String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned()
}

#[test]
fn certificates_of_hosts_and_of_clients_decide_who_gets_an_answer() {
    if !openssl_is_there() {
        return;
    }
    let home = Home::new();
    let authority = Authority::new("Test").unwrap();
    let client = authority.issue(&Leaf::new(&["ada.example"]).with_usage(Usage::Client)).unwrap();
    for (name, certificate) in [
        ("a", authority.issue(&Leaf::new(&["a.example"])).unwrap()),
        ("b", authority.issue(&Leaf::new(&["b.example"])).unwrap()),
        ("client", client),
    ] {
        fs::write(home.0.join(format!("{name}.pem")), &certificate.chain).unwrap();
        fs::write(home.0.join(format!("{name}-key.pem")), &certificate.key).unwrap();
    }
    fs::write(home.0.join("ca.pem"), authority.certificate()).unwrap();
    let text = |certified: &str| {
        format!(
            "certificates = [{{ cert = \"a.pem\", key = \"a-key.pem\" }}, {{ cert = \"b.pem\", key = \"b-key.pem\" }}]\n\
             client-ca = \"ca.pem\"\nclient-certificate = {certified:?}\n[[route]]\nto = \"app\"\n\
             [[route]]\nhosts = [\"b.example\"]\nto = \"app\"\nclient-certificate = \"required\"\n\
             [backend.app]\nservers = [{:?}]\n",
            telling()
        )
    };
    let own: &[&str] = &["-cert", "client.pem", "-key", "client-key.pem"];
    fs::write(home.0.join("taut.toml"), text("optional")).unwrap();
    assert_eq!(home.run(&["check", "taut.toml"]).code, Some(0));
    let proxy = home.proxy(&["--config", "taut.toml"]);
    let said = secured(&home, &proxy, "a.example", "a.example", &[]);
    assert!(said.starts_with("HTTP/1.1 200 ") && !said.contains("forged") && !said.contains("client-cert"), "{said}");
    let said = secured(&home, &proxy, "b.example", "b.example", own);
    for field in ["verified: true", "subject: cn=ada.example", "san: dns:ada.example", "fingerprint: "] {
        assert_eq!(said.matches(&format!("\r\nx-client-cert-{field}")).count(), 1, "{field}: {said}");
    }
    assert!(said.starts_with("HTTP/1.1 200 ") && !said.contains("forged"), "{said}");
    assert!(secured(&home, &proxy, "b.example", "b.example", &[]).starts_with("HTTP/1.1 403 "));
    assert!(secured(&home, &proxy, "a.example", "b.example", own).starts_with("HTTP/1.1 421 "));
    assert_eq!(proxy.stop().code, Some(0));
    fs::write(home.0.join("taut.toml"), text("required")).unwrap();
    let proxy = home.proxy(&["--config", "taut.toml"]);
    assert!(!secured(&home, &proxy, "a.example", "a.example", &[]).contains("HTTP/1.1"));
    assert!(secured(&home, &proxy, "a.example", "a.example", own).starts_with("HTTP/1.1 200 "));
    assert_eq!(proxy.stop().code, Some(0));
}

/// Each host has its own rule about the certificates of clients, and a reload changes the rules.
#[test]
fn a_reload_changes_whose_clients_show_certificates() {
    if !openssl_is_there() {
        return;
    }
    let home = Home::new();
    let (authority, staff) = (Authority::new("Test").unwrap(), Authority::new("Staff").unwrap());
    for (name, certificate) in [
        ("a", authority.issue(&Leaf::new(&["a.example"])).unwrap()),
        ("b", authority.issue(&Leaf::new(&["b.example"])).unwrap()),
        ("client", staff.issue(&Leaf::new(&["ada.example"]).with_usage(Usage::Client)).unwrap()),
        ("stranger", authority.issue(&Leaf::new(&["eve.example"]).with_usage(Usage::Client)).unwrap()),
    ] {
        fs::write(home.0.join(format!("{name}.pem")), &certificate.chain).unwrap();
        fs::write(home.0.join(format!("{name}-key.pem")), &certificate.key).unwrap();
    }
    fs::write(home.0.join("staff.pem"), staff.certificate()).unwrap();
    let server = telling();
    let write = |of_a: &str, of_b: &str| {
        let text = format!(
            "certificates = [\n{{ cert = \"a.pem\", key = \"a-key.pem\"{of_a} }},\n\
             {{ cert = \"b.pem\", key = \"b-key.pem\"{of_b} }},\n]\n\
             [[route]]\nto = \"app\"\n[backend.app]\nservers = [{server:?}]\n"
        );
        fs::write(home.0.join("taut.toml"), text).unwrap();
    };
    let (strict, lax) =
        (", client-ca = \"staff.pem\"", ", client-ca = \"staff.pem\", client-certificate = \"optional\"");
    let own: &[&str] = &["-cert", "client.pem", "-key", "client-key.pem"];
    let stranger: &[&str] = &["-cert", "stranger.pem", "-key", "stranger-key.pem"];
    write("", strict);
    let right = home.run(&["check", "taut.toml"]);
    assert_eq!(right.code, Some(0), "{right:?}");
    let mut proxy = home.proxy(&["--config", "taut.toml"]);
    let log = lines(&mut proxy);
    let ask = |name: &str, host: &str, options: &[&str]| secured(&home, &proxy, name, host, options);
    let tells = |said: &str| {
        assert!(said.starts_with("HTTP/1.1 200 ") && !said.contains("forged"), "{said}");
        said.contains("x-client-cert-subject: cn=ada.example")
    };
    assert!(!tells(&ask("a.example", "a.example", own)));
    assert!(tells(&ask("b.example", "b.example", own)));
    for options in [&[][..], stranger] {
        assert!(!ask("b.example", "b.example", options).contains("HTTP/1.1"), "{options:?}");
    }
    for (name, host) in [("a.example", "b.example"), ("b.example", "a.example")] {
        assert!(ask(name, host, own).starts_with("HTTP/1.1 421 "), "{name} {host}");
    }
    // A fault changes nothing.
    write(", client-ca = \"gone.pem\"", "");
    hang_up(&proxy);
    let said = line_with(&log, "nothing changes: ");
    assert!(said.contains("taut.toml:2: cannot read ") && said.contains("make it readable"), "{said}");
    assert!(!ask("b.example", "b.example", &[]).contains("HTTP/1.1"));
    // Nor does a certificate that TLS refuses, though the file has no fault. The key is the wrong one before the file has none.
    fs::rename(home.0.join("a-key.pem"), home.0.join("kept.pem")).unwrap();
    fs::copy(home.0.join("b-key.pem"), home.0.join("a-key.pem")).unwrap();
    write(lax, "");
    hang_up(&proxy);
    let said = loop {
        let said = line_with(&log, "nothing changes: ");
        if !said.contains("gone.pem") {
            break said;
        }
    };
    assert!(said.contains("a-key.pem") && said.contains("does not belong"), "{said}");
    assert!(!ask("b.example", "b.example", &[]).contains("HTTP/1.1"));
    // The rules change places.
    fs::rename(home.0.join("kept.pem"), home.0.join("a-key.pem")).unwrap();
    hang_up(&proxy);
    eventually("b.example asks for nothing", || ask("b.example", "b.example", &[]).starts_with("HTTP/1.1 200 "));
    assert!(tells(&ask("a.example", "a.example", own)));
    assert!(!tells(&ask("a.example", "a.example", &[])));
    assert!(!tells(&ask("b.example", "b.example", &[])));
    assert!(ask("a.example", "b.example", own).starts_with("HTTP/1.1 421 "));
    assert_eq!(proxy.stop().code, Some(0));
}

#[test]
fn a_signal_and_the_watch_report_one_fault_once() {
    let home = Home::new();
    let authority = Authority::new("Test").unwrap();
    for name in ["a", "b"] {
        let certificate = authority.issue(&Leaf::new(&["a.example"])).unwrap();
        fs::write(home.0.join(format!("{name}.pem")), &certificate.chain).unwrap();
        fs::write(home.0.join(format!("{name}-key.pem")), &certificate.key).unwrap();
    }
    let write = |key: &str| {
        let text = format!("certificates = [{{ cert = \"a.pem\", key = \"a-key.pem\" }}]\n{key}\n");
        fs::write(home.0.join("taut.toml"), text + "[[route]]\nanswer = { status = 200 }\n").unwrap();
    };
    write("");
    let mut proxy = home.proxy(&["--config", "taut.toml", "--no-watch", "-v"]);
    let log = lines(&mut proxy);
    let reload = || -> Vec<String> {
        hang_up(&proxy);
        // The watch of the file takes two seconds.
        thread::sleep(Duration::from_secs(4));
        log.try_iter().filter(|line| line.contains("reloaded")).collect()
    };
    write("request-id = false");
    let said = reload();
    assert_eq!(said.iter().filter(|line| line.contains("the configuration is reloaded")).count(), 1, "{said:?}");
    write("request-idd = false");
    let said = reload();
    let faults: Vec<&String> = said.iter().filter(|line| line.contains("ERROR")).collect();
    assert!(faults.len() == 1 && faults[0].contains("did you mean \"request-id\"?"), "{said:?}");
    write("");
    fs::copy(home.0.join("b-key.pem"), home.0.join("a-key.pem")).unwrap();
    let said = reload();
    assert!(said.len() == 1 && said[0].contains("nothing changes: ") && said[0].contains("a-key.pem"), "{said:?}");
    assert_eq!(proxy.stop().code, Some(0));
}

#[test]
fn a_configuration_orders_its_certificate_and_options_order_no_other() {
    let home = Home::new();
    let text = "[acme]\nnames = [\"a.example\"]\nfolder = \"acme\"\n[[route]]\nanswer = { status = 200 }\n";
    fs::write(home.0.join("taut.toml"), text).unwrap();
    let said = home.run(&["check", "taut.toml"]);
    if cfg!(feature = "acme") {
        assert_eq!(said.code, Some(0), "{said:?}");
    } else {
        assert!(said.code == Some(2) && said.err.contains("feature `acme`"), "{said:?}");
    }
    let said = home.run(&["proxy", "--config", "taut.toml", "--cert", "a.pem", "--key", "a.pem"]);
    assert!(said.code == Some(2) && said.err.contains("[acme] is in the configuration"), "{said:?}");
}

#[test]
fn a_client_that_sends_no_request_has_the_head_time_of_the_configuration() {
    let home = Home::new();
    let text = "plain = true\n[client]\nhead-time = \"300ms\"\n[[route]]\nanswer = { status = 200 }\n";
    fs::write(home.0.join("taut.toml"), text).unwrap();
    let proxy = home.proxy(&["--config", "taut.toml"]);
    let mut client = Client::of(&proxy);
    write!(client.stream, "GET / HTTP/1.1\r\n").unwrap();
    let begun = std::time::Instant::now();
    let mut said = Vec::new();
    let _ = client.reader.read_to_end(&mut said);
    // The preset has 10 s.
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    assert_eq!(proxy.stop().code, Some(0));
}

#[test]
fn http2_needs_its_feature_and_tls() {
    let home = Home::new();
    fs::write(home.0.join("taut.toml"), "http2 = true\n[[route]]\nanswer = { status = 200 }\n").unwrap();
    let of_file = home.run(&["check", "taut.toml"]);
    let to = ["--listen", "127.0.0.1:0", "--to", "http://127.0.0.1:1"];
    let plain = home.run(&[&["proxy", "--plain", "--http2"][..], &to].concat());
    if cfg!(feature = "http2") {
        assert_eq!(of_file.code, Some(0), "{of_file:?}");
        assert!(plain.code == Some(2) && plain.err.contains("--http2 needs TLS"), "{plain:?}");
    } else {
        for said in [of_file, plain] {
            assert!(said.code == Some(2) && said.err.contains("feature `http2`"), "{said:?}");
        }
    }
}
