//! `daemonlet enroll`: run once with other credentials, until there is a certificate.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use crate::core::enrolment::AwaitedStep;
use crate::core::enrolment::Certificate;
use crate::node::api::ApiFailure;
use crate::node::api::Connector;
use crate::node::api::cluster_of_kubeconfig;
use crate::node::api::read_kubeconfig;
use crate::node::fsx::Real;

use super::EnrolmentError;
use super::ask;
use super::ask::RequestProgress;
use super::files::IdentityFiles;
use super::kubeconfig;

/// Time between two checks of the request.
const EVERY: Duration = Duration::from_secs(1);

/// What to do.
#[derive(Clone, Debug)]
pub struct EnrollOptions {
    pub node: String,
    /// The kubeconfigs for the request: the first that exists is used.
    pub sources: Vec<PathBuf>,
    /// The path of the new kubeconfig.
    pub kubeconfig: PathBuf,
    /// The agent's state folder.
    pub state_dir: PathBuf,
    /// How long to wait for approval and signature.
    pub timeout: Duration,
    /// Even if there is an identity already.
    pub force: bool,
}

/// What was done.
#[derive(Clone, Debug)]
pub struct Enrolled {
    /// The certificate in force.
    pub certificate: Certificate,
    /// Whether it existed before.
    pub already: bool,
    /// Whether the kubeconfig named another server than its source, or trusted another one, and was written anew.
    pub corrected: bool,
}

/// What an enrolment waits for.
#[derive(Clone, Copy, Debug)]
pub enum EnrollWait<'a> {
    /// A step of others for the request of this name.
    Request(&'a str, AwaitedStep),
    /// The API server at this address, which cannot be reached.
    ApiServer { server: &'a str, why: &'a ApiFailure },
}

/// Gets a certificate and writes the kubeconfig that uses it. `waits` is called once for each thing that it waits for.
///
/// # Errors
/// See [`EnrolmentError`]; then the identity in force has not changed.
pub async fn enroll(options: &EnrollOptions, waits: impl Fn(EnrollWait<'_>)) -> Result<Enrolled, EnrolmentError> {
    let ours = kubeconfig::is_ours(&options.kubeconfig, &options.state_dir);
    if ours == Some(false) {
        return Err(EnrolmentError::Taken(options.kubeconfig.clone()));
    }
    let files = IdentityFiles::open(&options.state_dir)?;
    let current = files.current(&options.node)?.filter(|c| c.renew_at() > crate::clock::now());
    let source = options.sources.iter().find(|source| Real::shared().look(source).is_ok());
    let source = source.ok_or_else(|| EnrolmentError::NoSource(options.sources.clone()));
    if let Some(certificate) = current.filter(|_| !options.force) {
        let corrected =
            ours.is_some() && source.as_ref().is_ok_and(|source| kubeconfig::differs(&options.kubeconfig, source));
        if ours.is_none() || corrected {
            kubeconfig::write(&options.kubeconfig, source?, &options.state_dir)?;
        }
        return Ok(Enrolled { certificate, already: true, corrected });
    }
    let source = source?;
    let client = Connector::new(source.clone()).client();
    let begun = Instant::now();
    let (mut reported, mut is_server_reported) = (None, false);
    loop {
        match ask::step(&client, &files, &options.node).await {
            Ok(RequestProgress::Done(certificate)) => {
                kubeconfig::write(&options.kubeconfig, source, &options.state_dir)?;
                return Ok(Enrolled { certificate, already: false, corrected: false });
            }
            Ok(RequestProgress::Waiting(request, awaited)) => {
                if reported.replace(awaited) != Some(awaited) {
                    waits(EnrollWait::Request(&request, awaited));
                }
                if begun.elapsed() >= options.timeout {
                    return Err(EnrolmentError::TooLong { request, awaited, seconds: options.timeout.as_secs() });
                }
            }
            // At boot the API server may start later than this.
            Err(EnrolmentError::Api { source: why, .. }) if why.is_link() => {
                let (cluster, _) = cluster_of_kubeconfig(source, &read_kubeconfig(source)?)?;
                let server = cluster.server.unwrap_or_default();
                if begun.elapsed() >= options.timeout {
                    let (kubeconfig, seconds) = (source.clone(), options.timeout.as_secs());
                    return Err(EnrolmentError::Unreachable { server, kubeconfig, seconds, source: why });
                }
                if !std::mem::replace(&mut is_server_reported, true) {
                    waits(EnrollWait::ApiServer { server: &server, why: &why });
                }
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(EVERY).await;
    }
}
