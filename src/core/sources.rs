//! The definition of one daemon by folders and API together.
//!
//! Owns the rules of evidence: absence is not deletion. A daemon is removed only on evidence that can be trusted; in
//! all other cases the instance stays. Must not do I/O: confirmations are arguments.

use std::sync::Arc;

use crate::core::knowledge::ApiAnswer;
use crate::core::knowledge::OVERRIDE_ANNOTATION;
use crate::core::knowledge::ObjectSources;
use crate::core::knowledge::Origin;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Mode;
use crate::core::model::ObjectSource;
use crate::core::model::Source;
use crate::core::orders::NoAnswer;
use crate::core::policy::Admission;
use crate::core::policy::Covered;
use crate::core::policy::Judge;
use crate::core::policy::NotCovered;
use crate::core::policy::TooLarge;
use crate::core::policy::namespace_of;
use crate::core::policy::same_template;
use crate::core::record::DaemonRecord;
use crate::core::set_aside::HeldBack;

mod absent;
mod folder;
mod hold;
mod patched;
mod reason;
mod refused;
mod uncovered;
mod unproven;

use absent::last_known;
use absent::resolve_absent;
use absent::resolve_remembered;
pub use folder::differs_from_unknown;
use folder::folder_mode;
use folder::folder_of;
use folder::ignored_from_now;
pub use folder::may_be_older;
use folder::resolve_folder;
pub use hold::Hold;
use hold::by_rules;
use hold::held;
pub use hold::is_made_by_override;
use hold::is_narrowed;
use hold::resolve_invalid;
use hold::resolve_too_large;
pub use reason::DesiredNote;
pub use reason::DesiredReason;
pub use refused::RefusedVersion;
use uncovered::resolve_uncovered;
pub use unproven::Unproven;

/// The state of one daemon in the folders.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FolderState<'a> {
    /// A file defines it.
    Present {
        /// The definition in force.
        daemon_set: &'a Arc<DaemonSet>,
        /// Changes whenever the definition changes.
        fingerprint: &'a str,
    },
    /// No file defines it, and the folder that it came from is present and readable.
    Absent,
    /// No file defines it, but that is no evidence (folder missing, other file system, unreadable).
    Unsure { reason: Unproven },
}

/// The answer of a GET that was sent because the API's view lacked the daemon, or no longer selected it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Confirmation {
    /// No GET has been sent.
    Unasked,
    /// It is gone: NotFound, or another UID under the same name, in the same cluster.
    Gone,
    /// It exists, but is not ours any more.
    NotCovered,
    /// It exists: our view is behind.
    StillThere,
    /// No answer that proves anything.
    Failed(NoAnswer),
}

/// The state of one daemon in the API.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiState<'a> {
    /// No API server is configured.
    None,
    /// Not listed completely yet.
    Unknown,
    /// It exists, and an API server that is connected is asked what it defines.
    Unread,
    /// It exists.
    Present(&'a Arc<DaemonSet>),
    /// It exists but is invalid; the instance stays.
    Invalid(RefusedVersion),
    /// It exists, and its namespace, which is not trusted, may not have as much; the instance stays.
    TooLarge(&'a TooLarge),
    /// A complete list does not contain it, or a watch reported its deletion.
    Absent {
        /// Whether a watch reported the deletion (else a list did not contain it).
        by_event: bool,
    },
    /// A watch reported its deletion, and its pods are to stay (orphan).
    Orphaned,
}

impl ApiState<'_> {
    /// What the API says of it, for [`ObjectSources`].
    fn answer(&self) -> ApiAnswer<()> {
        match self {
            Self::None => ApiAnswer::NotConfigured,
            Self::Unknown => ApiAnswer::Nothing,
            Self::Unread => ApiAnswer::Unread,
            Self::Present(_) | Self::Invalid(_) | Self::TooLarge(_) => ApiAnswer::Present(()),
            Self::Absent { .. } | Self::Orphaned => ApiAnswer::Gone,
        }
    }
}

/// Everything that is known of one daemon's definition.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownDefinition<'a> {
    pub folder: FolderState<'a>,
    pub api: ApiState<'a>,
    /// The API's last version of it from the checkpoint; used while the API is `Unknown`.
    pub remembered: Option<&'a Arc<DaemonSet>>,
    /// The answer of the GET, if one was sent.
    pub confirmation: Confirmation,
    /// Whether a file defines it, or did while it ran: the file then gave it its mode.
    pub has_file: bool,
    /// Whether the API has had a newer version since the file, which overrides, is as it is.
    pub is_superseded: bool,
    /// Whether an agent that has just started has yet to read a change of its file: what runs may be made from it, and
    /// override.
    pub is_changing: bool,
}

impl KnownDefinition<'_> {
    /// Whether the only evidence against the daemon of `record` is that a complete list does not contain it. These
    /// count against `max-removals`, whatever a GET says.
    pub fn is_unlisted(&self, record: &DaemonRecord) -> bool {
        self.api == ApiState::Absent { by_event: false } && record.api_uid.is_some()
    }
}

/// What the sources want of a daemon, in sum.
#[derive(Clone, Debug, PartialEq)]
pub enum Desired {
    /// It should run where placement allows it.
    Wanted {
        /// The definition in force.
        daemon_set: Arc<DaemonSet>,
        mode: Mode,
        /// Which other version does not count, if one does not.
        note: Option<DesiredNote>,
    },
    /// The instance stays at the definition that it was made from, whatever is newer.
    Held {
        /// That definition.
        daemon_set: Arc<DaemonSet>,
        mode: Mode,
        why: Hold,
        /// Whether the API server is to be asked if the DaemonSet is still there: the watch does not show it.
        ask: bool,
    },
    /// It is ours, is refused before its definition is read, and nothing is known that could run in its place.
    Refused { mode: Mode, errors: Vec<FieldError> },
    /// It exists but is not ours here (label, policy).
    Left {
        reason: DesiredReason,
        /// Whether its labels were ours before, and nothing of it is here: what is remembered must not bring it back.
        taken_away: bool,
    },
    /// It is gone: its instance ends.
    Gone {
        reason: DesiredReason,
        /// Whether a list is the only evidence (counted by `max-removals`).
        by_list: bool,
        /// Fingerprint of a folder file that must not bring it back.
        ignore_file: Option<String>,
    },
    /// It is gone, and its pods stay.
    Orphaned {
        /// Fingerprint of a folder file that must not adopt them.
        ignore_file: Option<String>,
    },
    /// A GET must confirm that it is gone or not ours; until then the instance stays.
    Confirm {
        /// What has to be confirmed.
        reason: DesiredReason,
    },
    /// No source defines it, and there is no evidence that it is gone: the instance stays until it is released.
    Kept { reason: DesiredReason },
    /// Its definition is set aside: the instance stays as it is on disk.
    SetAside { mode: Mode, reason: HeldBack },
    /// Unknown: the instance stays.
    Unsure { reason: DesiredReason },
}

impl Desired {
    /// The definition that is to run.
    pub fn definition(&self) -> Option<&Arc<DaemonSet>> {
        match self {
            Self::Wanted { daemon_set, .. } | Self::Held { daemon_set, .. } => Some(daemon_set),
            _ => None,
        }
    }
}

/// What the sources want of the daemon that `record` remembers.
///
/// `objects` contains the Namespaces.
pub fn resolve<'p>(
    known: &KnownDefinition<'_>,
    record: &DaemonRecord,
    policy: impl Into<Judge<'p>>,
    objects: &dyn ObjectSource,
) -> Desired {
    let policy = policy.into();
    let desired = hold::unless_overlays_refused(by_sources(known, record, policy, objects), known, record);
    hold::unless_released(desired, record, &policy)
}

fn by_sources(
    known: &KnownDefinition<'_>,
    record: &DaemonRecord,
    policy: Judge<'_>,
    objects: &dyn ObjectSource,
) -> Desired {
    let (folder, last) = (folder_of(known, record), last_known(known.remembered, record));
    let is_selected = policy.allows_namespace(&record.key.namespace);
    let sources = ObjectSources {
        api: known.api.answer(),
        remembered: last.map(|_| ()),
        folder: folder.map(|_| ()),
        overrides: folder.is_some_and(|folder| is_override(folder)) && !known.is_superseded,
        is_newer: is_newer(known),
        api_may_speak: is_selected,
    };
    let origin = sources.choose().map(|(origin, ())| origin);
    if let Some(folder) = folder.filter(|_| sources.overrides && origin == Some(Origin::Folder)) {
        return wanted(folder, folder_mode(folder), None);
    }
    if let Some(held) = hold::held_override(known, record) {
        return held;
    }
    if known.is_changing && record.live().any(|instance| instance.daemon_set.is_none()) {
        return Desired::Unsure { reason: DesiredReason::FileChanging };
    }
    let is_of_a_file = |d: &Arc<DaemonSet>| d.source != Source::Api;
    let has_file = known.has_file || record.definition().is_some_and(is_of_a_file);
    if has_file && !is_selected {
        return folder::resolve_unselected(known, record);
    }
    match (&known.api, last.filter(|_| origin == Some(Origin::Remembered))) {
        (ApiState::Present(daemon_set), _) => resolve_present(known, daemon_set, record, (policy, objects)),
        (ApiState::Invalid(refused), _) => resolve_invalid(known, refused.clone(), record, (policy, objects)),
        (ApiState::TooLarge(too_large), _) => resolve_too_large(known, too_large, record, (policy, objects)),
        (ApiState::Absent { by_event }, _) => resolve_absent(known, *by_event, record, &policy),
        (ApiState::Orphaned, _) if record.instances.is_empty() => resolve_absent(known, true, record, &policy),
        (ApiState::Orphaned, _) if absent::is_adopted_by_file(known, record) => {
            resolve_folder(known, record, DesiredReason::NotInApi)
        }
        (ApiState::Orphaned, _) => orphaned(known, record),
        // A file's would be replaced a moment later.
        (ApiState::Unread, _) if known.remembered.is_none() && !record.runs() => {
            Desired::Unsure { reason: DesiredReason::BeingRead }
        }
        (ApiState::Unknown | ApiState::Unread, Some(last)) => {
            resolve_remembered(known, last, record, (policy, objects))
        }
        (ApiState::Unknown | ApiState::Unread, None) if may_be_older(known.folder, record) => {
            Desired::Unsure { reason: DesiredReason::MayBeOfApi }
        }
        (ApiState::Unknown | ApiState::Unread, None) => resolve_folder(known, record, DesiredReason::Unanswered),
        // A configuration that was changed, or a lost file, is no reason to go back to the folder's version.
        (ApiState::None, Some(last))
            if known.remembered.is_some() && folder.is_some_and(|folder| !same_template(folder, last)) =>
        {
            held(known, record, None, Hold::Undefined(DesiredReason::FolderPassedOver))
        }
        (ApiState::None, _) => resolve_folder(known, record, DesiredReason::NoApiServer),
    }
}

/// Whether the node's owner gives a folder's DaemonSet precedence.
pub fn is_override(daemon_set: &DaemonSet) -> bool {
    daemon_set.annotations.get(OVERRIDE_ANNOTATION).is_some_and(|value| value == "true")
}

/// Whether a file that overrides counts no more, as the API has, or has had, something newer.
fn has_given_way(known: &KnownDefinition<'_>) -> bool {
    known.is_superseded || is_newer(known)
}

/// Whether the API shows another version than the one that is remembered.
fn is_newer(known: &KnownDefinition<'_>) -> bool {
    match (&known.api, known.remembered) {
        (ApiState::Present(daemon_set), Some(remembered)) => !daemon_set.defines_the_same(remembered),
        _ => false,
    }
}

/// Policy, and the Namespaces it needs.
type PolicyAndObjects<'a> = (Judge<'a>, &'a dyn ObjectSource);

/// [`Policy::covers`]. In addition, a template of the API that differs from the folder's is ours only if it may start;
/// one that already runs here stays, whatever has changed since.
fn covers(
    rules: PolicyAndObjects<'_>,
    daemon_set: &Arc<DaemonSet>,
    folder: Option<&Arc<DaemonSet>>,
    record: &DaemonRecord,
) -> Covered {
    let (policy, objects) = rules;
    let covered = policy.covers(daemon_set, folder);
    let (Covered::Yes(_), Some(folder)) = (&covered, folder) else { return covered };
    let why = match policy.admit(daemon_set, objects.lookup(&namespace_of(daemon_set))) {
        Admission::Allowed(_) => return covered,
        Admission::Refused(errors) => NotCovered::Refused(errors),
        Admission::Waits(missing) => NotCovered::Unread(missing),
    };
    let runs = |d: &Arc<DaemonSet>| d.source == Source::Api && same_template(d, daemon_set);
    if same_template(daemon_set, folder) || record.live().filter_map(|i| i.daemon_set.as_ref()).any(runs) {
        return covered;
    }
    Covered::No(why)
}

fn resolve_present(
    known: &KnownDefinition<'_>,
    daemon_set: &Arc<DaemonSet>,
    record: &DaemonRecord,
    rules: PolicyAndObjects<'_>,
) -> Desired {
    if daemon_set.deleting {
        return resolve_deleting(known, daemon_set, record);
    }
    let policy = rules.0;
    match (covers(rules, daemon_set, folder_of(known, record), record), folder_of(known, record)) {
        (Covered::Yes(mode), None) => match by_rules(daemon_set, record, policy) {
            Some(errors) => held(known, record, Some(mode), Hold::Forbidden(errors)),
            None => wanted(daemon_set, mode, None),
        },
        (Covered::Yes(mode), Some(_)) => wanted(daemon_set, mode, None),
        (Covered::No(reason), _) => resolve_uncovered(known, reason, record, &policy),
    }
}

/// What the newest instance runs, or what ran before it ended to be replaced, if it came from the API and differs from
/// `folder`.
fn of_the_api<'a>(record: &'a DaemonRecord, folder: &Arc<DaemonSet>) -> Option<&'a Arc<DaemonSet>> {
    let newest = record.staying().filter_map(|instance| instance.daemon_set.as_ref()).last();
    let has_ended = || record.last.as_ref().or(record.previous.as_ref()).map(|run| &run.daemon_set);
    let newest = newest.or_else(has_ended)?;
    (newest.source == Source::Api && !same_template(newest, folder)).then_some(newest)
}

fn resolve_deleting(known: &KnownDefinition<'_>, daemon_set: &DaemonSet, record: &DaemonRecord) -> Desired {
    if daemon_set.finalizers.iter().any(|f| f == "orphan") {
        return orphaned(known, record);
    }
    if daemon_set.finalizers.iter().any(|f| f == "foregroundDeletion") {
        return Desired::Gone {
            reason: DesiredReason::DeletedInForeground,
            by_list: false,
            ignore_file: ignored_from_now(known, record),
        };
    }
    Desired::Unsure { reason: DesiredReason::AwaitsFinalizers }
}

fn orphaned(known: &KnownDefinition<'_>, record: &DaemonRecord) -> Desired {
    Desired::Orphaned { ignore_file: ignored_from_now(known, record) }
}

fn wanted(daemon_set: &Arc<DaemonSet>, mode: Mode, note: Option<DesiredNote>) -> Desired {
    Desired::Wanted { daemon_set: Arc::clone(daemon_set), mode, note }
}

#[cfg(test)]
mod tests;
