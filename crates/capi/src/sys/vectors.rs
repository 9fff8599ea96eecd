//! The state of vector registers in which calls arrive.

/// Clears the upper halves of the vector registers.
///
/// Compilers for C do this before they call a function, but a JVM does not before a foreign call. The instructions for 128
/// bits that follow then wait for halves that they leave alone: a record of 64 B took twice its time.
#[inline]
pub(super) fn clear_upper_halves() {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX.
        unsafe { zero() };
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn zero() {
    core::arch::x86_64::_mm256_zeroupper();
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::clear_upper_halves;
    use core::arch::asm;
    use core::arch::x86_64::__cpuid_count;

    /// The bit of AVX in the components of the processor's state.
    const AVX: u32 = 1 << 2;

    /// The components that are in use. Valid if the processor has `XGETBV` with ECX = 1.
    fn in_use() -> u32 {
        let low: u32;
        // SAFETY: it reads a register.
        unsafe { asm!("xgetbv", in("ecx") 1, out("eax") low, out("edx") _, options(nomem, nostack)) };
        low
    }

    fn dirty() {
        // SAFETY: it changes a register that it names.
        unsafe { asm!("vcmpps ymm0, ymm0, ymm0, 15", out("xmm0") _, options(nomem, nostack)) };
    }

    #[test]
    fn upper_halves_are_cleared() {
        let can_tell = std::arch::is_x86_feature_detected!("xsave") && __cpuid_count(13, 1).eax & 4 != 0;
        if !can_tell || !std::arch::is_x86_feature_detected!("avx") {
            return;
        }
        dirty();
        assert_eq!(in_use() & AVX, AVX);
        dirty();
        clear_upper_halves();
        assert_eq!(in_use() & AVX, 0);
    }
}
