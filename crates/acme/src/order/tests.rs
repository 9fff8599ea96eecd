use super::*;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use instant_acme::{BodyWrapper, BytesResponse};
use rcgen::{BasicConstraints, IsCa, Issuer};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

/// An authority whose answers are written here. It knows ARI, unless its directory is to say otherwise.
#[derive(Clone, Default)]
struct Scripted {
    /// Requests so far: the path, and the payload of a signed one.
    seen: Arc<Mutex<Vec<(String, String)>>>,
    lacks_ari: bool,
    /// It refuses orders that replace a certificate.
    knows_no_certificate: bool,
    /// It cannot be reached for orders.
    drops_orders: bool,
    /// Its place for nonces, instead of a URL.
    nonces: Option<&'static str>,
    /// The name and the token of a validation that its orders need.
    validation: Option<(&'static str, &'static str)>,
    /// The URL of its orders, instead of the usual one.
    place: Option<&'static str>,
    /// Its answers about an order, one after another, of which the last one stays: the status and the body. With status 0
    /// it cannot be reached.
    order: &'static [(u16, &'static str)],
}

impl Scripted {
    fn answer(&self, path: &str, payload: &str) -> Result<Response<String>, String> {
        let of = |status: u16, body: String| {
            let builder = Response::builder().status(status).header("replay-nonce", "nonce");
            Ok(builder
                .header("location", self.place.unwrap_or("https://a/order/1"))
                .header("retry-after", "3600")
                .body(body)
                .unwrap())
        };
        match path {
            "/order/1" if !self.order.is_empty() => {
                let asked = self.payloads(path).len();
                match self.order[asked.min(self.order.len()) - 1] {
                    (0, _) => Err("a cable was cut".to_owned()),
                    (status, body) => of(status, body.to_owned()),
                }
            }
            "/dir" => {
                let ari = if self.lacks_ari { "" } else { r#", "renewalInfo": "https://a/ari""# };
                let urls = r#""newAccount": "https://a/account", "newOrder": "https://a/orders""#;
                let nonces = self.nonces.unwrap_or("https://a/nonce");
                of(200, format!(r#"{{"newNonce": "{nonces}", {urls}{ari}}}"#))
            }
            "/nonce" => of(200, String::new()),
            "/account" => of(201, "{}".to_owned()),
            "/orders" if self.drops_orders => Err("a cable was cut".to_owned()),
            "/orders" if self.knows_no_certificate && payload.contains("replaces") => {
                let kind = "urn:ietf:params:acme:error:alreadyReplaced";
                of(409, format!(r#"{{"type": "{kind}", "status": 409, "detail": "replaced before"}}"#))
            }
            "/orders" => {
                let payload: serde_json::Value = serde_json::from_str(payload).unwrap();
                let mut order =
                    serde_json::json!({"status": "pending", "authorizations": [], "finalize": "https://a/f"});
                order["replaces"] = payload["replaces"].clone();
                if self.validation.is_some() {
                    order["authorizations"] = serde_json::json!(["https://a/validation"]);
                }
                of(201, order.to_string())
            }
            "/validation" => {
                let (name, token) = self.validation.unwrap_or_default();
                let challenge = serde_json::json!({"type": "tls-alpn-01", "url": "https://a/c", "token": token, "status": "pending"});
                let identifier = serde_json::json!({"type": "dns", "value": name});
                let state =
                    serde_json::json!({"identifier": identifier, "status": "pending", "challenges": [challenge]});
                of(200, state.to_string())
            }
            ari if ari.starts_with("/ari/") => {
                let window = r#"{"start": "2030-01-02T00:00:00Z", "end": "2030-01-03T00:00:00Z"}"#;
                of(200, format!(r#"{{"suggestedWindow": {window}}}"#))
            }
            other => of(404, format!(r#"{{"type": "about:blank", "status": 404, "detail": "{other}"}}"#)),
        }
    }

    fn payloads(&self, path: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|(of, _)| of == path).map(|(_, payload)| payload.clone()).collect()
    }
}

impl HttpClient for Scripted {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let own = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let signed = serde_json::from_slice::<serde_json::Value>(&body).ok();
            let payload = signed.and_then(|signed| BASE64_URL_SAFE_NO_PAD.decode(signed["payload"].as_str()?).ok());
            let payload = String::from_utf8(payload.unwrap_or_default()).unwrap();
            own.seen.lock().unwrap().push((parts.uri.path().to_owned(), payload.clone()));
            let answer = own.answer(parts.uri.path(), &payload).map_err(|why| Error::Other(why.into()))?;
            let (parts, body) = answer.into_parts();
            Ok(BytesResponse::from(Response::from_parts(parts, Full::new(Bytes::from(body)))))
        })
    }
}

fn issuer() -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Issuer::new(params, KeyPair::generate().unwrap())
}

/// A folder, with a certificate that an authority has issued.
struct Held {
    path: PathBuf,
    folder: Folder,
    config: AcmeConfig,
    leaf: Leaf,
}

impl Held {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tautline-acme-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let config = AcmeConfig::new(["one.example"], &path).unwrap().with_directory("https://a/dir").unwrap();
        let issuer = issuer();
        let mut params = CertificateParams::new(["one.example".to_owned()]).unwrap();
        params.use_authority_key_identifier_extension = true;
        let chain = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().pem();
        let leaf = Leaf::read(chain.as_bytes()).unwrap();
        Self { folder: Folder::open(&path).unwrap(), path, config, leaf }
    }

    /// Does this with an order at the authority.
    fn with<T>(&self, authority: &Scripted, work: impl AsyncFnOnce(&Ordering<'_>) -> T) -> T {
        let client = || Box::new(authority.clone()) as Box<dyn HttpClient>;
        let answers = Answers::default();
        let root = rcgen::generate_simple_self_signed(["a".to_owned()]);
        let transport = Transport::new(root.ok().map(|root| root.cert.pem().into_bytes()).as_deref()).unwrap();
        let ordering = Ordering {
            config: &self.config,
            folder: &self.folder,
            answers: &answers,
            client: &client,
            transport: &transport,
            replaced: Some(&self.leaf),
            failures: 0,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(work(&ordering))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[test]
fn the_authority_is_asked_when_to_renew() {
    let held = Held::new("ari");
    let authority = Scripted::default();
    let (begin, end, again) = held.with(&authority, async |order| order.suggestion(&held.leaf).await).unwrap().unwrap();
    // 2 January 2030.
    assert_eq!((begin.as_secs(), (end - begin).as_secs()), (1_893_542_400, 24 * 60 * 60));
    assert!((3590..=3600).contains(&again.as_secs()), "{again:?}");
    let lacking = Scripted { lacks_ari: true, ..Scripted::default() };
    assert!(held.with(&lacking, async |order| order.suggestion(&held.leaf).await).unwrap().is_none());
    // Its account is used again.
    assert_eq!((authority.payloads("/account").len(), lacking.payloads("/account").len()), (1, 0));
}

#[test]
fn an_order_names_the_certificate_that_it_replaces() {
    for (authority, orders) in [
        (Scripted::default(), 1),
        (Scripted { knows_no_certificate: true, ..Scripted::default() }, 2),
        (Scripted { lacks_ari: true, ..Scripted::default() }, 1),
    ] {
        let held = Held::new("replaces");
        held.with(&authority, async |order| order.begin(&order.account().await.unwrap()).await.map(drop)).unwrap();
        let payloads = authority.payloads("/orders");
        assert_eq!(payloads.len(), orders);
        assert_eq!(payloads[0].contains("replaces"), !authority.lacks_ari, "{payloads:?}");
        assert_eq!(payloads[orders - 1].contains("replaces"), orders == 1 && !authority.lacks_ari, "{payloads:?}");
        let stored = StoredOrder::read(held.folder.read(ORDER).unwrap().as_deref()).unwrap();
        assert_eq!((stored.url.as_str(), stored.names.len()), ("https://a/order/1", 1));
    }
}

#[test]
fn an_order_names_its_profile() {
    let mut held = Held::new("profile");
    held.config = held.config.clone().with_profile("shortlived");
    let authority = Scripted::default();
    held.with(&authority, async |order| order.begin(&order.account().await.unwrap()).await.map(drop)).unwrap();
    let payloads = authority.payloads("/orders");
    assert!(payloads[0].contains(r#""profile":"shortlived""#), "{payloads:?}");
}

#[test]
fn an_order_that_may_have_arrived_is_not_made_twice() {
    let held = Held::new("network");
    let authority = Scripted { drops_orders: true, ..Scripted::default() };
    let failure = held.with(&authority, async |order| order.run().await).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Network);
    assert!(failure.to_string().contains("a cable was cut"), "{failure}");
    assert_eq!(authority.payloads("/orders").len(), 1);
}

#[test]
fn a_request_asks_for_must_staple_if_it_is_configured() {
    let mut held = Held::new("staple");
    for must_staple in [false, true] {
        held.config = held.config.clone().with_must_staple(must_staple);
        let key = KeyPair::generate().unwrap();
        let request = held.with(&Scripted::default(), async |order| order.request(&key)).unwrap();
        // The extension of RFC 7633 with its only known feature, status_request.
        let feature = [6, 8, 0x2b, 6, 1, 5, 5, 7, 1, 24, 4, 5, 0x30, 3, 2, 1, 5];
        assert_eq!(request.windows(feature.len()).any(|part| part == feature), must_staple);
    }
}

#[test]
fn certificates_that_cannot_be_used_are_not_stored() {
    let held = Held::new("unusable");
    let key = KeyPair::generate().unwrap();
    let authority_of = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), Issuer::new(params, key))
    };
    let ((root, issuer), (stranger, _)) = (authority_of("root"), authority_of("stranger"));
    let issue = |name: &str, key: &KeyPair, change: fn(&mut CertificateParams)| {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        change(&mut params);
        params.signed_by(key, &issuer).unwrap().pem()
    };
    let later = |params: &mut CertificateParams| params.not_before = rcgen::date_time_ymd(3000, 1, 1);
    let number = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
    let good = issue("one.example", &key, |_| {});
    let answers = [
        (String::new(), "cannot be read"),
        (format!("<html>{}</html>", "x".repeat(100)), "cannot be read"),
        (good[..good.len() / 2].to_owned(), "cannot be read"),
        (good.repeat(200), "more than 65536"),
        (issue("two.example", &key, |_| {}), "is for other names: two.example"),
        (issue("one.example", &KeyPair::generate().unwrap(), |_| {}), "is for another key"),
        (issue("one.example", &key, |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1)), "has expired"),
        (issue("one.example", &key, later), "is not valid yet"),
        (format!("{good}{number}"), "certificate 2 of 2 is malformed"),
        (format!("{good}{stranger}"), "was not issued by any other certificate in its chain"),
        (issue("one.example", &key, |params| params.custom_extensions = vec![must_staple()]), "names no responder"),
    ];
    let authority = Scripted::default();
    held.folder.replace(CERTIFICATE, b"the old one").unwrap();
    for (answer, words) in answers {
        let failure = held.with(&authority, async |order| order.install(&answer, &key).await).unwrap_err();
        assert!(failure.kind == FailureKind::Certificate && failure.to_string().contains(words), "{words}: {failure}");
        assert_eq!(held.folder.read(CERTIFICATE).unwrap().unwrap(), b"the old one", "{words}");
    }
    // Other parts of an answer are left out.
    let response = pem::encode_ocsp_response(b"forged");
    let others = format!("{}{}", KeyPair::generate().unwrap().serialize_pem(), String::from_utf8_lossy(&response));
    let answer = format!("{others}text\n{good}{root}{others}");
    held.with(&authority, async |order| order.install(&answer, &key).await).unwrap();
    let stored = String::from_utf8(held.folder.read(CERTIFICATE).unwrap().unwrap()).unwrap();
    let count = |what: &str| stored.matches(what).count();
    assert_eq!((count("BEGIN CERTIFICATE"), count("PRIVATE KEY"), count("OCSP")), (2, 2, 0), "{stored}");
    assert!(stored.contains(key.serialize_pem().trim()));
}

#[test]
fn a_validation_that_was_not_ordered_is_refused() {
    let held = Held::new("validation");
    for (name, token, words) in [
        ("two.example", "token", "the order does not have this name"),
        ("one.example", "../../etc", "the token is not base64url"),
        ("one.example", "", "the token is not base64url"),
    ] {
        let authority = Scripted { validation: Some((name, token)), ..Scripted::default() };
        let failure = held.with(&authority, async |order| order.run().await).unwrap_err();
        assert!(failure.kind == FailureKind::Authority && failure.to_string().contains(words), "{failure}");
        // The order will never be another one.
        assert!(held.folder.read(ORDER).unwrap().is_none());
    }
    assert!(!is_token(&"x".repeat(513)) && is_token("evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA"));
}

#[test]
fn a_folder_without_room_costs_no_account() {
    let held = Held::new("room");
    // A folder of this name cannot be replaced by a file.
    std::fs::create_dir(held.path.join("probe")).unwrap();
    let authority = Scripted::default();
    let failure = held.with(&authority, async |order| order.run().await).unwrap_err();
    assert!(failure.kind == FailureKind::Folder && failure.to_string().contains("cannot begin an order"), "{failure}");
    assert!(authority.seen.lock().unwrap().is_empty());
}

#[test]
fn an_answer_that_the_protocols_crate_panics_at_is_a_failure() {
    let held = Held::new("panic");
    let authority = Scripted { nonces: Some("https://["), ..Scripted::default() };
    let failure = held.with(&authority, async |order| order.run().await).unwrap_err();
    assert!(failure.kind == FailureKind::Authority && failure.to_string().contains("RFC 8555"), "{failure}");
}

#[test]
fn an_account_that_cannot_be_read_is_replaced() {
    let held = Held::new("account");
    let authority = Scripted::default();
    let account = || held.with(&authority, async |order| order.account().await.map(drop)).unwrap();
    account();
    account();
    assert_eq!(authority.payloads("/account").len(), 1);
    let good = held.folder.read(ACCOUNT).unwrap().unwrap();
    assert!(stored_account(&good).is_some());
    let keyless = String::from_utf8(good).unwrap().replace("key_pkcs8", "other");
    for (times, bad) in [(2, "garbage"), (3, ""), (4, keyless.as_str())] {
        assert!(stored_account(bad.as_bytes()).is_none(), "{bad}");
        held.folder.replace(ACCOUNT, bad.as_bytes()).unwrap();
        account();
        assert_eq!(authority.payloads("/account").len(), times, "{bad}");
    }
}

/// An order in progress, and its stored form.
fn begun(held: &Held) -> StoredOrder {
    let authority = Scripted::default();
    held.with(&authority, async |order| order.begin(&order.account().await.unwrap()).await.map(drop)).unwrap();
    stored(held).unwrap()
}

fn stored(held: &Held) -> Option<StoredOrder> {
    StoredOrder::read(held.folder.read(ORDER).unwrap().as_deref())
}

/// Whether the order in progress is gone on with.
fn resumes(held: &Held, authority: &Scripted) -> Result<bool, Failure> {
    let resume =
        async |order: &Ordering<'_>| order.resume(&order.account().await?).await.map(|resumed| resumed.is_some());
    held.with(authority, resume)
}

const PROCESSING: &str = r#"{"status": "processing", "authorizations": [], "finalize": "https://a/f"}"#;
const UNKNOWN: &str = r#"{"type": "about:blank", "status": 404}"#;
const MALFORMED: &str = r#"{"type": "urn:ietf:params:acme:error:malformed", "status": 400}"#;
const BUSY: &str = r#"{"type": "urn:ietf:params:acme:error:serverInternal", "status": 503}"#;
const LIMITED: &str = r#"{"type": "urn:ietf:params:acme:error:rateLimited", "status": 429}"#;

#[test]
fn an_order_without_https_is_not_kept() {
    let held = Held::new("place");
    for place in ["http://localhost:41500/order/", "/order/1"] {
        let authority = Scripted { place: Some(place), ..Scripted::default() };
        let failure = held.with(&authority, async |order| order.run().await).unwrap_err();
        assert!(failure.to_string().contains("does not begin with https://"), "{failure}");
        assert!(stored(&held).is_none());
    }
    let mut old = begun(&held);
    let authority = Scripted { order: &[(200, PROCESSING)], ..Scripted::default() };
    assert!(resumes(&held, &authority).unwrap());
    old.url = "http://localhost:41500/order/".to_owned();
    held.folder.replace(ORDER, &serde_json::to_vec(&old).unwrap()).unwrap();
    assert!(!resumes(&held, &authority).unwrap());
}

#[test]
fn an_order_whose_place_is_dead_is_given_up() {
    let held = Held::new("dead");
    let key = begun(&held).key;
    let dead = Scripted { order: &[(0, "")], ..Scripted::default() };
    for attempt in 1..=ATTEMPTS {
        assert_eq!(stored(&held).map(|order| order.key).as_ref(), Some(&key), "{attempt}");
        let failure = held.with(&dead, async |order| order.run().await).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Network);
    }
    assert!(stored(&held).is_none() && dead.payloads("/orders").is_empty());
    let _ = held.with(&dead, async |order| order.run().await);
    assert_eq!(dead.payloads("/orders").len(), 1);
}

#[test]
fn an_order_waits_for_an_authority_that_cannot_answer_now() {
    let held = Held::new("busy");
    let key = begun(&held).key;
    // The last one is limited while the state of the order is asked for.
    for order in [&[(503, BUSY)][..], &[(429, LIMITED)], &[(200, PROCESSING), (429, LIMITED)]] {
        let authority = Scripted { order, ..Scripted::default() };
        for _ in 0..=ATTEMPTS {
            held.with(&authority, async |order| order.run().await).unwrap_err();
        }
        assert_eq!(stored(&held).map(|order| order.key).as_ref(), Some(&key), "{order:?}");
        assert!(authority.payloads("/orders").is_empty());
    }
    for order in [&[(404, UNKNOWN)], &[(400, MALFORMED)]] {
        assert!(!resumes(&held, &Scripted { order, ..Scripted::default() }).unwrap());
    }
}

#[test]
fn an_order_that_is_never_complete_is_given_up() {
    let held = Held::new("old");
    let mut old = begun(&held);
    let authority = Scripted { order: &[(200, PROCESSING)], ..Scripted::default() };
    for (age, is_kept) in [(ORDER_LIFE / 2, true), (ORDER_LIFE * 2, false)] {
        old.begun = now() - age;
        held.folder.replace(ORDER, &serde_json::to_vec(&old).unwrap()).unwrap();
        assert_eq!(resumes(&held, &authority).unwrap(), is_kept);
    }
}
