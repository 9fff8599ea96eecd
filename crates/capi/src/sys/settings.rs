use super::border::{free, report};
use super::heads::texts;
use super::memory::{check, give};
use super::types::{ErrorDetail, Slice};
use crate::codes::Code;
use crate::failure::Failure;
use crate::settings;

/// Limits, deadlines and policies. All functions on it may be called from any thread at any time.
pub struct Settings(pub(crate) settings::Settings);

/// Makes settings with the values of a preset, one of TAUT_PRESET_…, and sets `*settings` to them.
///
/// Connections, servers and clients that are made copy the settings. `taut_settings_free` frees them.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_settings_new(preset: u32, settings: *mut *mut Settings, error: *mut ErrorDetail) -> Code {
    // SAFETY: the caller gives null, or lets it be written.
    let make = || unsafe { give(settings, || settings::Settings::new(preset).map(Settings)) };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, make) }
}

/// Frees settings; null is ignored.
///
/// Any thread may call this, once and as the last call.
///
/// # Safety
/// `settings` is null or settings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_settings_free(settings: *mut Settings) {
    // SAFETY: the caller gives null, or settings for the last time.
    let _ = unsafe { free(settings) };
}

/// Sets a number: `setting` is one of TAUT_SET_….
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_settings_set(
    settings: *const Settings,
    setting: u32,
    value: u64,
    error: *mut ErrorDetail,
) -> Code {
    // SAFETY: the caller keeps the contract of `change`.
    unsafe { change(settings, error, |settings| settings.set(setting, value)) }
}

/// Sets the subprotocols that a server speaks, the preferred first. The bytes are copied.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_settings_subprotocols(
    settings: *const Settings,
    names: *const Slice,
    names_count: usize,
    error: *mut ErrorDetail,
) -> Code {
    let set = |settings: &settings::Settings, names: &[String]| {
        settings.subprotocols(names);
        Ok(())
    };
    // SAFETY: the caller keeps the contract of `change_list`.
    unsafe { change_list(settings, (names, names_count), error, set) }
}

/// Sets the web pages that may connect to a server: origins such as `https://app.example`, names below another such as
/// `https://*.example.org`, `null` for pages without an origin, and `*` for any page.
///
/// Any other text is an error (TAUT_ERR_VALUE) that says what to write. The default is pages of the server's own host.
/// Programs that are no browsers send no origin, and may connect.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_settings_origins(
    settings: *const Settings,
    origins: *const Slice,
    origins_count: usize,
    error: *mut ErrorDetail,
) -> Code {
    // SAFETY: the caller keeps the contract of `change_list`.
    unsafe { change_list(settings, (origins, origins_count), error, settings::Settings::origins) }
}

/// Sets the proxies whose connections begin with a header of the PROXY protocol, version 1 or 2, before TLS: addresses, networks
/// such as `10.0.0.0/8`, or `unix` for Unix sockets.
///
/// A connection of theirs without a right header is reset. Connections of others are reset too, unless
/// TAUT_SET_OTHERS_WITHOUT_HEADER is 1. The client in the header is the peer everywhere, and `taut_conn_get_direct_peer` has the
/// proxy. Any other text is an error (TAUT_ERR_VALUE) that says what to write. The default is none.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_settings_proxy_protocol_from(
    settings: *const Settings,
    prefixes: *const Slice,
    prefixes_count: usize,
    error: *mut ErrorDetail,
) -> Code {
    // SAFETY: the caller keeps the contract of `change_list`.
    unsafe { change_list(settings, (prefixes, prefixes_count), error, settings::Settings::proxy_protocol_from) }
}

/// Sets the proxies whose requests name the client in `X-Forwarded-For`, or in `Forwarded` with TAUT_SET_FORWARDED: addresses,
/// networks such as `10.0.0.0/8`, or `unix` for Unix sockets.
///
/// The last address there that is none of these is the peer everywhere, and `taut_conn_get_direct_peer` has the proxy. Any other
/// text is an error (TAUT_ERR_VALUE) that says what to write. The default is none.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_settings_forwarded_from(
    settings: *const Settings,
    prefixes: *const Slice,
    prefixes_count: usize,
    error: *mut ErrorDetail,
) -> Code {
    // SAFETY: the caller keeps the contract of `change_list`.
    unsafe { change_list(settings, (prefixes, prefixes_count), error, settings::Settings::forwarded_from) }
}

/// Runs `change` on settings and reports its failure.
///
/// # Safety
/// `settings` is null or settings, and `error` is null or a `taut_error`.
unsafe fn change(
    settings: *const Settings,
    error: *mut ErrorDetail,
    change: impl FnOnce(&settings::Settings) -> Result<(), Failure>,
) -> Code {
    let call = || {
        check(settings)?;
        // SAFETY: not null, so these are settings that live during this call.
        change(&unsafe { &*settings }.0)
    };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, call) }
}

/// Runs `change` on settings with a list of texts, and reports its failure.
///
/// # Safety
/// That of [`change`]; and `list` is an array of slices that can be read.
unsafe fn change_list(
    settings: *const Settings,
    (list, count): (*const Slice, usize),
    error: *mut ErrorDetail,
    change_by: impl FnOnce(&settings::Settings, &[String]) -> Result<(), Failure>,
) -> Code {
    // SAFETY: the caller gives an array of slices.
    let change_by = |settings: &settings::Settings| change_by(settings, &unsafe { texts(list, count) }?);
    // SAFETY: the caller keeps the contract of `change`.
    unsafe { change(settings, error, change_by) }
}
