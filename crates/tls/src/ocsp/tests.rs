use super::*;

const NOW: u64 = 1_700_000_000;

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let value = parts.concat();
    let len = value.len();
    let mut whole = match len {
        0..=0x7f => vec![tag, u8::try_from(len).unwrap()],
        _ => vec![tag, 0x82, u8::try_from(len >> 8).unwrap(), (len & 0xff).try_into().unwrap()],
    };
    whole.extend(value);
    whole
}

fn single_about(serial: &[u8], status: &[u8], next: Option<&[u8]>) -> Vec<u8> {
    let hashes = [5, 6].map(|byte| der(OCTETS, &[&[byte; 20]]));
    let id = der(SEQUENCE, &[&der(SEQUENCE, &[]), &hashes[0], &hashes[1], &der(INTEGER, &[serial])]);
    let next = next.map_or_else(Vec::new, |next| der(EXPLICIT_0, &[&der(TIME, &[next])]));
    der(SEQUENCE, &[&id, status, &der(TIME, &[b"20250101000000Z"]), &next, &der(0xa1, &[b"extensions"])])
}

fn response(singles: &[Vec<u8>]) -> Vec<u8> {
    let singles: Vec<&[u8]> = singles.iter().map(Vec::as_slice).collect();
    let version = der(EXPLICIT_0, &[&der(INTEGER, &[&[0]])]);
    let data =
        der(SEQUENCE, &[&version, &der(0xa2, &[b"who"]), &der(TIME, &[b"20250101000000Z"]), &der(SEQUENCE, &singles)]);
    let basic = der(SEQUENCE, &[&data, &der(SEQUENCE, &[]), &der(0x03, &[&[0; 200]])]);
    let object = der(OBJECT, &[&[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1]]);
    let bytes = der(EXPLICIT_0, &[&der(SEQUENCE, &[&object, &der(OCTETS, &[&basic])])]);
    der(SEQUENCE, &[&der(ENUMERATED, &[&[0]]), &bytes])
}

const GOOD_STATUS: &[u8] = &[GOOD, 0];

#[test]
fn reads_the_status_of_the_certificate_with_the_serial() {
    let revoked = der(REVOKED, &[&der(TIME, &[b"20240101000000Z"]), &der(EXPLICIT_0, &[&der(ENUMERATED, &[&[4]])])]);
    let singles = [
        single_about(&[1], &revoked, None),
        single_about(&[0, 200], GOOD_STATUS, Some(b"20240229235959Z")),
        single_about(&[3], &[0x82, 0], None),
        single_about(&[4], GOOD_STATUS, None),
    ];
    let response = response(&singles);
    let Some(Response::Basic(basic)) = Response::read(&response) else { panic!("it is one") };
    let about = |serial: &[u8]| basic.about(serial).unwrap().map(|single| (single.status, single.next_update));
    for (serial, expected) in [
        (&[1][..], Some((Status::Revoked { at: 1_704_067_200, reason: Some(4) }, None))),
        (&[200], Some((Status::Good, Some(1_709_251_199)))),
        (&[0, 200], Some((Status::Good, Some(1_709_251_199)))),
        (&[3], Some((Status::Unknown, None))),
        (&[4], Some((Status::Good, None))),
        (&[5], None),
    ] {
        assert_eq!(about(serial), expected, "{serial:?}");
    }
    let single = basic.about(&[4]).unwrap().unwrap();
    assert_eq!((single.name_hash, single.key_hash, single.serial), (&[5; 20][..], &[6; 20][..], &[4][..]));
    assert_eq!(reason(4), Some("superseded"));
}

#[test]
fn a_server_staples_what_is_good_and_current() {
    let revoked = der(REVOKED, &[&der(TIME, &[b"20240101000000Z"])]);
    let singles = [
        single_about(&[1], &revoked, None),
        single_about(&[2], GOOD_STATUS, Some(b"20240229235959Z")),
        single_about(&[3], &[0x82, 0], None),
        single_about(&[4], GOOD_STATUS, None),
    ];
    let response = response(&singles);
    let judged = |response: &[u8], serial: u8, strictness, now| stapling(response, &[serial], "it", strictness, now);
    let reason = |serial, now| match judged(&response, serial, Strictness::Start, now) {
        Ok(Stapling::Not(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(judged(&response, 2, Strictness::Reload, NOW), Ok(Stapling::Until(1_709_251_199)));
    assert_eq!(judged(&response, 4, Strictness::Reload, NOW), Ok(Stapling::Until(u64::MAX)));
    assert!(reason(2, 1_709_251_199).contains("ran out on 2024-02-29 23:59 UTC"));
    assert!(reason(1, NOW).contains("revoked") && reason(3, NOW).contains("does not know"));
    assert!(reason(9, NOW).contains("another certificate"));
    assert!(judged(&response, 1, Strictness::Reload, NOW).unwrap_err().to_string().contains("it was revoked"));
    let refused = der(SEQUENCE, &[&der(ENUMERATED, &[&[6]])]);
    assert_eq!(
        judged(&refused, 1, Strictness::Reload, NOW),
        Ok(Stapling::Not("its responder refused to answer (unauthorized)".to_owned()))
    );
    assert!(judged(b"<html>", 1, Strictness::Start, NOW).unwrap_err().to_string().contains("cannot be read"));
}

#[test]
fn truncated_responses_are_malformed_and_changed_ones_do_not_panic() {
    let whole = response(&[single_about(&[7], GOOD_STATUS, Some(b"20240229235959Z"))]);
    let judged = |response: &[u8]| stapling(response, &[7], "it", Strictness::Reload, NOW);
    assert!(judged(&whole).is_ok());
    for len in 0..whole.len() {
        assert!(judged(&whole[..len]).is_err(), "cut at {len}");
    }
    for at in 0..whole.len() {
        for change in [1, 0x20, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[at] ^= change;
            let _ = judged(&changed);
            if let Some(Response::Basic(basic)) = Response::read(&changed) {
                let _ = basic.signer(&[Key { algorithm: &[], bits: &[] }], NOW, |_, _| Checked::Fails);
            }
        }
    }
    assert!(judged(&[&whole[..], &[0]].concat()).is_err());
}
