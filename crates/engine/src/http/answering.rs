//! Requests that wait for the application's answer.

use crate::handler::Handler;
use crate::http::answer::Answer;
use crate::http::reply::{Reply, Upgrade};
use crate::http::wanted::Wanted;
use crate::link::phase::{Asked, Phase, Wait};
use crate::link::state::Link;
use crate::turn::core::Core;
use tautline_buf::Buf;
use tautline_conn::tick::millis;
use tautline_io::{Driver, Token};
use tautline_tls::Engine;

impl<E: Engine, H: Handler> Core<E, H> {
    /// A request waits for the application's answer.
    pub(crate) fn wait_for_answer(
        &mut self,
        link: &mut Link<E::Session, H::State>,
        request: http::Request<()>,
        number: u64,
        wanted: Wanted,
    ) {
        let Phase::Request(head) = std::mem::replace(&mut link.phase, Phase::Tls) else { return };
        link.phase = Phase::Waiting(Box::new(Wait { head, request, with: Asked { number, rest: Buf::new(), wanted } }));
        self.unanswered += 1;
        self.leave_crowd(link);
        link.clock.phase_end = self.shared.now + millis(self.shared.config.deadlines.answer);
        self.schedule(link);
    }

    /// The application has answered a request, which may wait no more.
    pub(crate) fn answer_later(&mut self, driver: &mut dyn Driver, token: Token, number: u64, answer: Answer) {
        self.visit(driver, token, |core, driver, link| {
            if !matches!(&link.phase, Phase::Waiting(wait) if wait.with.number == number) {
                return;
            }
            let Phase::Waiting(wait) = std::mem::replace(&mut link.phase, Phase::Tls) else { return };
            let Wait { head, request, with: Asked { rest, .. } } = *wait;
            link.phase = Phase::Request(head);
            core.unanswered -= 1;
            core.rejoin_crowd(link);
            let reply = match answer {
                Answer::Respond(response) => Reply::Respond(response),
                Answer::Stream(response) => Reply::Stream(response),
                Answer::Upgrade(Upgrade { headers, subprotocol, context_takeover, state }) => {
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
