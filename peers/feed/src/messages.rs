//! Messages as venues send them, from a seed.

/// A generator of numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

fn price(random: &mut Random) -> String {
    format!("{}.{:02}000000", 60_000 + random.below(9_000), random.below(100))
}

fn quantity(random: &mut Random) -> String {
    // Most quantities are small, and one in eight levels goes away.
    match random.below(8) {
        0 => "0.00000000".to_owned(),
        1 => format!("{}.{:05}000", random.below(900), random.below(100_000)),
        _ => format!("0.{:05}000", random.below(100_000)),
    }
}

/// Trades of Binance's stream `<symbol>@trade`, in a combined stream.
pub fn trades() -> Vec<Vec<u8>> {
    let random = &mut Random(1);
    let trade = |random: &mut Random| {
        let (time, id, maker) =
            (1_764_300_000_000 + random.below(1_000_000), random.below(5_000_000_000), random.below(2) == 0);
        format!(
            r#"{{"stream":"btcusdt@trade","data":{{"e":"trade","E":{time},"s":"BTCUSDT","t":{id},"p":"{}","q":"{}","T":{},"m":{maker},"M":true}}}}"#,
            price(random),
            quantity(random),
            time - random.below(9)
        )
    };
    (0..500).map(|_| trade(random).into_bytes()).collect()
}

/// Changes of Binance's stream `<symbol>@depth`, of about 1 KiB.
pub fn depths() -> Vec<Vec<u8>> {
    let random = &mut Random(2);
    let side = |random: &mut Random| {
        let count = 9 + random.below(9);
        let levels: Vec<String> =
            (0..count).map(|_| format!(r#"["{}","{}"]"#, price(random), quantity(random))).collect();
        levels.join(",")
    };
    let depth = |random: &mut Random| {
        let (time, first) = (1_764_300_000_000 + random.below(1_000_000), random.below(90_000_000_000));
        let last = first + random.below(100);
        format!(
            r#"{{"e":"depthUpdate","E":{time},"s":"BTCUSDT","U":{first},"u":{last},"b":[{}],"a":[{}]}}"#,
            side(random),
            side(random)
        )
    };
    (0..500).map(|_| depth(random).into_bytes()).collect()
}
