use crate::http::content::Content;
use crate::http::push::Push;
use crate::http::reply::Upgrade;
use http::Response;
use std::any::Any;

/// The application's reply to a request that waited, on its way to the shard.
pub(crate) enum LateReply {
    Upgrade(Upgrade<Box<dyn Any + Send>>),
    Respond(Response<Vec<u8>>),
    Stream(Response<Content>),
    Push(Push<Box<dyn Any + Send>>),
}

impl LateReply {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Upgrade(_) | Self::Stream(_) | Self::Push(_) => 0,
            Self::Respond(response) => response.body().len(),
        }
    }
}
