//! Containers and init containers of the pod template, and what concerns all of them together.
//!
//! Follows `validateContainers`, `validateInitContainers` and `validateContainerCommon`; `template` checks names and
//! images. What a feature gate that is off by default decides is not judged: the API drops such a field.

mod env;
mod handlers;
mod mounts;
mod os;
mod ports;
mod profiles;
mod resources;
mod restarts;
mod security;
mod windows;

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use super::rules::one_of;
use crate::core::model::FieldError;

pub(super) use ports::host_ports;
pub(super) use resources::of_pod as pod_resources;
pub(super) use resources::overhead;
pub(super) use restarts::is_sidecar;
pub(super) use security::pod_security;

/// What a pod declares for its containers to use.
pub(super) struct Declared<'a> {
    /// Its volumes by name.
    pub(super) volumes: BTreeMap<&'a str, &'a Value>,
    /// The names of its resource claims.
    pub(super) claims: BTreeSet<&'a str>,
}

/// Checks one container of the pod `spec` (`validateContainerCommon` and what its callers add); with what the pod
/// has declared.
pub(super) fn check(
    spec: &Value,
    container: &Value,
    is_init: bool,
    Declared { volumes, claims }: &Declared<'_>,
    place: &str,
    errors: &mut Vec<FieldError>,
) {
    one_of(container, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"], place, errors);
    ports::check(container, place, errors);
    env::check(container, volumes, place, errors);
    mounts::check(container, volumes, place, errors);
    mounts::devices(container, volumes, place, errors);
    one_of(container, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], place, errors);
    resources::check(claims, container, place, errors);
    restarts::check(container, place, errors);
    security::check(spec, container, place, errors);
    handlers::check(spec, container, is_init, place, errors);
}

#[cfg(test)]
mod tests;
