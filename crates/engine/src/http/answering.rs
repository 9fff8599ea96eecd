//! Requests as the application is asked, and answers that come later.

use crate::accept::admission::Admission;
use crate::handler::Handler;
use crate::http::late_reply::LateReply;
use crate::http::push::Push;
use crate::http::reply::{Reply, Upgrade};
use crate::http::request::Request;
use crate::http::ticket::Source;
use crate::http::wanted::Wanted;
use crate::link::phase::Asked;
use crate::link::state::Link;
use crate::turn::panics::Application;
use crate::turn::reactor::Reactor;
use crate::turn::shared::Shared;
use std::cell::OnceCell;
use tautline_io::{Driver, Token};
use tautline_tls::{Engine, Session};

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// The application has answered a request, which may wait no more.
    pub(crate) fn reply_later(&mut self, driver: &mut dyn Driver, token: Token, number: u64, reply: LateReply) {
        self.visit(driver, token, |core, driver, link| {
            if link.phase.waiting().is_none_or(|wait| wait.with.number != number) {
                return;
            }
            let Some((request, Asked { rest, .. })) = link.phase.take_waiting() else { return };
            core.admission.unanswered -= 1;
            core.admission.rejoin_crowd(link, core.shared.now);
            let reply = match reply {
                LateReply::Respond(response) => Reply::Respond(response),
                LateReply::Stream(response) => Reply::Stream(response),
                LateReply::Push(Push { response, writer, state }) => {
                    let state = state.and_then(|state| state.downcast().ok()).map(|state| *state);
                    Reply::Push(Push { response, writer, state })
                }
                LateReply::Upgrade(Upgrade { headers, subprotocol, context_takeover, state }) => {
                    // The ticket has the type of the handler's state.
                    let state = state.and_then(|state| state.downcast().ok()).map(|state| *state);
                    Reply::Upgrade(Upgrade { headers, subprotocol, context_takeover, state })
                }
            };
            core.reply(driver, link, request, reply, None);
            link.keep_plain(rest, &mut core.shared.pool);
        });
    }
}

impl<H: Handler> Application<H> {
    /// Asks for the reply to a request, with the wishes of its ticket, if there is one.
    pub(crate) fn ask<S: Session>(
        &mut self,
        link: &Link<S, H::State>,
        request: &http::Request<()>,
        body: &[u8],
        admission: &mut Admission,
        shared: &Shared,
    ) -> (Reply<H::State>, Option<Wanted>) {
        let (tls, number) = (link.session.tls_info(), admission.next_ticket);
        let source = Source {
            shard: &shared.remote,
            token: link.token,
            number,
            has_room: admission.unanswered < shared.config.limits.max_unanswered,
            wanted: OnceCell::new(),
        };
        let via = link.cold.as_ref().and_then(|cold| cold.via());
        let asked = Request { source: Some(&source), body, via, ..Request::new(request, &link.info.peer, &tls) };
        let reply = self.handler.on_request(&asked);
        let wanted = source.wanted.into_inner();
        admission.next_ticket += u64::from(wanted.is_some());
        (reply, wanted)
    }
}
