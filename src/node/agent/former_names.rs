//! A node that has got another name, or a machine that was cloned with its state folder and named anew.
//!
//! Owns finding the instances that were made under a former name: pod UIDs contain it. They are rendered under it, so
//! that their data stays fresh, until each is replaced once.

use crate::core::identity;
use crate::core::record::Instance;
use crate::core::rendering::Revision;

use super::state::AgentState;

/// Notes under which name each instance was made, and which were made under another than `name`, which the node has.
pub(super) fn follow(state: &mut AgentState, name: &str) {
    let remembered = state.inputs.node.as_ref().map(|node| node.name.as_str());
    for record in state.records.values_mut() {
        for instance in &mut record.instances {
            if instance.node_name.is_none() {
                instance.node_name = found([Some(name), remembered], instance);
                state.unsaved.extend(instance.node_name.is_some().then(|| record.key.clone()));
            }
            if let Some(former) = instance.node_name.as_ref().filter(|made_under| *made_under != name) {
                state.made_under.insert(instance.uid.clone(), former.clone());
            }
        }
    }
}

/// The one of `names` that the UID of an instance contains.
fn found(names: [Option<&str>; 2], instance: &Instance) -> Option<String> {
    let daemon_set = instance.daemon_set.as_ref()?;
    let canonical = Revision::of(daemon_set).canonical;
    let uid = |name: &str| identity::identity(&daemon_set.key, &canonical, name, instance.incarnation).uid;
    names.into_iter().flatten().find(|name| uid(name) == instance.uid).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use crate::core::model::NodeView;
    use crate::node::agent::decide::tests::config;
    use crate::node::agent::decide::tests::daemon_set;
    use crate::node::agent::decide::tests::key;
    use crate::node::agent::decide::tests::state;

    use super::*;

    #[test]
    fn an_instance_has_the_name_that_its_uid_contains_though_nothing_else_is_remembered() {
        let config = config();
        let mut state = state(&config);
        let canonical = Revision::of(&daemon_set()).canonical;
        let uid = identity::identity(&key(), &canonical, "n1", 0).uid;
        state.records.get_mut(&key()).unwrap().instances[0].uid = uid.clone();
        let remembered = Some(NodeView { name: "n1".to_owned(), ..NodeView::default() });
        for (remembered, is_noted) in [(None, false), (remembered, true)] {
            let mut older = state.clone();
            older.inputs.node = remembered;
            follow(&mut older, "n2");
            assert_eq!(older.made_under.contains_key(&uid), is_noted, "only the Node shows the former name");
        }
        follow(&mut state, "n1");
        assert!(state.made_under.is_empty() && state.unsaved.contains(&key()));
        follow(&mut state, "n2");
        assert_eq!(state.made_under.get(&uid).map(String::as_str), Some("n1"));
        state.made_under.clear();
        follow(&mut state, "n1");
        assert!(state.made_under.is_empty(), "it has its name again");
    }
}
