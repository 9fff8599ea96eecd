//! Commands of other threads to a shard.

use crate::close::restart::Restart;
use crate::dial::target::Target;
use crate::http::late_reply::LateReply;
use crate::ids::{ConnId, DialId};
use crate::memory::weight::{Listing, Weight};
use crate::probe::Stages;
use crate::threads::command_queue::Weigh;
use crate::topics::publications::Publication;
use crate::topics::topic::Scope;
use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use tautline_conn::closed::ConnectError;
use tautline_conn::message::Encoded;
use tautline_io::{Address, Token};
use tautline_ws::CloseCode;

pub(crate) enum Command {
    Publish(Publication),
    Send { to: ConnId, message: Encoded },
    PublishToAll(Publication),
    Subscribe { to: Token, scope: Scope, name: String, on: bool },
    Act { to: Token, act: Box<dyn Any + Send>, bytes: usize },
    ShardAct { act: Box<dyn Any + Send>, bytes: usize },
    Reconnect(Token),
    Notify(ConnId),
    Connect { dial: DialId, target: Arc<Target> },
    Disconnect { dial: DialId, code: CloseCode, reason: String },
    Reply { to: Token, number: u64, reply: Box<LateReply> },
    Close { conn: ConnId, code: CloseCode, reason: String },
    Adopt { socket: OwnedFd, peer: Option<Address> },
    Drain { code: CloseCode, reason: String, deadline: Duration },
    DrainForRestart { restart: Box<Restart>, deadline: Duration },
    Stages(Option<DialId>, SyncSender<Option<Box<Stages>>>),
    Subscribers { topic: String, reply: SyncSender<usize> },
    List(Listing, SyncSender<Vec<Weight>>),
    Beat(SyncSender<()>),
    Resolved { dial: DialId, result: Result<Vec<SocketAddr>, ConnectError> },
}

impl Weigh for Command {
    /// Bytes of its message.
    fn bytes(&self) -> usize {
        match self {
            Self::Publish(publication) | Self::PublishToAll(publication) => publication.len(),
            Self::Subscribe { name, .. } => name.len(),
            Self::Reply { reply, .. } => reply.len(),
            Self::Act { bytes, .. } | Self::ShardAct { bytes, .. } => *bytes,
            Self::Send { message, .. } => message.message.payload().len(),
            Self::Close { reason, .. } | Self::Disconnect { reason, .. } => reason.len(),
            Self::Connect { target, .. } => target.size(),
            Self::Adopt { .. }
            | Self::Drain { .. }
            | Self::DrainForRestart { .. }
            | Self::Reconnect(_)
            | Self::Notify(_)
            | Self::Stages(..)
            | Self::Subscribers { .. }
            | Self::List(..)
            | Self::Beat(_)
            | Self::Resolved { .. } => 0,
        }
    }

    fn own(&self) -> usize {
        match self {
            Self::Publish(_) | Self::PublishToAll(_) | Self::Send { .. } => 0,
            Self::Reply { reply, .. } => size_of_val(&**reply) + reply.len(),
            other => other.bytes(),
        }
    }
}
