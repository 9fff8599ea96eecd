//! Commands of other threads to a shard.

use crate::answer::Answer;
use crate::closed::ConnectError;
use crate::ids::{ConnId, DialId};
use crate::message::Encoded;
use crate::probe::Stages;
use crate::publications::Publication;
use crate::topic::Scope;
use std::any::Any;
use std::net::SocketAddr;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use tautline_io::Token;
use tautline_ws::CloseCode;

pub(crate) enum Command {
    Publish(Publication),
    Send { to: ConnId, message: Encoded },
    PublishToAll(Publication),
    Subscribe { to: Token, scope: Scope, name: String, on: bool },
    Act { to: Token, act: Box<dyn Any + Send>, bytes: usize },
    ShardAct { act: Box<dyn Any + Send>, bytes: usize },
    Reconnect(Token),
    Answer { to: Token, number: u64, answer: Box<Answer> },
    Close { conn: ConnId, code: CloseCode, reason: String },
    Drain { code: CloseCode, reason: String, deadline: Duration },
    Stages(SyncSender<Option<Box<Stages>>>),
    Subscribers { topic: String, reply: SyncSender<usize> },
    Resolved { dial: DialId, result: Result<Vec<SocketAddr>, ConnectError> },
}

impl Command {
    /// Bytes of its message.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Publish(publication) | Self::PublishToAll(publication) => publication.len(),
            Self::Subscribe { name, .. } => name.len(),
            Self::Answer { answer, .. } => answer.len(),
            Self::Act { bytes, .. } | Self::ShardAct { bytes, .. } => *bytes,
            Self::Send { message, .. } => message.message.payload().len(),
            Self::Close { reason, .. } => reason.len(),
            Self::Drain { .. }
            | Self::Reconnect(_)
            | Self::Stages(_)
            | Self::Subscribers { .. }
            | Self::Resolved { .. } => 0,
        }
    }
}
