//! Files of a folder, over real sockets with every driver, with and without TLS, and in memory.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};
use tautline::http::{Request as Head, Response, StatusCode, header};
use tautline::testing::App;
use tautline::{CloseCode, Conn, DriverConfig, Handler, Message, Reply, Request, Server, StaticFiles, Tls};
use tautline_dev_cert::{Authority, Leaf};

#[derive(Clone)]
struct Site(StaticFiles);

impl Handler for Site {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        self.0.reply(request)
    }

    fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
}

/// A file is kept in memory if it changed so long ago.
const SETTLED: Duration = Duration::from_millis(3_100);

/// A folder with some files, beside a secret one.
fn folder(name: &str) -> PathBuf {
    let base = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&base);
    let root = base.join("public");
    std::fs::create_dir_all(root.join("sub")).unwrap();
    std::fs::write(base.join("secret"), "secret").unwrap();
    std::fs::write(root.join("hello.txt"), "hello world").unwrap();
    std::fs::write(root.join("sub/index.html"), "<p>sub").unwrap();
    std::fs::write(root.join(".env"), "secret").unwrap();
    std::fs::write(root.join("empty.js"), "").unwrap();
    std::fs::write(root.join("large.bin"), large()).unwrap();
    symlink("../secret", root.join("out")).unwrap();
    symlink("/etc/passwd", root.join("absolute")).unwrap();
    symlink("hello.txt", root.join("within")).unwrap();
    root
}

fn large() -> Vec<u8> {
    (0..6_000_001_u32).map(|index| u8::try_from(index % 253).unwrap()).collect()
}

fn fetch(app: &App<Site>, method: &str, path: &str, headers: &[(&str, &str)]) -> Response<Vec<u8>> {
    let start = Head::builder().method(method).uri(path);
    let head = headers.iter().fold(start, |head, (name, value)| head.header(*name, *value));
    app.fetch(&head.body(Vec::new()).unwrap())
}

/// Checks answers from files that have just changed, then those of files that are kept in memory.
fn open_and_kept(app: &App<Site>, check: impl Fn(&App<Site>)) {
    check(app);
    std::thread::sleep(SETTLED);
    check(app);
    check(app);
}

#[test]
fn files_are_found_and_secrets_are_not() {
    let app = App::new(Site(StaticFiles::open(folder("found")).unwrap())).unwrap();
    open_and_kept(&app, finds_files_and_no_secrets);
    assert!(StaticFiles::open("/no/such/folder").is_err());
}

fn finds_files_and_no_secrets(app: &App<Site>) {
    let get = |path| fetch(app, "GET", path, &[]);
    let hello = get("/hello.txt?v=2");
    assert_eq!((hello.status(), &hello.body()[..]), (StatusCode::OK, &b"hello world"[..]));
    assert_eq!(hello.headers()[header::CONTENT_TYPE], "text/plain; charset=utf-8");
    assert_eq!(get("/within").body(), b"hello world");
    assert_eq!(get("/sub/").body(), b"<p>sub");
    assert_eq!(get("/empty.js").body(), b"");
    assert!(*get("/large.bin").body() == large());
    let moved = get("/sub");
    assert_eq!((moved.status().as_u16(), &moved.headers()[header::LOCATION]), (308, &"/sub/".parse().unwrap()));
    let moved = get("/sub?a=1&b=/%20/");
    assert_eq!(moved.headers()[header::LOCATION], "/sub/?a=1&b=/%20/");
    for path in [
        "/",
        "/out",
        "/absolute",
        "/.env",
        "/../secret",
        "/%2e%2e/secret",
        "/sub/../../secret",
        "/missing",
        "/hello.txt/",
        "/hello.txt/x",
        "//etc/passwd",
        "/%00",
    ] {
        assert_eq!(get(path).status(), StatusCode::NOT_FOUND, "{path}");
    }
    let post = fetch(app, "POST", "/hello.txt", &[]);
    assert_eq!((post.status().as_u16(), &post.headers()[header::ALLOW]), (405, &"GET, HEAD".parse().unwrap()));
}

#[test]
fn ranges_and_validators_are_obeyed() {
    let app = App::new(Site(StaticFiles::open(folder("ranges")).unwrap())).unwrap();
    open_and_kept(&app, obeys_ranges_and_validators);
}

fn obeys_ranges_and_validators(app: &App<Site>) {
    let get = |headers: &[(&str, &str)]| fetch(app, "GET", "/hello.txt", headers);
    let whole = get(&[]);
    let text = |name| whole.headers()[name].to_str().unwrap().to_owned();
    let (etag, modified) = (text(header::ETAG), text(header::LAST_MODIFIED));
    let part = get(&[("range", "bytes=6-"), ("if-range", &etag)]);
    assert_eq!((part.status().as_u16(), &part.body()[..]), (206, &b"world"[..]));
    assert_eq!(part.headers()[header::CONTENT_RANGE], "bytes 6-10/11");
    let beyond = get(&[("range", "bytes=11-")]);
    assert_eq!(
        (beyond.status().as_u16(), &beyond.headers()[header::CONTENT_RANGE]),
        (416, &"bytes */11".parse().unwrap())
    );
    for headers in [
        [("if-none-match", etag.as_str())],
        [("if-none-match", &format!("\"x\", W/{etag}"))],
        [("if-none-match", "*")],
        [("if-modified-since", &modified)],
    ] {
        let unchanged = get(&headers);
        assert_eq!((unchanged.status().as_u16(), unchanged.body().len()), (304, 0), "{headers:?}");
    }
    // The order of RFC 9110, section 13.2.2: the conditions on the client's version come first, tags before dates.
    let (old, weak) = ("Thu, 01 Jan 1970 00:00:00 GMT", format!("W/{etag}"));
    for headers in [
        &[("if-match", "\"x\"")][..],
        &[("if-match", &weak)],
        &[("if-match", "\"x\""), ("range", "bytes=6-")],
        &[("if-match", "\"x\""), ("if-unmodified-since", &modified)],
        &[("if-match", "\"x\""), ("if-none-match", &etag)],
        &[("if-match", "\"x\""), ("range", "bytes=99-")],
        &[("if-unmodified-since", old)],
        &[("if-unmodified-since", old), ("range", "bytes=6-")],
        &[("if-unmodified-since", old), ("if-modified-since", &modified)],
    ] {
        let changed = get(headers);
        assert_eq!(changed.status().as_u16(), 412, "{headers:?}");
        assert!(!changed.headers().contains_key(header::CONTENT_RANGE), "{headers:?}");
        assert_eq!(fetch(app, "HEAD", "/hello.txt", headers).status().as_u16(), 412, "{headers:?}");
    }
    for (headers, status) in [
        (&[("if-match", "*")][..], 200),
        (&[("if-match", &format!("\"x\", {etag}"))], 200),
        (&[("if-match", &etag), ("if-unmodified-since", old)], 200),
        (&[("if-match", &etag), ("range", "bytes=6-")], 206),
        (&[("if-match", &etag), ("if-none-match", &etag)], 304),
        (&[("if-unmodified-since", &modified)], 200),
        (&[("if-unmodified-since", &modified), ("range", "bytes=6-")], 206),
        (&[("if-unmodified-since", "yesterday")], 200),
        (&[("if-unmodified-since", old), ("if-unmodified-since", old)], 200),
        (&[("range", "bytes=6-"), ("if-range", &modified)], 206),
        (&[("range", "bytes=6-"), ("if-range", old)], 200),
        (&[("range", "bytes=6-"), ("if-range", &weak)], 200),
    ] {
        assert_eq!(get(headers).status().as_u16(), status, "{headers:?}");
    }
    // The tag decides before the date.
    assert_eq!(get(&[("if-none-match", "\"x\""), ("if-modified-since", &modified)]).status(), StatusCode::OK);
    let head = fetch(app, "HEAD", "/hello.txt", &[("range", "bytes=6-")]);
    assert_eq!((head.status().as_u16(), &head.headers()[header::CONTENT_LENGTH]), (200, &"11".parse().unwrap()));
}

#[test]
fn a_kept_file_is_answered_as_it_is_now() {
    let root = folder("kept");
    let app = App::new(Site(StaticFiles::open(&root).unwrap())).unwrap();
    let path = root.join("hello.txt");
    let other = root.join("other.txt");
    let changes: [(&dyn Fn(), &str); 7] = [
        (&|| (), "hello world"),
        (&|| std::fs::write(&path, "HELLO WORLD").unwrap(), "HELLO WORLD"),
        (&|| std::fs::write(&path, "short").unwrap(), "short"),
        (&|| std::fs::write(&other, "other").and_then(|()| std::fs::rename(&other, &path)).unwrap(), "other"),
        (&|| std::fs::rename(&path, &other).and_then(|()| symlink("other.txt", &path)).unwrap(), "other"),
        (&|| std::fs::remove_file(&other).unwrap(), "404 Not Found"),
        (&|| std::fs::remove_file(&path).and_then(|()| symlink("../secret", &path)).unwrap(), "404 Not Found"),
    ];
    for (change, expected) in changes {
        change();
        let check = || {
            let (got, within) = ["/hello.txt", "/within"].map(|path| fetch(&app, "GET", path, &[]).into_body()).into();
            let texts = [got, within].map(|body| String::from_utf8(body).unwrap());
            assert!(texts.iter().all(|text| text.starts_with(expected)), "{texts:?}, not {expected}");
        };
        check();
        if path.exists() {
            std::thread::sleep(SETTLED);
            check();
            check();
        }
    }
}

/// Over sockets the kernel's buffers fill, and a file leaves by sendfile(2) as long as there is no TLS.
#[test]
fn large_files_arrive_over_every_driver() {
    let files = StaticFiles::open(folder("drivers")).unwrap();
    for driver in ["epoll", "select", "uring"] {
        let site = Site(files.clone());
        let start =
            Server::plain().driver(driver.parse::<DriverConfig>().unwrap()).listen("127.0.0.1:0".parse().unwrap());
        let server = start.start(move |_| site.clone()).unwrap();
        let mut stream = TcpStream::connect(server.addresses()[0].to_string()).unwrap();
        let request = "GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let last = "GET /large.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        write!(stream, "{request}{last}").unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        let large = large();
        assert!(received.ends_with(&large) && received.len() > 2 * large.len(), "{driver}: {}", received.len());
        server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
        server.join().unwrap();
    }
}

/// With the client of somebody else.
#[test]
fn curl_fetches_a_file_over_tls() {
    let root = folder("tls");
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let pem = root.join("../authority.pem");
    std::fs::write(&pem, authority.certificate()).unwrap();
    let site = Site(StaticFiles::open(&root).unwrap());
    let server = Server::new(Tls::with_certificate(certificate));
    let server = server.listen("127.0.0.1:0".parse().unwrap()).start(move |_| site.clone()).unwrap();
    let port = server.addresses()[0].to_string().rsplit(':').next().unwrap().to_owned();
    let curl = Command::new("curl")
        .args(["--silent", "--fail", "--max-time", "60", "--cacert"])
        .arg(&pem)
        .args(["--resolve", &format!("localhost:{port}:127.0.0.1")])
        .arg(format!("https://localhost:{port}/large.bin"))
        .output()
        .unwrap();
    assert!(curl.status.success() && curl.stdout == large(), "{:?} {}", curl.status, curl.stdout.len());
    server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    server.join().unwrap();
}

/// A client that is slow, of a file that is rewritten in place at equal length: the response's tag stands for one version only.
#[test]
fn a_response_is_cut_off_if_its_file_changes_meanwhile() {
    /// More than the kernel's buffers of a connection.
    const LEN: u64 = 32 << 20;
    let root = folder("rewritten");
    let path = root.join("rewritten.bin");
    let file = File::create(&path).unwrap();
    file.set_len(LEN).unwrap();
    let authority = Authority::new("Test").unwrap();
    let pem = root.join("../authority.pem");
    std::fs::write(&pem, authority.certificate()).unwrap();
    for scheme in ["http", "https"] {
        // The clock of a file system is coarse.
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let site = Site(StaticFiles::open(&root).unwrap());
        let listen = "127.0.0.1:0".parse().unwrap();
        let start = move |_: u32| site.clone();
        let server = match scheme {
            "http" => Server::plain().listen(listen).start(start).unwrap(),
            _ => {
                let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
                Server::new(Tls::with_certificate(certificate)).listen(listen).start(start).unwrap()
            }
        };
        let port = server.addresses()[0].to_string().rsplit(':').next().unwrap().to_owned();
        let mut curl = Command::new("curl")
            .args(["--silent", "--max-time", "120", "--cacert"])
            .arg(&pem)
            .args(["--resolve", &format!("localhost:{port}:127.0.0.1")])
            .arg(format!("{scheme}://localhost:{port}/rewritten.bin"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It reads no more while its pipe is full.
        let mut stdout = curl.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 1 << 16]).unwrap();
        file.write_all_at(b"new", LEN / 2).unwrap();
        let received = (1 << 16) + std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
        let status = curl.wait().unwrap();
        assert!(!status.success() && received < LEN, "{scheme}: {status}, {received} bytes");
        server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
        server.join().unwrap();
    }
}

/// A download that is resumed after the file has changed: a part of another version must not follow the first one.
#[test]
fn a_resumed_download_of_a_changed_file_is_refused() {
    let root = folder("resumed");
    let app = App::new(Site(StaticFiles::open(&root).unwrap())).unwrap();
    let first = fetch(&app, "GET", "/hello.txt", &[("range", "bytes=0-4")]);
    let etag = first.headers()[header::ETAG].to_str().unwrap().to_owned();
    std::fs::write(root.join("hello.new"), "HELLO WORLD").unwrap();
    std::fs::rename(root.join("hello.new"), root.join("hello.txt")).unwrap();
    let rest = fetch(&app, "GET", "/hello.txt", &[("range", "bytes=5-"), ("if-match", &etag)]);
    assert_eq!(rest.status(), StatusCode::PRECONDITION_FAILED);
    let whole = fetch(&app, "GET", "/hello.txt", &[("range", "bytes=5-"), ("if-range", &etag)]);
    assert_eq!((whole.status(), &whole.body()[..]), (StatusCode::OK, &b"HELLO WORLD"[..]));
}
