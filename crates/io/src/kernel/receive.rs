use super::Socket;
use rustix::io::Errno;
use tautline_window::kernel::{HEAD, REFUSED, head};

/// Alerts (RFC 8446, section 6).
const UNEXPECTED_MESSAGE: u8 = 10;
const BAD_RECORD_MAC: u8 = 20;
const RECORD_OVERFLOW: u8 = 22;

/// Receives records of one type as a frame; gives its length, 0 at the end of the stream, and whether it could be opened:
/// if not, no more comes.
///
/// # Errors
/// As recv(2); what is the peer's fault is a frame that says so.
pub(crate) fn receive(socket: &impl Socket, buf: &mut [u8]) -> Result<(usize, bool), Errno> {
    let (front, room) = buf.split_first_chunk_mut::<HEAD>().ok_or(Errno::INVAL)?;
    let alert = match socket.receive(room) {
        Ok((None, _)) => return Ok((0, true)),
        Ok((Some(kind), len)) => {
            *front = head(kind, u32::try_from(len).map_err(|_| Errno::INVAL)?);
            return Ok((HEAD + len, true));
        }
        // It does not authenticate, or has no content type.
        Err(Errno::BADMSG) => BAD_RECORD_MAC,
        Err(Errno::MSGSIZE) => RECORD_OVERFLOW,
        // Not the header of a record; or a record behind a KeyUpdate that the session does not know of.
        Err(Errno::INVAL | Errno::KEYEXPIRED) => UNEXPECTED_MESSAGE,
        Err(errno) => return Err(errno),
    };
    // Otherwise the alert could not be sent.
    socket.clear_error();
    *front = head(REFUSED, 1);
    *room.first_mut().ok_or(Errno::INVAL)? = alert;
    Ok((HEAD + 1, false))
}
