//! One token and its lifetime: in memory, on disk, and handed out; and a failed request.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::clock::uptime;
use crate::core::json::Json;
use crate::core::model::Kind;
use crate::core::model::ObjectRef;
use crate::core::model::TokenRequest;
use crate::core::model::TokenSource;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::time::seconds;
use crate::node::api::backoff;
use crate::node::api::backoff::Backoff;
use crate::node::api::error::ApiFailure;
use crate::node::api::store::Snapshot;
use crate::node::recording::marks;

/// The kubelet's `maxTTL`: a token is renewed at this age at the latest.
const MAX_AGE: Span = Span::from_mins(24 * 60);
/// One that another boot received is renewed so long after the boot at the latest.
const FIRST_RENEWAL: Span = Span::from_mins(10);
/// It is renewed after this share of its lifetime at the latest (the kubelet: 20 % before the end).
const RENEW_AT: f64 = 0.8;
/// It is renewed up to this share of its lifetime earlier, so that a thousand nodes do not ask at once.
const SPREAD: f64 = 0.05;

/// A token on disk.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssuedToken {
    /// The request it answers.
    pub request: TokenRequest,
    pub token: String,
    /// When it was issued, by the API server's clock.
    #[serde(with = "seconds")]
    pub issued: Timestamp,
    /// When it expires, by the same clock.
    #[serde(with = "seconds")]
    pub expires: Timestamp,
    /// UID of the Node that it is bound to.
    pub node_uid: String,
    /// When it was received, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<ReceivedAt>,
}

/// A time that no wall clock shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedAt {
    /// The boot (`boot_id`).
    pub boot: String,
    /// How long the machine had been up, suspended time included.
    pub up: Span,
}

impl fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedToken")
            .field("request", &self.request)
            .field("token", &"(not shown)")
            .field("issued", &self.issued)
            .field("expires", &self.expires)
            .field("node_uid", &self.node_uid)
            .field("received", &self.received)
            .finish()
    }
}

/// The tokens at one moment, for rendering.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct TokenSnapshot {
    #[serde(with = "marks::tokens")]
    pub(super) tokens: BTreeMap<TokenRequest, Arc<str>>,
}

#[cfg(test)]
impl TokenSnapshot {
    /// These tokens.
    pub(crate) fn of<'a>(tokens: impl IntoIterator<Item = (TokenRequest, &'a str)>) -> Self {
        Self { tokens: tokens.into_iter().map(|(request, token)| (request, token.into())).collect() }
    }
}

impl fmt::Debug for TokenSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.tokens.keys()).finish()
    }
}

/// A token of another life than the requested one serves until there is one of that life: after an upgrade or a changed
/// configuration no daemon lacks its token.
impl TokenSource for TokenSnapshot {
    fn token(&self, request: &TokenRequest) -> Option<&str> {
        let of_another_life = || self.tokens.iter().rfind(|(held, _)| held.is_alike(request)).map(|(_, token)| token);
        self.tokens.get(request).or_else(of_another_life).map(|token| &**token)
    }
}

pub(super) struct HeldToken {
    pub(super) token: Arc<str>,
    pub(super) issued: Timestamp,
    pub(super) expires: Timestamp,
    pub(super) node_uid: String,
    /// UID of its ServiceAccount, if it can be read from the token.
    account_uid: Option<String>,
    /// How long the machine had been up when it was received, suspended time included; `None` for one of another boot.
    pub(super) received: Option<Span>,
    /// The store's version when it was requested; 0 for an imported one.
    version: u64,
    /// Share of the lifetime by which it is renewed earlier.
    pub(super) spread: f64,
}

pub(super) struct FailedToken {
    pub(super) failure: ApiFailure,
    pub(super) since: Timestamp,
    pub(super) backoff: Backoff,
    pub(super) retry_at: Instant,
    /// The store's version at that time: if the ServiceAccount has changed since, the request is repeated.
    pub(super) version: u64,
}

impl HeldToken {
    /// One that was imported in the boot `boot`.
    pub(super) fn new(issued: IssuedToken, boot: &str) -> Self {
        let received = issued.received.filter(|received| !boot.is_empty() && received.boot == boot);
        Self {
            account_uid: account_uid(&issued.token),
            token: issued.token.into(),
            issued: issued.issued,
            expires: issued.expires,
            node_uid: issued.node_uid,
            received: received.map(|received| received.up),
            version: 0,
            spread: SPREAD * backoff::random(),
        }
    }

    /// One that was requested when the store had this version.
    pub(super) fn received(issued: IssuedToken, version: u64) -> Self {
        Self { received: Some(uptime()), version, ..Self::new(issued, "") }
    }

    /// Whether the API server has shown another ServiceAccount of that name since: the token is invalid then. What was
    /// shown before may be older than the token.
    pub(super) fn is_of_another(&self, request: &TokenRequest, snapshot: &Snapshot) -> bool {
        let Some(account) = shown_since(request, snapshot, self.version) else { return false };
        let shown = account.text_at(["metadata", "uid"]);
        self.account_uid.as_deref().zip(shown).is_some_and(|(mine, shown)| mine != shown)
    }

    /// Whether to renew it: the kubelet's `requiresRefresh` with a wider spread, and also by the time that has passed
    /// here, whatever the wall clock says. `up`: how long the machine has been up.
    pub(super) fn is_due(&self, up: Span, wall: Timestamp) -> bool {
        let life = (self.expires - self.issued).max(Span::from_secs(1));
        let age = life.mul_f64(RENEW_AT - self.spread).min(MAX_AGE.mul_f64(1.0 - self.spread));
        let held = self.received.map(|received| up - received);
        // With a wall clock far ahead, a new token would be requested for ever.
        let may_renew = held.is_none_or(|held| held > life / 10);
        // The age of one that is of the future is not known. Nor is that of any that another boot received: the clock of a
        // machine without a battery goes on where it stopped.
        let first = FIRST_RENEWAL.mul_f64(0.1 + 0.9 * self.spread / SPREAD);
        let is_ageless = held.is_none() && (wall < self.issued || up >= first);
        is_ageless || held.is_some_and(|held| held >= age) || (may_renew && wall >= self.issued + age)
    }
}

impl FailedToken {
    /// Whether the ServiceAccount was created or changed since.
    pub(super) fn is_worth_it(&self, request: &TokenRequest, snapshot: &Snapshot) -> bool {
        shown_since(request, snapshot, self.version).is_some()
    }
}

/// The ServiceAccount, if it was created or changed after that version of the store.
fn shown_since<'a>(request: &TokenRequest, snapshot: &'a Snapshot, version: u64) -> Option<&'a Value> {
    let account = &request.service_account;
    let reference = ObjectRef::new(Kind::ServiceAccount, account.namespace.as_str(), account.name.as_str());
    snapshot.objects.get(&reference).filter(|entry| entry.version > version).map(|entry| &*entry.value)
}

/// UID of the ServiceAccount in a token of the API server (upstream's `pkg/serviceaccount/claims.go`). Its signature is
/// of no interest: the API server checks it.
fn account_uid(token: &str) -> Option<String> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    claims.text_at(["kubernetes.io", "serviceaccount", "uid"]).map(str::to_owned)
}
