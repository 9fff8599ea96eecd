//! Limits of requests by source, between real sockets.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

mod kit;

use kit::{Client, length, of_text};

#[test]
fn requests_beyond_the_rate_of_their_source_get_429_and_the_connection_goes_on() {
    const COUNT: usize = 40;
    let proxy = of_text(
        "[limits]\nrequests = { per-second = 1, burst = 2 }\n[[route]]\nanswer = { status = 200, body = \"well\" }\n",
    );
    let mut client = Client::of(&proxy);
    // All of them come in one read.
    client.ask(&"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(COUNT));
    let mut refused = 0;
    for number in 0..COUNT {
        let head = client.head();
        let _ = client.exact(length(&head).unwrap());
        if head.starts_with("http/1.1 429 ") {
            assert!(head.contains("retry-after: 1\r\n"), "{head}");
            refused += 1;
        } else {
            assert!(head.starts_with("http/1.1 200 "), "{head}");
        }
        assert!(number > 1 || refused == 0, "{number}: {head}");
    }
    assert!(refused > COUNT / 2, "{refused} of {COUNT}");
}
