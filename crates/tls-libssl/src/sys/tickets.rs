use super::library::Library;
use super::table::RawTicketKey;
use core::ffi::c_void;
use tautline_tls::{Error, Tickets};
use tautline_tls_tickets::{Material, Renewal, Ticketer};

/// The keys of a server's tickets.
pub(crate) type TicketKeys = Ticketer<Material>;

/// `TL_NO_KEY` and so on.
const NO_KEY: i32 = 0;
const CURRENT_KEY: i32 = 1;
const OTHER_KEY: i32 = 2;

/// Makes the keys for the tickets of one library, with its randomness; `None` if tickets are off.
pub(crate) fn ticket_keys(library: Library, tickets: &Tickets) -> Result<Option<TicketKeys>, Error> {
    let random = move |bytes: &mut [u8]| {
        // SAFETY: the library is started, and fills `bytes`, which outlive the call.
        unsafe { (library.table.random)(bytes.as_mut_ptr(), bytes.len()) != 0 }
    };
    Ticketer::new(tickets, library.flavour().name(), Box::new(random), Renewal::Thread)
}

/// `tl_find_key`: finds the key with which a library seals or opens a ticket.
///
/// # Safety
/// `keys` must be a [`TicketKeys`], `name` null or a name's bytes, and `key` must have room for a key.
pub(super) unsafe extern "C" fn find_key(keys: *const c_void, name: *const u8, key: *mut RawTicketKey) -> i32 {
    // SAFETY: promised by the caller, who holds the context, which holds the keys.
    let keys = unsafe { &*keys.cast::<TicketKeys>() };
    let Some(current) = keys.current() else { return NO_KEY };
    // SAFETY: promised by the caller: the pointer is null, or the bytes live until this returns.
    let name = unsafe { name.cast::<[u8; Material::NAME]>().as_ref() };
    let is_current = name.is_none_or(|name| name == current.name());
    let give = |material: &Material| {
        // SAFETY: promised by the caller: there is room.
        unsafe { key.write(RawTicketKey::of(material)) };
    };
    match name {
        Some(name) if !is_current => {
            keys.find(|material| (material.name() == name).then(|| give(material))).map_or(NO_KEY, |()| OTHER_KEY)
        }
        _ => {
            give(&current);
            CURRENT_KEY
        }
    }
}
