//! Whether a pass has anything to decide: only what changed is looked at again.
//!
//! Owns the comparison of two observations. Pure. It compares what is shared by address or version and nothing deeper:
//! where a cheap comparison is not enough, a whole pass is made, which is always right.

use std::sync::Arc;

use crate::core::knowledge::Knowledge;
use crate::core::set_aside::SuspectTurn;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::decision::Decision;
use super::decision::SaveInputs;
use super::observation::Observation;
use super::observation::ObservedApi;
use super::observation::ObservedTokens;
use super::observation::Seal;
use super::observation::VolumeDataState;
use super::observed_folders::ObservedFolders;
use super::requests::Request;

/// A pass is left out only so long after the last whole one: work without a deadline gets its turn with the next wake.
const RECENT: Span = Span::from_secs(5);
/// Two clocks that differ by more than this since the last pass: one of them was set.
const CLOCKS: Span = Span::from_secs(1);

/// Whether `decision` changes nothing and waits for nothing but the time at which it is due.
pub(super) fn is_at_rest(decision: &Decision) -> bool {
    decision.plan.is_quiet()
        && !decision.plan.removals_held
        && decision.requests.iter().all(Request::is_standing)
        && decision.save_inputs == SaveInputs::No
        && decision.adopters.is_empty()
        && decision.to_touch.is_empty()
        && decision.to_clear.is_empty()
        && decision.events.is_empty()
        && decision.log.0.is_empty()
        && decision.state.passes > 0
        && decision.state.concerns.removal_guard.is_idle()
}

/// Whether `observation` has nothing that the pass of `before`, which is due again at `due`, has not seen.
pub(super) fn has_no_news(observation: &Observation, before: &Observation, due: Timestamp) -> bool {
    let Observation {
        now,
        steady,
        random: _,
        boot,
        folders,
        api,
        tokens,
        runtime,
        // From the same answer.
        runtime_as_of: _,
        kubelet_started,
        manifests,
        manifests_watched,
        mounts,
        // What was checked is in `volumes`; what is due is in `due`.
        volume_look: _,
        volumes,
        run_in_this_boot,
        may_have_run,
        is_before_kubelet,
        empty_volumes,
        unwritable_volumes,
        can_ask_runtime,
        pulls,
        missing_images,
        unpinned,
        seal,
        replies,
        spent,
        turn,
        problems,
    } = observation;
    let drift = (*now - before.now) - (*steady - before.steady);
    (before.now..due.min(before.now + RECENT)).contains(now)
        && drift.abs() < CLOCKS
        && replies.is_empty()
        && mounts.is_none()
        && spent.is_empty()
        && *turn == SuspectTurn::None
        && volumes.values().all(|data| *data == VolumeDataState::Intact)
        && is_same(runtime, &before.runtime)
        && is_same(manifests, &before.manifests)
        && is_same_api(api.as_ref(), before.api.as_ref())
        && is_same_folder(folders, &before.folders)
        && is_same_token(tokens, &before.tokens)
        && is_same_seal(seal, &before.seal)
        && (boot, kubelet_started, run_in_this_boot)
            == (&before.boot, &before.kubelet_started, &before.run_in_this_boot)
        && *may_have_run == before.may_have_run
        && (*is_before_kubelet, empty_volumes) == (before.is_before_kubelet, &before.empty_volumes)
        && *unwritable_volumes == before.unwritable_volumes
        && (manifests_watched, can_ask_runtime) == (&before.manifests_watched, &before.can_ask_runtime)
        && (Arc::ptr_eq(unpinned, &before.unpinned) || unpinned == &before.unpinned)
        && (pulls, missing_images, problems) == (&before.pulls, &before.missing_images, &before.problems)
}

/// Whether it is the very same value, or unknown for the same reason.
fn is_same<T>(one: &Knowledge<Arc<T>>, other: &Knowledge<Arc<T>>) -> bool {
    match (one, other) {
        (Knowledge::Current(one), Knowledge::Current(other)) => Arc::ptr_eq(one, other),
        (Knowledge::Unreadable(one), Knowledge::Unreadable(other)) => one == other,
        (Knowledge::Absent(one), Knowledge::Absent(other)) => one == other,
        (Knowledge::NeverHeard, Knowledge::NeverHeard) => true,
        _ => false,
    }
}

fn is_same_api(one: Option<&ObservedApi>, other: Option<&ObservedApi>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one.is_none() && other.is_none() };
    let ObservedApi { snapshot, link, endpoint, connections_opened, sightings, is_former, has_news: _ } = one;
    let watched = snapshot.scopes.iter().map(|(scope, state)| (scope, state.error.is_some()));
    let watched_before = other.snapshot.scopes.iter().map(|(scope, state)| (scope, state.error.is_some()));
    sightings.is_empty()
        && snapshot.content == other.snapshot.content
        && snapshot.etcd_rollback_detection.rollback == other.snapshot.etcd_rollback_detection.rollback
        && watched.eq(watched_before)
        && *is_former == other.is_former
        && (link, endpoint, connections_opened) == (&other.link, &other.endpoint, &other.connections_opened)
}

fn is_same_folder(one: &ObservedFolders, other: &ObservedFolders) -> bool {
    let ObservedFolders { view, objects, again_at } = one;
    Arc::ptr_eq(view, &other.view) && Arc::ptr_eq(objects, &other.objects) && again_at == &other.again_at
}

fn is_same_token(one: &ObservedTokens, other: &ObservedTokens) -> bool {
    let ObservedTokens { held: _, issued: _, fingerprint, refused } = one;
    (fingerprint, refused) == (&other.fingerprint, &other.refused)
}

fn is_same_seal(one: &Seal, other: &Seal) -> bool {
    let Seal { is_closed, opened, retry, again_at } = one;
    opened.is_none() && !retry && (is_closed, again_at) == (&other.is_closed, &other.again_at)
}

#[cfg(test)]
mod tests;
