//! Application data.

use super::{Engines, Make, greet, transfer};
use crate::Random;
use crate::pair::Split;
use crate::record_ranges;
use tautline_tls::{Engine, Versions};

/// Data of 0 B to 1 MiB arrives in both directions, with the sizes at the limits of records among them.
pub fn sizes<E: Engine>(make: impl Make<E>) {
    let mut random = Random::new(1);
    for versions in [Versions::Tls13, Versions::Tls12] {
        let mut pair = Engines::with_versions(&make, versions).open("localhost");
        let edges = [1000, 16_383, 16_384, 16_385, 16_406, 32_767, 32_768, 32_769, 65_536, 1 << 20];
        for size in (0..80).chain(edges) {
            let data = random.bytes(size);
            transfer(&mut pair.client, &mut pair.server, &data);
            transfer(&mut pair.server, &mut pair.client, &data);
        }
        assert!(pair.client.inbox.is_empty() && pair.server.inbox.is_empty());
    }
}

/// Data arrives as one stream, however it is cut into chunks.
pub fn chunks<E: Engine>(make: impl Make<E>) {
    let mut random = Random::new(2);
    for versions in [Versions::Tls13, Versions::Tls12] {
        let mut pair = Engines::with_versions(&make, versions).open("localhost");
        for round in 0..60 {
            let len = [100, 5_000, 20_000, 70_000][round % 4];
            let data = random.bytes(random.clone().below(len));
            let mut split = Split::random(u64::try_from(round).unwrap());
            let (mut rest, mut chunks) = (&data[..], vec![&data[..0]]);
            while !rest.is_empty() {
                let (chunk, behind) = rest.split_at(split.next(rest.len()));
                chunks.push(chunk);
                rest = behind;
                if random.below(5) == 0 {
                    chunks.push(&[]);
                }
            }
            pair.client.send(&chunks).unwrap();
            pair.server.received.clear();
            pair.settle(&mut split).unwrap();
            assert!(pair.server.received == data, "round {round}: {} chunks", chunks.len());
        }
        pair.client.send(&[]).unwrap();
        greet(&mut pair);
    }
}

/// Data is sealed in as few records as possible, with up to 16,384 bytes each.
pub fn full_records<E: Engine>(make: impl Make<E>) {
    for versions in [Versions::Tls13, Versions::Tls12] {
        let mut pair = Engines::with_versions(&make, versions).open("localhost");
        greet(&mut pair);
        for (chunks, expected) in [
            (&[&[1][..], &[2; 16_383]][..], 1),
            (&[&[0; 14], &[1; 16_384]], 2),
            (&[&[0; 14], &[1; 50_000], &[2; 14], &[3; 15_508]], 4),
            (&[&[3; 65_536]], 4),
            (&[&[4; 2], &[5; 100], &[6; 2], &[7; 100]], 1),
        ] {
            pair.server.send(chunks).unwrap();
            let wire = pair.server.take_outbox();
            assert_eq!(record_ranges(&wire).len(), expected, "{versions:?}");
            pair.client.received.clear();
            pair.client.deliver(&wire).unwrap();
            assert!(pair.client.received == chunks.concat());
        }
    }
}
