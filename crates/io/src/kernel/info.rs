use core::hint::black_box;
use tautline_buf::kernel_tls::{Cipher, Direction, TrafficKeys};

/// Size of the longest structure.
const MAX: usize = 56;

/// Keys as setsockopt(2) takes them (`struct tls12_crypto_info_*` in `linux/tls.h`). Wiped when they are dropped.
///
/// ```text
/// version (2, native)  cipher (2, native)  IV  key  salt  record number (8, big-endian)
/// ```
/// The salt is the beginning of the IV: 4 bytes of it for AES-GCM, none for ChaCha20-Poly1305.
pub(crate) struct Info {
    pub(super) direction: Direction,
    len: usize,
    bytes: [u8; MAX],
}

impl Info {
    pub(crate) fn new(keys: &TrafficKeys) -> Self {
        let (cipher, salt) = match keys.cipher {
            Cipher::Aes128Gcm => (libc::TLS_CIPHER_AES_GCM_128, libc::TLS_CIPHER_AES_GCM_128_SALT_SIZE),
            Cipher::Aes256Gcm => (libc::TLS_CIPHER_AES_GCM_256, libc::TLS_CIPHER_AES_GCM_256_SALT_SIZE),
            Cipher::Chacha20Poly1305 => {
                (libc::TLS_CIPHER_CHACHA20_POLY1305, libc::TLS_CIPHER_CHACHA20_POLY1305_SALT_SIZE)
            }
        };
        let (salt, iv) = keys.iv.split_at(salt);
        let mut info = Self { direction: keys.direction, len: 0, bytes: [0; MAX] };
        info.put(&libc::TLS_1_3_VERSION.to_ne_bytes());
        info.put(&cipher.to_ne_bytes());
        info.put(iv);
        info.put(&keys.key[..keys.cipher.key_len()]);
        info.put(salt);
        info.put(&keys.sequence.to_be_bytes());
        info
    }

    fn put(&mut self, part: &[u8]) {
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Number of records that the key has protected.
    pub(super) fn sequence(&self) -> u64 {
        self.bytes().last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        self.bytes.fill(0);
        // `black_box` counts as a read, which keeps the compiler from leaving the zeros out.
        black_box(&self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;
    use libc::{
        tls12_crypto_info_aes_gcm_128 as Gcm128, tls12_crypto_info_aes_gcm_256 as Gcm256,
        tls12_crypto_info_chacha20_poly1305 as Chacha,
    };

    fn keys(cipher: Cipher) -> TrafficKeys {
        let mut key = [0; 32];
        key[..cipher.key_len()].copy_from_slice(&[9; 32][..cipher.key_len()]);
        let iv = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        TrafficKeys { direction: Direction::Receive, cipher, key, iv, sequence: 0x0102_0304_0506_0708 }
    }

    /// Sizes and offsets of the structures in `linux/tls.h`: all, of the IV, the key, the salt and the record number.
    #[test]
    fn lies_as_the_kernel_has_it() {
        let layouts = [
            (Cipher::Aes128Gcm, 51, size_of::<Gcm128>(), offset_of!(Gcm128, key), offset_of!(Gcm128, salt), 4),
            (Cipher::Aes256Gcm, 52, size_of::<Gcm256>(), offset_of!(Gcm256, key), offset_of!(Gcm256, salt), 4),
            (Cipher::Chacha20Poly1305, 54, size_of::<Chacha>(), offset_of!(Chacha, key), offset_of!(Chacha, salt), 0),
        ];
        for (cipher, number, size, key, salt, salt_len) in layouts {
            let info = Info::new(&keys(cipher));
            let bytes = info.bytes();
            assert_eq!(bytes.len(), size, "{cipher:?}");
            assert_eq!(bytes[..2], 0x0304_u16.to_ne_bytes());
            assert_eq!(bytes[2..4], u16::to_ne_bytes(number));
            let iv: Vec<u8> = (1..=12).collect();
            assert_eq!(bytes[4..key], iv[salt_len..]);
            assert!(bytes[key..salt].iter().all(|&byte| byte == 9) && salt - key == cipher.key_len());
            assert_eq!(bytes[salt..salt + salt_len], iv[..salt_len]);
            assert_eq!(bytes[salt + salt_len..], [1, 2, 3, 4, 5, 6, 7, 8]);
            assert_eq!(info.sequence(), 0x0102_0304_0506_0708);
        }
    }
}
