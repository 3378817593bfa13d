//! The agent observes, decides and executes, in that order.

use super::*;

/// What of the agent may wait, each with what for. Nothing else in `src/node/agent` may, so that nothing changes between
/// what a pass observes and what it decides.
const WAITS: [(&str, &str); 14] = [
    ("agent.rs", "the loop waits, and a pass for its inputs"),
    ("agent/answers.rs", "an answer is a pass, and waits for its inputs"),
    ("agent/inputs.rs", "the inputs wait for the runtime"),
    ("agent/inputs/folders.rs", "notifies the loop when a folder may have changed"),
    ("agent/inputs/node.rs", "asks a port of this machine whether the kubelet is there, and no longer than 50 ms"),
    ("agent/inputs/pod_status_source.rs", "asks the runtime and the kubelet"),
    ("agent/inputs/runtime.rs", "waits for the runtime's answer, and no longer than a bound"),
    ("agent/leaving.rs", "an agent that ends waits for its last request, and no longer than a bound"),
    ("agent/recorder", "its thread waits for what it is to write down"),
    ("agent/reload.rs", "reads the configuration, and waits for a look at what another one would do"),
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
    ("agent/recorder", "its thread rests after a large pass"),
    ("agent/start.rs", "when the agent was started"),
    ("agent/wake.rs", "sleeps until the next pass is due"),
];

/// The code of the agent, each file by its name below `src/node`.
pub(super) fn agent() -> Vec<(String, String)> {
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
    let waits = [
        ".await;",
        ".await?",
        ".await\n",
        ".await)",
        ".await ",
        ".await.",
        ".await,",
        ".await]",
        "async ",
        "block_on(",
        "sleep(",
        "recv_timeout(",
        ".recv()",
        ".blocking_recv()",
        ".join()",
        ".wait()",
        "connect_timeout(",
    ];
    let outside = outside(&WAITS, &waits);
    assert!(outside.is_empty(), "a pass waits for its inputs and nothing else\n{}", outside.join("\n"));
    let files = agent();
    let text = |name: &str| &files.iter().find(|(file, _)| file == name).expect(name).1;
    let awaits = |text: &str| {
        let after = text.match_indices(".await").map(|(at, word)| &text[at + word.len()..]);
        after.filter(|rest| !rest.starts_with(char::is_alphanumeric)).count()
    };
    let pass = body(text("agent.rs"), "async fn pass(");
    assert_eq!(awaits(pass), 1, "{pass}");
    assert!(pass.find("observe().await") < pass.find("decide("), "{pass}");
    assert_eq!(awaits(body(text("agent.rs"), "async fn observe(")), 1);
    assert_eq!(awaits(body(text("agent/inputs.rs"), "async fn collect(")), 1);
    assert_eq!(awaits(body(text("agent/inputs/runtime.rs"), "async fn read(")), 1);
    let answers = text("agent/answers.rs");
    let decides = answers.match_indices("async fn ").map(|(at, _)| {
        let declaration = answers[at..].split_inclusive('(').next().unwrap_or_default();
        (declaration, body(answers, declaration))
    });
    let decides: Vec<_> = decides.filter(|(_, body)| body.contains("decide(")).collect();
    assert!(decides.len() >= 6, "{decides:?}");
    for (function, body) in decides {
        assert_eq!(awaits(body), 1, "{function}");
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
    // Called or given to another function; `ClockReading::now` is given the time.
    let readings = ["clock::", "Instant::now", "SystemTime::now", "Timestamp::now", ".elapsed()"];
    let outside = outside(&CLOCKS, &readings);
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
