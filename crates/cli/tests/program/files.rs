//! `taut serve --files`, asked by curl.

use super::{Finished, Home, Served};
use std::fs::{create_dir_all, write};
use std::os::unix::fs::symlink;
use std::process::Command;

/// A server of the folder `public`.
fn serve(home: &Home, options: &[&str]) -> Served {
    create_dir_all(home.0.join("public/sub")).unwrap();
    write(home.0.join("secret"), "secret").unwrap();
    write(home.0.join("public/hello.txt"), "hello world").unwrap();
    write(home.0.join("public/sub/index.html"), "<p>sub").unwrap();
    write(home.0.join("public/data.json"), "{}").unwrap();
    write(home.0.join("public/large.bin"), vec![7; 3_000_000]).unwrap();
    write(home.0.join("public/.env"), "secret").unwrap();
    symlink("../secret", home.0.join("public/out")).unwrap();
    home.serve(&[&["--files", "public"][..], options].concat())
}

/// The output of curl: the head of the answer, and the body.
fn curl(server: &Served, path: &str, options: &[&str]) -> Finished {
    let scheme = if server.url.starts_with("wss") { "https" } else { "http" };
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60", "--include", "--path-as-is"]);
    command.args(options).arg(format!("{scheme}://localhost:{}{path}", server.port()));
    Finished::of(command.output().unwrap())
}

/// The value of a header.
fn header<'a>(answer: &'a Finished, name: &str) -> &'a str {
    let line = |line: &'a str| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name));
    answer.out.lines().find_map(line).unwrap_or_else(|| panic!("no {name} in {answer:?}")).1
}

fn body(answer: &Finished) -> &str {
    answer.out.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn curl_gets_files_parts_and_nothing_else() {
    let home = Home::new();
    let server = serve(&home, &["--plain"]);
    let whole = curl(&server, "/hello.txt", &[]);
    assert!(whole.out.starts_with("HTTP/1.1 200 OK\r\n") && body(&whole) == "hello world", "{whole:?}");
    assert_eq!(header(&whole, "content-type"), "text/plain; charset=utf-8");
    assert_eq!(header(&curl(&server, "/data.json", &[]), "content-type"), "application/json");
    let part = curl(&server, "/hello.txt", &["--range", "6-"]);
    assert!(part.out.starts_with("HTTP/1.1 206 ") && body(&part) == "world", "{part:?}");
    assert_eq!(header(&part, "content-range"), "bytes 6-10/11");
    assert!(curl(&server, "/hello.txt", &["--range", "99-"]).out.starts_with("HTTP/1.1 416 "));
    let tag = format!("If-None-Match: {}", header(&whole, "etag"));
    assert!(curl(&server, "/hello.txt", &["--header", &tag]).out.starts_with("HTTP/1.1 304 "));
    let head = curl(&server, "/hello.txt", &["--head"]);
    assert_eq!((header(&head, "content-length"), body(&head)), ("11", ""));
    assert!(curl(&server, "/sub", &["--location"]).out.ends_with("<p>sub"));
    for path in ["/../secret", "/%2e%2e/secret", "/sub/../../secret", "/out", "/.env", "/missing", "//etc/passwd"] {
        let refused = curl(&server, path, &[]);
        assert!(refused.out.starts_with("HTTP/1.1 404 ") && !refused.out.contains("secret"), "{path}: {refused:?}");
    }
    // The application is served beside them.
    let echoed = home.run_with(&["connect", "--wait", "1", &server.url], "hello\n");
    assert_eq!((echoed.code, echoed.out.as_str()), (Some(0), "hello\n"), "{}", echoed.err);
}

#[test]
fn a_hardened_server_opens_no_other_files() {
    let home = Home::new();
    let mut options = vec!["-v"];
    if cfg!(feature = "harden") {
        options.push("--harden");
    }
    let server = serve(&home, &options);
    let authority = home.0.join("tautline/ca.pem");
    let answer = curl(&server, "/large.bin", &["--cacert", authority.to_str().unwrap(), "--output", "/dev/null"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert_eq!(
        curl(&server, "/hello.txt", &["--cacert", authority.to_str().unwrap()]).out.lines().last(),
        Some("hello world")
    );
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let home = Home::new();
    let said = home.run(&["serve", "--plain", "--listen", "127.0.0.1:0", "--files", "nowhere"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("--files: cannot open the folder nowhere"), "{}", said.err);
}

/// A hub beside the folder sends history as its reader takes it, so it has to hear of each drain.
#[test]
fn the_application_beside_a_folder_hears_of_everything() {
    const COUNT: usize = 400;
    let home = Home::new();
    let server = serve(&home, &["--plain", "--app", "hub"]);
    let connect = || tautline::connect(&server.url).unwrap();
    let mut publisher = connect();
    let data = "x".repeat(4_000);
    for _ in 0..COUNT {
        publisher.text(&format!(r#"{{"type":"publish","topic":"log:x","data":"{data}"}}"#)).unwrap();
    }
    publisher.text(r#"{"type":"subscribe","topic":"log:x","after":0}"#).unwrap();
    let mut slow = connect();
    slow.text(r#"{"type":"subscribe","topic":"log:x","after":0}"#).unwrap();
    // Longer than the buffers of both ends take meanwhile.
    std::thread::sleep(std::time::Duration::from_millis(500));
    for reader in [&mut slow, &mut publisher] {
        let mut seen = 0;
        while seen < COUNT {
            let message = reader.receive().unwrap();
            seen += usize::from(String::from_utf8_lossy(message.data()).contains(&data));
        }
    }
    assert_eq!(server.stop().code, Some(0));
}
