use core::cell::RefCell;
use tautline_tls::Error;
use tautline_tls::record::MAX_PLAIN;

thread_local! {
    /// Where chunks that share a record are gathered, at most one record's worth.
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Gives chunks of one stream to a library, whose `seal` takes one slice at a time: whole records straight from chunks where
/// these are long enough, gathered otherwise. Nothing empty is given. `seal` must not call this in turn.
///
/// # Errors
/// Those of `seal`, whereupon the rest is left out.
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
    fn pieces_are_whole_records_where_they_can_be() {
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
    fn an_error_ends_it() {
        let mut calls = 0;
        let outcome = gather(&[&[1; MAX_PLAIN], &[2]], |_| {
            calls += 1;
            Err(Error::ApiMisuse("no"))
        });
        assert!(outcome.is_err() && calls == 1);
    }
}
