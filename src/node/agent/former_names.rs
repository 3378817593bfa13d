//! A node that has got another name, or a machine that was cloned with its state folder and named anew.
//!
//! Owns finding the instances that were made under a former name: pod UIDs contain it. They are rendered under it, so
//! that their data stays fresh, until each is replaced once.

use crate::core::identity;
use crate::core::rendering::Revision;

use super::state::AgentState;

/// How many names are remembered.
const MOST: usize = 8;

/// Notes the name that the node has, and which instances were made under another.
pub(super) fn follow(state: &mut AgentState, name: &str) {
    let names = &mut state.inputs.node_names;
    names.retain(|known| known != name);
    names.insert(0, name.to_owned());
    names.truncate(MOST);
    let former = &names[1..];
    if former.is_empty() {
        return;
    }
    for instance in state.records.values().flat_map(|record| &record.instances) {
        let Some(daemon_set) = &instance.daemon_set else { continue };
        let canonical = Revision::of(daemon_set).canonical;
        let is_under = |name: &&String| {
            identity::identity(&daemon_set.key, &canonical, name, instance.incarnation).uid == instance.uid
        };
        if let Some(former) = former.iter().find(is_under) {
            state.made_under.insert(instance.uid.clone(), former.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::node::agent::decide::tests::config;
    use crate::node::agent::decide::tests::daemon_set;
    use crate::node::agent::decide::tests::key;
    use crate::node::agent::decide::tests::state;

    use super::*;

    #[test]
    fn an_instance_is_found_by_the_name_that_its_uid_contains() {
        let config = config();
        let mut state = state(&config);
        let canonical = Revision::of(&daemon_set()).canonical;
        let uid = identity::identity(&key(), &canonical, "n1", 0).uid;
        state.records.get_mut(&key()).unwrap().instances[0].uid = uid.clone();
        follow(&mut state, "n1");
        assert!(state.made_under.is_empty());
        follow(&mut state, "n2");
        assert_eq!(state.made_under.get(&uid).map(String::as_str), Some("n1"));
        assert_eq!(state.inputs.node_names, ["n2", "n1"]);
        state.made_under.clear();
        follow(&mut state, "n1");
        assert!(state.made_under.is_empty(), "it has its name again");
        assert_eq!(state.inputs.node_names, ["n1", "n2"]);
    }
}
