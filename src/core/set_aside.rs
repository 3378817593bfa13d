//! Definitions of tenants that cost too much to work on: they are set aside, over restarts.
//!
//! Owns the bound on what one pass spends on one definition ([`TIME`]), how often in a row it may be exceeded ([`TIMES`]),
//! and what follows if a process ended during such work. Must not measure anything, and must not know who is
//! trusted: the shell asks for tenants' definitions only.

use std::fmt;

use serde::Deserialize;
use serde::Serialize;
use sha2::Digest;
use sha2::Sha256;

use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::time::Span;

/// The processor time that one pass may spend on one version of a tenant's definition.
pub const TIME: Span = Span::from_secs(2);
/// So often in a row the bound may be exceeded before a version is set aside.
pub const TIMES: u32 = 2;
/// The most definitions of which it is remembered that they cost too much; the one that was seen first goes first.
const MOST: usize = 256;

/// One version of a definition: its template decides its cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionVersion {
    pub key: ObjectKey,
    /// A digest of the template.
    pub template: String,
}

impl DefinitionVersion {
    pub fn of(daemon_set: &DaemonSet) -> Self {
        struct Bytes(Sha256);
        impl std::io::Write for Bytes {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.update(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut bytes = Bytes(Sha256::new());
        // A JSON value can always be written.
        let _ = serde_json::to_writer(&mut bytes, &daemon_set.template);
        let template = bytes.0.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { key: daemon_set.key.clone(), template }
    }
}

/// What a pass spent on one version of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    pub version: DefinitionVersion,
    /// Processor time of the thread that worked on it.
    pub time: Span,
}

/// How a version was last over the bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Excess {
    /// One pass spent this on it.
    Time(Span),
    /// The agent was killed while it worked on it.
    Killed,
}

/// Why a pass does not work on a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldBack {
    /// It was over the bound too often in a row, the last time so.
    SetAside(Excess),
    /// It may have been the cause of a kill, and another suspect is worked on now.
    AwaitsTurn,
}

/// A definition that was over the bound when it was last worked on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Costly {
    version: DefinitionVersion,
    /// How often in a row.
    times: u32,
    last: Excess,
}

/// Which of the suspects a pass works on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SuspectTurn {
    /// None of them is known here.
    #[default]
    None,
    /// None: first the pass works on definitions that are no suspects.
    AfterOthers,
    /// This one, and on nothing else that is new.
    Of(DefinitionVersion),
}

/// What is remembered of definitions that cost too much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAside {
    /// The one that was seen first comes first.
    costly: Vec<Costly>,
    /// The agent was killed while it worked on several definitions: each of these is worked on alone.
    suspects: Vec<DefinitionVersion>,
}

impl SetAside {
    /// Takes what a pass spent. Gives what is to be logged.
    pub fn observe(&mut self, spent: &[Spent]) -> Vec<String> {
        let mut lines = Vec::new();
        for Spent { version, time } in spent {
            match *time > TIME {
                true => lines.push(self.note(version.clone(), Excess::Time(*time))),
                false => self.costly.retain(|costly| costly.version != *version),
            }
        }
        lines
    }

    /// The agent was killed while it worked on `marked`. One alone was the cause; of several each is a suspect.
    /// Gives what is to be logged.
    pub fn note_killed(&mut self, mut marked: Vec<DefinitionVersion>) -> String {
        // One that runs is marked as it is remembered, and as it runs.
        marked.sort_by(|a, b| (&a.key, &a.template).cmp(&(&b.key, &b.template)));
        marked.dedup();
        match (marked.len(), marked.pop()) {
            (1, Some(version)) => {
                self.suspects.retain(|suspect| *suspect != version);
                self.note(version, Excess::Killed)
            }
            (_, Some(last)) => {
                marked.push(last);
                self.suspects = marked;
                let count = self.suspects.len();
                format!(
                    "the agent was killed while it worked on {count} DaemonSets of tenants: it works on each alone now"
                )
            }
            (_, None) => String::new(),
        }
    }

    fn note(&mut self, version: DefinitionVersion, last: Excess) -> String {
        let before = self.costly.iter().position(|costly| costly.version.key == version.key);
        let times = match before.map(|at| self.costly.remove(at)) {
            Some(known) if known.version == version => known.times.saturating_add(1),
            // Another version of a definition that was set aside is tried once.
            Some(known) if known.times >= TIMES => TIMES,
            _ => 1,
        };
        let costly = Costly { version, times, last };
        let what = match times {
            ..TIMES => "; if that happens again, this version is set aside".to_owned(),
            _ => format!(", {TIMES} times in a row"),
        };
        let line = format!("DaemonSet {}: {}{what}", costly.version.key, costly.last);
        self.costly.push(costly);
        let more = self.costly.len().saturating_sub(MOST);
        self.costly.drain(..more);
        line
    }

    /// Whether anything is remembered of the daemon `key`.
    pub fn knows(&self, key: &ObjectKey) -> bool {
        self.costly.iter().any(|costly| costly.version.key == *key) || self.suspects.iter().any(|s| s.key == *key)
    }

    /// Whether definitions wait to be worked on alone.
    pub fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    pub fn suspects(&self, version: &DefinitionVersion) -> bool {
        self.suspects.contains(version)
    }

    /// Why a pass does not work on `daemon_set`, if so. `turn`: which of the suspects it works on.
    pub fn holds_back(&self, daemon_set: &DaemonSet, turn: &SuspectTurn) -> Option<HeldBack> {
        if !self.knows(&daemon_set.key) {
            return None;
        }
        let version = DefinitionVersion::of(daemon_set);
        if let Some(costly) = self.costly.iter().find(|costly| costly.version == version && costly.times >= TIMES) {
            return Some(HeldBack::SetAside(costly.last.clone()));
        }
        let waits = self.suspects.contains(&version) && *turn != SuspectTurn::Of(version);
        waits.then_some(HeldBack::AwaitsTurn)
    }

    /// The suspect whose turn it was has been worked on.
    pub fn end_turn(&mut self, turn: &SuspectTurn) {
        if let SuspectTurn::Of(version) = turn {
            self.suspects.retain(|suspect| suspect != version);
        }
    }

    /// Forgets what is known of the daemon `key`; gives whether anything was.
    pub fn forget(&mut self, key: &ObjectKey) -> bool {
        let known = self.knows(key);
        self.retain(|other| other != key);
        known
    }

    /// What [`SetAside::forget`] took of `key` is remembered again, as it was `before`.
    pub fn restore(&mut self, key: &ObjectKey, before: &Self) {
        self.forget(key);
        self.costly.extend(before.costly.iter().filter(|costly| costly.version.key == *key).cloned());
        self.suspects.extend(before.suspects.iter().filter(|suspect| suspect.key == *key).cloned());
    }

    /// Forgets the daemons that `is_there` does not hold for.
    pub fn retain(&mut self, is_there: impl Fn(&ObjectKey) -> bool) {
        self.costly.retain(|costly| is_there(&costly.version.key));
        self.suspects.retain(|suspect| is_there(&suspect.key));
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => {
                let (spent, most) = (time.as_millis() as f64 / 1_000.0, TIME.as_secs());
                write!(f, "the agent spent {spent:.1} s of processor time on its template in one pass; ")?;
                write!(f, "at most {most} s is allowed")
            }
            Self::Killed => f.write_str("the agent was killed while it worked on its template"),
        }
    }
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetAside(last) => write!(f, "it is set aside: {last}, {TIMES} times in a row"),
            Self::AwaitsTurn => f.write_str(
                "the agent was killed while it worked on several definitions, and works on each of them alone now",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::json;

    use super::*;
    use crate::core::model::Source;
    use crate::core::validate;

    fn daemon_set(name: &str, image: &str) -> DaemonSet {
        let template = json!({
            "metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": image}]}
        });
        let value: Value = json!({
            "metadata": {"namespace": "a", "name": name},
            "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}
        });
        validate::daemon_set(&value, Source::Api).unwrap()
    }

    fn spent(daemon_set: &DaemonSet, seconds: i64) -> [Spent; 1] {
        [Spent { version: DefinitionVersion::of(daemon_set), time: Span::from_secs(seconds) }]
    }

    fn over() -> i64 {
        TIME.as_secs() + 1
    }

    #[test]
    fn a_version_is_set_aside_when_it_is_over_the_bound_twice_in_a_row() {
        let (slow, next) = (daemon_set("x", "i:1"), daemon_set("x", "i:2"));
        let mut costs = SetAside::default();
        let is_aside = |costs: &SetAside, d: &DaemonSet| costs.holds_back(d, &SuspectTurn::None).is_some();

        let lines = costs.observe(&spent(&slow, over()));
        assert!(lines[0].ends_with("if that happens again, this version is set aside"), "{lines:?}");
        assert!(!is_aside(&costs, &slow), "once is chance");
        costs.observe(&spent(&slow, 0));
        costs.observe(&spent(&slow, over()));
        assert!(!is_aside(&costs, &slow), "not in a row");
        costs.observe(&spent(&slow, over()));
        let why = costs.holds_back(&slow, &SuspectTurn::None).expect("a reason").to_string();
        assert!(why.contains("spent 3.0 s") && why.contains("2 times in a row"), "{why}");

        assert!(!is_aside(&costs, &next), "another version is looked at");
        assert!(!is_aside(&costs, &daemon_set("y", "i:1")), "and so is another daemon");
        costs.observe(&spent(&next, over()));
        assert!(is_aside(&costs, &next), "it has one try");

        assert!(costs.forget(&slow.key) && !costs.forget(&slow.key));
        assert!(!is_aside(&costs, &next), "it was to be tried again");
    }

    #[test]
    fn one_definition_that_the_agent_was_killed_over_is_an_offender_and_of_several_each_is_tried_alone() {
        let [a, b, c] = ["a", "b", "c"].map(|name| daemon_set(name, "i:1"));
        let [of_a, of_b, of_c] = [&a, &b, &c].map(DefinitionVersion::of);
        let mut costs = SetAside::default();
        costs.note_killed(vec![of_a.clone(), of_b.clone(), of_c.clone()]);
        for turn in [SuspectTurn::None, SuspectTurn::AfterOthers, SuspectTurn::Of(of_a.clone())] {
            assert!(costs.holds_back(&b, &turn).is_some(), "{turn:?}");
        }
        assert_eq!(costs.holds_back(&b, &SuspectTurn::Of(of_b.clone())), None);
        assert_eq!(costs.holds_back(&daemon_set("b", "i:2"), &SuspectTurn::AfterOthers), None, "another version");

        costs.end_turn(&SuspectTurn::Of(of_a.clone()));
        assert_eq!(costs.holds_back(&a, &SuspectTurn::None), None, "it was harmless");
        for _ in 0..TIMES {
            costs.note_killed(vec![of_b.clone(), of_b.clone()]);
        }
        let why = costs.holds_back(&b, &SuspectTurn::None).expect("a reason");
        assert_eq!(
            why.to_string(),
            "it is set aside: the agent was killed while it worked on its template, 2 times in a row"
        );
        assert!(costs.holds_back(&c, &SuspectTurn::None).is_some(), "it still waits for its turn");
        assert_eq!(costs.holds_back(&c, &SuspectTurn::Of(of_c)), None);
        let json = serde_json::to_string(&costs).unwrap();
        assert_eq!(serde_json::from_str::<SetAside>(&json).unwrap(), costs, "over restarts");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut costs = SetAside::default();
        for n in 0..=MOST {
            costs.observe(&spent(&daemon_set(&format!("d-{n}"), "i:1"), over()));
        }
        assert_eq!(costs.costly.len(), MOST);
        assert!(!costs.knows(&ObjectKey::new("a", "d-0")), "the first is forgotten");
        costs.retain(|key| key.name == "d-7");
        assert_eq!(costs.costly.len(), 1);
    }
}
