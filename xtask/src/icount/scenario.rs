/// The operation that a scenario's instructions are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Per {
    Message,
    /// A message that goes to one of many.
    Delivery,
    /// A connection that is opened, upgraded and closed.
    Connection,
    /// Such a connection, if it was resumed. The others count as those of [`FULL`].
    Resumed,
}

/// A server and a load.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// Arguments of `taut serve` and of `taut load`.
    pub(super) serve: &'static [&'static str],
    pub(super) load: &'static [&'static str],
    pub(super) per: Per,
}

const fn scenario(
    name: &'static str,
    serve: &'static [&'static str],
    load: &'static [&'static str],
    per: Per,
) -> Scenario {
    Scenario { name, serve, load, per }
}

/// The scenario of full handshakes.
pub(super) const FULL: &str = "full handshake, P-256";

/// Each has one connection, so that a turn of the loop has one event, whatever the machine does. Only the broadcast has more,
/// of which one sends: the next message follows when all have the last one. Its handshakes are few and made in the loop. Under
/// callgrind they take so long that threads beside the loop refuse some of many at once, and that loads give up after 5 s.
pub(super) const SCENARIOS: &[Scenario] = &[
    scenario("echo 64 B", &[], &["-c", "1", "-s", "64"], Per::Message),
    scenario("echo 1 KiB", &[], &["-c", "1", "-s", "1024"], Per::Message),
    scenario("echo 16 KiB", &[], &["-c", "1", "-s", "16384"], Per::Message),
    scenario("echo 64 B, 16 in flight", &[], &["-c", "1", "-s", "64", "-p", "16"], Per::Message),
    scenario("echo 64 B without TLS", &["--plain"], &["-c", "1", "-s", "64"], Per::Message),
    scenario("echo 64 B over HTTP/2", &["--http2"], &["--http2", "-c", "1", "-s", "64"], Per::Message),
    scenario("echo 1 KiB with deflate", &["--deflate"], &["-c", "1", "-s", "1024", "--deflate"], Per::Message),
    scenario(
        "broadcast 64 B to 8",
        &["--app", "broadcast", "--handshake-threads", "0"],
        &["--broadcast", "-c", "8", "-s", "64"],
        Per::Delivery,
    ),
    scenario(FULL, &["--tickets", "0"], &["--handshakes", "-c", "1"], Per::Connection),
    scenario("resumed handshake", &[], &["--handshakes", "-c", "1"], Per::Resumed),
];
