use crate::http::content::Content;
use crate::http::reply::Upgrade;
use http::Response;
use std::any::Any;

/// An answer on its way to the shard.
pub(crate) enum Answer {
    Upgrade(Upgrade<Box<dyn Any + Send>>),
    Respond(Response<Vec<u8>>),
    Stream(Response<Content>),
}

impl Answer {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Upgrade(_) | Self::Stream(_) => 0,
            Self::Respond(response) => response.body().len(),
        }
    }
}
