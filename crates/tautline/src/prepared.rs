//! A server whose loops have started and wait.

use crate::thread::{Launched, cannot_take_over};
use crate::upgrade::TakeOver;
use crate::{Error, ServerHandle};
use std::fmt;
use std::os::fd::OwnedFd;

/// A server whose loops have started and listen, and neither accept nor read until it [goes on](Self::go_on).
///
/// A program does here what may still fail: it drops privileges, prepares an admin listener, checks its output. If one of these
/// fails, [`give_up`](Self::give_up) tells a predecessor why, and the predecessor goes on. Dropping it gives up, too.
///
/// ```
/// use std::os::unix::net::UnixStream;
/// use tautline::{Admin, Conn, Error, Handler, Message, Plain, PreparedServer, Server, ServerHandle};
///
/// struct Silent;
///
/// impl Handler for Silent {
///     type State = ();
///     fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
/// }
///
/// /// The new process, whose predecessor named its admin listener in `HandOver::also`.
/// fn take_over(from: UnixStream) -> Result<(ServerHandle, ServerHandle), Error> {
///     let mut server = Server::plain().take_over(from).prepare(|_shard| Silent)?;
///     let admin = match prepare_admin(&mut server) {
///         Ok(admin) => admin,
///         Err(error) => {
///             server.give_up(&error);
///             return Err(error);
///         }
///     };
///     let server = server.go_on()?;
///     // An admin listener has no predecessor of its own, so this does not fail.
///     Ok((server, admin.go_on()?))
/// }
///
/// fn prepare_admin(server: &mut PreparedServer) -> Result<PreparedServer, Error> {
///     let mut admin: Server<Plain> = Server::plain();
///     for socket in server.take_listening_of(0) {
///         admin = admin.listen_on(socket);
///     }
///     let service = Admin::new(server.handle());
///     admin.prepare(move |_shard| service.clone())
/// }
/// ```
#[must_use = "the loops end if it is dropped"]
#[derive(Debug)]
pub struct PreparedServer(Launched);

impl PreparedServer {
    pub(crate) const fn new(launched: Launched) -> Self {
        Self(launched)
    }

    /// The handle that [`go_on`](Self::go_on) will return. Its addresses are known. Commands wait until then.
    #[must_use]
    pub const fn handle(&self) -> &ServerHandle {
        &self.0.server
    }

    /// Whether there is a predecessor, whose connections and sockets this server takes over.
    #[must_use]
    pub const fn takes_over(&self) -> bool {
        self.0.take_over.is_some()
    }

    /// Takes the listening sockets of a further server of the predecessor, by its number in
    /// [`HandOver::also`](crate::HandOver::also). Each is for [`Server::listen_on`](crate::Server::listen_on). There are none if
    /// the predecessor has no such server, or if they were taken before.
    #[must_use]
    pub fn take_listening_of(&mut self, server: usize) -> Vec<OwnedFd> {
        self.0.take_over.as_mut().map(|take_over| take_over.take_listening_of(server)).unwrap_or_default()
    }

    /// Lets the loops serve. With a predecessor, returns once all connections that move are served here. From the moment on at
    /// which the predecessor has let go, nothing fails: a loop that fails is reported as [ever](ServerHandle::wait_for_end).
    ///
    /// # Errors
    /// The predecessor goes on, and the loops here end. Without a predecessor this does not fail.
    pub fn go_on(self) -> Result<ServerHandle, Error> {
        let Launched { server, others: senders, take_over } = self.0;
        for (number, sender) in senders.into_iter().enumerate() {
            let mut others = server.shards().to_vec();
            others.remove(number);
            // A loop that has ended already does not need the list.
            let _ = sender.send(others);
        }
        match take_over.map(TakeOver::finish) {
            Some(Ok(legacy)) => server.go_on_from(legacy),
            Some(Err(error)) => {
                // The loops end, since they are not let go.
                let ended = server.join();
                return Err(ended.err().unwrap_or_else(|| cannot_take_over(error)));
            }
            None => {}
        }
        Ok(server)
    }

    /// Ends the loops, and tells a predecessor why. The predecessor goes on with everything.
    pub fn give_up(self, why: &dyn fmt::Display) {
        let Launched { server, others, take_over } = self.0;
        take_over.into_iter().for_each(|take_over| take_over.give_up(why));
        drop(others);
        // Why the loops end is known.
        let _ = server.join();
    }
}
