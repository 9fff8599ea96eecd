//! Requests that wait for the application's answer.

use crate::handler::Handler;
use crate::http::late_reply::LateReply;
use crate::http::push::Push;
use crate::http::reply::{Reply, Upgrade};
use crate::link::phase::Asked;
use crate::turn::reactor::Reactor;
use tautline_io::{Driver, Token};
use tautline_tls::Engine;

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
