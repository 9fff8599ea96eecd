use super::Socket;
use rustix::io::Errno;
use tautline_buf::kernel_tls::{HEAD, REFUSED, head};

/// Alerts (RFC 8446, section 6).
const UNEXPECTED_MESSAGE: u8 = 10;
const BAD_RECORD_MAC: u8 = 20;
const RECORD_OVERFLOW: u8 = 22;

/// Receives records of one type as a frame. Returns the frame's length, 0 at the end of the stream, and whether the
/// records could be opened: if not, no more records come.
///
/// # Errors
/// As recv(2). A fault of the peer is no error but a [`REFUSED`] frame.
pub(crate) fn receive(socket: &impl Socket, buf: &mut [u8]) -> Result<(usize, bool), Errno> {
    let (front, room) = buf.split_first_chunk_mut::<HEAD>().ok_or(Errno::INVAL)?;
    let alert = match socket.receive(room) {
        Ok((None, _)) => return Ok((0, true)),
        Ok((Some(kind), len)) => {
            *front = head(kind, u32::try_from(len).map_err(|_| Errno::INVAL)?);
            return Ok((HEAD + len, true));
        }
        // The record does not authenticate, or has no content type.
        Err(Errno::BADMSG) => BAD_RECORD_MAC,
        Err(Errno::MSGSIZE) => RECORD_OVERFLOW,
        // The bytes are no record header, or the record follows a KeyUpdate that the session does not know of.
        Err(Errno::INVAL | Errno::KEYEXPIRED) => UNEXPECTED_MESSAGE,
        Err(errno) => return Err(errno),
    };
    // A pending error would keep the session from sending the alert.
    socket.clear_error();
    *front = head(REFUSED, 1);
    *room.first_mut().ok_or(Errno::INVAL)? = alert;
    Ok((HEAD + 1, false))
}
