use super::{PATIENCE, Stage, WAIT, Watch, turn};
use crate::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::layers::engine::probe::Probe;
use tautline::layers::io::Driver;
use tautline::layers::tls::Engine;
use tautline::{CloseCode, Closed, ConnId, ConnectError, Handler, Shard, Target};

/// Connections being made at a time: enough to keep the server busy, and no listen queue overflows.
const AT_ONCE: usize = 256;

/// What a handler knows of its connections.
#[derive(Debug, Default)]
pub(super) struct Dialed {
    pub(super) open: Vec<ConnId>,
    pub(super) error: Option<Error>,
    /// The run is over: connections may end.
    pub(super) ending: bool,
}

/// A handler whose connections are all made at the start and last until the end.
pub(super) trait Holds: Handler {
    fn dialed(&mut self) -> &mut Dialed;
}

impl Dialed {
    pub(super) fn failed(&mut self, error: &ConnectError) {
        self.fail(Error::Network(super::explain(error)));
    }

    pub(super) fn closed(&mut self, closed: &Closed) {
        if !self.ending {
            self.fail(Error::Failed(format!("a connection ended ({}): {}", closed.code.get(), closed.cause)));
        }
    }

    /// Keeps the first error: those that follow are often only its consequences.
    pub(super) fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    pub(super) fn check(&mut self) -> Result<(), Error> {
        self.error.take().map_or(Ok(()), Err)
    }
}

/// Makes connections until `count` are open.
pub(super) fn open_all<E: Engine, D: Driver, H: Holds, P: Probe>(
    shard: &mut Shard<E, D, H, P>,
    target: &Arc<Target>,
    count: usize,
    watch: Watch<'_>,
) -> Result<(), Error> {
    let mut started = shard.handler().dialed().open.len();
    let mut last = (started, Instant::now());
    loop {
        let open = shard.handler().dialed().open.len();
        shard.handler().dialed().check()?;
        if open > last.0 {
            last = (open, Instant::now());
            watch(Stage::Connecting(open, count));
        }
        if open >= count {
            return Ok(());
        }
        if last.1.elapsed() > PATIENCE {
            let patience = PATIENCE.as_secs();
            return Err(Error::Network(format!("{open} of {count} connections opened, then none for {patience} s")));
        }
        while started < count && started < open + AT_ONCE {
            shard.connect(Arc::clone(target));
            started += 1;
        }
        turn(shard, WAIT)?;
    }
}

/// Ends all connections in good order, but does not wait for those that take longer than a moment.
pub(super) fn close_all<E: Engine, D: Driver, H: Holds, P: Probe>(shard: &mut Shard<E, D, H, P>) -> Result<(), Error> {
    const DEADLINE: Duration = Duration::from_secs(2);
    shard.handler().dialed().ending = true;
    shard.drain(CloseCode::NORMAL, "", DEADLINE);
    let end = Instant::now() + 2 * DEADLINE;
    while !shard.is_drained() && Instant::now() < end {
        turn(shard, WAIT)?;
    }
    Ok(())
}
