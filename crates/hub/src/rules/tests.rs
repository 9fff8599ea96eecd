//! Attacks on tokens, and faults of files.

use super::keys::Keys;
use super::token::{Conditions, TokenError, read};
use super::{Rights, Rules};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256, RsaKeySize};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const NOW: Duration = Duration::from_secs(1_800_000_000);
/// Base64 for URLs of `{"alg":"none","typ":"JWT"}`.
const NONE: &str = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0";

fn claims() -> Value {
    json!({ "sub": "ann", "exp": 1_800_000_060, "topics": { "chat:*": ["subscribe", "publish"] } })
}

fn with(key: &str, value: &Value) -> Value {
    let mut claims = claims();
    claims[key] = value.clone();
    claims
}

fn signed(claims: &Value) -> String {
    encode(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(SECRET).unwrap()).unwrap()
}

fn keys() -> Keys {
    let mut keys = Keys::default();
    keys.add_secret(SECRET).unwrap();
    keys
}

fn try_read(token: &str) -> Result<super::Identity, TokenError> {
    read(token, &keys(), &Conditions::default(), NOW)
}

#[test]
fn each_algorithm_is_accepted_with_its_key_and_no_other() {
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let ec = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let ed = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let private = [
        (Algorithm::HS256, EncodingKey::from_secret(SECRET).unwrap()),
        (Algorithm::RS256, EncodingKey::from_rsa_pem(rsa.serialize_pem().as_bytes()).unwrap()),
        (Algorithm::ES256, EncodingKey::from_ec_pem(ec.serialize_pem().as_bytes()).unwrap()),
        (Algorithm::EdDSA, EncodingKey::from_ed_pem(ed.serialize_pem().as_bytes()).unwrap()),
    ];
    let public = [rsa.public_key_pem(), ec.public_key_pem(), ed.public_key_pem()];
    let mut rings = vec![keys()];
    for pem in &public {
        let mut ring = Keys::default();
        ring.add_pem(pem.as_bytes()).unwrap();
        rings.push(ring);
    }
    for (signer, (algorithm, key)) in private.iter().enumerate() {
        let token = encode(&Header::new(*algorithm), &claims(), key).unwrap();
        for (holder, ring) in rings.iter().enumerate() {
            let result = read(&token, ring, &Conditions::default(), NOW);
            if signer == holder {
                assert_eq!(result.unwrap().user.as_deref(), Some("ann"), "{algorithm:?}");
            } else {
                assert_eq!(result, Err(TokenError::Algorithm), "{algorithm:?} with key {holder}");
            }
        }
    }
    // Confusion of keys: the public key as the secret of an HMAC.
    for pem in &public {
        let mut ring = Keys::default();
        ring.add_pem(pem.as_bytes()).unwrap();
        let forged = EncodingKey::from_secret(pem.as_bytes()).unwrap();
        let forged = encode(&Header::new(Algorithm::HS256), &claims(), &forged).unwrap();
        assert_eq!(read(&forged, &ring, &Conditions::default(), NOW), Err(TokenError::Algorithm));
        assert!(Keys::default().add_secret(pem.as_bytes()).unwrap_err().contains("public-keys"));
    }
    for pem in [rsa.serialize_pem(), ec.serialize_pem(), ed.serialize_pem()] {
        assert!(Keys::default().add_pem(pem.as_bytes()).unwrap_err().contains("private"));
    }
}

#[test]
fn forged_tokens_are_refused() {
    let good = signed(&claims());
    assert!(try_read(&good).is_ok());
    let parts: Vec<&str> = good.split('.').collect();
    let payload_of = |claims: &Value| signed(claims).split('.').nth(1).unwrap().to_owned();
    let admin = payload_of(&with("sub", &json!("admin")));
    let other = EncodingKey::from_secret(b"another secret of enough bytes, really").unwrap();
    let of_other = encode(&Header::new(Algorithm::HS256), &claims(), &other).unwrap();
    let hs512 = encode(&Header::new(Algorithm::HS512), &claims(), &EncodingKey::from_secret(SECRET).unwrap()).unwrap();
    let deep = "[".repeat(5_000);
    let table = [
        ("", TokenError::Malformed),
        ("a.b.c", TokenError::Malformed),
        ("..", TokenError::Malformed),
        (&format!("{NONE}.{}.", parts[1]), TokenError::Malformed),
        (&format!("{NONE}.{}.{}", parts[1], parts[2]), TokenError::Malformed),
        (&format!("{}.{}.", parts[0], parts[1]), TokenError::Signature),
        (&format!("{}.{admin}.{}", parts[0], parts[2]), TokenError::Signature),
        (&format!("{good}x"), TokenError::Malformed),
        (&format!("{good}.{}", parts[1]), TokenError::Malformed),
        (&of_other, TokenError::Signature),
        (&hs512, TokenError::Algorithm),
        (&"x".repeat(10_000), TokenError::TooLong),
        (&format!("{deep}.{deep}.x")[..8_000], TokenError::Malformed),
    ];
    for (token, expected) in table {
        let error = try_read(token).unwrap_err();
        // The last letter of a signature has bits that mean nothing, so either fault may be found first.
        let is_like = matches!((error, expected), (TokenError::Signature, TokenError::Malformed));
        assert!(error == expected || is_like && token.len() > good.len(), "{token}: {error:?}");
    }
    assert_eq!(read(&good, &Keys::default(), &Conditions::default(), NOW), Err(TokenError::NoKeys));
}

#[test]
fn claims_out_of_time_and_form_are_refused() {
    let many: serde_json::Map<String, Value> =
        (0..65).map(|number| (format!("topic{number}"), json!(["publish"]))).collect();
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let table = [
        (with("exp", &json!(1_800_000_000)), TokenError::Expired),
        (with("exp", &json!(-1)), TokenError::Claims),
        (with("exp", &json!("1800000060")), TokenError::Claims),
        (with("exp", &json!(1e300)), TokenError::Claims),
        (with("exp", &json!(null)), TokenError::Claims),
        (with("nbf", &json!(1_800_000_001)), TokenError::NotYet),
        (with("aud", &json!("another hub")), TokenError::Audience),
        (with("sub", &json!("")), TokenError::Claims),
        (with("sub", &json!("a\nb")), TokenError::Claims),
        (with("sub", &json!("x".repeat(200))), TokenError::Claims),
        (with("sub", &json!(7)), TokenError::Claims),
        (with("topics", &json!(many)), TokenError::Claims),
        (with("topics", &json!({ "a*b": ["publish"] })), TokenError::Claims),
        (with("topics", &json!({ "$presence/*": ["publish"] })), TokenError::Claims),
        (with("topics", &json!({ "a": ["everything"] })), TokenError::Claims),
        (with("topics", &json!({ "a": "publish" })), TokenError::Claims),
        (with("topics", &deep), TokenError::Claims),
        (with("sub", &deep), TokenError::Claims),
    ];
    for (claims, expected) in table {
        assert_eq!(try_read(&signed(&claims)), Err(expected), "{claims}");
    }
    assert!(try_read(&signed(&with("other", &deep))).is_ok(), "a claim that does not count is skipped, however deep");
    let lenient = Conditions { leeway: Duration::from_secs(5), ..Conditions::default() };
    for claims in [with("exp", &json!(1_800_000_000)), with("nbf", &json!(1_800_000_001))] {
        assert!(read(&signed(&claims), &keys(), &lenient, NOW).is_ok());
    }
}

#[test]
fn audience_and_issuer_have_to_be_the_hubs() {
    let conditions =
        Conditions { audience: Some("hub".to_owned()), issuer: Some("app".to_owned()), ..Conditions::default() };
    let table = [
        (json!("hub"), json!("app"), None),
        (json!(["x", "hub"]), json!("app"), None),
        (json!("Hub"), json!("app"), Some(TokenError::Audience)),
        (json!(null), json!("app"), Some(TokenError::Audience)),
        (json!("hub"), json!("evil"), Some(TokenError::Issuer)),
        (json!("hub"), json!(null), Some(TokenError::Issuer)),
    ];
    for (aud, iss, expected) in table {
        let mut claims = claims();
        (claims["aud"], claims["iss"]) = (aud, iss);
        assert_eq!(read(&signed(&claims), &keys(), &conditions, NOW).err(), expected, "{claims}");
    }
}

#[test]
fn the_name_of_a_key_only_chooses_among_the_keys() {
    let encoded = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY";
    let set = json!({ "keys": [
        { "kty": "oct", "kid": "new", "k": encoded },
        { "kty": "RSA", "kid": "enc", "use": "enc", "n": "AQAB", "e": "AQAB" },
        { "kty": "oct", "kid": "odd", "alg": "HS512", "k": encoded },
    ] });
    let mut keys = Keys::default();
    keys.add_jwks(set.to_string().as_bytes()).unwrap();
    for (id, is_known) in [
        (Some("new"), true),
        (None, true),
        (Some("odd"), false),
        (Some("../../../../etc/passwd"), false),
        (Some("new' OR '1'='1"), false),
        (Some("http://evil.example/keys"), false),
    ] {
        let header = Header { kid: id.map(str::to_owned), ..Header::new(Algorithm::HS256) };
        let token = encode(&header, &claims(), &EncodingKey::from_secret(SECRET).unwrap()).unwrap();
        let result = read(&token, &keys, &Conditions::default(), NOW);
        assert_eq!(result.err(), (!is_known).then_some(TokenError::Algorithm), "{id:?}");
    }
    let private = json!({ "keys": [{ "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "d": "AA" }] });
    for bad in [private.to_string(), "{}".to_owned(), json!({ "keys": [] }).to_string(), "[".repeat(100_000)] {
        assert!(Keys::default().add_jwks(bad.as_bytes()).is_err());
    }
}

/// A folder that ends with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hub-rules-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("secret"), SECRET).unwrap();
        Self(path)
    }

    fn load(&self, text: &str) -> Result<Rules, String> {
        let path = self.0.join("hub.toml");
        std::fs::write(&path, text).unwrap();
        Rules::load(&path).map_err(|error| error.to_string().replace(&*self.0.to_string_lossy(), ""))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_fault_in_the_file_names_its_line_and_remedy() {
    let folder = Folder::new("faults");
    let table = [
        ("[[namespace]]\ntopics = \"a\"\nhistroy = true\n", "/hub.toml:3: unknown key `histroy`; did you mean `"),
        ("[tokens]\nsecrts = []\n", "/hub.toml:2: unknown key `secrts`; did you mean `secrets`?"),
        ("\n[[namespace]]\nanyone = []\n", "/hub.toml:2: `topics` is missing here"),
        ("[[namespace]]\ntopics = \"a*b\"\n", "/hub.toml:2: \"a*b\": `*` stands at the end"),
        (
            "[[namespace]]\ntopics = \"a\"\nusers = [\n\"publsh\"]\n",
            "/hub.toml:3: unknown right `publsh`; did you mean `publish`?",
        ),
        ("[[namespace]]\ntopics = 7\n", "/hub.toml:2: `topics` is a text in quotes"),
        ("[limits]\nsessions-per-user = 0\n", "/hub.toml:2: `sessions-per-user` is a number from 1 to"),
        ("[tokens]\naudience = \"x\"\n", "/hub.toml:1: [tokens] has no key"),
        ("[tokens]\nsecrets = [\"absent\"]\n", "/absent: cannot be read"),
        ("[tokens]\nsecrets = [\"secret\"]\norigins = [\"*\"]\n", "/hub.toml:3: any page could use"),
        ("[tokens]\nsecrets = [\"secret\"]\ncookie = \"a b\"\n", "/hub.toml:3: `cookie` is a name"),
        ("a = \n", "/hub.toml:1: "),
    ];
    for (text, expected) in table {
        let error = folder.load(text).unwrap_err();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    assert!(Rules::load(Path::new("/dev/zero")).is_err());
}

#[test]
fn the_first_namespace_of_a_topic_and_the_token_add_up() {
    let folder = Folder::new("grants");
    let rules = folder.load(
        "[tokens]\nsecrets = [\"secret\"]\n[[namespace]]\ntopics = \"chat:lobby\"\nanyone = [\"subscribe\"]\n\
         [[namespace]]\ntopics = \"chat:*\"\nusers = [\"presence\"]\nanyone = [\"history\"]\n",
    );
    let rules = rules.unwrap();
    let ann = try_read(&signed(&claims())).unwrap();
    let subscribe_publish = Rights::SUBSCRIBE | Rights::PUBLISH;
    let table = [
        ("chat:lobby", Rights::SUBSCRIBE, subscribe_publish),
        ("chat:7", Rights::HISTORY, subscribe_publish | Rights::PRESENCE | Rights::HISTORY),
        ("other", Rights::NONE, Rights::NONE),
        ("CHAT:7", Rights::NONE, Rights::NONE),
        ("chat\u{ff1a}7", Rights::NONE, Rights::NONE),
        ("\u{200b}chat:7", Rights::NONE, Rights::NONE),
        ("*", Rights::NONE, Rights::NONE),
    ];
    for (topic, anyone, user) in table {
        assert_eq!(rules.grant(None, topic).rights, anyone, "{topic}");
        assert_eq!(rules.grant(Some(&ann), topic).rights, user, "{topic}");
    }
    assert_eq!(rules.files().len(), 2);
}
