//! One order at the authority (RFC 8555, section 7.4), which another process can go on with.

use crate::answers::{Answer, Answers, Method};
use crate::chain;
use crate::clock::now;
use crate::config::AcmeConfig;
use crate::failure::{Failure, Fate, printable};
use crate::folder::Folder;
use crate::leaf::{self, Leaf};
use crate::ocsp::{Question, Word};
use crate::plan::{FailureKind, Time};
use crate::transport::Transport;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeStatus, ChallengeType, Error,
    ExternalAccountKey, HttpClient, Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tautline_tls::pem;

/// The account at the authority.
pub(crate) const ACCOUNT: &str = "account.json";
/// The chain and its key.
pub(crate) const CERTIFICATE: &str = "certificate.pem";
/// The order in progress, with the answers to its challenges.
pub(crate) const ORDER: &str = "order.json";

/// The time in which other processes notice new answers. Only then is the authority asked to validate: it may reach any of them.
pub(crate) const SETTLE: Duration = Duration::from_millis(1000);

/// Longest time of one order. The next attempt goes on with it.
const LONGEST: Duration = Duration::from_secs(20 * 60);

/// The age at which an order is given up: real ones take minutes.
const ORDER_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// The attempts after which an order is given up that cannot be gone on with, while the authority's directory answers.
const ATTEMPTS: u32 = 5;

/// Largest chain: real ones have some kilobytes, and each handshake sends it.
const LARGEST_CHAIN: usize = 64 << 10;

/// How often the state of an order is asked for, and how long.
const POLLING: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(300)).backoff(1.6).timeout(Duration::from_secs(300));

/// The content of [`ACCOUNT`].
#[derive(Serialize, Deserialize)]
struct StoredAccount {
    directory: String,
    contacts: Vec<String>,
    credentials: serde_json::Value,
}

/// The content of [`ORDER`].
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredOrder {
    directory: String,
    names: Vec<String>,
    url: String,
    /// The key of the certificate, in PEM.
    key: String,
    pub(crate) answers: Vec<Answer>,
    /// When it was made, since 1970.
    #[serde(default = "now")]
    begun: Time,
    /// The attempts that left it [doubtful](Fate::Doubtful).
    #[serde(default)]
    doubts: u32,
}

impl StoredOrder {
    /// The order in this file, if it can be read.
    pub(crate) fn read(file: Option<&[u8]>) -> Option<Self> {
        file.and_then(|file| serde_json::from_slice(file).ok())
    }

    /// Whether it is for this certificate by this authority.
    pub(crate) fn concerns(&self, config: &AcmeConfig) -> bool {
        self.directory == config.directory && self.names == config.names
    }
}

/// The parts of an order that do not change while it is in progress.
pub(crate) struct Ordering<'a> {
    pub(crate) config: &'a AcmeConfig,
    pub(crate) folder: &'a Folder,
    pub(crate) answers: &'a Answers,
    /// Makes clients of the authority.
    pub(crate) client: &'a dyn Fn() -> Box<dyn HttpClient>,
    /// The client of responders.
    pub(crate) transport: &'a Transport,
    /// The certificate that is to be replaced.
    pub(crate) replaced: Option<&'a Leaf>,
    /// The failures since the last success.
    pub(crate) failures: u32,
}

impl Ordering<'_> {
    /// Completes an order and stores its certificate.
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let completed = tokio::time::timeout(LONGEST, caught(self.complete_with_account())).await;
        let result = completed.unwrap_or_else(|_| {
            let minutes = LONGEST.as_secs() / 60;
            let what = format!("the authority has not completed the order within {minutes} minutes");
            Err(Failure::new(FailureKind::Authority, what).with_fate(Fate::Waits))
        });
        match result.as_ref().map_or_else(|failure| failure.fate, |()| Fate::Over) {
            Fate::Waits => {}
            Fate::Doubtful => self.doubt_order()?,
            Fate::Over => self.forget_order()?,
        }
        result
    }

    /// Counts an attempt after which the order cannot be gone on with for ever.
    fn doubt_order(&self) -> Result<(), Failure> {
        let file = self.folder.read(ORDER).map_err(|error| Failure::folder("read the order", &error))?;
        let Some(mut stored) = StoredOrder::read(file.as_deref()) else { return Ok(()) };
        stored.doubts += 1;
        if stored.doubts >= ATTEMPTS {
            log::warn!("acme: the order {} is given up after {ATTEMPTS} attempts", printable(&stored.url));
            return self.forget_order();
        }
        self.store(ORDER, &stored)
    }

    /// Asks when the authority wants the certificate to be renewed (RFC 9773); `None` if it has no opinion.
    pub(crate) async fn suggestion(&self, leaf: &Leaf) -> Result<Option<(Time, Time, Duration)>, Failure> {
        caught(self.ask_for_suggestion(leaf)).await
    }

    async fn ask_for_suggestion(&self, leaf: &Leaf) -> Result<Option<(Time, Time, Duration)>, Failure> {
        let der = CertificateDer::from(leaf.der.as_slice());
        // It has no identifier of its issuer's key, so that no authority can know it.
        let Ok(id) = CertificateIdentifier::try_from(&der) else { return Ok(None) };
        let account = self.account().await?;
        match account.renewal_info(&id).await {
            Ok((info, again)) => {
                let time = |at: i64| Time::from_secs(u64::try_from(at).unwrap_or_default());
                let window = info.suggested_window;
                let (begin, end) = (window.start.unix_timestamp(), window.end.unix_timestamp());
                Ok(Some((time(begin), time(end), again)))
            }
            Err(Error::Unsupported(_)) => Ok(None),
            Err(error) => Err(Failure::of("time of renewal", &error)),
        }
    }

    /// Completes an order, with a new account if the authority does not know that of the folder.
    async fn complete_with_account(&self) -> Result<(), Failure> {
        match self.complete().await {
            Err(failure) if failure.lost_account => {
                log::warn!("acme: {failure}: a new account is made");
                self.folder.remove(ACCOUNT).map_err(|error| Failure::folder("remove the account", &error))?;
                self.forget_order()?;
                self.complete().await
            }
            result => result,
        }
    }

    async fn complete(&self) -> Result<(), Failure> {
        // Authorities count accounts and orders, also those that cannot be stored.
        self.folder.check_room().map_err(|error| Failure::folder("begin an order", &error))?;
        let account = self.account().await?;
        let (mut order, mut stored) = match self.resume(&account).await? {
            Some(resumed) => resumed,
            None => self.begin(&account).await?,
        };
        if order.state().status == OrderStatus::Pending {
            self.validate(&mut order, &mut stored).await?;
        }
        let key = KeyPair::from_pem(&stored.key).map_err(|error| {
            Failure::new(FailureKind::Certificate, format!("the key in {ORDER} cannot be used: {error}"))
        })?;
        if order.state().status == OrderStatus::Ready {
            let request = self.request(&key)?;
            order.finalize_csr(&request).await.map_err(|error| Failure::of("request", &error))?;
        }
        let chain = order.poll_certificate(&POLLING).await.map_err(|error| Failure::of("certificate", &error))?;
        self.install(&chain, &key).await
    }

    /// The account of the folder, or else a new one.
    async fn account(&self) -> Result<Account, Failure> {
        let AcmeConfig { directory, contacts, .. } = self.config;
        let file = self.folder.read(ACCOUNT).map_err(|error| Failure::folder("read the account", &error))?;
        let stored = file.and_then(|file| stored_account(&file));
        let stored = stored.filter(|(stored, _)| stored.directory == *directory);
        let builder = || Account::builder_with_http((self.client)());
        let contact: Vec<&str> = contacts.iter().map(String::as_str).collect();
        if let Some((mut stored, credentials)) = stored {
            let account = builder().from_credentials(credentials).await;
            // Without the directory nothing is known about an order.
            let account = account.map_err(|error| Failure::of("directory", &error).with_fate(Fate::Waits))?;
            if stored.contacts != *contacts {
                account.update_contacts(&contact).await.map_err(|error| Failure::of("contacts", &error))?;
                stored.contacts.clone_from(contacts);
                self.store(ACCOUNT, &stored)?;
            }
            return Ok(account);
        }
        let binding = self.config.binding.as_ref();
        let binding = binding.map(|binding| ExternalAccountKey::new(binding.id.clone(), &binding.key));
        let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let created = builder().create(&new, directory.clone(), binding.as_ref()).await;
        let (account, credentials) = created.map_err(|error| Failure::of("account", &error))?;
        let credentials = serde_json::to_value(&credentials)
            .map_err(|error| Failure::new(FailureKind::Folder, format!("cannot store the account: {error}")))?;
        let stored = StoredAccount { directory: directory.clone(), contacts: contacts.clone(), credentials };
        self.store(ACCOUNT, &stored)?;
        log::info!("acme: a new account at {directory}: {}", account.id());
        Ok(account)
    }

    /// The order that another process, or this one, has begun and not completed.
    async fn resume(&self, account: &Account) -> Result<Option<(Order, StoredOrder)>, Failure> {
        let file = self.folder.read(ORDER).map_err(|error| Failure::folder("read the order", &error))?;
        let stored = StoredOrder::read(file.as_deref());
        let Some(stored) = stored.filter(|stored| stored.concerns(self.config)) else { return Ok(None) };
        // A clock that went back, far, counts as well.
        if now().abs_diff(stored.begun) > ORDER_LIFE {
            log::warn!("acme: the order {} is given up: it is not complete after a day", printable(&stored.url));
            return Ok(None);
        }
        if !is_https(&stored.url) {
            log::warn!("acme: the order {:?} is given up: its URL does not begin with https://", stored.url);
            return Ok(None);
        }
        let mut order = match account.order(stored.url.clone()).await {
            Ok(order) => order,
            Err(Error::Api(problem)) if is_forgotten(&problem) => return Ok(None),
            Err(error) => return Err(Failure::of("order", &error)),
        };
        if order.state().status == OrderStatus::Invalid {
            return Ok(None);
        }
        log::info!("acme: going on with the order {}", stored.url);
        Ok(Some((order, stored)))
    }

    async fn begin(&self, account: &Account) -> Result<(Order, StoredOrder), Failure> {
        let AcmeConfig { directory, names, profile, .. } = self.config;
        let identifiers: Vec<Identifier> = names.iter().cloned().map(Identifier::Dns).collect();
        let new = || {
            let new = NewOrder::new(&identifiers);
            match profile {
                Some(profile) => new.profile(profile),
                None => new,
            }
        };
        let der = self.replaced.map(|leaf| CertificateDer::from(leaf.der.as_slice()));
        let replaced = der.as_ref().and_then(|der| CertificateIdentifier::try_from(der).ok());
        // Authorities spare replacements from limits (RFC 9773, section 5). Not all know the word, nor each certificate.
        let replacing = match replaced {
            Some(id) => match account.new_order(&new().replaces(id)).await {
                Ok(order) => Some(order),
                Err(error) if is_network(&error) => return Err(Failure::of("order", &error)),
                Err(error) => {
                    log::debug!("acme: the order is made without the certificate that it replaces: {error}");
                    None
                }
            },
            None => None,
        };
        let order = match replacing {
            Some(order) => order,
            None => account.new_order(&new()).await.map_err(|error| Failure::of("order", &error))?,
        };
        if !is_https(order.url()) {
            let url = printable(order.url());
            let what = format!("order: the authority gave it the URL {url:?}, which does not begin with https://");
            return Err(Failure::new(FailureKind::Authority, what).with_fate(Fate::Over));
        }
        let key = KeyPair::generate()
            .map_err(|error| Failure::new(FailureKind::Certificate, format!("cannot make a key: {error}")))?;
        let stored = StoredOrder {
            directory: directory.clone(),
            names: names.clone(),
            url: order.url().to_owned(),
            key: key.serialize_pem(),
            answers: Vec::new(),
            begun: now(),
            doubts: 0,
        };
        self.store(ORDER, &stored)?;
        log::info!("acme: ordered a certificate for {}: {}", names.join(", "), stored.url);
        Ok((order, stored))
    }

    /// Proves that the server answers for each name.
    async fn validate(&self, order: &mut Order, stored: &mut StoredOrder) -> Result<(), Failure> {
        let method = self.method();
        let mut answers = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(|error| Failure::of("authorization", &error))?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let name = authorization.identifier().to_string().to_ascii_lowercase();
            if !self.config.names.contains(&name) {
                let what = format!("validation of {}: the order does not have this name", printable(&name));
                return Err(Failure::new(FailureKind::Authority, what).with_fate(Fate::Over));
            }
            let Some(challenge) = authorization.challenge(kind(method)) else {
                let what = format!("validation of {name}: the authority does not offer {}", label(method));
                return Err(Failure::new(FailureKind::Rejected, what));
            };
            if !is_token(&challenge.token) {
                let what = format!("validation of {name}: the token is not base64url (RFC 8555, section 8)");
                return Err(Failure::new(FailureKind::Authority, what).with_fate(Fate::Over));
            }
            let key_authorization = challenge.key_authorization().as_str().to_owned();
            answers.push(Answer { method, name, token: challenge.token.clone(), key_authorization });
        }
        self.answers.set(&answers);
        stored.answers = answers;
        self.store(ORDER, stored)?;
        tokio::time::sleep(SETTLE).await;
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(|error| Failure::of("authorization", &error))?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let step = format!("validation of {} by {}", authorization.identifier(), label(method));
            if let Some(mut challenge) = authorization.challenge(kind(method))
                && challenge.status == ChallengeStatus::Pending
            {
                challenge.set_ready().await.map_err(|error| Failure::of(&step, &error))?;
            }
        }
        let polled = order.poll_ready(&POLLING).await;
        match polled {
            Ok(OrderStatus::Ready) => Ok(()),
            polled => Err(match self.refusal(order, method).await {
                Some(failure) => failure,
                None => match polled {
                    Err(error) => Failure::of("validation", &error),
                    Ok(status) => Failure::new(FailureKind::Validation, format!("validation: the order is {status:?}")),
                },
            }),
        }
    }

    /// The reason why the authority could not validate a name, in its own words.
    async fn refusal(&self, order: &mut Order, method: Method) -> Option<Failure> {
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            authorization.refresh().await.ok()?;
            let step = format!("validation of {} by {}", authorization.identifier(), label(method));
            if let Some(problem) = authorization.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
                let mut failure = Failure::problem(&step, problem);
                failure.kind = FailureKind::Validation;
                return Some(failure.with_fate(Fate::Over));
            }
        }
        None
    }

    /// The kind of challenge for this attempt. If the server has both, HTTP-01 is first, and each failure changes it.
    pub(crate) const fn method(&self) -> Method {
        match (self.config.tls_alpn, self.config.http) {
            (true, true) if self.failures % 2 == 1 => Method::TlsAlpn,
            (_, true) => Method::Http,
            (_, false) => Method::TlsAlpn,
        }
    }

    /// The request for a certificate with this key, in DER.
    fn request(&self, key: &KeyPair) -> Result<Vec<u8>, Failure> {
        let made = CertificateParams::new(self.config.names.clone()).and_then(|mut params| {
            params.distinguished_name = DistinguishedName::new();
            if self.config.must_staple {
                params.custom_extensions = vec![must_staple()];
            }
            params.serialize_request(key)
        });
        let made =
            made.map_err(|error| Failure::new(FailureKind::Rejected, format!("cannot make a request: {error}")))?;
        Ok(made.der().to_vec())
    }

    /// Stores a certificate that can be used, with an OCSP response if its authority has one.
    async fn install(&self, chain: &str, key: &KeyPair) -> Result<(), Failure> {
        let unusable = |why: &str| Failure::new(FailureKind::Certificate, format!("the certificate {why}"));
        let directory = &self.config.directory;
        if chain.len() > LARGEST_CHAIN {
            return Err(unusable(&format!("has a chain of {} bytes, more than {LARGEST_CHAIN}", chain.len())));
        }
        // The certificates alone: another key, or a response, would be taken for ours.
        let sections = pem::certificates(chain.as_bytes(), "the answer");
        let sections = sections.map_err(|error| unusable(&format!("cannot be read: {error}")))?;
        let pem: Vec<u8> = sections.iter().flat_map(|section| section.to_pem().to_vec()).collect();
        let file = leaf::file(directory, &String::from_utf8_lossy(&pem), &key.serialize_pem());
        let file = zeroize::Zeroizing::new(file);
        let leaf = Leaf::read(file.as_bytes()).map_err(|error| unusable(&format!("cannot be read: {error}")))?;
        if !leaf.belongs_to(key) {
            return Err(unusable("is for another key"));
        }
        if !leaf.serves(&self.config.names, directory) {
            return Err(unusable(&format!("is for other names: {}", leaf.names.join(", "))));
        }
        if let Some(why) = chain::flaw(&sections, now()) {
            return Err(unusable(why));
        }
        if self.config.must_staple && !leaf.must_be_stapled {
            log::warn!("acme: the authority has left out must-staple (RFC 7633), which the order asked for");
        }
        let response = self.response(&leaf).await?;
        let stored = self.folder.replace(CERTIFICATE, &leaf::with_response(file.as_bytes(), response.as_deref()));
        stored.map_err(|error| Failure::folder("store the certificate", &error))
    }

    /// The OCSP response for a new certificate; `None` if it goes without one.
    ///
    /// A certificate that must be stapled waits for its response: clients would reject it.
    async fn response(&self, leaf: &Leaf) -> Result<Option<Vec<u8>>, Failure> {
        let never = match (self.config.stapling, leaf.responder.is_some()) {
            (false, _) => Some("which this TLS engine cannot do: take --tls fused, or order one without that demand"),
            (_, false) => Some("but names no responder: order one without that demand"),
            _ => None,
        };
        if let Some(why) = never.filter(|_| leaf.must_be_stapled) {
            let what = format!("the certificate must be stapled (OCSP), {why}");
            return Err(Failure::new(FailureKind::Certificate, what));
        }
        if !self.config.stapling || leaf.responder.is_none() {
            return Ok(None);
        }
        let asked = match Question::of(&leaf.der, leaf.issuer.as_deref()) {
            Ok(question) => question.ask(self.transport, now()).await,
            Err(why) => Err(why),
        };
        let why = match asked {
            Ok((response, Word::Good(_))) => return Ok(Some(response)),
            Ok((_, Word::Revoked(..))) => {
                return Err(Failure::new(
                    FailureKind::Revoked,
                    "the authority has revoked the new certificate already",
                ));
            }
            Err(why) => printable(&why),
        };
        if leaf.must_be_stapled {
            let what = format!("the new certificate must be stapled (OCSP), and has no response yet: {why}");
            return Err(Failure::new(FailureKind::Authority, what).with_fate(Fate::Waits));
        }
        log::warn!("acme: the new certificate has no OCSP response yet: {why}");
        Ok(None)
    }

    fn forget_order(&self) -> Result<(), Failure> {
        self.answers.set(&[]);
        self.folder.remove(ORDER).map_err(|error| Failure::folder("remove the order", &error))
    }

    fn store(&self, name: &str, content: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(content).map(zeroize::Zeroizing::new);
        let text = text.map_err(|error| Failure::new(FailureKind::Folder, format!("cannot store {name}: {error}")))?;
        self.folder.replace(name, &text).map_err(|error| Failure::folder(&format!("store {name}"), &error))
    }
}

/// The account in this file; `None` with a word in the log if it cannot be read.
fn stored_account(file: &[u8]) -> Option<(StoredAccount, AccountCredentials)> {
    let read = serde_json::from_slice::<StoredAccount>(file).and_then(|stored| {
        let credentials = serde_json::from_value(stored.credentials.clone())?;
        Ok((stored, credentials))
    });
    // The text of the error may have parts of the key.
    let place = |error: &serde_json::Error| match error.line() {
        0 => "its credentials are malformed".to_owned(),
        line => format!("it is malformed at line {line}, column {}", error.column()),
    };
    read.inspect_err(|error| log::warn!("acme: {ACCOUNT} is replaced, and a new account is made: {}", place(error)))
        .ok()
}

/// Whether the authority has perhaps not received a request. The crate's own checks of an answer have the same type.
fn is_network(error: &Error) -> bool {
    matches!(error, Error::Other(other) if !other.to_string().starts_with("replaces"))
}

/// Whether the authority says that it does not know an order. All else may pass.
fn is_forgotten(problem: &instant_acme::Problem) -> bool {
    problem.status == Some(404) || problem.r#type.as_deref() == Some("urn:ietf:params:acme:error:malformed")
}

/// Whether requests for this URL can be sent.
fn is_https(url: &str) -> bool {
    url.parse::<http::Uri>().is_ok_and(|url| url.scheme_str() == Some("https") && url.host().is_some())
}

/// Whether a token has the characters of one (RFC 8555, section 8), and a length that makes sense.
fn is_token(token: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=512).contains(&token.len()) && token.bytes().all(is_known)
}

/// The result of work, which is a failure if the work panics: the protocol's crate does for some answers, such as a directory
/// whose `newNonce` is no URL.
async fn caught<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut work = pin!(work);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(polled) => polled,
        Err(_) => Poll::Ready(Err(Failure::new(
            FailureKind::Authority,
            "an answer of the authority is not what RFC 8555 says: the log has the place",
        ))),
    })
    .await
}

/// The demand that clients reject the certificate without an OCSP response: status_request as a TLS feature (RFC 7633).
fn must_staple() -> CustomExtension {
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 24], vec![0x30, 3, 2, 1, 5])
}

const fn kind(method: Method) -> ChallengeType {
    match method {
        Method::TlsAlpn => ChallengeType::TlsAlpn01,
        Method::Http => ChallengeType::Http01,
    }
}

pub(crate) const fn label(method: Method) -> &'static str {
    match method {
        Method::TlsAlpn => "TLS-ALPN-01",
        Method::Http => "HTTP-01",
    }
}

#[cfg(test)]
mod tests;
