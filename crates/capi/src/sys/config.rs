use super::border::report;
use super::guard::guard;
use super::memory::{array, bytes, check, put, slice, text};
use super::sized;
use super::types::{CertificatePem, Destroy, ErrorDetail, Slice, TlsConfig, TlsVerify};
use super::verify::Callback;
use crate::codes::{Code, TAUT_ERR_CONFIG, TAUT_ERR_VALUE};
use crate::config::Config;
use crate::failure::Failure;
use core::ffi::{c_char, c_void};
use core::time::Duration;
use std::sync::Arc;
use tautline_tls::{Certificate, Roots, Verify};

/// Makes a configuration for one role, TAUT_CLIENT or TAUT_SERVER, and sets `*config` to it.
///
/// `engine` is the name of a TLS engine, such as "fused" or "rustls"; null is for the default. The configuration has one
/// reference, which `taut_tls_config_release` gives back. `error` may be null, here and below.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid, as described.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_config_new(
    role: u32,
    engine: *const c_char,
    config: *mut *const TlsConfig,
    error: *mut ErrorDetail,
) -> Code {
    let made = || {
        // SAFETY: the caller gives null or a text.
        let engine = unsafe { text(engine) }?;
        Ok(Arc::into_raw(Arc::new(TlsConfig(Config::new(role, engine.unwrap_or_default())?))))
    };
    // SAFETY: the caller gives null, or lets it be written.
    let make = || unsafe { put(config, made) };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, make) }
}

/// Adds a reference to a configuration.
///
/// Any thread that holds a reference may call this at any time. Null is ignored.
///
/// # Safety
/// `config` is null or a configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_config_retain(config: *const TlsConfig) {
    if !config.is_null() {
        // SAFETY: a configuration comes from `Arc::into_raw`, and the caller holds a reference.
        unsafe { Arc::increment_strong_count(config) };
    }
}

/// Gives a reference back. The last one frees the configuration. Sessions that it made go on.
///
/// Any thread may call this at any time. Null is ignored.
///
/// # Safety
/// `config` is null or a configuration of which the caller holds a reference.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_config_release(config: *const TlsConfig) {
    if !config.is_null() {
        // SAFETY: a configuration comes from `Arc::into_raw`, and the caller gives its reference up.
        let owned = unsafe { Arc::from_raw(config) };
        let _ = guard(move || {
            drop(owned);
            Ok(())
        });
    }
}

/// Restores the defaults of all settings. They count from the next `taut_tls_config_apply` on.
///
/// Any thread that holds a reference may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_config_reset(config: *const TlsConfig, error: *mut ErrorDetail) -> Code {
    // SAFETY: the caller keeps the contract of `change`.
    unsafe { change(config, error, |config| config.reset()) }
}

/// Adds a certificate to a server, or replaces that of a client. The bytes are copied.
///
/// A chain that cannot be read, or a key that does not belong to it, is TAUT_ERR_CONFIG, and nothing has changed.
///
/// Any thread that holds a reference may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_config_certificate(
    config: *const TlsConfig,
    certificate: *const CertificatePem,
    error: *mut ErrorDetail,
) -> Code {
    let add = |config: &Config| {
        // SAFETY: the caller gives null or a certificate.
        let given = unsafe { sized::read(certificate) }?;
        let [chain, key, ocsp] = [&given.chain, &given.key, &given.ocsp].map(|part| {
            // SAFETY: the caller gives slices that can be read.
            unsafe { slice(part) }
        });
        // SAFETY: the caller gives null or a text.
        let name = unsafe { text(given.name) }?;
        let certificate = Certificate::new(chain?, key?).with_ocsp(ocsp?).with_name(name.unwrap_or_default());
        config.certificate(certificate)
    };
    // SAFETY: the caller keeps the contract of `change`.
    unsafe { change(config, error, add) }
}

/// Adds a certificate as `taut_tls_config_certificate` does, from files with the chain and the key in PEM.
///
/// Any thread that holds a reference may call this at any time. It reads files, and so may block.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_config_certificate_files(
    config: *const TlsConfig,
    chain: *const c_char,
    key: *const c_char,
    error: *mut ErrorDetail,
) -> Code {
    let add = |config: &Config| {
        // SAFETY: the caller gives null or a text.
        let (name, chain) = unsafe { file(chain) }?;
        // SAFETY: as above.
        let (_, key) = unsafe { file(key) }?;
        config.certificate(Certificate::new(chain, key).with_name(name))
    };
    // SAFETY: the caller keeps the contract of `change`.
    unsafe { change(config, error, add) }
}

/// Has a client trust these authorities and no others (PEM). The bytes are copied. The default is the platform's store.
///
/// Any thread that holds a reference may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_config_roots(
    config: *const TlsConfig,
    pem: *const u8,
    pem_len: usize,
    error: *mut ErrorDetail,
) -> Code {
    // SAFETY: the caller gives bytes that can be read.
    let set = |config: &Config| config.roots(Roots::Pem(unsafe { bytes(pem, pem_len) }?.into()));
    // SAFETY: the caller keeps the contract of `change`.
    unsafe { change(config, error, set) }
}

/// Has a client trust the authorities in a file and no others (PEM).
///
/// Any thread that holds a reference may call this at any time. It reads a file, and so may block.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_config_roots_file(
    config: *const TlsConfig,
    path: *const c_char,
    error: *mut ErrorDetail,
) -> Code {
    // SAFETY: the caller gives null or a text.
    let set = |config: &Config| config.roots(Roots::Pem(unsafe { file(path) }?.1));
    // SAFETY: the caller keeps the contract of `change`.
    unsafe { change(config, error, set) }
}

/// Has a client verify no certificate: anyone can read and change the traffic. For experiments, or for a verification
/// callback that decides alone.
///
/// Any thread that holds a reference may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_config_danger_no_roots(config: *const TlsConfig, error: *mut ErrorDetail) -> Code {
    // SAFETY: the caller keeps the contract of `change`.
    unsafe { change(config, error, |config| config.roots(Roots::DangerNone)) }
}

/// Has a server request certificates of its clients: `demand` is one of TAUT_CLIENT_AUTH_…, and the certificates must
/// chain to one of these roots (PEM). The bytes are copied. Without roots, a verification callback decides alone; the
/// engines "fused" and "rustls" can do so.
///
/// Any thread that holds a reference may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_config_client_auth(
    config: *const TlsConfig,
    demand: u32,
    pem: *const u8,
    pem_len: usize,
    error: *mut ErrorDetail,
) -> Code {
    // SAFETY: the caller gives bytes that can be read.
    let set = |config: &Config| config.client_auth(demand, unsafe { bytes(pem, pem_len) }?.into());
    // SAFETY: the caller keeps the contract of `change`.
    unsafe { change(config, error, set) }
}

/// Sets the application protocols (ALPN) by preference, such as "h2" and "http/1.1". The bytes are copied.
///
/// Any thread that holds a reference may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_config_alpn(
    config: *const TlsConfig,
    names: *const Slice,
    names_count: usize,
    error: *mut ErrorDetail,
) -> Code {
    let set = |config: &Config| {
        // SAFETY: the caller gives an array of slices that can be read.
        let names = unsafe { array(names, names_count) }?;
        // SAFETY: as above.
        let names = names.iter().map(|name| Ok(unsafe { slice(name) }?.to_vec()));
        let names = names.collect::<Result<Vec<_>, Failure>>()?;
        if names.iter().any(|name| name.is_empty() || name.len() > 255) {
            return Err(Failure::new(TAUT_ERR_VALUE, "an application protocol has 1 to 255 bytes"));
        }
        config.alpn(names)
    };
    // SAFETY: the caller keeps the contract of `change`.
    unsafe { change(config, error, set) }
}

/// Sets a number: `option` is one of TAUT_OPTION_….
///
/// Any thread that holds a reference may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_config_set(
    config: *const TlsConfig,
    option: u32,
    value: u64,
    error: *mut ErrorDetail,
) -> Code {
    // SAFETY: the caller keeps the contract of `change`.
    unsafe { change(config, error, |config| config.set(option, value)) }
}

/// Has a server derive its ticket keys from a secret of 32 random bytes or more. All hosts of a fleet share it, so that each
/// resumes the sessions of all. Keys change every `epoch_seconds`. The bytes are copied.
///
/// Any thread that holds a reference may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_config_ticket_secret(
    config: *const TlsConfig,
    secret: *const u8,
    secret_len: usize,
    epoch_seconds: u64,
    error: *mut ErrorDetail,
) -> Code {
    let epoch = Duration::from_secs(epoch_seconds);
    // SAFETY: the caller gives bytes that can be read.
    let set = |config: &Config| config.ticket_secret(unsafe { bytes(secret, secret_len) }?, epoch);
    // SAFETY: the caller keeps the contract of `change`.
    unsafe { change(config, error, set) }
}

/// Sets the callback that decides about certificates of peers; null leaves the decision to the library.
///
/// `destroy` may be null. It is called in every case, also if this function fails.
///
/// Any thread that holds a reference may call this at any time. The callback runs in threads that handshake.
///
/// # Safety
/// The pointers are null or valid, and any thread may call the callback with the user pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_config_verify(
    config: *const TlsConfig,
    verify: TlsVerify,
    user: *mut c_void,
    destroy: Destroy,
    error: *mut ErrorDetail,
) -> Code {
    let callback = Callback::new(verify, user, destroy).map(|callback| Arc::new(callback) as Arc<dyn Verify>);
    // SAFETY: the caller keeps the contract of `change`.
    unsafe { change(config, error, move |config| config.verify(callback)) }
}

/// Makes the settings those of sessions that are made from now on. Sessions that exist go on unchanged.
///
/// The first call checks certificates and roots. A later one also demands that a server's certificates are valid now.
/// After an error nothing has changed. A server's ticket keys stay unless their settings change.
///
/// Any thread that holds a reference may call this at any time. It signs with each key once, and so takes milliseconds.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_config_apply(config: *const TlsConfig, error: *mut ErrorDetail) -> Code {
    // SAFETY: the caller keeps the contract of `change`.
    unsafe { change(config, error, Config::apply) }
}

/// Runs `change` on a configuration and reports its failure.
///
/// # Safety
/// `config` is null or a configuration, and `error` is null or a `taut_error`.
unsafe fn change(
    config: *const TlsConfig,
    error: *mut ErrorDetail,
    change: impl FnOnce(&Config) -> Result<(), Failure>,
) -> Code {
    let call = || {
        check(config)?;
        // SAFETY: not null, so it is a configuration, and the caller holds a reference.
        change(&unsafe { &*config }.0)
    };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, call) }
}

/// The name and the content of a file.
///
/// # Safety
/// `path` is null or a text.
unsafe fn file(path: *const c_char) -> Result<(String, Vec<u8>), Failure> {
    check(path)?;
    // SAFETY: the caller gives a text.
    let path = unsafe { text(path) }?.unwrap_or_default();
    let content =
        std::fs::read(path).map_err(|error| Failure::with_text(TAUT_ERR_CONFIG, format!("{path}: {error}")))?;
    Ok((path.to_owned(), content))
}
