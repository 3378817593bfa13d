//! Rules about the tree itself that no compiler checks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

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
const PURE: [&str; 17] = [
    "agent/concerns",
    "agent/decide",
    "agent/decision",
    "agent/definitions",
    "agent/ending",
    "agent/evidence",
    "agent/failing",
    "agent/former_names",
    "agent/node_writes",
    "agent/objects",
    "agent/observation",
    "agent/observed_folders",
    "agent/observed_state",
    "agent/orphans",
    "agent/planning",
    "agent/quiet",
    "agent/state",
];

/// Whether `line` has `word`, and not as the end of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        || word.starts_with([':', '.']) && line.contains(word)
}

/// The most lines of code that a file has; comments, blank lines and tests at its end do not count.
const LONGEST: usize = 350;

/// Files that are longer, each with its own bound: to be split when they are next worked on.
const LONGER: [(&str, usize); 1] = [("src/core/plan/run.rs", 375)];

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
        let files = agent();
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
        let longest = LONGER.iter().find(|(file, _)| path.ends_with(file)).map_or(LONGEST, |(_, bound)| *bound);
        if lines > longest {
            wrong.push(format!("{}: {lines} lines of code, more than {longest}", path.display()));
        }
        if !text.starts_with("//!") {
            wrong.push(format!("{}: its first line does not say what it owns", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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

/// What of the agent may wait, each with what for. Nothing else in `src/node/agent` may, so that nothing changes between
/// what a pass observes and what it decides.
const WAITS: [(&str, &str); 12] = [
    ("agent.rs", "the loop waits, and a pass for its inputs"),
    ("agent/answers.rs", "an answer is a pass, and waits for its inputs"),
    ("agent/inputs.rs", "the inputs wait for the runtime"),
    ("agent/inputs/folders.rs", "tells the loop that a folder may have changed"),
    ("agent/inputs/pod_status_source.rs", "asks the runtime and the kubelet"),
    ("agent/inputs/runtime.rs", "waits for the runtime's answer, and no longer than a bound"),
    ("agent/leaving.rs", "an agent that ends waits for its last request, and no longer than a bound"),
    ("agent/reload.rs", "looks once at what another configuration would do"),
    ("agent/requests", "requests are sent after the effects, each in a task of its own"),
    ("agent/signals.rs", "waits for signals"),
    ("agent/simulated.rs", "runs the loop in a simulated world"),
    ("agent/wake.rs", "the loop waits for something to happen"),
];

/// What of the agent may read a clock, each with what for.
const CLOCKS: [(&str, &str); 8] = [
    ("agent.rs", "measures how long a pass took"),
    ("agent/answers.rs", "measures how long a pass took"),
    ("agent/inputs.rs", "the time comes with an observation"),
    ("agent/inputs/node.rs", "when the machine booted, by two clocks that are read together"),
    ("agent/inputs/pod_status_source.rs", "when a pod was seen, in a task of its own"),
    ("agent/recorder.rs", "its thread rests after a large pass"),
    ("agent/start.rs", "when the agent was started"),
    ("agent/wake.rs", "sleeps until the next pass is due"),
];

/// The code of the agent, each file by its name below `src/node`.
fn agent() -> Vec<(String, String)> {
    let (node, mut found) = (root().join("src/node"), Vec::new());
    for (path, text) in sources().into_iter().filter(|(path, _)| !is_test(path)) {
        let Ok(path) = path.strip_prefix(&node) else { continue };
        let name = path.display().to_string();
        if name == "agent.rs" || name.starts_with("agent/") {
            found.push((name, code(&text).map(|(_, line)| format!("{line}\n")).collect()));
        }
    }
    assert!(found.len() > 40, "only {} files", found.len());
    found
}

/// The body of the function that is declared by `declaration`.
fn body<'t>(text: &'t str, declaration: &str) -> &'t str {
    let start = text.find(declaration).unwrap_or_else(|| panic!("there is no `{declaration}`"));
    let line = text[..start].rfind('\n').map_or(0, |end| end + 1);
    let indent = text[line..].len() - text[line..].trim_start().len();
    let end = format!("\n{}}}\n", " ".repeat(indent));
    text[start..].split(&end).next().unwrap_or_default()
}

/// The files that have one of `words` and are not in `list`; and what is in it for nothing.
fn outside(list: &[(&str, &str)], words: &[&str]) -> Vec<String> {
    let is_listed = |name: &str, place: &str| {
        name == place || name.strip_prefix(place).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
    };
    let (mut wrong, mut used) = (Vec::new(), Vec::new());
    for (name, text) in agent() {
        let Some(word) = words.iter().find(|word| text.contains(**word)) else { continue };
        match list.iter().find(|(place, _)| is_listed(&name, place)) {
            Some(listed) => used.push(listed),
            None => wrong.push(format!("{name}: `{word}`")),
        }
    }
    wrong.extend(list.iter().filter(|listed| !used.contains(listed)).map(|listed| format!("idle: {listed:?}")));
    wrong
}

#[test]
fn a_pass_of_the_agent_waits_once_for_its_inputs() {
    let waits =
        [".await;", ".await?", ".await\n", ".await)", ".await ", "async ", "block_on(", "sleep(", "recv_timeout("];
    let outside = outside(&WAITS, &waits);
    assert!(outside.is_empty(), "a pass waits for its inputs and nothing else\n{}", outside.join("\n"));
    let files = agent();
    let text = |name: &str| &files.iter().find(|(file, _)| file == name).expect(name).1;
    let awaits = |text: &str| text.matches(".await").count();
    let pass = body(text("agent.rs"), "async fn pass(");
    assert_eq!(awaits(pass), 1, "{pass}");
    assert!(pass.find("observe().await") < pass.find("decide("), "{pass}");
    assert_eq!(awaits(body(text("agent.rs"), "async fn observe(")), 1);
    assert_eq!(awaits(body(text("agent/inputs.rs"), "async fn collect(")), 1);
    assert_eq!(awaits(body(text("agent/inputs/runtime.rs"), "async fn read(")), 1);
    for function in ["async fn answer_plan(", "async fn retry(", "async fn release(", "async fn restart("] {
        assert_eq!(awaits(body(text("agent/answers.rs"), function)), 1, "{function}");
    }
}

#[test]
fn the_agent_is_small() {
    let files = agent();
    let owner = files.iter().find(|(file, _)| file == "agent.rs").expect("the agent");
    let fields = body(&owner.1, "pub struct Agent {").lines().count() - 1;
    assert!(fields <= 8, "the agent has {fields} fields");
    let is_of_it = |line: &str| line.starts_with("impl") && line.trim_end_matches([' ', '{']).ends_with(" Agent");
    let parts: Vec<&str> =
        files.iter().filter(|(_, text)| text.lines().any(is_of_it)).map(|(file, _)| &**file).collect();
    assert!(parts.len() <= 3, "the agent is spread over {parts:?}");
}

#[test]
fn the_agents_clock_is_its_inputs() {
    let outside = outside(&CLOCKS, &["clock::", "::now()", ".elapsed()"]);
    assert!(outside.is_empty(), "the time comes with an observation\n{}", outside.join("\n"));
    let files = agent();
    let inputs = &files.iter().find(|(file, _)| file == "agent/inputs.rs").expect("inputs").1;
    let collect = body(inputs, "async fn collect(");
    let clocks = |text: &str| text.matches("clock::now()").count();
    let (before, after) = collect.split_once(".await").expect("one wait");
    assert_eq!((clocks(before), clocks(after)), (1, 1), "the time of an observation is read once: {collect}");
    let new = body(inputs, "pub(super) fn new(");
    assert_eq!(clocks(inputs), clocks(new) + clocks(collect), "what is read for an observation gets its time");
    let node = &files.iter().find(|(file, _)| file == "agent/inputs/node.rs").expect("the node").1;
    let booted = body(node, "fn machine_booted(");
    assert_eq!(node.matches("clock::").count(), booted.matches("clock::").count(), "only the boot has a clock");
}

/// Where nothing may be decided by the text of a message.
const DECIDES: [&str; 12] = [
    "src/cli/kubectl/steer.rs",
    "src/cluster",
    "src/cluster.rs",
    "src/config/resolve.rs",
    "src/core/cluster",
    "src/core/plan",
    "src/core/plan.rs",
    "src/core/sources",
    "src/core/sources.rs",
    "src/node/agent",
    "src/node/enrolment",
    "src/node/enrolment.rs",
];

/// Lines that look at a text and decide nothing by a message: the file, a part of the line, and what it is.
const LOOKS_AT_TEXT: [(&str, &str, &str); 20] = [
    ("src/cluster/watch.rs", "words != reported", "says each thing once"),
    ("src/config/resolve.rs", "!text.is_empty()", "a field of the kubelet's configuration"),
    ("src/core/cluster/conditions.rs", "!message.is_empty()", "the API server drops an empty field"),
    ("src/core/cluster/history.rs", "text.contains(character)", "JSON as upstream writes it"),
    ("src/core/cluster/overview/reason.rs", "report.message.is_empty()", "joins words"),
    ("src/core/cluster/released.rs", "!text.is_empty()", "a name in our own condition, read back"),
    ("src/core/cluster/retries.rs", "known.why != why", "an enum"),
    ("src/core/cluster/snapshot/objects.rs", "(!text.is_empty())", "a name"),
    ("src/core/plan.rs", "self.summary.reason.is_empty()", "joins words"),
    ("src/core/plan.rs", "!reason.is_empty()", "joins words"),
    ("src/core/plan/ending.rs", "self.summary.reason.is_empty()", "joins words"),
    ("src/node/agent/answers.rs", "if reason.is_empty()", "words of an answer"),
    ("src/node/agent/answers.rs", "!reason.is_empty()", "words of an answer"),
    ("src/node/agent/release.rs", "daemon.summary.reason.is_empty()", "joins words"),
    ("src/node/agent/teardown.rs", "!reason.is_empty()", "words of a report"),
    ("src/node/agent/report.rs", "!text.is_empty()", "a selector"),
    ("src/node/agent/report/changes.rs", "!hint.is_empty()", "joins words"),
    ("src/node/agent/concerns/claims/status.rs", "!report.message.is_empty()", "words in the place of others"),
    ("src/node/agent/concerns/claims/status.rs", "if message.is_empty()", "joins words"),
    ("src/node/enrolment.rs", "if message.is_empty()", "joins words"),
];

/// How text is compared.
const COMPARES: [&str; 8] =
    [".contains(", ".starts_with(", ".ends_with(", ".strip_prefix(", ".strip_suffix(", ".is_empty()", " == ", " != "];

/// Names of what holds a message.
const MESSAGES: [&str; 11] =
    ["error", "held", "hint", "hints", "message", "object", "reason", "said", "text", "why", "words"];

/// What gives the same text in another type.
const SAME_TEXT: [&str; 8] = [
    ".as_ref()",
    ".as_str()",
    ".as_deref()",
    ".as_bytes()",
    ".clone()",
    ".trim()",
    ".to_string()",
    ".unwrap_or_default()",
];

/// The last name of an expression, without what only changes its type.
fn last_name(expression: &str) -> &str {
    match SAME_TEXT.iter().find_map(|same| expression.strip_suffix(same)) {
        Some(rest) => last_name(rest),
        None => expression.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default(),
    }
}

/// Whether a line compares a message with something, or anything with a sentence.
fn compares_text(line: &str) -> bool {
    COMPARES.iter().flat_map(|operator| line.match_indices(operator)).any(|(at, operator)| {
        let (name, right) = (last_name(&line[..at]), &line[at + operator.len()..]);
        let is_equality = operator.ends_with("= ");
        let literal = right.strip_prefix('"').and_then(|rest| rest.split('"').next());
        let is_code = literal.is_some_and(|literal| !literal.is_empty() && !literal.contains(' '));
        // A number, a variant, or what holds a Lease.
        let is_value = right.starts_with(|c: char| c.is_ascii_digit()) || right.contains("::") || name == "held";
        let right = right.trim_start_matches("Some(").trim_start_matches(['&', '*']);
        let right = right.split([')', ' ', ',', ';']).next().unwrap_or_default();
        let is_field = right.rsplit_once('.').is_some_and(|(_, field)| field != "held" && MESSAGES.contains(&field));
        MESSAGES.contains(&name) && !(is_equality && (is_code || is_value))
            || is_equality && is_field
            || literal.is_some_and(|literal| literal.trim().contains(' '))
    })
}

/// Whether a line begins to match a message, and the next one with a text.
fn matches_text(line: &str, next: &str) -> bool {
    let of = line.rsplit_once("match ").and_then(|(_, of)| of.strip_suffix(" {"));
    of.is_some_and(|of| MESSAGES.contains(&last_name(of))) && next.trim_start().starts_with('"')
}

#[test]
fn nothing_is_decided_by_the_text_of_a_message() {
    for bad in [
        "if summary.reason.contains(NOT_APPROVED) {",
        "let hint = note.strip_prefix(\"see also \");",
        "failure.message == other.message",
        "matches!(x, y if y.ends_with(\"has been modified\"))",
        "if said.as_ref() == Some(&failure.message) {",
        "if before == failure.message {",
        "problems.retain(|problem| problem.object != CONFIGURATION);",
        "if plan.held.is_empty() {",
        "summary.reason == \"\"",
        "summary.hint.as_deref().unwrap_or_default() == known",
    ] {
        assert!(compares_text(bad), "{bad}");
    }
    assert!(
        matches_text("match facts.reason.as_str() {", "    \"\" => 1,") && !matches_text("match a {", "\"\" => 1,")
    );
    for good in [
        "uids.contains(uid)",
        "status.reason == \"NotFound\"",
        "trouble.reason == TroubleReason::Halted",
        "report.said == 0",
        "name.starts_with(\"kube-\")",
        "a == b",
    ] {
        assert!(!compares_text(good), "{good}");
    }
    let (mut wrong, mut used) = (Vec::new(), Vec::new());
    for (path, text) in sources().iter().filter(|(path, _)| !is_test(path)) {
        if !DECIDES.iter().any(|place| path.starts_with(root().join(place))) {
            continue;
        }
        let lines: Vec<_> = code(text).collect();
        for (index, (number, line)) in lines.iter().enumerate() {
            let next = lines.get(index + 1).map_or("", |(_, next)| next);
            if !compares_text(line) && !matches_text(line, next) {
                continue;
            }
            let is_it = |(file, part, _): &&(&str, &str, &str)| path.ends_with(file) && line.contains(part);
            match LOOKS_AT_TEXT.iter().find(is_it) {
                Some(listed) => used.push(listed),
                None => wrong.push(format!("{}:{number}: {}", path.display(), line.trim())),
            }
        }
    }
    wrong
        .extend(LOOKS_AT_TEXT.iter().filter(|listed| !used.contains(listed)).map(|listed| format!("idle: {listed:?}")));
    assert!(
        wrong.is_empty(),
        "decide by an enum; what upstream says in words is read in core::upstream\n{}",
        wrong.join("\n")
    );
}

/// The threat model names tests: each of them exists.
#[test]
fn the_tests_that_the_threat_model_names_exist() {
    let page = fs::read_to_string("docs/security.md").unwrap();
    let model = page.split("\n## ").find(|part| part.starts_with("Tests of the threat model")).unwrap();
    let rows = model.lines().filter(|line| line.starts_with("| ")).skip(2);
    let named: Vec<&str> = rows
        .filter_map(|row| row.trim_end_matches('|').rsplit_once('|'))
        .flat_map(|(_, tests)| tests.split(',').map(|name| name.trim().trim_matches('`')))
        .filter(|name| !name.is_empty())
        .collect();
    assert!(named.len() > 20, "{named:?}");
    let sources = ["src", "tests/cluster/suite", "tests/it", "tests/cli"].map(|folder| text_below(Path::new(folder)));
    for name in named {
        let is_there = sources.iter().any(|text| {
            [format!("fn {name}()"), format!("def {name}(self)")].iter().any(|start| text.contains(start.as_str()))
        });
        assert!(is_there, "{name}");
    }
}

/// What the threat model says of each party has its tests, under the same name: a row may say more of whom it is about.
#[test]
fn the_rows_of_the_threat_model_are_those_of_its_tests() {
    let page = fs::read_to_string("docs/security.md").unwrap();
    let rows = |title: &str| -> Vec<String> {
        let part = page.split("\n## ").find(|part| part.starts_with(title)).unwrap();
        let names = part.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        names.filter(|name| !matches!(*name, "who" | "---")).map(str::to_owned).collect()
    };
    let (model, tests) = (rows("Threat model"), rows("Tests of the threat model"));
    assert!(model.len() > 50, "{model:?}");
    for (row, tested) in model.iter().zip(&tests) {
        let more = row.strip_prefix(tested.as_str());
        assert!(more.is_some_and(|more| more.is_empty() || more.starts_with([':', ' '])), "{row:?}, and {tested:?}");
    }
    assert_eq!(model.len(), tests.len());
}

/// Everything that the files below `folder` say.
fn text_below(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| match path.is_dir() {
        true => text_below(&path),
        false => fs::read_to_string(&path).unwrap_or_default(),
    };
    entries.map(of).collect()
}
