use super::Home;

#[test]
fn sends_input_lines_and_prints_messages() {
    let home = Home::new();
    for tls in [&["--plain"][..], &["--tls", "fused"], &["--tls", "rustls"]] {
        let server = home.serve(tls);
        let said = home.run_with(&["connect", "--wait", "2", &server.url], "hello\nwörld\n");
        assert_eq!((said.code, said.out.as_str()), (Some(0), "hello\nwörld\n"), "{}", said.err);
        assert_eq!(server.stop().code, Some(0));
    }
}

#[test]
fn a_peer_cannot_command_the_terminal() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let escape = "\x1b]0;owned\x07 and text\n";
    let piped = home.run_with(&["connect", "--wait", "2", &server.url], escape);
    assert_eq!((piped.code, piped.out.as_str()), (Some(0), escape), "{}", piped.err);
    // Python gives the program a terminal for its output only, so that nothing is echoed.
    let code = "import os,pty,subprocess,sys\n\
                ours,theirs=pty.openpty()\n\
                child=subprocess.Popen(sys.argv[1:],stdin=subprocess.PIPE,stdout=theirs)\n\
                child.stdin.write(b'\\x1b]0;owned\\x07 and text\\n');child.stdin.close()\n\
                child.wait();os.close(theirs)\n\
                print(repr(os.read(ours,1000)))\n";
    let taut = env!("CARGO_BIN_EXE_taut");
    let shown = std::process::Command::new("python3")
        .args(["-c", code, taut, "connect", "--wait", "2", &server.url])
        .env("XDG_DATA_HOME", &home.0)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(shown.trim(), r"b'\\u{1b}]0;owned\\u{7} and text\r\n'");
}

#[test]
fn input_beyond_all_buffers_waits_in_the_pipe() {
    let home = Home::new();
    let server = home.serve(&[]);
    let input = format!("{}\n", "x".repeat(60_000)).repeat(100);
    let said = home.run_with(&["connect", "--wait", "2", &server.url], &input);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out == input, "{} of {} bytes came back", said.out.len(), input.len());
    // The error is the reason for the end, and not the end itself.
    let input = "x".repeat(2_000_000) + "\nhello\n";
    let said = home.run_with(&["connect", &server.url], &input);
    assert!(said.code == Some(3) && said.err.contains("above the limit of 1048576 bytes"), "{said:?}");
}

#[test]
fn verbose_prints_negotiated_values() {
    let home = Home::new();
    let server = home.serve(&["--deflate", "--subprotocol", "chat"]);
    let offers = ["--deflate", "--subprotocol", "other", "--subprotocol", "chat"];
    let said = home.run_with(&[&["connect", "-v", "--wait", "0", &server.url], &offers[..]].concat(), "");
    assert_eq!(said.code, Some(0));
    for value in [
        "TLSv1.3",
        "session      new",
        "101 Switching Protocols",
        "permessage-deflate",
        "subprotocol  chat",
        "certificate  CN=",
        "for localhost 127.0.0.1",
        "EC P-256",
        "days left",
        "times        TCP ",
        " ms, TLS ",
        " ms, upgrade ",
    ] {
        assert!(said.err.contains(value), "{value} is missing in {}", said.err);
    }
}

#[test]
fn connects_over_a_unix_socket() {
    let home = Home::new();
    let path = home.0.join("taut.sock");
    let address = format!("unix:{}", path.display());
    let server = home.serve(&["--plain", "--unix", path.to_str().unwrap()]);
    let said = home.run_with(&["connect", "--wait", "2", "--address", &address, "ws://localhost/"], "hi\n");
    assert_eq!((said.code, said.out.as_str()), (Some(0), "hi\n"), "{}", said.err);
    drop(server);
}

#[test]
fn each_failure_names_the_remedy_in_one_line() {
    let home = Home::new();
    let stranger = Home::new();
    let server = home.serve(&[]);
    let plain = home.serve(&["--plain"]);
    let crossed = |served: &super::Served, scheme: &str| format!("{scheme}://127.0.0.1:{}/", served.port());
    for (said, code, hint) in [
        (stranger.run(&["connect", &server.url]), 3, "--ca FILE"),
        (home.run(&["connect", &crossed(&server, "ws")]), 3, "wss://"),
        (home.run(&["connect", &crossed(&plain, "wss")]), 3, "ws://"),
        (home.run(&["connect", "ws://127.0.0.1:1/"]), 3, "taut serve"),
        (home.run(&["connect", "http://127.0.0.1/"]), 2, "wss://HOST"),
        (home.run(&["connect", "--ca", "nothing.pem", &server.url]), 2, "nothing.pem"),
        (home.run(&["connect", "--ktls", "ws://127.0.0.1:1/"]), 2, "--ktls needs wss://"),
    ] {
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(said.err.contains(hint) && said.err.lines().count() == 1, "{said:?}");
    }
    let trusted = home.0.join("tautline/ca.pem");
    for arguments in [&["--insecure"][..], &["--ca", trusted.to_str().unwrap()]] {
        let arguments = [&["connect", "--wait", "0", &server.url], arguments].concat();
        assert_eq!(stranger.run(&arguments).code, Some(0), "{arguments:?}");
    }
}

/// The two ends may seal and open with different providers.
#[test]
fn the_aead_of_both_ends_is_chosen() {
    let home = Home::new();
    for (ours, theirs) in [("aws-lc", "ring"), ("ring", "aws-lc"), ("auto", "auto")] {
        let server = home.serve(&["--aead", ours]);
        let said = home.run_with(&["connect", "-v", "--aead", theirs, &server.url], "hello\n");
        assert_eq!((said.code, said.out.as_str()), (Some(0), "hello\n"), "{}", said.err);
        let line = said.err.lines().find(|line| line.starts_with("* AEAD ")).unwrap_or_default();
        assert!(said.err.contains("* first        message after "), "{}", said.err);
        assert!(line.ends_with(theirs) || theirs == "auto" && !line.is_empty(), "{}", said.err);
        assert_eq!(server.stop().code, Some(0));
    }
}
