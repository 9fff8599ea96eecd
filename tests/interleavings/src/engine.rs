//! The rest of the engine, as far as the files under test know it.

pub(crate) mod config {
    use crate::memory::budget::MemoryBudget;
    use std::time::Duration;

    #[derive(Clone, Debug)]
    pub(crate) struct Offload {
        pub(crate) max_waiting: usize,
        pub(crate) max_wait: Duration,
        pub(crate) max_stall: Option<Duration>,
    }

    impl Default for Offload {
        fn default() -> Self {
            Self { max_waiting: 4096, max_wait: Duration::from_secs(3600), max_stall: None }
        }
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Limits {
        pub(crate) max_connections: usize,
        pub(crate) max_handshakes: usize,
        pub(crate) max_http: usize,
        pub(crate) memory: usize,
        pub(crate) shared_memory: Option<MemoryBudget>,
    }
}

pub(crate) mod state {
    use std::marker::PhantomData;
    use tautline_io::{Address, Token};

    pub(crate) struct Link<S, T> {
        pub(crate) info: Info,
        pub(crate) token: Token,
        pub(crate) types: PhantomData<(S, T)>,
    }

    pub(crate) struct Info {
        pub(crate) peer: Address,
    }
}

pub(crate) mod timer {
    pub(crate) type Tick = u64;
}

pub(crate) mod remote {
    use crate::counts::counters::Counters;
    use crate::memory::budget::Member;
    use crate::threads::command::Command;
    use crate::threads::command_queue::{CommandSender, Rejected};
    use std::sync::Arc;

    #[derive(Clone)]
    pub(crate) struct ShardHandle(pub(crate) Arc<CommandSender<Command>>);

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum ShardHandleError {
        Stopped,
        Ended,
    }

    impl ShardHandle {
        pub(crate) fn number(&self) -> u32 {
            0
        }

        pub(crate) fn force(&self, command: Command) -> Result<(), ShardHandleError> {
            match self.0.force(command) {
                Ok(_) => Ok(()),
                Err(Rejected::Stopped) => Err(ShardHandleError::Stopped),
                Err(other) => panic!("a forced command is {other:?}"),
            }
        }
    }

    impl Member for ShardHandle {
        fn counters(&self) -> Counters {
            Counters::default()
        }

        fn check_limits(&self) {}
    }
}

pub(crate) mod command {
    use crate::http::late_reply::LateReply;
    use crate::threads::command_queue::Weigh;
    use tautline_io::Token;

    pub(crate) enum Command {
        Reply { to: Token, number: u64, reply: Box<LateReply> },
    }

    impl Weigh for Command {
        fn bytes(&self) -> usize {
            0
        }
    }
}

pub(crate) mod late_reply {
    use crate::http::content::Content;
    use crate::http::push::Push;
    use crate::http::reply::Upgrade;
    use http::Response;
    use std::any::Any;

    pub(crate) enum LateReply {
        Upgrade(Upgrade<Box<dyn Any + Send>>),
        Respond(Response<Vec<u8>>),
        Stream(Response<Content>),
        Push(Push<Box<dyn Any + Send>>),
    }
}

pub(crate) mod content {
    pub(crate) struct Content;
}

pub(crate) mod push {
    use http::Response;

    pub(crate) struct Push<T> {
        pub(crate) response: Response<()>,
        pub(crate) writer: (),
        pub(crate) state: Option<T>,
    }
}

pub(crate) mod ids {
    use tautline_io::Token;

    pub(crate) struct ConnId {
        pub(crate) shard: u32,
        pub(crate) token: Token,
    }
}

pub(crate) mod reply {
    use http::{HeaderMap, Response, StatusCode};

    pub(crate) struct Upgrade<T> {
        pub(crate) headers: HeaderMap,
        pub(crate) subprotocol: Option<String>,
        pub(crate) context_takeover: bool,
        pub(crate) state: Option<T>,
    }

    pub(crate) fn status_response(status: StatusCode) -> Response<Vec<u8>> {
        let mut response = Response::new(Vec::new());
        *response.status_mut() = status;
        response
    }
}
