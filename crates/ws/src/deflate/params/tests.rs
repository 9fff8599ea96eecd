use super::{Declined, DeflateParams, answer, check, offer};
use crate::deflate::DeflateConfig;
use crate::extension::Extension;

const TAKEOVER: DeflateConfig = DeflateConfig {
    server_no_context_takeover: false,
    client_no_context_takeover: false,
    server_max_window_bits: 15,
    client_max_window_bits: 15,
    level: 2,
    min_size: 0,
    max_ratio: 1000,
};

fn extensions(line: &str) -> Vec<Extension> {
    let mut extensions = Vec::new();
    Extension::parse_list(line.as_bytes(), &mut extensions).unwrap();
    extensions
}

/// The server's answer, and the parameters in the order of [`DeflateParams`].
fn serve(offers: &str, config: &DeflateConfig) -> Option<(String, (bool, bool, u8, u8))> {
    answer(&extensions(offers), config).map(|(params, answer)| (answer.to_string(), tuple(params)))
}

fn tuple(params: DeflateParams) -> (bool, bool, u8, u8) {
    (
        params.server_no_context_takeover,
        params.client_no_context_takeover,
        params.server_max_window_bits,
        params.client_max_window_bits,
    )
}

#[test]
fn answers_what_browsers_offer() {
    let chrome = "permessage-deflate; client_max_window_bits";
    let firefox = "permessage-deflate";
    let safari = "x-webkit-deflate-frame";
    assert_eq!(serve(chrome, &TAKEOVER), Some(("permessage-deflate".into(), (false, false, 15, 15))));
    assert_eq!(serve(firefox, &TAKEOVER), Some(("permessage-deflate".into(), (false, false, 15, 15))));
    assert_eq!(serve(safari, &TAKEOVER), None);
    assert_eq!(serve("x-webkit-deflate-frame, permessage-deflate", &TAKEOVER).unwrap().0, "permessage-deflate");

    let both = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    assert_eq!(serve(chrome, &DeflateConfig::default()), Some((both.into(), (true, true, 15, 15))));
    assert_eq!(serve(firefox, &DeflateConfig::default()), Some((both.into(), (true, true, 15, 15))));

    let narrow = DeflateConfig { client_max_window_bits: 10, server_max_window_bits: 11, ..TAKEOVER };
    assert_eq!(
        serve(chrome, &narrow).unwrap(),
        ("permessage-deflate; server_max_window_bits=11; client_max_window_bits=10".into(), (false, false, 11, 10))
    );
    // Firefox does not offer to limit its window, so it uses the full one.
    assert_eq!(
        serve(firefox, &narrow).unwrap(),
        ("permessage-deflate; server_max_window_bits=11".into(), (false, false, 11, 15))
    );
}

#[test]
fn a_server_grants_the_parameters_that_a_client_offers() {
    for (params, expected_answer, agreement) in [
        ("server_no_context_takeover", "server_no_context_takeover", (true, false, 15, 15)),
        ("client_no_context_takeover", "client_no_context_takeover", (false, true, 15, 15)),
        ("server_max_window_bits=9", "server_max_window_bits=9", (false, false, 9, 15)),
        ("server_max_window_bits=15", "server_max_window_bits=15", (false, false, 15, 15)),
        ("server_max_window_bits=\"10\"", "server_max_window_bits=10", (false, false, 10, 15)),
        ("client_max_window_bits=12", "client_max_window_bits=12", (false, false, 15, 12)),
        ("client_max_window_bits=8", "client_max_window_bits=8", (false, false, 15, 8)),
    ] {
        let (answer, got) = serve(&format!("Permessage-Deflate; {params}"), &TAKEOVER).unwrap();
        assert_eq!(answer, format!("permessage-deflate; {expected_answer}"));
        assert_eq!(got, agreement, "{params}");
    }
}

#[test]
fn a_server_accepts_the_first_offer_that_it_can_meet() {
    let config = DeflateConfig { server_max_window_bits: 12, ..TAKEOVER };
    for wrong in [
        "server_max_window_bits=8",
        "server_max_window_bits",
        "server_max_window_bits=7",
        "server_max_window_bits=16",
        "server_max_window_bits=010",
        "server_max_window_bits=+9",
        "server_max_window_bits=ten",
        "server_max_window_bits=12; server_max_window_bits=12",
        "client_max_window_bits=0",
        "client_max_window_bits=7",
        "client_max_window_bits; client_max_window_bits",
        "client_max_window_bits; client_max_window_bits=10",
        "server_no_context_takeover=1",
        "server_no_context_takeover; server_no_context_takeover",
        "client_no_context_takeover=true",
        "client_no_context_takeover; client_no_context_takeover",
        "mem_level=3",
        "SERVER_NO_CONTEXT_TAKEOVER",
    ] {
        assert_eq!(serve(&format!("permessage-deflate; {wrong}"), &config), None, "{wrong}");
        let offers = format!("foo, permessage-deflate; {wrong}, permessage-deflate; server_max_window_bits=10");
        assert_eq!(serve(&offers, &config).unwrap().1, (false, false, 10, 15), "{wrong}");
    }
    assert_eq!(serve("", &config), None);
    assert_eq!(serve("permessage-deflate; server_max_window_bits=14", &config).unwrap().1, (false, false, 12, 15));
}

#[test]
fn a_client_offers_its_configuration() {
    assert_eq!(offer(&TAKEOVER).to_string(), "permessage-deflate; client_max_window_bits");
    assert_eq!(
        offer(&DeflateConfig::default()).to_string(),
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover; client_max_window_bits"
    );
    let narrow = DeflateConfig { server_max_window_bits: 10, client_max_window_bits: 3, ..TAKEOVER };
    assert_eq!(offer(&narrow).to_string(), "permessage-deflate; server_max_window_bits=10; client_max_window_bits=9");
}

#[test]
fn a_client_accepts_only_answers_that_fit_its_offer() {
    let check = |params: &str, config: &DeflateConfig| {
        check(&extensions(&format!("permessage-deflate{params}"))[0], config).map(tuple)
    };
    let narrow = DeflateConfig { server_max_window_bits: 10, client_max_window_bits: 12, ..TAKEOVER };
    let forget = DeflateConfig { server_no_context_takeover: true, client_no_context_takeover: true, ..TAKEOVER };
    for (config, params, agreement) in [
        (&TAKEOVER, "", (false, false, 15, 15)),
        (&TAKEOVER, "; server_no_context_takeover; client_no_context_takeover", (true, true, 15, 15)),
        (&TAKEOVER, "; server_max_window_bits=8", (false, false, 8, 15)),
        (&TAKEOVER, "; client_max_window_bits=8", (false, false, 15, 8)),
        (&narrow, "; server_max_window_bits=10", (false, false, 10, 12)),
        (&narrow, "; server_max_window_bits=9; client_max_window_bits=11", (false, false, 9, 11)),
        (&forget, "; server_no_context_takeover", (true, true, 15, 15)),
    ] {
        assert_eq!(check(params, config), Ok(agreement), "{params}");
    }
    for (config, params) in [
        (&TAKEOVER, "; client_max_window_bits"),
        (&TAKEOVER, "; client_max_window_bits=16"),
        (&TAKEOVER, "; server_max_window_bits=7"),
        (&TAKEOVER, "; server_max_window_bits"),
        (&TAKEOVER, "; server_no_context_takeover=x"),
        (&TAKEOVER, "; server_no_context_takeover; server_no_context_takeover"),
        (&TAKEOVER, "; unknown"),
        (&narrow, ""),
        (&narrow, "; server_max_window_bits=11"),
        (&narrow, "; server_max_window_bits=10; client_max_window_bits=13"),
        (&forget, ""),
        (&forget, "; client_no_context_takeover"),
    ] {
        assert_eq!(check(params, config), Err(Declined), "{params}");
    }
    assert_eq!(super::check(&Extension::new("x-webkit-deflate-frame"), &TAKEOVER), Err(Declined));
}

#[test]
fn every_client_accepts_the_answer_of_every_server() {
    let configs = || {
        [false, true].into_iter().flat_map(|server| {
            [false, true].into_iter().flat_map(move |client| {
                [9, 12, 15].into_iter().flat_map(move |server_bits| {
                    [9, 12, 15].into_iter().map(move |client_bits| DeflateConfig {
                        server_no_context_takeover: server,
                        client_no_context_takeover: client,
                        server_max_window_bits: server_bits,
                        client_max_window_bits: client_bits,
                        ..TAKEOVER
                    })
                })
            })
        })
    };
    for client in configs() {
        for server in configs() {
            let (params, answer) = answer(&[offer(&client)], &server).expect("every offer of ours can be met");
            assert_eq!(check(&answer, &client), Ok(params), "{client:?} {server:?}");
        }
    }
}

#[test]
fn parameters_are_one_byte() {
    for byte in 0..=u8::MAX {
        assert_eq!(DeflateParams::decode(byte).encode(), byte);
    }
    let params = DeflateParams {
        server_no_context_takeover: true,
        client_no_context_takeover: false,
        server_max_window_bits: 9,
        client_max_window_bits: 15,
    };
    assert_eq!((params.encode(), DeflateParams::decode(0b1110_0101)), (0b1110_0101, params));
}
