use core::cell::RefCell;
use tautline_tls::Error;
use tautline_tls::record::MAX_PLAIN;

thread_local! {
    /// Chunks that share a record, gathered; at most one record's content.
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Passes chunks of one stream to a library whose `seal` takes one slice at a time.
///
/// Long chunks are passed as slices of whole records; shorter ones are gathered into records first. No slice is empty.
/// `seal` must not call this function.
///
/// # Errors
/// The first error of `seal`, which ends the call.
pub fn gather(plain: &[&[u8]], mut seal: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
    if let [single] = plain {
        return if single.is_empty() { Ok(()) } else { seal(single) };
    }
    GATHERED.with_borrow_mut(|gathered| {
        gathered.clear();
        for mut chunk in plain.iter().copied() {
            while !chunk.is_empty() {
                if gathered.is_empty() && chunk.len() >= MAX_PLAIN {
                    let (direct, rest) = chunk.split_at(chunk.len() - chunk.len() % MAX_PLAIN);
                    seal(direct)?;
                    chunk = rest;
                    continue;
                }
                let (fits, rest) = chunk.split_at(chunk.len().min(MAX_PLAIN - gathered.len()));
                gathered.extend_from_slice(fits);
                chunk = rest;
                if gathered.len() == MAX_PLAIN {
                    seal(gathered)?;
                    gathered.clear();
                }
            }
        }
        if gathered.is_empty() { Ok(()) } else { seal(gathered) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_whole_records_if_there_are_enough_bytes() {
        let long: Vec<u8> = (0..MAX_PLAIN * 2 + 5).map(|at| at.to_le_bytes()[0]).collect();
        for (chunks, expected) in [
            (&[&long[..0]][..], &[][..]),
            (&[&long[..7]], &[7]),
            (&[&long], &[long.len()]),
            (&[&long[..3], &long[..0], &long[..4]], &[7]),
            (&[&long, &long[..3]], &[MAX_PLAIN * 2, 8]),
            (&[&long[..3], &long], &[MAX_PLAIN, MAX_PLAIN, 8]),
        ] {
            let (mut lens, mut all) = (Vec::new(), Vec::new());
            let sealed = gather(chunks, |piece| {
                lens.push(piece.len());
                all.extend_from_slice(piece);
                Ok(())
            });
            assert!(sealed.is_ok() && lens == expected, "{lens:?}");
            assert!(all == chunks.concat());
        }
    }

    #[test]
    fn stops_at_the_first_error() {
        let mut calls = 0;
        let outcome = gather(&[&[1; MAX_PLAIN], &[2]], |_| {
            calls += 1;
            Err(Error::ApiMisuse("no"))
        });
        assert!(outcome.is_err() && calls == 1);
    }
}
