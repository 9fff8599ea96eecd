//! Routes whose answers are files, between real sockets.

use crate::kit;
use crate::kit::{Client, length, of_text, scripted};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

/// A folder with files, which is removed on drop.
struct Www(PathBuf);

impl Www {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("taut-www-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("sub")).unwrap();
        fs::write(folder.join("index.html"), "start").unwrap();
        fs::write(folder.join("sub/a b.txt"), "0123456789").unwrap();
        fs::write(folder.join(".secret"), "secret").unwrap();
        fs::write(folder.join("404.html"), "<p>nothing</p>").unwrap();
        Self(folder)
    }
}

impl Drop for Www {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn answer(client: &mut Client, request: &str) -> (String, String) {
    client.ask(request);
    let head = client.head();
    let body = client.exact(length(&head).unwrap());
    (head, body)
}

fn get(client: &mut Client, target: &str, fields: &str) -> (String, String) {
    answer(client, &format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
}

#[test]
fn files_and_servers_answer_on_one_connection() {
    let www = Www::new("both");
    let (server, _) = scripted(|mut stream| {
        let mut reader = kit::reader(&stream);
        while kit::head(&mut reader).is_some() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserver").unwrap();
        }
    });
    let proxy = of_text(&format!(
        "pages = {{ 404 = {page:?} }}\n[[route]]\nfiles = {www:?}\nresponse.set = {{ Cache-Control = \"max-age=60\" }}\n\
         [[route]]\npath = \"/static\"\nfiles = {www:?}\nrewrite = \"/sub\"\n\
         [[route]]\npath = \"/api\"\nto = \"app\"\n[backend.app]\nservers = [{server:?}]\n",
        www = www.0,
        page = www.0.join("404.html"),
    ));
    let mut client = Client::of(&proxy);
    for _ in 0..2 {
        let (head, body) = get(&mut client, "/?q", "");
        assert_eq!(body, "start");
        assert!(head.contains("cache-control: max-age=60\r\n") && head.contains("text/html"), "{head}");
        assert_eq!(get(&mut client, "/api/x", "").1, "server");
        let (head, body) = get(&mut client, "/static/a%20b.txt", "Range: bytes=2-4\r\n");
        assert!(head.starts_with("http/1.1 206 ") && head.contains("content-range: bytes 2-4/10"), "{head}");
        assert_eq!(body, "234");
        for none in ["/no", "/.secret", "/static/.secret", "/static/%2e%2e/.secret"] {
            let (head, body) = get(&mut client, none, "");
            assert!(head.starts_with("http/1.1 404 ") && head.contains("text/html"), "{none}: {head}");
            assert_eq!(body, "<p>nothing</p>", "{none}");
        }
        let (head, _) = get(&mut client, "/sub", "");
        assert!(head.starts_with("http/1.1 308 ") && head.contains("location: /sub/\r\n"), "{head}");
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        assert!(get(&mut client, "/", upgrade).0.starts_with("http/1.1 404 "));
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
        let (head, _) = answer(&mut client, post);
        assert!(head.starts_with("http/1.1 405 ") && head.contains("allow: get, head\r\n"), "{head}");
        client.ask("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(length(&client.head()), Some(5));
    }
}
