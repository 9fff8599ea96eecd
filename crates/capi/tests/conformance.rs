//! The conformance suite of TLS engines, through the interface to C: each engine in place and with separate windows.
//!
//! Left out are tests of things that the interface does not have: estimates of signatures (`signatures_are_weighed`,
//! `suites_are_weighed`, `keys_are_measured_when_loaded`), sealing into a slice, and two configurations that share their
//! sessions (`decisions_do_not_share_sessions`).

mod support;

use support::CEngine;
use tautline::{Fused, Rustls};
use tautline_tls::{ClientConfig, EngineKind as _, Error, ServerConfig};

macro_rules! suite {
    ($name:ident, $kind:expr, $in_place:expr) => {
        mod $name {
            use super::*;

            fn make(
                server: Option<&ServerConfig>,
                client: Option<&ClientConfig>,
            ) -> Result<CEngine<$in_place>, Error> {
                CEngine::new($kind.capabilities(), server, client)
            }

            tautline_testkit::tls_conformance! { make =>
                every_key_and_version versions_without_common_ground splits facts_before_the_handshake
                key_logs_stay_off data_behind_finished resumption resumption_is_off_where_told tickets_are_for_one_server
                tickets_tell_how_long_they_last answers_tell_what_was_done names_choose_certificates
                key_types_stand_side_by_side client_certificates client_certificates_that_are_refused
                server_certificates_that_are_refused protocols unverified_servers reloads
                optional_certificates_are_verified threads_share_an_engine bad_configurations
                unusable_certificates_are_reported keys_that_cannot_be_used keys_that_do_not_sign misuse sizes chunks
                full_records close_both_ways truncation errors_after_close flipped_bits flipped_bits_in_handshakes
                garbage other_protocols impossible_lengths endless_hellos repeated_and_dropped_records padding
                every_suite impossible_inner_plaintexts empty_records key_updates key_update_floods bad_key_updates
                split_handshake_messages unexpected_handshake_messages ticket_floods alerts unprotected_records
                old_empty_records old_alerts renegotiation programs_decide_about_certificates
                exporters key_updates_by_a_call
                sent_alerts_are_those_that_arrive fleets_share_their_tickets
            }
        }
    };
}

suite!(fused_in_place, Fused, true);
suite!(fused_apart, Fused, false);
suite!(rustls_in_place, Rustls, true);
suite!(rustls_apart, Rustls, false);
