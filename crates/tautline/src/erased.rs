//! Loops without the types of their engine and application, so that their callers are compiled once.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tautline_engine::probe::{Probe, Stages};
use tautline_engine::{Conn, ConnId, Counters, DialId, Handler, Movers, Shard, ShardHandle, Staying, Target, Totals};
use tautline_io::{Address, ListenOptions};
use tautline_tls::Engine;
use tautline_ws::CloseCode;

/// Declares a trait of methods of [`Shard`] by their signatures, and implements it.
macro_rules! erased {
    ($(#[$attribute:meta])* $vis:vis trait $trait:ident $(: $base:ident)?;
        &self { $(fn $read:ident($($read_arg:ident: $read_type:ty),*) -> $read_result:ty;)* }
        &mut self { $(fn $change:ident$(<$life:lifetime>)?($($arg:ident: $type:ty),*) $(-> $result:ty)?;)* }
    ) => {
        $(#[$attribute])*
        $vis trait $trait $(: $base)? {
            $(fn $read(&self $(, $read_arg: $read_type)*) -> $read_result;)*
            $(fn $change$(<$life>)?(&$($life)? mut self $(, $arg: $type)*) $(-> $result)?;)*
        }

        impl<E: Engine, H: Handler> $trait for Shard<E, H> {
            $(fn $read(&self $(, $read_arg: $read_type)*) -> $read_result {
                self.$read($($read_arg),*)
            })*

            $(fn $change$(<$life>)?(&$($life)? mut self $(, $arg: $type)*) $(-> $result)? {
                self.$change($($arg),*)
            })*
        }
    };
}

erased! {
    /// A loop that its owner turns.
    #[doc(hidden)]
    pub trait Loop;
    &self {
        fn counters() -> Counters;
        fn is_drained() -> bool;
        fn stages() -> Option<Box<Stages>>;
    }
    &mut self {
        fn connect(target: Arc<Target>) -> DialId;
        fn drain(code: CloseCode, reason: &str, deadline: Duration);
        fn flush();
        fn listen(address: &Address, options: &ListenOptions) -> io::Result<Address>;
        fn listen_on(socket: OwnedFd) -> io::Result<Address>;
        fn set_probe(probe: Box<dyn Probe>);
        fn turn(longest: Option<Duration>) -> io::Result<()>;
    }
}

erased! {
    /// A loop on a thread of its own, whose connections can move.
    pub(crate) trait ThreadLoop: Loop;
    &self {
        fn handle() -> ShardHandle;
        fn is_idle() -> bool;
        fn listening() -> io::Result<Vec<OwnedFd>>;
        fn totals() -> Totals;
    }
    &mut self {
        fn set_others(others: Vec<ShardHandle>);
        fn watch_turns();
        fn settle();
        fn hold_still() -> io::Result<()>;
        fn begin_move();
        fn give_away(conns: &[ConnId]);
        fn give_listening_away();
        fn restore(sockets: Vec<OwnedFd>, saved: &[u8]) -> io::Result<usize>;
        fn restore_again(number: usize, saved: &[u8]) -> io::Result<()>;
        fn undo_restore(number: usize);
        fn begin_restored() -> usize;
        fn add_totals(totals: &Totals);
        fn save_ahead<'s>(from: usize, give: &mut GiveAhead<'_, 's>) -> io::Result<Option<usize>>;
        fn save<'s>(give: &mut Give<'_, 's>) -> io::Result<Staying>;
    }
}

/// Takes connections that move together, with their sockets, which the loop keeps open for `'s`, and their bytes.
pub(crate) type Give<'g, 's> = dyn FnMut(Movers, &[BorrowedFd<'s>], &[u8]) -> io::Result<()> + 'g;

/// Takes connections as [`Give`] does, or `None` for a slot without any. It breaks if that is enough for now.
pub(crate) type GiveAhead<'g, 's> =
    dyn FnMut(Option<(Movers, &[BorrowedFd<'s>], &[u8])>) -> io::Result<ControlFlow<()>> + 'g;

/// A [`Loop`] whose application keeps nothing about a connection.
#[doc(hidden)]
pub trait StatelessLoop: Loop {
    /// Calls `act` with a connection, if it is open.
    fn with_conn(&mut self, conn: ConnId, act: &mut dyn FnMut(&mut Conn<'_, ()>));
}

impl<E: Engine, H: Handler<State = ()>> StatelessLoop for Shard<E, H> {
    fn with_conn(&mut self, conn: ConnId, act: &mut dyn FnMut(&mut Conn<'_, ()>)) {
        self.with_conn(conn, |_, conn| act(conn));
    }
}
