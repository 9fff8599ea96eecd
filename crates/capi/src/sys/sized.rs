//! Structs that begin with their size, from programs that were built with another version of the header.
//!
//! Later versions append fields, and never place one in the padding of an earlier version. So an older struct is the front of
//! today's: the fields that it lacks are zero, which is their default. A newer one is accepted if all fields are zero that are
//! unknown here.

use super::callbacks::Callbacks;
use super::memory::check;
use super::shapes::{Message, Target, WsEvent, WsStatus};
use super::types::{CertificatePem, ErrorDetail, TlsCounters, TlsFacts, TlsIo};
use crate::codes::TAUT_ERR_SIZE;
use crate::failure::Failure;
use core::mem::{MaybeUninit, offset_of};

/// Largest size that is believed. Memory behind a struct is never searched further than that.
const MOST: usize = 4096;

const WRONG: Failure = Failure::new(TAUT_ERR_SIZE, "a struct's `size` is wrong: set it to its sizeof");
const NEWER: Failure = Failure::new(
    TAUT_ERR_SIZE,
    "a struct sets a field that this version of the library does not have: leave it zero, or update the library",
);

/// A struct that begins with its size.
///
/// # Safety
/// It is `repr(C)`, its first field is a `usize`, and all its fields may be zero.
pub(super) unsafe trait Versioned: Copy {
    /// The smallest size that makes sense: that of the fields which every use needs.
    const LEAST: usize;
}

/// Names structs of the interface, each with its smallest size. All consist of integers, arrays of them, pointers and optional
/// functions.
macro_rules! versioned {
    ($($shape:ty: $least:expr;)*) => {
        $(
            // SAFETY: integers, arrays of them, pointers and optional functions in `repr(C)`, behind a `usize`.
            unsafe impl $crate::sys::sized::Versioned for $shape {
                const LEAST: usize = $least;
            }
        )*
    };
}

pub(super) use versioned;

versioned! {
    CertificatePem: offset_of!(CertificatePem, ocsp);
    ErrorDetail: offset_of!(ErrorDetail, code);
    TlsFacts: offset_of!(TlsFacts, alpn);
    TlsCounters: offset_of!(TlsCounters, carries);
    TlsIo: offset_of!(TlsIo, plain_waiting);
    WsEvent: offset_of!(WsEvent, request);
    WsStatus: offset_of!(WsStatus, waiting);
    Message: offset_of!(Message, key);
    Target: offset_of!(Target, address);
    Callbacks: offset_of!(Callbacks, start);
}

/// A struct with the defaults.
pub(super) const fn zeroed<T: Versioned>() -> T {
    // SAFETY: the trait promises that all fields may be zero.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Checks that a struct can be written by [`write`], and returns its size.
///
/// # Safety
/// `pointer` is null, or points to a struct whose size can be read.
#[inline]
pub(super) unsafe fn size<T: Versioned>(pointer: *const T) -> Result<usize, Failure> {
    check(pointer)?;
    // SAFETY: aligned for `T`, which begins with a `usize`, and the caller lets it be read.
    let size = unsafe { pointer.cast::<usize>().read() };
    let is_possible = size == size_of::<T>() || ((T::LEAST..=MOST).contains(&size) && size % align_of::<T>() == 0);
    if is_possible { Ok(size) } else { Err(WRONG) }
}

/// Copies a struct, with the defaults of the fields that it lacks.
///
/// # Safety
/// `pointer` is null, or points to a struct of the size that it begins with.
#[inline]
pub(super) unsafe fn read<T: Versioned>(pointer: *const T) -> Result<T, Failure> {
    // SAFETY: the caller keeps the contract.
    let size = unsafe { size(pointer) }?;
    if size == size_of::<T>() {
        // SAFETY: aligned, not null, and of this size.
        return Ok(unsafe { pointer.read() });
    }
    // SAFETY: the caller keeps the contract, and this is the size.
    unsafe { read_other(pointer, size) }
}

/// Copies a struct of another version.
///
/// # Safety
/// `pointer` points to a struct of this size.
#[cold]
unsafe fn read_other<T: Versioned>(pointer: *const T, size: usize) -> Result<T, Failure> {
    // SAFETY: the caller keeps the contract.
    unsafe { check_rest(pointer, size) }?;
    let mut whole = zeroed::<T>();
    // SAFETY: both have this number of bytes, and `whole` is ours alone.
    unsafe { (&raw mut whole).cast::<u8>().copy_from_nonoverlapping(pointer.cast(), size.min(size_of::<T>())) };
    Ok(whole)
}

/// Checks that the fields of a newer struct that are unknown here are zero.
///
/// # Safety
/// `pointer` points to a struct of this size.
#[cold]
unsafe fn check_rest<T: Versioned>(pointer: *const T, size: usize) -> Result<(), Failure> {
    let known = size_of::<T>().min(size);
    // SAFETY: these bytes are behind the known ones, and in the struct.
    let rest = unsafe { core::slice::from_raw_parts(pointer.cast::<u8>().wrapping_add(known), size - known) };
    if rest.iter().all(|&byte| byte == 0) { Ok(()) } else { Err(NEWER) }
}

/// Writes the fields that the program's version of a struct has. Its size stays, and fields that are unknown here become zero.
///
/// # Safety
/// `pointer` is null, or points to a struct of the size that it begins with, which may be written.
pub(super) unsafe fn write<T: Versioned>(pointer: *mut T, value: &T) -> Result<(), Failure> {
    // SAFETY: the caller keeps the contract.
    let size = unsafe { size(pointer.cast_const()) }?;
    let (first, known) = (size_of::<usize>(), size_of::<T>().min(size));
    let (from, to) = (core::ptr::from_ref(value).cast::<u8>(), pointer.cast::<u8>());
    // SAFETY: both structs have these bytes, `size` is not among them, and the program's one is no reference of ours.
    unsafe { to.wrapping_add(first).copy_from_nonoverlapping(from.wrapping_add(first), known - first) };
    // SAFETY: these bytes are behind the known ones, and in the struct.
    unsafe { to.wrapping_add(known).write_bytes(0, size - known) };
    Ok(())
}
