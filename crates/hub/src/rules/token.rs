//! Tokens (JSON Web Tokens, RFC 7519): who a connection is, and what it may do.

use super::keys::Keys;
use super::pattern::Pattern;
use super::rights::Rights;
use jsonwebtoken::{Validation, decode, decode_header};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of a token, and of its user.
const MOST: usize = 8 << 10;
const MOST_USER: usize = 128;
/// Most patterns of topics that a token names.
const MOST_GRANTS: usize = 64;

/// The claims of a token that count. Others are left alone.
#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    sub: Option<String>,
    #[serde(default)]
    jti: Option<String>,
    exp: f64,
    #[serde(default)]
    nbf: Option<f64>,
    #[serde(default)]
    iat: Option<f64>,
    /// Patterns of topics, with the names of the rights to them.
    #[serde(default)]
    topics: BTreeMap<String, Vec<String>>,
}

/// The user of a connection, by its token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Identity {
    /// `None` for a token that names rights and no user.
    pub(crate) user: Option<Arc<str>>,
    /// The name of the token itself (`jti`).
    pub(crate) id: Option<Arc<str>>,
    pub(crate) grants: Vec<(Pattern, Rights)>,
    /// Times since 1970.
    pub(crate) expires: Duration,
    pub(crate) issued: Option<Duration>,
}

impl Identity {
    /// The rights to a topic that the token itself gives.
    pub(crate) fn rights(&self, topic: &str) -> Rights {
        let matching = self.grants.iter().filter(|(pattern, _)| pattern.matches(topic));
        matching.fold(Rights::NONE, |sum, (_, rights)| sum | *rights)
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let grants = self.grants.iter().map(|(pattern, _)| pattern.memory());
        let user = [&self.user, &self.id].into_iter().flatten().map(|name| name.len()).sum::<usize>();
        size_of::<Self>() + self.grants.capacity() * size_of::<(Pattern, Rights)>() + grants.sum::<usize>() + user
    }
}

/// The conditions on tokens.
#[derive(Clone, Default)]
pub(crate) struct Conditions {
    pub(crate) audience: Option<String>,
    pub(crate) issuer: Option<String>,
    /// The difference that clocks may have.
    pub(crate) leeway: Duration,
}

/// The reason why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenError {
    NoKeys,
    TooLong,
    Malformed,
    Algorithm,
    Signature,
    Expired,
    NotYet,
    Audience,
    Issuer,
    Claims,
    Revoked,
    OtherUser,
}

impl TokenError {
    /// The reason, for the client.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::NoKeys => "this hub takes no tokens",
            Self::TooLong => "the token is longer than 8 KiB",
            Self::Malformed => "the token is no signed JSON Web Token",
            Self::Algorithm => "the token's key or algorithm is not one of this hub",
            Self::Signature => "the token's signature is wrong",
            Self::Expired => "the token has expired; connect with a fresh one",
            Self::NotYet => "the token is not valid yet",
            Self::Audience => "the token is for another audience",
            Self::Issuer => "the token is of another issuer",
            Self::Claims => "a claim of the token is missing or has another form (docs/hub.md)",
            Self::Revoked => "the user's tokens are revoked",
            Self::OtherUser => "the token is of another user; open another connection",
        }
    }
}

/// Reads a token at a time since 1970.
pub(crate) fn read(token: &str, keys: &Keys, conditions: &Conditions, now: Duration) -> Result<Identity, TokenError> {
    if keys.is_empty() {
        return Err(TokenError::NoKeys);
    }
    if token.len() > MOST {
        return Err(TokenError::TooLong);
    }
    let header = decode_header(token).map_err(|_| TokenError::Malformed)?;
    let mut worst = TokenError::Algorithm;
    for key in keys.named(header.kid.as_deref()).filter(|key| key.algorithm == header.alg) {
        // The key's algorithm alone is accepted.
        let mut validation = Validation::new(key.algorithm);
        // Times are checked below, by a clock that tests have too.
        (validation.validate_exp, validation.validate_nbf) = (false, false);
        // A token for an audience is not for a hub that has none (RFC 7519, section 4.1.3).
        validation.validate_aud = true;
        let mut required = vec!["exp"];
        if let Some(audience) = &conditions.audience {
            validation.set_audience(&[audience]);
            required.push("aud");
        }
        if let Some(issuer) = &conditions.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        validation.set_required_spec_claims(&required);
        match decode::<Claims>(token, &key.key, &validation) {
            Ok(data) => return identity(data.claims, conditions.leeway, now),
            Err(error) => worst = fault(error.kind()),
        }
        if worst != TokenError::Signature {
            break;
        }
    }
    Err(worst)
}

fn fault(kind: &jsonwebtoken::errors::ErrorKind) -> TokenError {
    use jsonwebtoken::errors::ErrorKind;
    match kind {
        ErrorKind::InvalidSignature => TokenError::Signature,
        ErrorKind::InvalidAudience => TokenError::Audience,
        ErrorKind::InvalidIssuer => TokenError::Issuer,
        ErrorKind::InvalidAlgorithm => TokenError::Algorithm,
        ErrorKind::MissingRequiredClaim(claim) if claim == "aud" => TokenError::Audience,
        ErrorKind::MissingRequiredClaim(claim) if claim == "iss" => TokenError::Issuer,
        ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) | ErrorKind::Json(_) => {
            TokenError::Claims
        }
        _ => TokenError::Malformed,
    }
}

fn identity(claims: Claims, leeway: Duration, now: Duration) -> Result<Identity, TokenError> {
    let time = |seconds: f64| Duration::try_from_secs_f64(seconds).map_err(|_| TokenError::Claims);
    let expires = time(claims.exp)?;
    if expires.saturating_add(leeway) <= now {
        return Err(TokenError::Expired);
    }
    if let Some(nbf) = claims.nbf
        && time(nbf)? > now + leeway
    {
        return Err(TokenError::NotYet);
    }
    let issued = claims.iat.map(time).transpose()?;
    let name = |name: String| is_user(&name).then(|| name.into()).ok_or(TokenError::Claims);
    let user = claims.sub.map(name).transpose()?;
    let id = claims.jti.map(name).transpose()?;
    let grants = grants(&claims.topics)?;
    Ok(Identity { user, id, grants, expires, issued })
}

/// The rights that patterns of topics are given.
pub(crate) fn grants(topics: &BTreeMap<String, Vec<String>>) -> Result<Vec<(Pattern, Rights)>, TokenError> {
    if topics.len() > MOST_GRANTS {
        return Err(TokenError::Claims);
    }
    let mut grants = Vec::with_capacity(topics.len());
    for (pattern, names) in topics {
        let pattern = pattern.parse().map_err(|_| TokenError::Claims)?;
        let rights = names.iter().map(|name| Rights::named(name)).collect::<Option<Vec<_>>>();
        let rights = rights.ok_or(TokenError::Claims)?.into_iter().fold(Rights::NONE, |sum, right| sum | right);
        grants.push((pattern, rights));
    }
    Ok(grants)
}

/// Whether a text can be the name of a user.
pub(crate) fn is_user(text: &str) -> bool {
    !text.is_empty() && text.len() <= MOST_USER && !text.contains(char::is_control)
}
