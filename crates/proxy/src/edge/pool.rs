use crate::plan::Endpoint;
use tautline::ConnId;

/// Most idle connections to one endpoint, in one loop. With fewer, a hundred clients that ask again and again have many requests
/// connect anew, which costs more than the requests.
const MOST: usize = 256;

/// The idle connections of a loop to servers. Some may have ended.
#[derive(Debug, Default)]
pub(super) struct Pool(Vec<(Endpoint, Vec<ConnId>)>);

impl Pool {
    /// The connection that was used last, since it is the least likely to have ended.
    pub(super) fn take(&mut self, endpoint: &Endpoint) -> Option<ConnId> {
        self.0.iter_mut().find(|(of, _)| of == endpoint)?.1.pop()
    }

    /// Keeps a connection. False if there are enough.
    pub(super) fn put(&mut self, endpoint: &Endpoint, conn: ConnId) -> bool {
        match self.0.iter_mut().find(|(of, _)| of == endpoint) {
            Some((_, idle)) if idle.len() < MOST => idle.push(conn),
            Some(_) => return false,
            None => self.0.push((endpoint.clone(), vec![conn])),
        }
        true
    }

    /// Forgets a connection that ends.
    pub(super) fn forget(&mut self, endpoint: &Endpoint, conn: ConnId) {
        if let Some(at) = self.0.iter().position(|(of, _)| of == endpoint) {
            self.0[at].1.retain(|idle| *idle != conn);
            if self.0[at].1.is_empty() {
                // An endpoint that a reload removed is not kept.
                self.0.swap_remove(at);
            }
        }
    }
}
