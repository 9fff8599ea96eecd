use super::Context;
use crate::Suite;
use crate::aead::provider::Provider;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Records that OpenSSL sealed: the key is 0, 1, 2 and so on, the nonce a0, a1, a2 and so on, the content 0, 1, 2 and so on.
#[test]
fn every_provider_makes_the_bytes_of_openssl() {
    for (suite, len, sealed) in [
        (Suite::Aes128Gcm, 0, "bda4af91ef0d4753ddab0a01f4287eea44"),
        (
            Suite::Aes128Gcm,
            63,
            "aa873ab87a8c350d8271bf0b4a1fbe6f43ff311b97022bb83d096b805e9091b7ba8267122bcfca4a57f7c8ef83f627ff\
             8c657e7a07b4a0daba0fb4f1d9583a6a7a825371f850868432a1c0a93b477ebc",
        ),
        (Suite::Aes256Gcm, 0, "f108f3042e0f896588a1a4f29212969693"),
        (
            Suite::Aes256Gcm,
            63,
            "e6197e2e41ce04b86a6c8dd80b77ced160bd4b0386a2547b84173c9d63b66b1ef25765dc8b07751a77b52ee32557add6\
             772a747b56e52c4979673165984dbba7f8bc5e9d714862f193e9bf41110dfb68",
        ),
        (Suite::Chacha20Poly1305, 0, "1b2037a932464fc11fb5cd2c51f9fc7983"),
        (
            Suite::Chacha20Poly1305,
            63,
            "0caa7a5c49e3c4aaa806f91ff0f7f3f48d4fc1ac577f76b4acc1c1aa6d7fdd134ca134a98aecd9adeee5df96317c5669\
             7af5780b3d395db61f6d317b70179bdfe00e91ebde74613e16c00da04f645a4e",
        ),
    ] {
        let (key, plain): (Vec<u8>, Vec<u8>) = ((0..32).collect(), (0..len).collect());
        let (nonce, header) =
            ([0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab], [23, 3, 3, 0, len + 17]);
        for provider in Provider::ALL {
            let context = Context::new(provider, suite, &key[..suite.key_len()]).unwrap();
            let mut body = vec![0xff; plain.len() + 17];
            context.seal(nonce, header, (&plain, 23), &mut body).unwrap();
            assert_eq!(body, bytes(sealed), "{provider}, {suite:?}");
            assert_eq!(context.open(nonce, header, &mut body), Some(plain.len() + 1));
            assert_eq!(body[..=plain.len()], [&plain[..], &[23]].concat());
            context.seal_in_place(nonce, header, &mut body).unwrap();
            assert_eq!(body, bytes(sealed), "{provider}, {suite:?}, in place");
            for changed in [[22, 3, 3, 0, len + 17], [23, 3, 3, 1, len + 17]] {
                assert_eq!(context.open(nonce, changed, &mut body.clone()), None, "another header");
            }
        }
    }
}

#[test]
fn lengths_that_cannot_be_are_refused() {
    for provider in Provider::ALL {
        for suite in Suite::ALL {
            for len in [0, suite.key_len() - 1, suite.key_len() + 1] {
                assert!(Context::new(provider, suite, &vec![1; len]).is_err(), "{provider}, {suite:?}: {len}");
            }
            let context = Context::new(provider, suite, &vec![1; suite.key_len()]).unwrap();
            for len in 0..16 {
                assert_eq!(context.open([0; 12], [0; 5], &mut vec![0; len]), None);
                assert_eq!(context.seal_in_place([0; 12], [0; 5], &mut vec![0; len]), None);
                assert_eq!(context.seal([0; 12], [0; 5], (b"12345", 23), &mut vec![0; len]), None);
            }
        }
    }
}
