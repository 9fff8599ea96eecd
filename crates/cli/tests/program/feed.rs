use super::probe::{listener, tunnel};
use super::{Finished, Home, Served};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs `taut feed` against a simulated venue for some seconds.
fn feed(home: &Home, server: &Served, venue: &str, further: &[&str]) -> Finished {
    let path = match venue {
        "binance" => "/ws",
        "kraken" => "/v2",
        _ => "/",
    };
    let base = server.url.trim_end_matches('/');
    let (url, rest) = (format!("{base}{path}"), base.replacen("ws", "http", 1));
    let mut arguments = vec!["feed", venue, "--url", &url, "--snapshot-url", &rest, "--for", "8"];
    arguments.extend(further);
    home.run(&arguments)
}

fn events(said: &Finished) -> Vec<Value> {
    said.out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == kind).collect()
}

#[test]
fn every_venue_is_followed_and_each_book_is_live() {
    let home = Home::new();
    for (venue, symbol) in [("binance", "btcusdt"), ("coinbase", "btc-usd"), ("kraken", "btc/usd")] {
        let server = home.serve(&["--plain", "--app", "venue", "--like", venue, "--market-speed", "0.02"]);
        let (trade, depth) = (format!("{symbol}@trade"), format!("{symbol}@depth"));
        let said = feed(&home, &server, venue, &[&trade, &depth, "--json", "--levels", "2"]);
        assert_eq!(said.code, Some(0), "{venue}: {}", said.err);
        let events = events(&said);
        assert_eq!(of(&events, "live").len(), 1, "{venue}: {}", said.err);
        let books = of(&events, "book");
        assert!(!books.is_empty() && of(&events, "trade").len() > 20, "{venue}: {}", said.out);
        for book in books {
            let price = |side: &str, level: usize| book[side][level][0].as_str().unwrap().parse::<f64>().unwrap();
            assert!(price("bids", 1) < price("bids", 0) && price("bids", 0) < price("asks", 0), "{book}");
        }
        let numbers: Vec<u64> = of(&events, "trade").iter().map(|trade| trade["number"].as_u64().unwrap()).collect();
        assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1), "{venue}: {numbers:?}");
        assert_eq!(server.stop().code, Some(0));
    }
}

#[test]
fn a_replay_prints_what_was_printed_live() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--app", "venue", "--market-speed", "0.05", "--life", "3"]);
    let streams = ["btcusdt@trade", "btcusdt@depth", "ethusdt@depth", "--json", "--copies", "2"];
    let live = feed(&home, &server, "binance", &[&streams[..], &["--record", "a.rec"]].concat());
    assert_eq!(live.code, Some(0), "{}", live.err);
    assert!(live.out.lines().count() > 100, "{}", live.out);
    let replayed = home.run(&[&["feed", "binance"][..], &streams, &["--replay", "a.rec"]].concat());
    assert_eq!(replayed.code, Some(0), "{}", replayed.err);
    let differ = live.out.lines().zip(replayed.out.lines()).find(|(live, replayed)| live != replayed);
    assert_eq!(differ, None);
    assert_eq!(live.out.lines().count(), replayed.out.lines().count());
    let again = feed(&home, &server, "binance", &["btcusdt@trade", "--record", "a.rec"]);
    assert_eq!(again.code, Some(2), "a recording is not overwritten: {}", again.err);
}

#[test]
fn copies_say_who_was_first_and_stages_stand_beside_the_report() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--app", "venue", "--market-speed", "0.05", "--symbols", "BTCUSDT"]);
    let said = feed(&home, &server, "binance", &["btcusdt@trade", "--quiet", "--copies", "2", "--stages"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{}", said.err);
    let row = |name: &str| said.err.lines().find(|line| line.starts_with(name)).map(str::to_owned);
    assert_eq!(row("BTCUSDT ").unwrap().split_whitespace().nth(4), Some("0"), "a book was rebuilt: {}", said.err);
    // Both connections have brought second copies, or one all of them.
    let table = said.err.lines().skip_while(|line| !line.starts_with("connection  connects")).skip(2);
    let links: BTreeMap<u32, [u64; 2]> = table
        .take(2)
        .map(|line| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            (cells[0].parse().unwrap(), [cells[3].parse().unwrap(), cells[4].parse().unwrap()])
        })
        .collect();
    let (first, second) = links.values().fold((0, 0), |sum, [first, second]| (sum.0 + first, sum.1 + second));
    assert!(links.len() == 2 && first == second && first > 0, "{}", said.err);
    assert!(row("app ").is_some() && row("card to decision").is_some(), "{}", said.err);
    assert_eq!(said.err.lines().filter(|line| line.starts_with("p. ")).count(), 11, "{}", said.err);
}

#[test]
fn orders_are_timed_from_tick_to_trade() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--app", "venue", "--like", "kraken", "--market-speed", "0.05"]);
    let order = ["btc/usd@trade", "--quiet", "--order", r#"{"method":"ping"}"#];
    let said = feed(&home, &server, "kraken", &[&order[..], &["--stages"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.err);
    for name in ["write", "kernel", "sent", "trade"] {
        let row = said.err.lines().find(|line| line.split_whitespace().next() == Some(name));
        let count: u64 =
            row.unwrap_or_else(|| panic!("{}", said.err)).split_whitespace().nth(1).unwrap().parse().unwrap();
        // One in a second of eight.
        assert!((2..=9).contains(&count), "{}", said.err);
    }
    let wrong = feed(&home, &server, "kraken", &order);
    assert_eq!(wrong.code, Some(2), "orders need stages: {}", wrong.err);
}

#[test]
fn connections_and_snapshots_go_through_a_proxy() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--app", "venue", "--market-speed", "0.02"]);
    let (listening, address) = listener();
    let tunnels = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tunnels);
    // It ends with the test.
    thread::spawn(move || {
        for client in listening.incoming().map_while(Result::ok) {
            count.fetch_add(1, Ordering::Relaxed);
            thread::spawn(move || tunnel(client));
        }
    });
    let proxy = format!("http://{address}");
    let said = feed(&home, &server, "binance", &["btcusdt@depth", "--json", "--proxy", &proxy]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(of(&events(&said), "live").len(), 1, "{}", said.err);
    assert!(tunnels.load(Ordering::Relaxed) >= 2, "a connection and a snapshot");
    let said = feed(&home, &server, "binance", &["btcusdt@depth", "--proxy", "http://127.0.0.1:1"]);
    assert!(said.err.contains("127.0.0.1:1: Connection refused"), "{}", said.err);
    let said = feed(&home, &server, "binance", &["btcusdt@depth", "--proxy", &proxy.replace("http", "socks5")]);
    assert!(said.code == Some(2) && said.err.contains("HTTP proxies alone"), "{}", said.err);
}

#[test]
fn a_reader_that_stands_still_does_not_stop_the_feed() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--app", "venue", "--market-speed", "1"]);
    let base = server.url.trim_end_matches('/').to_owned();
    let (url, rest) = (format!("{base}/ws"), base.replacen("ws", "http", 1));
    // Nobody reads the other end, whose pipe holds 64 KiB, and the queue 1 MiB.
    let (reader, writer) = std::io::pipe().unwrap();
    let mut child = home
        .taut(&["feed", "binance", "btcusdt@trade", "btcusdt@depth", "--levels", "50", "--json"])
        .args(["--url", &url, "--snapshot-url", &rest, "--for", "60"])
        .stdout(writer)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut err = String::new();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
    while !err.contains("lines were not printed so far") {
        assert!(std::io::BufRead::read_line(&mut lines, &mut err).unwrap() > 0, "{err}");
    }
    // It is no news that the reader goes away: the feed ends.
    drop(reader);
    assert_eq!(child.wait().unwrap().code(), Some(141), "{err}");
}

#[test]
fn a_venue_that_is_not_there_is_reported() {
    let home = Home::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("ws://127.0.0.1:{port}/");
    let said = home.run(&["feed", "kraken", "btc/usd@trade", "--url", &url, "--for", "1"]);
    assert!(said.err.contains("refused"), "{}", said.err);
    let wrong = home.run(&["feed", "kraken", "btc/usd@ticker"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("write trade or depth"), "{}", wrong.err);
}

#[test]
fn a_replay_needs_a_recording_and_a_speed() {
    let home = Home::new();
    std::fs::write(home.0.join("empty.rec"), b"").unwrap();
    let replay =
        |speed: &str| home.run(&["feed", "binance", "btcusdt@trade", "--replay", "empty.rec", "--speed", speed]);
    let said = replay("1");
    assert!(said.code != Some(0) && said.err.contains("no beginning of a recording"), "{}", said.err);
    for speed in ["nan", "inf"] {
        assert!(replay(speed).err.contains("write a factor"), "{speed}");
    }
}

#[test]
fn a_replay_ends_in_time() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--app", "venue", "--market-speed", "0.05"]);
    let live = feed(&home, &server, "binance", &["btcusdt@trade", "--quiet", "--record", "a.rec"]);
    assert_eq!(live.code, Some(0), "{}", live.err);
    let begin = std::time::Instant::now();
    let replay = ["feed", "binance", "btcusdt@trade", "--quiet", "--replay", "a.rec", "--speed", "0.001", "--for", "1"];
    let said = home.run(&replay);
    assert!(said.code == Some(0) && said.err.contains("trades"), "{}", said.err);
    assert!(begin.elapsed().as_secs() < 1000, "it would take two hours");
}
