//! `--http2` of servers, loads and clients, and HTTP/2 in `taut probe`.

use super::Home;

#[cfg(not(feature = "http2"))]
#[test]
fn a_build_without_http2_names_the_feature() {
    let home = Home::new();
    let file = "http2 = true\n[[route]]\nanswer = { status = 200 }\n";
    std::fs::write(home.0.join("http2.toml"), file).unwrap();
    let listen = ["--listen", "127.0.0.1:0"];
    let commands: [&[&str]; 7] = [
        &["load", "wss://localhost:1/", "--http2"],
        &["connect", "wss://localhost:1/", "--http2"],
        &["serve", "--http2"],
        &["serve", "--http2", "--plain"],
        &["proxy", "--http2", "--to", "http://127.0.0.1:1"],
        &["proxy", "--config", "http2.toml"],
        &["check", "http2.toml"],
    ];
    for command in commands {
        let further: &[&str] = if matches!(command[0], "serve" | "proxy") { &listen } else { &[] };
        let said = home.run(&[command, further].concat());
        assert_eq!(said.code, Some(2), "{command:?}: {said:?}");
        // The feature, and the command that builds with it.
        assert!(said.err.contains("HTTP/2") && said.err.contains("--features http2"), "{command:?}: {said:?}");
    }
}

#[cfg(feature = "http2")]
mod with {
    use super::Home;
    #[cfg(feature = "proxy")]
    use crate::Finished;
    use crate::admin::exchange;
    #[cfg(feature = "proxy")]
    use crate::upgrade::{news, signal, successor};
    use serde_json::Value;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Child, ChildStdin, Stdio};

    #[test]
    fn a_websocket_is_a_stream_of_a_client() {
        let home = Home::new();
        let server = home.serve(&["--http2"]);
        let said = home.run_with(&["connect", "--http2", "--wait", "2", &server.url], "hello\nwörld\n");
        assert_eq!((said.code, said.out.as_str()), (Some(0), "hello\nwörld\n"), "{}", said.err);
        let plain = home.serve(&[]);
        let said = home.run(&["connect", "--http2", "--message", "x", &plain.url]);
        assert_eq!(said.code, Some(3), "{said:?}");
        assert!(said.err.contains("did not choose h2 by ALPN"), "{said:?}");
    }

    /// The values of TLS are those of the connection that carries the stream.
    #[test]
    fn a_client_shows_its_tls() {
        let home = Home::new();
        let server = home.serve(&["--http2"]);
        let show = |how: &str| home.run(&["connect", "--http2", how, "--wait", "2", "--message", "x", &server.url]);
        let said = show("-v");
        assert_eq!(said.code, Some(0), "{said:?}");
        for line in ["* TLS          TLSv1.3, TLS_", "* ALPN         h2", "* session      new", "* certificate  "] {
            assert!(said.err.contains(line), "{line:?}: {}", said.err);
        }
        let said = show("--json");
        let opened: Value = serde_json::from_str(said.out.lines().next().unwrap()).unwrap();
        let tls = &opened["tls"];
        assert_eq!((&opened["event"], &tls["version"]), (&"open".into(), &"TLSv1.3".into()), "{opened}");
        assert_eq!((&tls["alpn"], &tls["resumed"]), (&"h2".into(), &false.into()), "{opened}");
        assert!(tls["suite"].as_str().unwrap().starts_with("TLS_"), "{opened}");
    }

    #[test]
    fn a_load_has_several_streams_on_a_connection() {
        let home = Home::new();
        let server = home.serve(&["--http2"]);
        let load = ["load", &server.url, "--http2", "--streams", "5", "-c", "20", "--duration", "1", "--json"];
        let said = home.run(&load);
        assert_eq!(said.code, Some(0), "{said:?}");
        let rate = said.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let rate = rate.into_iter().find(|line| line["metric"] == "throughput").unwrap();
        // How many a second is a matter of the machine.
        assert!(rate["value"].as_f64().unwrap() > 0.0, "{rate}");
        assert_eq!(rate["case"]["setup"], "http2, streams=5");
        let said = home.run(&["load", "ws://localhost:1/", "--http2"]);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains("needs TLS"), "{said:?}");
    }

    #[test]
    fn a_probe_opens_a_websocket_on_a_stream() {
        let home = Home::new();
        let look = |more: &[&str]| {
            let server = home.serve(more);
            let url = server.url.replace("127.0.0.1", "localhost");
            let address = server.url.trim_start_matches("wss://").trim_end_matches('/');
            let said = home.run(&["probe", "--json", "--no-scan", "--address", address, &url]);
            assert_eq!(said.code, Some(0), "{said:?}");
            serde_json::from_str::<Value>(&said.out).unwrap()["facts"]["http2"].clone()
        };
        let found = look(&["--http2"]);
        assert_eq!((&found["offered"], &found["websockets"]), (&true.into(), &true.into()), "{found}");
        assert_eq!((&found["status"], &found["max_streams"]), (&200.into(), &100.into()), "{found}");
        assert!(found["pong_ms"].as_f64().is_some() && found["error"].is_null(), "{found}");
        let found = look(&[]);
        assert_eq!((&found["offered"], &found["websockets"]), (&false.into(), &Value::Null), "{found}");
    }

    /// A client with an open WebSocket, and its input.
    fn connected(home: &Home, url: &str) -> (Child, ChildStdin) {
        let mut client = home.taut(&["connect", "--http2", "--wait", "60", url]);
        let client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = client.spawn().unwrap();
        let (mut input, mut line) = (client.stdin.take().unwrap(), String::new());
        let mut output = BufReader::new(client.stdout.take().unwrap());
        input.write_all(b"hello\n").unwrap();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "hello\n");
        (client, input)
    }

    #[test]
    fn the_counters_of_a_server_have_connections_and_streams() {
        let home = Home::new();
        let server = home.serve(&["--http2"]);
        let (mut client, input) = connected(&home, &server.url);
        let said = server.stop();
        let counted = "http/2: 1 connections, 1 of them present, 0 ended for a fault; 1 streams present, 0 refused";
        assert!(said.err.contains(counted), "{}", said.err);
        drop(input);
        client.wait().unwrap();
    }

    #[test]
    fn the_list_of_connections_shows_which_one_a_stream_belongs_to() {
        let home = Home::new();
        let admin = home.0.join("admin.sock");
        let server = home.serve(&["--http2", "--admin", &format!("unix:{}", admin.display())]);
        let (mut client, _input) = connected(&home, &server.url);
        let listed: Value = serde_json::from_str(&exchange(&admin, "GET /connections?order=id", "").1).unwrap();
        let listed = listed["connections"].as_array().unwrap();
        let (streams, carriers): (Vec<_>, Vec<_>) = listed.iter().partition(|one| one["streams"].is_null());
        let ([stream], [carrier]) = (&streams[..], &carriers[..]) else { panic!("{listed:?}") };
        assert_eq!((&stream["carrier"], &carrier["carrier"]), (&carrier["id"], &Value::Null), "{listed:?}");
        assert_eq!(carrier["streams"], Value::from(vec![stream["id"].clone()]), "{listed:?}");
        assert_eq!((&stream["state"], &carrier["state"]), (&"open".into(), &"carrier".into()), "{listed:?}");
        let metrics = exchange(&admin, "GET /metrics", "").1;
        for (state, count) in [("open", 1), ("carrier", 1), ("closing", 0)] {
            let line = format!("tautline_connections{{state=\"{state}\"}} {count}\n");
            assert!(metrics.contains(&line), "{line:?}: {metrics}");
        }
        client.kill().unwrap();
        client.wait().unwrap();
    }

    /// Pairs move with HTTP/1.1. Over HTTP/2 they stay, and end within the drain.
    #[cfg(feature = "proxy")]
    #[test]
    fn an_upgrade_of_a_proxy_drains_streams_and_serves_those_that_return() {
        let home = Home::new();
        let echo = home.serve(&["--plain"]);
        for keys in ["", "messages = {}"] {
            let server = format!("http://127.0.0.1:{}", echo.port());
            let config = format!("[[route]]\nto = \"echo\"\n{keys}\n[backend.echo]\nservers = [{server:?}]\n");
            std::fs::write(home.0.join("taut.toml"), config).unwrap();
            let mut served = home.proxy(&["--config", "taut.toml", "--http2", "--drain", "2"]);
            let mut log = BufReader::new(served.child.as_mut().unwrap().stderr.take().unwrap());
            let connect = ["connect", "--http2", &served.url];
            let mut client = home.taut(&[&connect[..], &["--wait", "60"]].concat());
            client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut client = client.spawn().unwrap();
            let (mut input, mut line) = (client.stdin.take().unwrap(), String::new());
            let mut output = BufReader::new(client.stdout.take().unwrap());
            input.write_all(b"before\n").unwrap();
            output.read_line(&mut line).unwrap();
            assert_eq!(line, "before\n");
            let mut asked = home.taut(&["upgrade", &served.pid()]).spawn().unwrap();
            let line = news(&mut log);
            assert!(line.contains(" 0 connections have moved"), "{line}");
            let said = Finished::of(client.wait_with_output().unwrap());
            let ends_with = if keys.is_empty() { "(1006)" } else { "(1012" };
            assert!(said.code != Some(0) && said.err.contains(ends_with), "{said:?}");
            assert_eq!(served.child.as_mut().unwrap().wait().unwrap().code(), Some(0));
            assert!(asked.wait().unwrap().success());
            let said = home.run_with(&[&connect[..], &["--wait", "2"]].concat(), "after\n");
            assert_eq!((said.code, said.out.as_str()), (Some(0), "after\n"), "{}", said.err);
            signal("-TERM", &successor(&line));
        }
    }
}
