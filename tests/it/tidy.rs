//! Rules about the tree itself that no compiler checks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

mod agent;
mod layers;
mod messages;
mod threat_model;

/// What the pure core must not know.
const IMPURE: [&str; 18] = [
    "tokio",
    "kube::",
    "tonic",
    "hyper",
    "tracing",
    "log::",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "SystemTime",
    "Instant",
    "::now(",
    "nix::",
    "ring::",
    "rand::",
    "thread::",
    "crate::node",
];

/// What a decision of the agent is made of, in `src/node`: as pure as the core, and a line of the log is a value.
const PURE: [&str; 25] = [
    "agent/concerns",
    "agent/daemon_event",
    "agent/decide",
    "agent/decision",
    "agent/definitions",
    "agent/ending",
    "agent/evidence",
    "agent/failing",
    "agent/former_names",
    "agent/gates",
    "agent/node_writes",
    "agent/objects",
    "agent/observation",
    "agent/observed_folders",
    "agent/observed_state",
    "agent/orphans",
    "agent/outcome",
    "agent/planning",
    "agent/quiet",
    "agent/records",
    "agent/release",
    "agent/rollback_data",
    "agent/runtime_pods",
    "agent/state",
    "agent/versioned_objects",
];

/// Whether `line` has `word`, and not as the end of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        || word.starts_with([':', '.']) && line.contains(word)
}

/// The most lines of code that a file has; comments, blank lines and tests at its end do not count.
const LONGEST: usize = 350;

/// The most lines that a source has, whatever is on them.
const LONGEST_OF_ALL: usize = 400;

/// Where sources are.
const SOURCES: [&str; 7] = ["benches", "examples", "fuzz/fuzz_targets", "fuzz/src", "packaging", "src", "tests"];

/// What reaches a file system.
const FILE_SYSTEM: [&str; 19] = [
    "std::fs",
    "tokio::fs",
    "std::os::unix::fs",
    "nix::",
    "nix::dir",
    "nix::fcntl",
    "nix::mount",
    "nix::sys::stat",
    "nix::unistd::fchown",
    "nix::unistd::fsync",
    "nix::unistd::symlinkat",
    "nix::unistd::unlink",
    ".canonicalize()",
    ".exists()",
    ".is_dir()",
    ".is_file()",
    ".metadata()?",
    ".read_dir()",
    ".symlink_metadata()",
];

/// What of nix reaches no file system, and what it is for.
const NO_FILE: [(&str, &str); 7] = [
    ("nix::errno", "which error it was"),
    ("nix::sys::signal", "signals of this process"),
    ("nix::time", "a clock"),
    ("nix::unistd::SysconfVar", "the kernel's ticks"),
    ("nix::unistd::getegid", "who this process is"),
    ("nix::unistd::geteuid", "who this process is"),
    ("nix::unistd::sysconf", "the kernel's ticks"),
];

/// What of the node's side reaches a file system past `fsx`, and why. `src/cli`, `src/config` and `src/guard` are other
/// programs or the owner's configuration: the agent's work is in `src/node`.
const PAST_FSX: [(&str, &str); 5] = [
    ("src/node/doctor", "looks at the machine for a person, and at nothing that the agent works on"),
    ("src/node/api/fake.rs", "a test's"),
    ("src/node/api/kubeconfig.rs", "reads the kubeconfig and its files as part of connecting"),
    ("src/node/cri/channel.rs", "words a hint"),
    ("src/node/metrics/process.rs", "reads what the kernel says of this process"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files below `folder`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

fn sources() -> Vec<(PathBuf, String)> {
    let rust = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "rs");
    let found: Vec<_> = files(&root().join("src")).into_iter().filter(rust).collect();
    assert!(found.len() > 100, "only {} files", found.len());
    found.into_iter().map(|path| (path.clone(), fs::read_to_string(path).expect("text"))).collect()
}

fn is_test(path: &Path) -> bool {
    path.components()
        .any(|part| matches!(part.as_os_str().to_str(), Some("tests.rs" | "tests" | "golden.rs" | "fixture.rs")))
}

/// The lines of code before a file's own test module.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let test_module = |lines: &[&str]| lines[0].trim() == "#[cfg(test)]" && lines[1].starts_with("mod tests {");
    let lines: Vec<&str> = text.lines().collect();
    let end = lines.windows(2).position(test_module).unwrap_or(lines.len());
    let code = text.lines().take(end).enumerate().map(|(index, line)| (index + 1, line));
    code.filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with("//"))
}

#[test]
fn the_core_is_pure() {
    let core = root().join("src/core");
    for (path, text) in sources().iter().filter(|(path, _)| path.starts_with(&core) && !is_test(path)) {
        for (number, line) in code(text) {
            for word in IMPURE {
                assert!(!has_word(line, word), "{}:{number}: the core must not know `{word}`", path.display());
            }
        }
    }
}

#[test]
fn what_the_agent_decides_with_is_pure() {
    for part in PURE {
        let files = agent::agent();
        let is_of_it = |name: &str| name.strip_prefix(part).is_some_and(|rest| rest.starts_with('/') || rest == ".rs");
        let of_it: Vec<_> = files.iter().filter(|(name, _)| is_of_it(name)).collect();
        assert!(!of_it.is_empty(), "there is no {part}");
        for (name, text) in of_it {
            // A module of the agent is called `log`, and all of it is below `node`.
            let words = IMPURE.iter().filter(|word| !["log::", "crate::node"].contains(word));
            let found = text.lines().find_map(|line| words.clone().find(|word| has_word(line, word)));
            assert_eq!(found, None, "{name}");
        }
    }
}

/// The code of the coordinator's shell, each file by its name there.
fn coordinator() -> Vec<(String, String)> {
    let (root, mut found) = (root().join("src"), Vec::new());
    for (path, text) in sources() {
        let name = path.strip_prefix(&root).expect("below src").display().to_string();
        if (name == "cluster.rs" || name.starts_with("cluster/")) && !is_test(&path) {
            found.push((name, code(&text).map(|(_, line)| format!("{line}\n")).collect()));
        }
    }
    assert!(found.len() > 4, "only {} files", found.len());
    found
}

#[test]
fn the_coordinator_awaits_once_from_its_inputs_to_its_decision() {
    for (name, text) in coordinator() {
        match name.as_str() {
            "cluster.rs" => {
                let pass = text.split("loop {").nth(1).and_then(|rest| rest.split("\n    }\n").next()).expect("a loop");
                let steps = ["select!", "inputs.collect(", ".absorb(", "decide(", "writer.send(", ".commit("];
                let found: Vec<usize> = steps.map(|step| pass.find(step).expect(step)).into();
                assert!(found.is_sorted(), "{name}: observe, decide, write: {found:?}");
                assert_eq!(pass.matches("await").count(), 0, "{name}: a pass awaits its inputs and nothing else");
                assert_eq!(text.matches("loop {").count(), 1, "{name}");
            }
            "cluster/inputs.rs" => assert_eq!(text.matches("await").count(), 1, "{name}: one await reads everything"),
            _ => assert!(!text.contains("decide("), "{name}: only the loop decides"),
        }
    }
}

#[test]
fn the_coordinators_clock_is_its_inputs_and_its_leases() {
    // The thread that serves metrics has readers of its own.
    let have_their_own = ["cluster/inputs.rs", "cluster/lease.rs", "cluster/health.rs"];
    for (name, text) in coordinator().iter().filter(|(name, _)| !have_their_own.contains(&name.as_str())) {
        for clock in ["::now(", "now()", ".elapsed(", "SystemTime"] {
            assert!(!text.contains(clock), "{name}: the time comes with an observation, not from `{clock}`");
        }
    }
}

#[test]
fn the_coordinators_requests_leave_from_one_place() {
    let own = ["cluster/lease.rs", "cluster/watch.rs", "cluster/write.rs"];
    for (name, text) in coordinator().iter().filter(|(name, _)| !own.contains(&name.as_str())) {
        assert!(!text.contains("Api<") && !text.contains("Api::"), "{name}: requests are `write`'s");
    }
}

#[test]
fn the_coordinator_compares_no_messages() {
    let core = root().join("src/core/cluster");
    let mut files = coordinator();
    for (path, text) in sources().into_iter().filter(|(path, _)| path.starts_with(&core) && !is_test(path)) {
        files.push((path.display().to_string(), code(&text).map(|(_, line)| format!("{line}\n")).collect()));
    }
    for (name, text) in files {
        for test in [".contains(\"", ".starts_with(\"", ".ends_with(\"", ".strip_prefix(\"", "message ==", "words =="] {
            assert!(!text.contains(test), "{name}: `{test}`: what decides is an enum");
        }
    }
}

#[test]
fn the_node_reaches_files_through_fsx() {
    let (root, mut used) = (root(), Vec::new());
    let node = root.join("src/node");
    let is_fsx = |path: &Path| path.starts_with(node.join("fsx")) || path == node.join("fsx.rs");
    let is_checked = |path: &Path| path.starts_with(&node) && !is_fsx(path) && !is_test(path);
    for (path, text) in sources().iter().filter(|(path, _)| is_checked(path)) {
        let past = PAST_FSX.iter().find(|(place, _)| path.starts_with(root.join(place)));
        for (number, line) in code(text) {
            let line = NO_FILE.iter().fold(line.to_owned(), |line, (no_file, _)| line.replace(no_file, ""));
            let Some(word) = FILE_SYSTEM.iter().find(|word| has_word(&line, word)) else { continue };
            used.extend(past);
            assert!(past.is_some(), "{}:{number}: use src/node/fsx instead of `{word}`", path.display());
        }
    }
    let idle = PAST_FSX.iter().find(|place| !used.contains(place));
    assert!(idle.is_none(), "take it off the list: {idle:?}");
}

/// Whoever formats it prints its capital and its number.
#[test]
fn an_io_error_is_printed_by_words_alone() {
    let takes_one = |line: &str| {
        ["error: &io::Error", "error: io::Error", "error: std::io::Error"].iter().any(|it| line.contains(it))
    };
    for (path, text) in sources().iter().filter(|(path, _)| !is_test(path)) {
        let lines: Vec<_> = code(text).collect();
        for window in lines.windows(3).filter(|window| takes_one(window[0].1)) {
            let printed = window.iter().find(|(_, line)| line.contains("{error}"));
            assert!(printed.is_none(), "{}:{}: print `words(&error)`", path.display(), window[0].0);
        }
    }
}

#[test]
fn files_are_short_and_say_what_they_own() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        if path.file_name().is_some_and(|name| name == "mod.rs") {
            wrong.push(format!("{}: write foo.rs and foo/", path.display()));
        }
        if is_test(&path) {
            continue;
        }
        let lines = code(&text).count();
        if lines > LONGEST {
            wrong.push(format!("{}: {lines} lines of code, more than {LONGEST}", path.display()));
        }
        if !text.starts_with("//!") {
            wrong.push(format!("{}: its first line does not say what it owns", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_source_is_longer_than_400_lines() {
    let (mut wrong, mut kinds) = (Vec::new(), BTreeMap::from([("rs", 0), ("py", 0)]));
    for path in SOURCES.iter().flat_map(|folder| files(&root().join(folder))) {
        let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
        let Some(count) = kinds.get_mut(kind) else { continue };
        *count += 1;
        let lines = fs::read_to_string(&path).expect("text").lines().count();
        if lines > LONGEST_OF_ALL {
            wrong.push(format!("{}: {lines} lines, more than {LONGEST_OF_ALL}", path.display()));
        }
    }
    assert!(kinds["rs"] > 500 && kinds["py"] > 50, "{kinds:?}");
    assert!(wrong.is_empty(), "move a part that is a thing of its own to a file of its own\n{}", wrong.join("\n"));
}

/// Type names that are defined more than once, and why.
const SHARED_NAMES: [(&str, &str); 1] =
    [("Arguments", "the arguments of one command each; said with the command's module, as in `run::Arguments`")];

/// The type that a line defines. Of aliases only those of a module count: further in they are local or associated types.
fn defined_type(line: &str) -> Option<&str> {
    let is_indented = line.starts_with(' ');
    let line = line.trim_start();
    let line = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let (keyword, rest) = line.split_once(' ')?;
    let is_type = matches!(keyword, "struct" | "enum" | "union" | "trait") || keyword == "type" && !is_indented;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (is_type && name.starts_with(char::is_uppercase)).then_some(name)
}

#[test]
fn a_type_name_means_one_thing() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in sources() {
        for (index, line) in text.lines().enumerate() {
            if let Some(name) = defined_type(line) {
                places.entry(name.to_owned()).or_default().push(format!("{}:{}", path.display(), index + 1));
            }
        }
    }
    assert!(places.len() > 800, "only {} types", places.len());
    places.retain(|_, places| places.len() > 1);
    let idle = SHARED_NAMES.iter().find(|(name, _)| !places.contains_key(*name));
    assert!(idle.is_none(), "take it off the list: {idle:?}");
    let commands = root().join("src/cli").display().to_string();
    let is_command = |places: &[String]| places.iter().all(|place| place.starts_with(&commands));
    places.retain(|name, places| SHARED_NAMES.iter().all(|(shared, _)| name != shared) || !is_command(places));
    let wrong: Vec<String> = places.iter().map(|(name, at)| format!("{name}: {}", at.join(", "))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_golden_folder_is_named_by_a_test() {
    let mut code: Vec<String> = sources().into_iter().map(|(_, text)| text).collect();
    for folder in ["tests/it", "tests/cli", "tests/cluster", "docs"] {
        code.extend(files(&root().join(folder)).iter().filter_map(|path| fs::read_to_string(path).ok()));
    }
    let golden = root().join("tests/golden");
    for entry in fs::read_dir(&golden).expect("a folder") {
        let name = entry.expect("an entry").file_name();
        let path = format!("golden/{}", name.to_str().expect("text"));
        assert!(code.iter().any(|text| text.contains(&path)), "no test reads tests/{path}");
    }
}

#[test]
fn every_rendering_case_has_input_and_output() {
    for case in fs::read_dir(root().join("tests/golden/render")).expect("a folder") {
        let path = case.expect("an entry").path();
        let mut names: Vec<_> = files(&path).iter().filter_map(|file| Some(file.file_name()?.to_owned())).collect();
        names.sort();
        assert_eq!(names, ["in.yaml", "out.yaml"], "{}", path.display());
    }
}
