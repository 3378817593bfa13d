//! Since when the API server's view of this node's pods is followed without a gap.

use crate::core::time::Span;
use crate::core::time::Timestamp;

/// How long the API server has to answer before its pods count as the kubelet's present report:
/// the kubelet sends what has changed meanwhile within 10 s of its own reconnection.
const CATCHES_UP: Span = Span::from_secs(20);

/// How fresh the API server's view of this node's pods is.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct ApiFreshness {
    since: Option<Timestamp>,
    /// Whether it has ever been lost: an agent that starts finds a kubelet that has long been in touch.
    lost: bool,
}

impl ApiFreshness {
    /// Notes whether the API server answers.
    pub(in super::super) fn observe(&mut self, answers: bool, now: Timestamp) {
        self.lost |= self.since.is_some() && !answers;
        self.since = answers.then(|| self.since.map_or(now, |since| since.min(now)));
    }

    /// Whether the API server has answered for `span` without a gap.
    pub(in super::super) fn has_answered_for(&self, span: Span, now: Timestamp) -> bool {
        self.since.is_some_and(|since| now - since >= span)
    }

    /// Whether the API server's pods are the kubelet's present report.
    pub(in super::super) fn is_current(&self, now: Timestamp) -> bool {
        self.since.is_some_and(|since| !self.lost || now - since >= CATCHES_UP)
    }
}

#[cfg(test)]
mod tests {
    use crate::core::time::at;
    use crate::core::time::ms;

    use super::*;

    #[test]
    fn after_an_outage_the_kubelet_is_given_time_to_say_how_its_pods_are_now() {
        let mut api_freshness = ApiFreshness::default();
        api_freshness.observe(false, at(0));
        assert!(!api_freshness.is_current(at(0)));
        api_freshness.observe(true, at(1_000));
        assert!(api_freshness.is_current(at(1_000)), "the agent started, the kubelet did not");
        api_freshness.observe(false, at(2_000));
        api_freshness.observe(true, at(3_000));
        assert!(!api_freshness.is_current(at(3_000) + CATCHES_UP - ms(1)));
        assert!(api_freshness.is_current(at(3_000) + CATCHES_UP));
        api_freshness.observe(true, at(500));
        assert!(api_freshness.is_current(at(500) + CATCHES_UP), "a clock that was set back");
        assert!(api_freshness.has_answered_for(CATCHES_UP, at(500) + CATCHES_UP));
        assert!(!api_freshness.has_answered_for(CATCHES_UP + ms(1), at(500) + CATCHES_UP));
    }
}
