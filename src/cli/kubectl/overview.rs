//! Each DaemonSet's rollout as a bar, and the nodes that are not done.

use std::collections::BTreeMap;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::output;
use crate::cli::output::Colour;
use crate::cli::table;
use crate::cli::table::Cell;
use crate::core::cluster::overview::Overview;
use crate::core::cluster::overview::Place;
use crate::core::cluster::overview::Rollout;

/// The bar's width.
const WIDTH: usize = 20;

pub(super) fn print(overview: &Overview, json: bool) -> Result<Exit, CommandFailure> {
    let text = if json { output::json(overview)? } else { human(overview, Colour::new(&std::io::stdout())) };
    output::data(&text)?;
    let bad = overview.daemon_sets.iter().flat_map(|rollout| &rollout.nodes).any(Place::is_bad);
    Ok(if bad { Exit::Refused } else { Exit::Success })
}

fn human(overview: &Overview, colour: Colour) -> String {
    if overview.daemon_sets.is_empty() {
        return "no node runs daemons by daemonlet\n".to_owned();
    }
    let head = ["DAEMONSET", "REVISION", "ROLLOUT", "UPDATED", "READY", "NODES"];
    let rows: Vec<Vec<Cell>> = overview.daemon_sets.iter().map(|rollout| row(rollout, colour)).collect();
    let mut text = table::table(&head, &rows);
    if rows.len() > 1 || overview.daemon_sets.iter().any(|rollout| rollout.updated_ready < rollout.desired) {
        text.push_str("# ready on the wanted revision, = on it and not ready, . not on it\n");
    }
    let late: Vec<Vec<Cell>> = overview
        .daemon_sets
        .iter()
        .flat_map(|rollout| rollout.nodes.iter().map(move |place| (rollout, place)))
        .filter(|(_, place)| !(place.ready && place.updated && place.reason.is_empty()))
        .map(|(rollout, place)| late(rollout, place, colour))
        .collect();
    if !late.is_empty() {
        text.push('\n');
        text.push_str(&table::table(&["NODE", "DAEMONSET", "STATE", "REVISION", "READY", "REASON"], &late));
    }
    text
}

fn row(rollout: &Rollout, colour: Colour) -> Vec<Cell> {
    let of = |count: usize| format!("{count}/{}", rollout.desired);
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    rollout.nodes.iter().for_each(|place| *states.entry(place.word()).or_default() += 1);
    let states: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let mut states = states.join(", ");
    if rollout.paused {
        states.push_str(" (paused)");
    }
    let bar = bar(rollout);
    let painted = match rollout.updated_ready == rollout.desired {
        true => colour.green(&bar),
        false => colour.yellow(&bar),
    };
    let revision = match (rollout.revision.as_str(), rollout.in_api) {
        (_, false) => "folder",
        (revision, true) => revision,
    };
    vec![
        format!("{}/{}", rollout.namespace, rollout.name).as_str().into(),
        revision.into(),
        Cell::painted(&bar, painted),
        of(rollout.updated).as_str().into(),
        of(rollout.ready).as_str().into(),
        states.as_str().into(),
    ]
}

/// Full only when all is done, and never without a sign of what has begun.
fn bar(rollout: &Rollout) -> String {
    let part = |count: usize| match (count, rollout.desired) {
        (0, _) => 0,
        (count, desired) if count >= desired => WIDTH,
        (count, desired) => (count * WIDTH / desired).clamp(1, WIDTH - 1),
    };
    let ready = part(rollout.updated_ready);
    let updated = part(rollout.updated).max(ready);
    format!("[{}{}{}]", "#".repeat(ready), "=".repeat(updated - ready), ".".repeat(WIDTH - updated))
}

fn late(rollout: &Rollout, place: &Place, colour: Colour) -> Vec<Cell> {
    let dash = |text: &str| Cell::from(if text.is_empty() { "-" } else { text });
    let reason = match place.reason.as_str() {
        "" if !place.updated => "not replaced yet",
        "" => "not ready yet",
        reason => reason,
    };
    vec![
        place.node.as_str().into(),
        format!("{}/{}", rollout.namespace, rollout.name).as_str().into(),
        state(place, colour),
        dash(&place.revision),
        if place.ready { "yes" } else { "no" }.into(),
        reason.into(),
    ]
}

pub(super) fn state(place: &Place, colour: Colour) -> Cell {
    let word = place.word();
    let painted = match (place.is_bad(), word) {
        (true, _) => colour.red(word),
        (false, "running") => colour.green(word),
        (false, _) => colour.yellow(word),
    };
    Cell::painted(word, painted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::status::State;

    fn rollout(desired: usize, updated: usize, updated_ready: usize) -> Rollout {
        Rollout {
            namespace: "kube-system".into(),
            name: "net".into(),
            in_api: true,
            revision: "5d8c7".into(),
            paused: false,
            desired,
            updated,
            updated_ready,
            ready: desired,
            nodes: Vec::new(),
        }
    }

    #[test]
    fn bars_are_full_only_when_all_is_done() {
        for (counts, expected) in [
            ((0, 0, 0), "[....................]"),
            ((1000, 1, 0), "[=...................]"),
            ((1000, 999, 999), "[###################.]"),
            ((10, 5, 3), "[######====..........]"),
            ((4, 4, 4), "[####################]"),
        ] {
            assert_eq!(bar(&rollout(counts.0, counts.1, counts.2)), expected);
        }
    }

    #[test]
    fn nodes_that_are_not_done_are_listed_with_their_reason() {
        let place = |node: &str, state, updated, reason: &str| Place {
            node: node.into(),
            state,
            revision: if updated { "5d8c7" } else { "old" }.into(),
            pod: String::new(),
            ready: updated,
            updated,
            reason: reason.into(),
        };
        let nodes = vec![
            place("n1", Some(State::Running), true, ""),
            place("n2", Some(State::Running), false, ""),
            place("n3", None, false, "no agent"),
        ];
        let overview = Overview { schema_version: 1, daemon_sets: vec![Rollout { nodes, ..rollout(3, 1, 1) }] };
        assert_eq!(
            human(&overview, Colour::none()),
            "DAEMONSET        REVISION  ROLLOUT                 UPDATED  READY  NODES\n\
             kube-system/net  5d8c7     [######..............]  1/3      3/3    1 missing, 2 running\n\
             # ready on the wanted revision, = on it and not ready, . not on it\n\n\
             NODE  DAEMONSET        STATE    REVISION  READY  REASON\n\
             n2    kube-system/net  running  old       no     not replaced yet\n\
             n3    kube-system/net  missing  old       no     no agent\n"
        );
    }
}
