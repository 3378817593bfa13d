//! What a policy has against definitions, judged once for each version of one.
//!
//! Owns the verdicts of earlier passes, so that an unchanged definition, refused or not, costs a pass nothing. Must not
//! change a verdict: one counts only for the very definition, policy and PodSecurity level that it was made from.

use std::cell::Cell;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::core::bounds;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Lookup;

use super::Admission;
use super::Policy;
use super::admission;
use super::pod_security::Enforced;
use super::some;

struct PolicyVerdict {
    /// Held so that the address it is found by stays its own.
    daemon_set: Arc<DaemonSet>,
    /// The violations of the rules for pods, once they were asked for.
    violations: Option<Vec<FieldError>>,
    /// The violations of PodSecurity at the level that was last asked for.
    security: Option<(Enforced, Option<FieldError>)>,
    /// [`bounds::weight`], once that was asked for.
    weight: Option<usize>,
    used: u64,
}

/// The verdicts of one policy. Those that a pass did not use are dropped when the next begins.
#[derive(Default)]
pub struct Verdicts {
    policy: Option<Arc<Policy>>,
    known: RefCell<HashMap<usize, PolicyVerdict>>,
    pass: u64,
    judged: Cell<u64>,
}

impl Verdicts {
    /// Starts a pass with `policy`. Verdicts of another policy are dropped.
    pub fn begin(&mut self, policy: &Arc<Policy>) {
        let is_same = self.policy.as_ref().is_some_and(|known| Arc::ptr_eq(known, policy));
        let last = self.pass;
        self.known.get_mut().retain(|_, verdict| is_same && verdict.used == last);
        self.policy = Some(Arc::clone(policy));
        self.pass += 1;
    }

    /// How many times a rule set was applied to a definition so far.
    pub fn judged(&self) -> u64 {
        self.judged.get()
    }

    fn of<T>(&self, daemon_set: &Arc<DaemonSet>, read: impl FnOnce(&mut PolicyVerdict) -> T) -> T {
        let mut known = self.known.borrow_mut();
        let verdict = known.entry(Arc::as_ptr(daemon_set).addr()).or_insert_with(|| PolicyVerdict {
            daemon_set: Arc::clone(daemon_set),
            violations: None,
            security: None,
            weight: None,
            used: self.pass,
        });
        checked!(Arc::ptr_eq(&verdict.daemon_set, daemon_set));
        verdict.used = self.pass;
        read(verdict)
    }

    fn count(&self) {
        self.judged.set(self.judged.get() + 1);
    }
}

/// A policy, with what it has decided before.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    policy: &'a Policy,
    verdicts: Option<&'a Verdicts>,
}

impl<'a> From<&'a Policy> for Judge<'a> {
    /// One that remembers nothing.
    fn from(policy: &'a Policy) -> Self {
        Self { policy, verdicts: None }
    }
}

impl Deref for Judge<'_> {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        self.policy
    }
}

impl<'a> Judge<'a> {
    /// One of `policy`, for which the last [`Verdicts::begin`] was; of any other it remembers nothing.
    pub fn new(policy: &'a Arc<Policy>, verdicts: &'a Verdicts) -> Self {
        let is_own = verdicts.policy.as_ref().is_some_and(|known| Arc::ptr_eq(known, policy));
        Self { policy, verdicts: is_own.then_some(verdicts) }
    }

    /// [`Policy::forbids`].
    pub fn forbids(&self, daemon_set: &Arc<DaemonSet>) -> Option<Vec<FieldError>> {
        self.violations(daemon_set, some)
    }

    /// Whether [`Policy::forbids`] has nothing against `daemon_set`.
    pub fn allows(&self, daemon_set: &Arc<DaemonSet>) -> bool {
        self.violations(daemon_set, <[FieldError]>::is_empty)
    }

    /// [`Policy::admit`].
    pub fn admit(&self, daemon_set: &Arc<DaemonSet>, namespace: Lookup<'_>) -> Admission {
        let enforced = self.policy.enforced(namespace);
        let security = enforced.and_then(|enforced| self.security(daemon_set, enforced));
        let violations = || self.violations(daemon_set, <[FieldError]>::to_vec);
        admission::admission(daemon_set, enforced, security, violations)
    }

    /// [`bounds::weight`].
    pub fn weight(&self, daemon_set: &Arc<DaemonSet>) -> usize {
        let weigh = || bounds::weight(daemon_set);
        self.verdicts
            .map_or_else(weigh, |verdicts| verdicts.of(daemon_set, |verdict| *verdict.weight.get_or_insert_with(weigh)))
    }

    fn violations<T>(&self, daemon_set: &Arc<DaemonSet>, read: impl FnOnce(&[FieldError]) -> T) -> T {
        let Some(verdicts) = self.verdicts else { return read(&self.policy.violations(daemon_set)) };
        verdicts.of(daemon_set, |verdict| {
            let judge = || {
                verdicts.count();
                self.policy.violations(daemon_set)
            };
            read(verdict.violations.get_or_insert_with(judge))
        })
    }

    fn security(&self, daemon_set: &Arc<DaemonSet>, enforced: Enforced) -> Option<FieldError> {
        let judge = || admission::pod_security_error(enforced, daemon_set);
        let Some(verdicts) = self.verdicts else { return judge() };
        verdicts.of(daemon_set, |verdict| match &verdict.security {
            Some((known, error)) if *known == enforced => error.clone(),
            _ => {
                verdicts.count();
                let error = judge();
                verdict.security = Some((enforced, error.clone()));
                error
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::json;

    use super::*;
    use crate::core::model::Source;
    use crate::core::validate;

    fn tenants(name: &str, privileged: bool) -> Arc<DaemonSet> {
        let container = json!({"name": "c", "image": "i:1", "securityContext": {"privileged": privileged}});
        let value = json!({
            "metadata": {"namespace": "a", "name": name},
            "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {
                "metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}
            }}
        });
        Arc::new(validate::daemon_set(&value, Source::Api).unwrap())
    }

    /// What a pass asks of each definition, several times.
    fn pass(verdicts: &mut Verdicts, policy: &Arc<Policy>, definitions: &[Arc<DaemonSet>], namespace: &Value) {
        verdicts.begin(policy);
        let judge = Judge::new(policy, verdicts);
        for definition in definitions {
            for _ in 0..3 {
                assert_eq!(judge.forbids(definition), policy.forbids(definition));
                assert_eq!(judge.allows(definition), policy.forbids(definition).is_none());
                for lookup in [Lookup::Present(namespace), Lookup::Unknown] {
                    assert_eq!(judge.admit(definition, lookup), policy.admit(definition, lookup));
                }
            }
        }
    }

    #[test]
    fn each_version_is_judged_once_however_many_passes_ask() {
        let enforcing = |level: &str| json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
        let policy = Arc::new(Policy::default());
        let mut definitions: Vec<_> = (0..100).map(|n| tenants(&format!("d-{n}"), true)).collect();
        let mut verdicts = Verdicts::default();
        for _ in 0..10 {
            pass(&mut verdicts, &policy, &definitions, &enforcing("baseline"));
        }
        assert_eq!(verdicts.judged(), 200, "the rules and PodSecurity, of each of 100");

        definitions[7] = tenants("d-7", false);
        pass(&mut verdicts, &policy, &definitions, &enforcing("baseline"));
        assert_eq!(verdicts.judged(), 202, "a new version of one");

        pass(&mut verdicts, &policy, &definitions, &enforcing("restricted"));
        assert_eq!(verdicts.judged(), 302, "another level of PodSecurity");

        let trusting = Arc::new(Policy::default().with_rules(crate::core::policy::PodRules::trusting()));
        pass(&mut verdicts, &trusting, &definitions, &enforcing("restricted"));
        assert_eq!(verdicts.judged(), 502, "another configuration");

        pass(&mut verdicts, &trusting, &[], &enforcing("restricted"));
        assert!(verdicts.known.borrow().len() == 100, "what is gone is dropped when the next pass begins");
        pass(&mut verdicts, &trusting, &[], &enforcing("restricted"));
        assert!(verdicts.known.borrow().is_empty(), "and then forgotten");
    }
}
