//! Each DaemonSet's rollout as a bar, and the nodes that are not done.

use std::collections::BTreeMap;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::output;
use crate::cli::output::Colour;
use crate::cli::status;
use crate::cli::table;
use crate::cli::table::Cell;
use crate::clock;
use crate::core::cluster::overview::DaemonOnNode;
use crate::core::cluster::overview::Overview;
use crate::core::cluster::overview::Rollout;
use crate::core::time::Timestamp;

/// The bar's width.
const WIDTH: usize = 20;

/// Prints everything, or the DaemonSets of `namespace`, as JSON or in tables of some width.
pub(super) fn print(
    overview: &Overview,
    namespace: Option<&str>,
    (json, width): (bool, usize),
) -> Result<Exit, CommandFailure> {
    let now = clock::now();
    let human = |width: usize| human(overview, namespace, (Colour::new(&std::io::stdout()), width), now);
    let text = if json { output::json(overview)? } else { human(width) };
    output::data(&text)?;
    if !json && text != human(usize::MAX) {
        output::remarks(output::CUT);
    }
    let rollouts = &overview.daemon_sets;
    let is_leaderless = rollouts.iter().any(|rollout| rollout.in_api) && overview.coordinator.words(now).1;
    let is_stopped = |rollout: &Rollout| !rollout.halted.is_empty() || !rollout.degraded.is_empty();
    let is_bad = rollouts.iter().any(is_stopped) || rollouts.iter().flat_map(|r| &r.nodes).any(DaemonOnNode::is_bad);
    Ok(if is_bad || is_leaderless { Exit::Refused } else { Exit::Success })
}

fn human(overview: &Overview, namespace: Option<&str>, (colour, width): (Colour, usize), now: Timestamp) -> String {
    let (leader, is_missing) = overview.coordinator.words(now);
    let leader = format!("coordinator: {leader}");
    let leader = if is_missing { colour.yellow(&leader) + "\n" } else { output::line(leader) };
    let left_alone = status::left_alone(&overview.left_alone, colour);
    if overview.daemon_sets.is_empty() {
        let nothing = match namespace {
            Some(namespace) => format!("no DaemonSet of namespace {namespace} is run by daemonlet"),
            None => "no node runs daemons by daemonlet".to_owned(),
        };
        return format!("{leader}{nothing}\n{left_alone}");
    }
    let head = ["DAEMONSET", "REVISION", "ROLLOUT", "UPDATED", "READY", "NODES"];
    let rows: Vec<Vec<Cell>> = overview.daemon_sets.iter().map(|rollout| row(rollout, colour)).collect();
    let mut text = format!("{leader}{}", table::fitted(&head, &rows, width));
    if rows.len() > 1 || overview.daemon_sets.iter().any(|rollout| rollout.updated_ready < rollout.desired) {
        text.push_str("# ready on the wanted revision, = on it and not ready, . not on it\n");
    }
    for rollout in &overview.daemon_sets {
        // The halt is shown by itself.
        let held = (!rollout.is_held_by_halt).then_some(&rollout.held);
        let said = held.into_iter().chain([&rollout.halted, &rollout.degraded]);
        for said in said.filter(|said| !said.is_empty()) {
            text.push_str(&colour.yellow(&format!("{}/{}: {said}", rollout.namespace, rollout.name)));
            text.push('\n');
        }
    }
    text.push_str(&left_alone);
    let late: Vec<Vec<Cell>> = overview
        .daemon_sets
        .iter()
        .flat_map(|rollout| rollout.nodes.iter().map(move |place| (rollout, place)))
        .filter(|(_, place)| {
            !(place.ready && place.updated && place.reason.is_empty() || place.stands_by() && !place.is_silent)
        })
        .map(|(rollout, place)| late(rollout, place, colour))
        .collect();
    if !late.is_empty() {
        text.push('\n');
        let head = ["NODE", "DAEMONSET", "STATE", "REVISION", "READY", "REASON"];
        text.push_str(&table::fitted(&head, &late, width));
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
    let bar = if rollout.desired == 0 { "-".to_owned() } else { bar(rollout) };
    let is_done = rollout.updated_ready == rollout.desired;
    let revision = match (rollout.revision.as_str(), rollout.in_api) {
        (_, false) => "folder",
        (revision, true) => revision,
    };
    vec![
        format!("{}/{}", rollout.namespace, rollout.name).as_str().into(),
        revision.into(),
        Cell::painted(&bar, |bar| if is_done { colour.green(bar) } else { colour.yellow(bar) }),
        of(rollout.updated).as_str().into(),
        of(rollout.ready).as_str().into(),
        states.as_str().into(),
    ]
}

/// Full only when all nodes are done, and never empty once one has begun.
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

fn late(rollout: &Rollout, place: &DaemonOnNode, colour: Colour) -> Vec<Cell> {
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

pub(super) fn state(place: &DaemonOnNode, colour: Colour) -> Cell {
    Cell::painted(place.word(), |word| match (place.is_bad(), word) {
        (true, _) => colour.red(word),
        (false, "running") => colour.green(word),
        (false, _) => colour.yellow(word),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::cluster::overview::Leader;
    use crate::core::status::LeftAlone;
    use crate::core::status::LeftAloneCause;
    use crate::core::status::State;
    use crate::core::time::at;

    fn rollout(desired: usize, updated: usize, updated_ready: usize) -> Rollout {
        Rollout {
            namespace: "kube-system".into(),
            name: "net".into(),
            in_api: true,
            revision: "5d8c7".into(),
            paused: false,
            held: String::new(),
            is_held_by_halt: false,
            halted: String::new(),
            degraded: String::new(),
            released: String::new(),
            desired,
            updated,
            updated_ready,
            ready: desired,
            nodes: Vec::new(),
        }
    }

    #[test]
    fn what_else_holds_a_halted_rollout_is_shown() {
        let shows = |is_held_by_halt: bool| {
            let (held, halted) = ("2 of 3 nodes are left: why".to_owned(), "revision 5d8c7: halted".to_owned());
            let daemon_sets = vec![Rollout { held, halted, is_held_by_halt, ..rollout(3, 1, 1) }];
            let coordinator = Leader::default();
            let overview = Overview { schema_version: 1, coordinator, daemon_sets, left_alone: Vec::new() };
            let text = human(&overview, None, (Colour::none(), usize::MAX), at(1_000));
            (text.contains("net: 2 of 3 nodes are left: why"), text.contains("net: revision 5d8c7: halted"))
        };
        assert_eq!((shows(true), shows(false)), ((false, true), (true, true)));
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
        let place = |node: &str, state, updated, reason: &str| DaemonOnNode {
            node: node.into(),
            state,
            revision: if updated { "5d8c7" } else { "old" }.into(),
            pod: String::new(),
            ready: updated,
            updated,
            is_silent: false,
            reason: reason.into(),
        };
        let nodes = vec![
            place("n1", Some(State::Running), true, ""),
            place("n2", Some(State::Running), false, ""),
            place("n3", None, false, "no agent"),
        ];
        let mut lease = serde_json::json!({"spec": {"holderIdentity": "one", "acquireTime": "t",
            "renewTime": "1970-01-01T00:00:00Z"}});
        let coordinator = Leader::of(&lease);
        lease["metadata"] = serde_json::json!({"annotations": {"daemonlet.dev/cannot-list": "nodes, leases"}});
        let blind = Leader::of(&lease);
        let words = ("one since t, which cannot list, read or write nodes, leases: its log says why".to_owned(), true);
        assert_eq!(blind.words(at(1_000)), words);
        assert!(blind.words(at(31_000)).0.contains("has not renewed"), "that says more");
        let held = "2 of 3 nodes are left: paused".to_owned();
        let daemon_sets = vec![Rollout { nodes, held, ..rollout(3, 1, 1) }];
        let mut overview = Overview { schema_version: 1, coordinator, daemon_sets, left_alone: Vec::new() };
        assert!(
            human(&overview, None, (Colour::none(), usize::MAX), at(31_000))
                .starts_with("coordinator: one has not renewed its Lease for 31 s: no rollout goes on\nDAEMONSET")
        );
        assert_eq!(
            human(&overview, None, (Colour::none(), usize::MAX), at(1_000)),
            "coordinator: one since t\n\
             DAEMONSET        REVISION  ROLLOUT                 UPDATED  READY  NODES\n\
             kube-system/net  5d8c7     [######..............]  1/3      3/3    1 missing, 2 running\n\
             # ready on the wanted revision, = on it and not ready, . not on it\n\
             kube-system/net: 2 of 3 nodes are left: paused\n\n\
             NODE  DAEMONSET        STATE    REVISION  READY  REASON\n\
             n2    kube-system/net  running  old       no     not replaced yet\n\
             n3    kube-system/net  missing  old       no     no agent\n"
        );
        let mut far = overview.clone();
        far.daemon_sets[0].nodes[1].node = "ip-10-0-123-45.eu-central-1.compute.internal".to_owned();
        far.daemon_sets[0].nodes[1].reason = "failed to pull image: ".repeat(30);
        let narrow = human(&far, None, (Colour::none(), 120), at(1_000));
        assert!(narrow.lines().all(|line| line.chars().count() <= 120), "{narrow}");
        assert!(narrow.contains("ip-10-0-123-45") && narrow.contains("failed to pull image: failed t…\n"), "{narrow}");
        overview.left_alone = vec![LeftAlone {
            cause: LeftAloneCause::UnknownMode,
            count: 2,
            daemon_sets: vec!["a/b".to_owned(), "a/c\n\x1b[32m".to_owned()],
            hint: "label it".to_owned(),
        }];
        let shown = human(&overview, None, (Colour::none(), usize::MAX), at(1_000));
        let named =
            "left alone (unknown mode): 2 DaemonSets of the API: a/b, a/c\\n\\u001b[32m\nhint: a/b: label it\n\nNODE";
        assert!(shown.contains(named), "{shown}");
        let nodes = vec![place("n1", Some(State::StandingBy), false, "the DaemonSet controller's pod net-x is here")];
        let daemon_sets = vec![Rollout { nodes, ..rollout(0, 0, 0) }];
        let overview = Overview { daemon_sets, left_alone: Vec::new(), ..overview };
        assert_eq!(
            human(&overview, None, (Colour::none(), usize::MAX), at(1_000)),
            "coordinator: one since t\n\
             DAEMONSET        REVISION  ROLLOUT  UPDATED  READY  NODES\n\
             kube-system/net  5d8c7     -        0/0      0/0    1 standing by\n"
        );
    }
}
