mod ended;
mod printer;
mod repeats;
mod snapshots;
mod streams;
mod tally;
mod watch;
mod wording;

use crate::failure::Failure;
use crate::output;
use crate::stages;
use crate::target::{TransportArguments, header};
use ended::Ended;
use log::Level;
use printer::Printer;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use snapshots::Snapshots;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use streams::{Stream, VenueName, stream};
use tally::Tally;
use tautline::Roots;
use tautline::http::header::{HeaderName, HeaderValue};
use tautline::{Client, CloseCode, Config, DeflateConfig, ServerHandle, Target, Tls, TlsEngine};
use tautline_feed::record::{Pace, RecordFault, Recorder, Recording, Replay, ReplayError};
use tautline_feed::{Connector, Feed, FeedConfig, Fetch, Player, SymbolId, Time};
use tautline_lab::loops;
use watch::{Form, Watch};

/// Follow the market data of a venue: print trades and the best bid and offer.
///
/// Books are fixed point and checked. While one is rebuilt, it is not shown, and the reason is on standard error. Notices that
/// repeat are counted there. The feed waits for no reader: if 1 MiB of lines wait, further ones are dropped and counted. SIGINT
/// (Ctrl-C) and SIGTERM end the program; it then prints counts of each stream and connection.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut feed binance btcusdt@trade btcusdt@depth
  taut feed coinbase BTC-USD@trade ETH-USD@depth --json --proxy http://proxy.example:3128
  taut feed kraken BTC/USD@depth --copies 2             each stream on two connections: which one is first?
  taut feed binance btcusdt@trade --quiet --stages      times from the network card to the decision
  taut feed kraken BTC/USD@trade --quiet --stages --order '{\"method\":\"ping\"}'     tick to trade
  taut feed binance btcusdt@depth --record btc.rec
  taut feed binance btcusdt@depth --replay btc.rec --speed 10
  taut feed binance btcusdt@depth --url ws://127.0.0.1:8080/ws --snapshot-url http://127.0.0.1:8080")]
pub(crate) struct Arguments {
    /// The venue.
    #[arg(value_name = "VENUE")]
    venue: VenueName,
    /// Streams: a symbol, @, and `trade` or `depth`.
    #[arg(value_name = "SYMBOL@CHANNEL", required = true, value_parser = stream)]
    streams: Vec<Stream>,
    /// Connect here in place of the venue: `taut serve --app venue` imitates one.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Fetch snapshots from this host, without a path, in place of the venue's (Binance).
    #[arg(long, value_name = "URL")]
    snapshot_url: Option<String>,
    /// Connections that carry each stream.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=8))]
    copies: u16,
    /// Levels of each side of a book to print.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    levels: u16,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Print no trades and prices.
    #[arg(short, long)]
    quiet: bool,
    /// End after this many seconds.
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    run_for: Option<Duration>,
    /// Record all that comes and goes in this new file.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Replay a recording in place of connecting, with the options of then.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "stages"])]
    replay: Option<PathBuf>,
    /// Speed of the replay: 1 is that of then, 0 is as fast as possible.
    #[arg(long, value_name = "FACTOR", default_value_t = 0.0, requires = "replay", value_parser = factor)]
    speed: f64,
    /// Header to add to the requests for connections, such as one with an API key. May be repeated.
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// Offer compression (permessage-deflate).
    #[arg(long)]
    deflate: bool,
    #[command(flatten)]
    transport: TransportArguments,
    /// Time messages from the network card to the decision, by stages. With N, only the messages of one read in N are timed. The
    /// first 300 after 100 stand in a table beside those of the report that `taut bench stages` reproduces.
    #[arg(help_heading = "Measuring", long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    stages: Option<NonZeroU32>,
    /// Send this text after a decision, at most once a second and within the venue's budget, and time it: from the network card to
    /// the decision and back. A harmless request does, such as the venue's ping.
    #[arg(help_heading = "Measuring", long, value_name = "TEXT", requires = "stages")]
    order: Option<String>,
}

/// A worker of the suite `feed`: it measures a round for each line of its input.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkerArguments {
    /// The simulated venue, without a path.
    #[arg(value_name = "URL")]
    url: String,
}

pub(crate) fn work(arguments: &WorkerArguments) -> Result<(), Failure> {
    let snapshots = Snapshots::new(&Roots::Platform, None)?;
    let fetch = move |url: &str| snapshots.clone().fetch(url);
    let mut print = |line: &str| output::print(format_args!("{line}\n")).is_ok();
    tautline_lab::feed_worker::run(&arguments.url, fetch, &mut print)
        .map_err(|error| Failure::failed(error.to_string()))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().filter(|time| (0.0..=1e9).contains(time)).map(Duration::from_secs_f64);
    time.ok_or_else(|| "write seconds, as 0.5".to_owned())
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor >= 0.0);
    factor.ok_or_else(|| "write a factor from 0 on, as 0.5".to_owned())
}

/// A venue that pings sends something within this time.
const SILENCE: Duration = Duration::from_secs(90);

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.replay {
        Some(path) => arguments.replay(path),
        None => arguments.follow(),
    }
}

impl Arguments {
    /// The feed with its streams, and the names of their symbols.
    fn feed(&self) -> (Feed, Vec<String>) {
        let mut config = FeedConfig::default();
        config.copies = self.copies.into();
        let mut feed = self.venue.feed(self.url.as_deref(), self.snapshot_url.as_deref(), config);
        let mut names: Vec<String> = Vec::new();
        for stream in &self.streams {
            let symbol: SymbolId = feed.declare(&stream.symbol, None);
            if symbol.index() == names.len() {
                names.push(stream.symbol.clone());
            }
            feed.subscribe(symbol, stream.channel, Time::ZERO);
        }
        (feed, names)
    }

    fn watch(&self, names: Vec<String>, printer: Printer, ended: &Sender<Ended>) -> Watch {
        let form = match (self.quiet, self.json) {
            (true, _) => Form::Quiet,
            (false, true) => Form::Json,
            (false, false) => Form::Text,
        };
        Watch::new(form, self.levels.into(), names, printer, ended.clone()).with_order(self.order.clone())
    }

    fn follow(&self) -> Result<(), Failure> {
        let (ended, ends) = channel();
        let (feed, names) = self.feed();
        let url = self.url.clone().unwrap_or_else(|| self.venue.url());
        let target = Target::new(&url).map_err(|error| Failure::from(&error))?;
        let (tls, driver) = self.transport.configs(&target)?;
        let proxy = self.transport.proxy(&target)?;
        // The others send theirs over their connections.
        let of_snapshots = proxy.as_ref().filter(|_| self.venue == VenueName::Binance);
        let snapshots = Snapshots::new(&tls.roots, of_snapshots)?;
        let watch = self.watch(names, Printer::live(&ended), &ended);
        let mut connector = Connector::new(feed, watch).with_fetch(snapshots).with_act(Watch::act);
        if let Some(path) = &self.record {
            let cannot = |error| Failure::usage(format!("--record: cannot write {}: {error}", path.display()));
            connector = connector.with_recorder(Recorder::create(path, &Recording::default()).map_err(cannot)?);
        }
        let (headers, deflate) = (self.header.clone(), self.deflate);
        let connector = connector.with_target(move |target| {
            for (name, value) in &headers {
                target.headers.append(name.clone(), value.clone());
            }
            target.deflate = deflate.then(DeflateConfig::default);
            target.proxy.clone_from(&proxy);
        });
        let mut config = Config::low_latency();
        config.deadlines.silence = Some(SILENCE);
        let client = Client::new(Tls { engine: self.engine(target.is_secure()), config: tls }).driver(driver);
        let client = self.stages.into_iter().fold(client.config(config).stay(), Client::stages_of_one_read_in);
        let handle = loops::start_client(client, self.stages.is_some(), Box::new(move |_| Box::new(connector)))?;
        end_on_signals(ended)?;
        let mut result = self.wait(&handle, &ends);
        handle.drain(CloseCode::NORMAL, "", Duration::from_secs(1));
        stages::print(handle.join_with_stages()?);
        // The application has ended with its loop, and has told its counts.
        for end in ends.try_iter() {
            if let Ended::Tally(tally) = end {
                self.print(&tally);
                if tally.unrecorded > 0 && result.is_ok() {
                    result = Err(Failure::failed(format!("the recording lacks {} events", tally.unrecorded)));
                }
            }
        }
        result
    }

    /// Waits for the end.
    fn wait(&self, handle: &ServerHandle, ends: &Receiver<Ended>) -> Result<(), Failure> {
        let begin = Instant::now();
        while handle.shards().iter().all(|shard| shard.is_running()) {
            let left = self.run_for.map_or(LOOK, |time| time.saturating_sub(begin.elapsed()).min(LOOK));
            match ends.recv_timeout(left) {
                Ok(Ended::Signal) => return Ok(()),
                Ok(Ended::Output(failure)) => return Err(failure),
                Err(RecvTimeoutError::Timeout) if self.run_for.is_some_and(|time| begin.elapsed() >= time) => {
                    return Ok(());
                }
                Ok(Ended::Tally(_)) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn replay(&self, path: &Path) -> Result<(), Failure> {
        let cannot = |error| Failure::usage(format!("--replay: cannot open {}: {error}", path.display()));
        let mut replay = Replay::open(path).map_err(cannot)?;
        let (ended, ends) = channel();
        let (feed, names) = self.feed();
        let mut player = Player::new(feed, self.watch(names, Printer::waiting(&ended), &ended));
        let (mut pace, begin) = (Pace::times(self.speed), Instant::now());
        let mut damage = Ok(());
        end_on_signals(ended)?;
        loop {
            match replay.next() {
                Ok(Some(event)) => {
                    let due = pace.due(event.at);
                    if self.rest_until(due, begin, &ends)? {
                        break;
                    }
                    player.play(&event);
                }
                Ok(None) => break,
                Err(error @ ReplayError::Io(_)) => return Err(Failure::failed(error.to_string())),
                Err(error) => {
                    output::note(format_args!("{error}"));
                    damage = Err(Failure::failed(format!("{} is damaged", path.display())));
                    // Reading goes on behind damage, and not in another file.
                    let is_other = |fault| matches!(fault, RecordFault::NoRecording | RecordFault::Version(_));
                    if matches!(&error, ReplayError::Record(error) if is_other(error.fault)) {
                        break;
                    }
                }
            }
        }
        if damage.is_ok() && !player.has_begun() {
            damage = Err(Failure::failed(format!("{} has no beginning of a recording of `taut feed`", path.display())));
        }
        if player.passed() > 0 {
            output::note(format_args!(
                "{} events are of streams or connections that these options do not ask for",
                player.passed()
            ));
        }
        drop(player);
        for end in ends.try_iter() {
            if let Ended::Tally(tally) = end {
                self.print(&tally);
            }
        }
        damage
    }

    /// Waits until a replayed event is due, and says whether the replay ends before.
    fn rest_until(&self, due: Duration, begin: Instant, ends: &Receiver<Ended>) -> Result<bool, Failure> {
        let until = self.run_for.map_or(due, |end| due.min(end));
        match ends.recv_timeout(until.saturating_sub(begin.elapsed())) {
            Ok(Ended::Output(failure)) => Err(failure),
            Ok(Ended::Signal) => Ok(true),
            Ok(Ended::Tally(_)) | Err(_) => Ok(self.run_for.is_some_and(|end| begin.elapsed() >= end)),
        }
    }

    /// The engine of all connections, which are of one scheme.
    const fn engine(&self, is_secure: bool) -> TlsEngine {
        if is_secure { self.transport.tls } else { TlsEngine::Plain }
    }

    /// Prints the counts of a run on standard error.
    fn print(&self, tally: &Tally) {
        let is_secure = self.url.as_deref().is_none_or(|url| !url.starts_with("ws:"));
        let name = format!("{}, {}", self.transport.driver.name(), self.engine(is_secure));
        output::report(Level::Info, format_args!("{}", tally.text(&name)));
    }
}

/// The time between two looks whether the loop still runs.
const LOOK: Duration = Duration::from_millis(200);

/// Ends the run on the first signal, and the program on the second.
fn end_on_signals(ended: Sender<Ended>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| Failure::failed(format!("cannot wait for signals: {error}")))?;
    std::thread::spawn(move || {
        let mut has_come = false;
        for signal in signals.forever() {
            if has_come || ended.send(Ended::Signal).is_err() {
                std::process::exit(128 + signal);
            }
            has_come = true;
        }
    });
    Ok(())
}
