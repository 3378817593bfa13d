//! Renewal by the running agent: a new key and certificate before the old one expires.
//!
//! Owns when it checks and requests. The connections take the new certificate by themselves, because its file has
//! changed; open ones are left to finish.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use crate::clock::now;
use crate::config::Config;
use crate::core::enrolment;
use crate::core::enrolment::Certificate;
use crate::core::enrolment::Renewal;
use crate::core::status::IdentityStatus;
use crate::core::status::Problem;
use crate::node::api::Connector;
use crate::node::api::words;

use super::EnrolmentError;
use super::ask;
use super::ask::RequestProgress;
use super::files::IdentityFiles;
use super::kubeconfig;

/// The wall clock may be set: the time of renewal is checked this often.
const LOOK: Duration = Duration::from_secs(60);
/// A pending request is checked this often.
const EVERY: Duration = Duration::from_secs(5);
/// After a failure.
const AGAIN: Duration = Duration::from_secs(30);
const AFTER_DENIAL: Duration = Duration::from_secs(3600);
/// The kubeconfig's files are checked for changes at most this often.
const RELOAD_PAUSE: Duration = Duration::from_secs(6);

/// The state of the agent's identity; clones share it.
#[derive(Clone, Default)]
pub struct AgentIdentity {
    state: Arc<Mutex<Option<(Certificate, Renewal)>>>,
}

impl AgentIdentity {
    fn set(&self, certificate: Certificate, renewal: Renewal) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some((certificate, renewal));
    }

    fn get(&self) -> Option<(Certificate, Renewal)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What `status` shows; `None`: the kubeconfig is not one of `daemonlet enroll`.
    pub fn status(&self) -> Option<IdentityStatus> {
        self.get().map(|(certificate, renewal)| enrolment::status(&certificate, &renewal))
    }

    /// What is wrong with it.
    pub fn problem(&self) -> Option<Problem> {
        let (certificate, renewal) = self.get()?;
        enrolment::problem(&certificate, &renewal, now())
    }

    /// Starts renewing if the kubeconfig is one of `daemonlet enroll`.
    pub fn start(&self, config: &Config, connector: Connector) {
        let Some(kubeconfig) = config.kubeconfig.clone() else { return };
        let (state_dir, node) = (config.state_dir.clone(), config.node_name.clone());
        tokio::spawn(self.clone().keep(kubeconfig, state_dir, node, connector));
    }

    async fn keep(self, kubeconfig: PathBuf, state_dir: PathBuf, node: String, connector: Connector) {
        let client = connector.client();
        loop {
            let files = match kubeconfig::is_ours(&kubeconfig, &state_dir) {
                Some(true) => IdentityFiles::open(&state_dir).ok(),
                _ => None,
            };
            let current = files.as_ref().and_then(|files| files.current(&node).ok().flatten());
            let (Some(files), Some(certificate)) = (files, current) else {
                tokio::time::sleep(LOOK).await;
                continue;
            };
            let left = (certificate.renew_at() - now()).to_duration();
            if !left.is_zero() {
                self.set(certificate, Renewal::None);
                tokio::time::sleep(LOOK.min(left)).await;
                continue;
            }
            let rest = self.step(&client, &files, certificate, &node).await;
            if rest.is_zero() {
                tokio::time::sleep(RELOAD_PAUSE).await;
                connector.retire();
            }
            tokio::time::sleep(rest).await;
        }
    }

    /// Requests a new certificate, or checks the pending request. Returns how long to wait; zero: it is in force.
    async fn step(&self, client: &kube::Client, files: &IdentityFiles, old: Certificate, node: &str) -> Duration {
        let before = self.get().map(|(_, renewal)| renewal).unwrap_or_default();
        let (renewal, rest) = match ask::step(client, files, node).await {
            Ok(RequestProgress::Done(certificate)) => {
                let until = certificate.not_after;
                tracing::info!(user = certificate.user, "certificate of {} renewed until {until}", certificate.user);
                self.set(certificate, Renewal::None);
                return Duration::ZERO;
            }
            Ok(RequestProgress::Waiting(request, awaited)) => {
                let since = match &before {
                    Renewal::Waiting { request: asked, awaited: of, since } if *asked == request && *of == awaited => {
                        *since
                    }
                    _ => now(),
                };
                (Renewal::Waiting { request, awaited, since }, EVERY)
            }
            Err(EnrolmentError::Refused { request, message, .. }) => {
                (Renewal::Denied { request, message }, AFTER_DENIAL)
            }
            Err(error) => (Renewal::Failing(words(&error)), AGAIN),
        };
        if renewal != before {
            let report = enrolment::status(&old, &renewal);
            tracing::info!(
                user = old.user,
                "certificate of {} expires at {}: {}",
                old.user,
                report.expires,
                report.renewal
            );
        }
        self.set(old, renewal);
        rest
    }
}
