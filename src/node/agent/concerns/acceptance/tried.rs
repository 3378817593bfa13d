//! In which surroundings the kubelet was given an instance that it has not accepted, and in which it is now.
//!
//! Owns the fingerprints that retries compare. While the node lacks a resource for the instance, only that resource
//! matters: other pods that come and go cause no retry.

use crate::core::insufficient::Lack;
use crate::core::plan::Fingerprints;
use crate::core::record::DaemonRecord;
use crate::core::record::Fingerprint;

/// The surroundings of one instance.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct TriedSurroundings {
    #[serde(deserialize_with = "Fingerprint::or_unknown")]
    then: Fingerprint,
    #[serde(deserialize_with = "Fingerprint::or_unknown")]
    now: Fingerprint,
    /// Whether they are known from the API server's pods or from the runtime's.
    of_api: bool,
}

impl TriedSurroundings {
    /// The surroundings of an instance that was written now. `lacks`: what the node has too little of for it, where the
    /// API server says so; `others`: a fingerprint of everything else that may matter.
    pub(super) fn new(lacks: Option<&[Lack]>, others: &Fingerprint) -> Self {
        let now = fingerprint(lacks, others);
        Self { then: now.clone(), now, of_api: lacks.is_some() }
    }

    /// The surroundings have become those. Surroundings from different sources are not compared.
    pub(super) fn update(&mut self, lacks: Option<&[Lack]>, others: &Fingerprint) {
        let seen = Self::new(lacks, others);
        match self.then == Fingerprint::Unknown || self.of_api != seen.of_api {
            true => *self = seen,
            false => self.now = seen.now,
        }
    }

    pub(super) fn fingerprints(&self) -> Fingerprints<'_> {
        Fingerprints { then: &self.then, now: &self.now }
    }

    /// Whether the kubelet probably rejects the instance: the node had too little of something for it, or for the one
    /// before it.
    pub(super) fn is_in_doubt(&self, record: &DaemonRecord) -> bool {
        let before = record.backoff.as_ref().filter(|backoff| backoff.not_accepted);
        self.then.is_lack() || before.is_some_and(|backoff| backoff.surroundings.is_lack())
    }

    /// Whether what the node had too little of has changed since.
    pub(super) fn has_new_room(&self) -> bool {
        self.then.is_lack() && self.then != self.now
    }
}

fn fingerprint(lacks: Option<&[Lack]>, others: &Fingerprint) -> Fingerprint {
    let names: Vec<String> = lacks.unwrap_or_default().iter().map(Lack::name).collect();
    if names.is_empty() { others.clone() } else { Fingerprint::Lacks(names) }
}
