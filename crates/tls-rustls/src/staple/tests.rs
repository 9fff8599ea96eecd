use super::*;

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
    let hash = der(OCTETS, &[&[5; 20]]);
    let id = der(SEQUENCE, &[&der(SEQUENCE, &[]), &hash, &hash, &der(INTEGER, &[serial])]);
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
    let revoked = der(REVOKED, &[&der(TIME, &[b"20240101000000Z"])]);
    let singles = [
        single_about(&[1], &revoked, None),
        single_about(&[0, 200], GOOD_STATUS, Some(b"20240229235959Z")),
        single_about(&[3], &[0x82, 0], None),
        single_about(&[4], GOOD_STATUS, None),
    ];
    let response = response(&singles);
    for (serial, expected) in [
        (&[1][..], Answer::Revoked),
        (&[200], Answer::Good { until: Some(1_709_251_199) }),
        (&[0, 200], Answer::Good { until: Some(1_709_251_199) }),
        (&[3], Answer::Unknown),
        (&[4], Answer::Good { until: None }),
        (&[5], Answer::Other),
    ] {
        assert_eq!(read(&response, serial), expected, "{serial:?}");
    }
    let refused = der(SEQUENCE, &[&der(ENUMERATED, &[&[6]])]);
    assert_eq!(read(&refused, &[1]), Answer::Refused(6));
}

#[test]
fn truncated_responses_are_malformed_and_changed_ones_do_not_panic() {
    let whole = response(&[single_about(&[7], GOOD_STATUS, Some(b"20240229235959Z"))]);
    for len in 0..whole.len() {
        assert_eq!(read(&whole[..len], &[7]), Answer::Malformed, "cut at {len}");
    }
    for at in 0..whole.len() {
        for change in [1, 0x20, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[at] ^= change;
            let _ = read(&changed, &[7]);
        }
    }
    assert_eq!(read(&[&whole[..], &[0]].concat(), &[7]), Answer::Malformed);
}

#[test]
fn times_follow_the_calendar() {
    for (time, expected) in [
        (&b"19700101000000Z"[..], Some(0)),
        (b"20000228235959Z", Some(951_782_399)),
        (b"20000229000000Z", Some(951_782_400)),
        (b"20000301000000Z", Some(951_868_800)),
        (b"20241231235959Z", Some(1_735_689_599)),
        (b"21000301000000Z", Some(4_107_542_400)),
        (b"19691231235959Z", None),
        (b"20001301000000Z", None),
        (b"20000301000000", None),
        (b"2000030100000xZ", None),
        (b"", None),
    ] {
        assert_eq!(seconds(time), expected, "{:?}", String::from_utf8_lossy(time));
    }
}
