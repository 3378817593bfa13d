//! Who coordinates: a Lease of coordination.k8s.io/v1, as client-go's leader election uses it.
//!
//! Owns taking, renewing and releasing it. A holder that could not renew for [`GIVE_UP`] begins no more writes, and
//! those that it began end before another may take over. On the Lease it says what it cannot list, read or write. Clocks of other
//! machines are never compared, only how long a Lease did not change.

use std::time::Duration;

use kube::Api;
use kube::api::DynamicObject;
use kube::api::PostParams;
use kube::core::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::Value;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::core::cluster::node_daemons::LeaseTerm;
use crate::core::cluster::overview::CANNOT_LIST;
use crate::core::json::Json;
use crate::node::api::ApiFailure;

use super::CoordinatorOptions;
use super::inputs::ClusterEvent;
use super::inputs::ClusterEvents;

/// Others may take the Lease when it was not renewed for this long.
const DURATION: Duration = Duration::from_secs(15);
/// The holder stops when it could not renew for this long: half of [`DURATION`].
const GIVE_UP: Duration = Duration::from_secs(7);
/// Between renewals, and between the reads of those that wait.
const EVERY: Duration = Duration::from_secs(2);
/// A request about the Lease takes no longer.
const PATIENCE: Duration = Duration::from_secs(3);

/// How an attempt ended.
enum Attempt {
    Held(LeaseTerm),
    NotHeld,
    Failed,
}

/// That the Lease is held.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) term: LeaseTerm,
    /// When it was renewed at the latest.
    renewed: Instant,
}

impl Held {
    /// When no more is begun: no other can have the Lease yet.
    pub(super) fn until(&self) -> Instant {
        self.renewed + GIVE_UP
    }

    /// Whether that moment has come: a process that was stopped for a while finds out here.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until()
    }

    /// How long it is until another may have it.
    pub(super) fn left(&self) -> Duration {
        (self.renewed + DURATION).saturating_duration_since(Instant::now())
    }
}

/// The Lease as this process knows it.
pub(super) struct Lease {
    namespace: String,
    name: String,
    identity: String,
    /// Whether a write may have gone through: it is not certain that it failed.
    may_hold: bool,
    /// What was last seen of another holder's Lease, and when it was seen to change.
    seen: Option<(Value, Instant)>,
    /// Why the last attempt failed, if it did: each reason is logged once.
    last_error: Option<String>,
    /// What the holder cannot list, read or write.
    cannot_list: watch::Receiver<String>,
}

/// Stands for the Lease until `stop`, and gives it back then, so that another goes on at once.
pub(super) async fn keep(
    options: CoordinatorOptions,
    client: kube::Client,
    events: ClusterEvents,
    (cannot_list, stop): (watch::Receiver<String>, oneshot::Receiver<()>),
) {
    let mut lease = Lease {
        namespace: options.lease_namespace,
        name: options.lease_name,
        identity: options.identity,
        may_hold: false,
        seen: None,
        last_error: None,
        cannot_list,
    };
    tokio::select! {
        biased;
        _ = stop => {}
        () = lease.stand(&client, &events) => {}
    }
    lease.release(&client).await;
}

impl Lease {
    async fn stand(&mut self, client: &kube::Client, events: &ClusterEvents) {
        let mut held = None;
        loop {
            let began = Instant::now();
            held = match self.attempt(client).await {
                Attempt::Held(term) => Some(Held { term, renewed: began }),
                Attempt::NotHeld => None,
                Attempt::Failed => held,
            };
            if events.send(ClusterEvent::Lease(held.clone())).await.is_err() {
                return;
            }
            tokio::time::sleep_until(began + EVERY).await;
        }
    }

    /// Gives it back where it is held, so that no other coordinator has to wait until it expires; as client-go does
    /// with `ReleaseOnCancel`.
    pub(super) async fn release(&mut self, client: &kube::Client) {
        if !std::mem::take(&mut self.may_hold) {
            return;
        }
        match tokio::time::timeout(PATIENCE, self.give_back(client)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(
                    "lease {} is not released: {}; it expires in {DURATION:?}",
                    self.name,
                    ApiFailure::from_kube(&error)
                )
            }
            Err(_) => tracing::warn!("lease {} is not released: no answer; it expires in {DURATION:?}", self.name),
        }
    }

    async fn give_back(&self, client: &kube::Client) -> Result<(), kube::Error> {
        let leases = self.leases(client);
        let Some(mut lease) = leases.get_opt(&self.name).await? else { return Ok(()) };
        if lease.data.at(["spec", "holderIdentity"]).is_none_or(|holder| *holder != json!(self.identity)) {
            return Ok(());
        }
        let transitions = lease.data.at(["spec", "leaseTransitions"]).and_then(Value::as_i64).unwrap_or(0);
        mark(&mut lease, "");
        let now = format!("{:.6}", jiff::Timestamp::now());
        lease.data["spec"] = json!({
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        });
        if written(leases.replace(&self.name, &PostParams::default(), &lease).await)?.is_some() {
            tracing::info!(lease = self.name, "{} gives the Lease back", self.identity);
        }
        Ok(())
    }

    fn leases(&self, client: &kube::Client) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), &self.namespace, &resource())
    }

    /// One attempt to take or renew. A request is given [`PATIENCE`], so that this ends before the Lease does.
    async fn attempt(&mut self, client: &kube::Client) -> Attempt {
        let held = match tokio::time::timeout(PATIENCE, self.write(client)).await {
            Ok(Ok(held)) => held,
            Ok(Err(error)) => return self.failed(ApiFailure::from_kube(&error).message),
            Err(_) => return self.failed(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        if self.last_error.take().is_some() {
            tracing::info!(lease = self.name, "the Lease {}/{} answers again", self.namespace, self.name);
        }
        self.may_hold = held.is_some();
        held.map_or(Attempt::NotHeld, |lease| {
            let uid = lease.metadata.uid.unwrap_or_default();
            let spec = lease.data.get("spec").cloned().unwrap_or_default();
            Attempt::Held(LeaseTerm::new(&self.namespace, &self.name, &uid, &spec))
        })
    }

    fn failed(&mut self, why: String) -> Attempt {
        if self.last_error.as_ref() != Some(&why) {
            tracing::warn!(lease = self.name, "the Lease {}/{}: {why}; trying again", self.namespace, self.name);
            self.last_error = Some(why);
        }
        Attempt::Failed
    }

    /// Writes the Lease if it is ours to write, and gives it. `None`: another process holds it.
    async fn write(&mut self, client: &kube::Client) -> Result<Option<DynamicObject>, kube::Error> {
        let leases = self.leases(client);
        let Some(mut lease) = leases.get_opt(&self.name).await? else {
            let mut lease = DynamicObject::new(&self.name, &resource());
            lease.data = json!({"spec": self.spec(0, None)});
            self.may_hold = true;
            return written(leases.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.data.get("spec").cloned().unwrap_or_default();
        let holder = spec.str_at("holderIdentity");
        let transitions = spec.get("leaseTransitions").and_then(Value::as_i64).unwrap_or(0);
        if holder == self.identity {
            let since = spec.get("acquireTime").cloned();
            lease.data["spec"] = self.spec(transitions, since);
        } else {
            if self.seen.as_ref().is_none_or(|(seen, _)| *seen != spec) {
                self.seen = Some((spec.clone(), Instant::now()));
            }
            let expired = self.seen.as_ref().is_some_and(|(_, since)| since.elapsed() >= DURATION);
            if !holder.is_empty() && !expired {
                return Ok(None);
            }
            lease.data["spec"] = self.spec(transitions + 1, None);
        }
        mark(&mut lease, &self.cannot_list.borrow());
        self.may_hold = true;
        // The resource version that was read goes with it: of two processes that try, one is refused.
        written(leases.replace(&self.name, &PostParams::default(), &lease).await)
    }

    fn spec(&self, transitions: i64, since: Option<Value>) -> Value {
        let now = format!("{:.6}", jiff::Timestamp::now());
        json!({
            "holderIdentity": self.identity,
            "leaseDurationSeconds": DURATION.as_secs(),
            "acquireTime": since.unwrap_or_else(|| json!(now)),
            "renewTime": now,
            "leaseTransitions": transitions,
        })
    }
}

/// Notes on the Lease what its holder cannot list, read or write, or that there is nothing.
fn mark(lease: &mut DynamicObject, cannot_list: &str) {
    let annotations = lease.metadata.annotations.get_or_insert_default();
    match cannot_list {
        "" => drop(annotations.remove(CANNOT_LIST)),
        _ => drop(annotations.insert(CANNOT_LIST.to_owned(), cannot_list.to_owned())),
    }
}

fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease"))
}

/// What a write that went through made; `None`: another was first.
fn written(answer: Result<DynamicObject, kube::Error>) -> Result<Option<DynamicObject>, kube::Error> {
    match answer {
        Ok(lease) => Ok(Some(lease)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::Mutex;

    use http::Request;
    use http::Response;
    use http_body_util::BodyExt;
    use kube::client::Body;

    use super::*;

    /// A client of an API server that has one Lease, and that Lease.
    fn client() -> (kube::Client, Arc<Mutex<Value>>) {
        let lease = json!({"metadata": {"name": "lease", "uid": "l", "annotations": {"foreign": "x"}},
            "spec": {"holderIdentity": "", "leaseTransitions": 1}});
        let lease = Arc::new(Mutex::new(lease));
        let stored = Arc::clone(&lease);
        let service = tower::service_fn(move |request: Request<Body>| {
            let stored = Arc::clone(&stored);
            async move {
                if request.method() == "PUT" {
                    let written = request.into_body().collect().await.unwrap().to_bytes();
                    *stored.lock().unwrap() = serde_json::from_slice(&written).unwrap();
                }
                let body = stored.lock().unwrap().to_string();
                Ok::<_, Infallible>(Response::new(Body::from(body.into_bytes())))
            }
        });
        (kube::Client::new(service, "default"), lease)
    }

    fn lease(cannot_list: watch::Receiver<String>) -> Lease {
        let (namespace, name, identity) = ("n".to_owned(), "lease".to_owned(), "one".to_owned());
        Lease { namespace, name, identity, may_hold: false, seen: None, last_error: None, cannot_list }
    }

    #[tokio::test]
    async fn what_was_never_written_is_not_given_back() {
        let cannot_list = watch::channel(String::new()).1;
        let refuses = tower::service_fn(|_: Request<Body>| async {
            Response::builder().status(403).body(Body::from(b"{}".to_vec()))
        });
        let mut unread = lease(cannot_list.clone());
        let attempt = unread.attempt(&kube::Client::new(refuses, "default")).await;
        assert!(matches!(attempt, Attempt::Failed) && !unread.may_hold);
        let answers = tower::service_fn(|request: Request<Body>| async move {
            let (status, body) = match request.method().as_str() {
                "GET" => (404, r#"{"kind":"Status","code":404,"reason":"NotFound"}"#),
                _ => (500, "{}"),
            };
            Response::builder().status(status).body(Body::from(body.as_bytes().to_vec()))
        });
        let mut unsure = lease(cannot_list);
        let attempt = unsure.attempt(&kube::Client::new(answers, "default")).await;
        assert!(matches!(attempt, Attempt::Failed) && unsure.may_hold, "it may have been written");
    }

    #[tokio::test]
    async fn the_lease_says_what_its_holder_cannot_list_for_as_long_as_that_is_so() {
        let (client, stored) = client();
        let (says, cannot_list) = watch::channel(String::new());
        let mut lease = lease(cannot_list);
        let annotations = || stored.lock().unwrap()["metadata"]["annotations"].clone();
        for (says_now, expected) in
            [("", json!({"foreign": "x"})), ("nodes", json!({"foreign": "x", CANNOT_LIST: "nodes"}))]
        {
            says.send(says_now.to_owned()).unwrap();
            assert!(lease.write(&client).await.unwrap().is_some());
            assert_eq!(annotations(), expected);
        }
        lease.release(&client).await;
        assert_eq!(annotations(), json!({"foreign": "x"}), "the next one may see all");
        says.send("nodes".to_owned()).unwrap();
        lease.write(&client).await.unwrap();
        says.send(String::new()).unwrap();
        lease.write(&client).await.unwrap();
        assert_eq!(annotations(), json!({"foreign": "x"}));
    }
}
