//! The modules of the agent are in layers: no file knows one that knows it, by whatever way.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::agent::agent;

/// The modules that stand outside: they are built for tests and fuzzing alone.
const OUTSIDE: [&str; 2] = ["agent/fuzzing.rs", "agent/simulated.rs"];

/// A module by its path, `["agent", "inputs", "node"]`.
type Module = Vec<String>;

/// The module that a file is.
fn module(file: &str) -> Module {
    file.trim_end_matches(".rs").split('/').map(str::to_owned).collect()
}

/// The paths that are written in `text`, but for those that say who may see something.
fn paths(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let (mut rest, mut is_visibility) = (text, false);
    std::iter::from_fn(move || {
        loop {
            let start = rest.find(is_part)?;
            let (before, from) = rest.split_at(start);
            let end = from.find(|c| !is_part(c)).unwrap_or(from.len());
            rest = &from[end..];
            let parts: Vec<&str> = from[..end].split("::").collect();
            let is_seen_by = std::mem::replace(&mut is_visibility, parts == ["in"] && before.ends_with('('));
            // `use super::*` stands in modules within a file.
            if parts.len() > 1 && !is_seen_by && parts != ["super", ""] {
                return Some(parts);
            }
        }
    })
}

/// The module that `path` names where it is written in `from`, if it is one of `modules`.
fn target(path: &[&str], from: &Module, modules: &BTreeSet<Module>) -> Option<Module> {
    let (mut found, mut rest) = (from.clone(), path);
    if let Some(inside) = path.strip_prefix(&["crate", "node", "agent"]) {
        (found, rest) = (vec!["agent".to_owned()], inside);
    } else if !matches!(path[0], "super" | "self") {
        let child = [&from[..], &[path[0].to_owned()]].concat();
        modules.contains(&child).then_some(())?;
    }
    while let Some(("super", after)) = rest.split_first().map(|(first, after)| (*first, after)) {
        found.pop()?;
        rest = after;
    }
    for part in rest.strip_prefix(&["self"]).unwrap_or(rest) {
        let child = [&found[..], &[(*part).to_owned()]].concat();
        if !modules.contains(&child) {
            break;
        }
        found = child;
    }
    Some(found).filter(|found| modules.contains(found) && found != from)
}

/// What is left of `known` when all that is in no circle, and in no way between two, is taken away.
fn circles(mut known: BTreeMap<Module, BTreeSet<Module>>) -> BTreeMap<Module, BTreeSet<Module>> {
    loop {
        let all: BTreeSet<Module> = known.keys().cloned().collect();
        let used: BTreeSet<Module> = known.values().flatten().cloned().collect();
        known.retain(|module, knows| {
            knows.retain(|other| all.contains(other));
            !knows.is_empty() && used.contains(module)
        });
        if known.len() == all.len() {
            return known;
        }
    }
}

#[test]
fn the_modules_of_the_agent_are_in_layers() {
    let files: Vec<(String, String)> = agent().into_iter().filter(|(file, _)| !OUTSIDE.contains(&&**file)).collect();
    let modules: BTreeSet<Module> = files.iter().map(|(file, _)| module(file)).collect();
    let knows = |(file, text): &(String, String)| {
        let from = module(file);
        // Tests that others use, too, stand in a module that is not private.
        let text = text.split("mod tests {").next().unwrap_or_default();
        let targets = paths(text).filter_map(|path| target(&path, &from, &modules)).collect();
        (from, targets)
    };
    let known: BTreeMap<Module, BTreeSet<Module>> = files.iter().map(knows).collect();
    assert!(known.values().map(BTreeSet::len).sum::<usize>() > 200, "paths are not found");
    let words = |module: &Module| module.join("/");
    let found: Vec<String> = circles(known)
        .iter()
        .map(|(module, knows)| {
            let knows: Vec<String> = knows.iter().map(words).collect();
            format!("{} knows {}", words(module), knows.join(", "))
        })
        .collect();
    assert!(found.is_empty(), "these know each other, so that none can be read alone:\n{}", found.join("\n"));
}

#[test]
fn a_circle_is_found_and_what_leads_to_it_is_not_named() {
    let of = |pairs: &[(&str, &[&str])]| -> BTreeMap<Module, BTreeSet<Module>> {
        pairs.iter().map(|(from, to)| (module(from), to.iter().map(|to| module(to)).collect())).collect()
    };
    let known = of(&[("a", &["b"]), ("b", &["c"]), ("c", &["b", "d"]), ("d", &[])]);
    assert_eq!(circles(known), of(&[("b", &["c"]), ("c", &["b"])]));
    assert!(circles(of(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])).is_empty());
    let modules: BTreeSet<Module> = ["agent", "agent/a", "agent/a/b"].iter().map(|file| module(file)).collect();
    let target = |path: &str, from: &str| {
        let found = paths(path).next().and_then(|path| target(&path, &module(from), &modules));
        found.map(|found| found.join("/"))
    };
    assert_eq!(target("use super::super::Pass;", "agent/a/b").as_deref(), Some("agent"));
    assert_eq!(target("use crate::node::agent::a::b::X;", "agent").as_deref(), Some("agent/a/b"));
    assert_eq!(target("b::new()", "agent/a").as_deref(), Some("agent/a/b"));
    assert_eq!(target("std::fmt", "agent/a"), None);
    assert_eq!(target("pub(in super::super) fn new()", "agent/a/b"), None);
}
