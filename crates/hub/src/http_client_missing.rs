//! The client of an application in a build without the feature `hooks`: it says so.

use std::time::Duration;

/// The client that this build has not.
#[derive(Debug)]
pub(crate) struct HttpClient;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) body: Vec<u8>,
    pub(crate) max_age: Duration,
}

/// The reason why there is no answer.
#[derive(Debug)]
#[expect(dead_code, reason = "as with the feature hooks")]
pub(crate) enum Unanswered {
    NotSent(String),
    Failed(String),
}

impl HttpClient {
    pub(crate) fn new(_url: &str, _authorities: Option<&[u8]>, _connections: usize) -> Result<Self, String> {
        Err("this build has no webhooks: build it with the feature `hooks`".to_owned())
    }

    #[expect(clippy::unused_self, reason = "as with the feature hooks")]
    pub(crate) fn post(&self, _signature: &str, _body: &str, _within: Duration) -> Result<Answered, Unanswered> {
        Err(Unanswered::NotSent(String::new()))
    }
}
