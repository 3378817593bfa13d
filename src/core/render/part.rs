//! The parts of a rendered pod that are written and refreshed independently, and what holds one of them back.
//!
//! Owns which part waits for which object. Must not decide what a part that is held back means for the pod: planning does.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde::Serialize;

use crate::core::model::FieldError;
use crate::core::render::Missing;

/// A part of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Part {
    /// The manifest; also what is not known of any other part.
    #[default]
    Pod,
    /// The files of one volume.
    Volume(String),
    /// The environment of one container.
    Environment {
        container: String,
        /// The volume of its env file; without Secrets the pod has no such volume.
        volume: String,
        /// Whether the kubelet starts the pod and holds back this container alone.
        waits_alone: bool,
    },
    /// Manifest and all volumes.
    Everything,
}

/// Why a part cannot be rendered.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeldPart {
    pub part: Part,
    pub missing: Vec<Missing>,
    pub refused: Vec<FieldError>,
    /// Whether no source has confirmed that the missing objects do not exist.
    pub unconfirmed: bool,
    /// Whether all that is missing is optional, and may not exist.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

impl HeldPart {
    /// Whether the pod can start without it: only one container waits.
    pub fn waits_alone(&self) -> bool {
        self.refused.is_empty() && matches!(self.part, Part::Environment { waits_alone: true, .. })
    }
}

/// The things that hold back parts of one rendering.
#[derive(Debug, Default)]
pub(super) struct Obstacles {
    /// The part that is being rendered.
    pub(super) part: Part,
    held: Vec<HeldPart>,
    /// Where in `held` each part is.
    places: BTreeMap<Part, usize>,
    /// What each of `held` lacks.
    lacks: BTreeSet<(usize, Missing)>,
}

impl Obstacles {
    fn now(&mut self) -> usize {
        if let Some(at) = self.places.get(&self.part) {
            return *at;
        }
        let part = self.part.clone();
        self.held.push(HeldPart { part, unconfirmed: true, optional: true, ..HeldPart::default() });
        self.places.insert(self.part.clone(), self.held.len() - 1);
        self.held.len() - 1
    }

    /// Something is known not to exist.
    pub(super) fn miss(&mut self, missing: Missing) {
        let at = self.lack(missing);
        (self.held[at].unconfirmed, self.held[at].optional) = (false, false);
    }

    /// No source has confirmed that something does not exist.
    pub(super) fn miss_unconfirmed(&mut self, missing: Missing, optional: bool) {
        let at = self.lack(missing);
        self.held[at].optional &= optional;
    }

    fn lack(&mut self, missing: Missing) -> usize {
        let at = self.now();
        if self.lacks.insert((at, missing.clone())) {
            self.held[at].missing.push(missing);
        }
        at
    }

    pub(super) fn refuse(&mut self, error: FieldError) {
        let at = self.now();
        let held = &mut self.held[at];
        (held.unconfirmed, held.optional) = (false, false);
        held.refused.push(error);
    }

    /// What the part that is being rendered lacks.
    pub(super) fn missing_now(&self) -> &[Missing] {
        self.places.get(&self.part).map_or(&[], |at| &self.held[*at].missing)
    }

    /// Whether the part that is being rendered is refused already.
    pub(super) fn is_refused(&self) -> bool {
        self.places.get(&self.part).is_some_and(|at| !self.held[*at].refused.is_empty())
    }

    pub(super) fn held(&self) -> &[HeldPart] {
        &self.held
    }

    pub(super) fn into_held(self) -> Vec<HeldPart> {
        self.held
    }
}
