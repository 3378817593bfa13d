//! The tables of the pages have what the code has: states, causes, the fields of JSON, and what else the code lists.

use std::collections::BTreeSet;

use daemonlet::core::metrics::label_value;
use daemonlet::core::record::Cause;
use daemonlet::core::status::LeftAloneCause;
use daemonlet::core::status::State;
use serde::Serialize;

use crate::readme::read;

/// What `page` says below the heading `heading`, up to the next heading of any depth.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let start = page.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no heading {heading}"));
    let body = &page[start + heading.len() + 2..];
    &body[..body.find("\n#").unwrap_or(body.len())]
}

/// The cells of the rows of the first table whose head begins with `head`.
fn rows<'a>(text: &'a str, head: &str) -> Vec<Vec<&'a str>> {
    let from = text.find(&format!("| {head}")).unwrap_or_else(|| panic!("no table {head}"));
    let table = text[from..].lines().take_while(|line| line.starts_with('|')).skip(2);
    table.map(|line| line.trim_matches('|').split(" |").map(str::trim).collect()).collect()
}

/// The words between backticks.
fn spans(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn as_json(word: impl Serialize) -> String {
    serde_json::to_value(word).unwrap().as_str().unwrap().to_owned()
}

/// The spellings of each word that has more than one.
fn spellings<T: Copy + Serialize>(all: &[T], name: fn(T) -> &'static str) -> Vec<Vec<String>> {
    let of = |one: &T| vec![name(*one).to_owned(), as_json(*one), label_value(name(*one))];
    all.iter().map(of).filter(|words| words.iter().any(|word| *word != words[0])).collect()
}

#[test]
fn every_word_has_its_spellings() {
    let page = read("docs/json.md");
    let words = section(&page, "## Words");
    let of_page = |head: &str| -> Vec<Vec<String>> { rows(words, head).iter().map(|r| spans(&r.join(" "))).collect() };
    assert_eq!(of_page("state,"), spellings(State::ALL, State::as_str));
    assert_eq!(of_page("cause of a failed"), spellings(Cause::ALL, Cause::as_str));
    let mut causes = spellings(LeftAloneCause::ALL, LeftAloneCause::as_str);
    causes.iter_mut().for_each(|words| words.truncate(2));
    assert_eq!(of_page("cause of `left"), causes);
}

#[test]
fn states_and_causes_are_explained() {
    let page = read("docs/status.md");
    let explained: Vec<(String, bool)> = rows(section(&page, "## States"), "state |")
        .iter()
        .map(|row| (spans(row[0]).concat(), row[2] == "yes"))
        .collect();
    let known = |state: &State| (state.as_str().to_owned(), state.is_bad());
    assert_eq!(
        explained.iter().cloned().collect::<BTreeSet<_>>(),
        State::ALL.iter().map(known).collect::<BTreeSet<_>>()
    );
    let page = read("docs/bad-revision.md");
    let causes = rows(section(&page, "## When a revision has failed"), "cause |");
    let causes: BTreeSet<String> = causes.iter().map(|row| spans(row[0]).concat()).collect();
    assert_eq!(causes, Cause::ALL.iter().map(|cause| cause.as_str().to_owned()).collect());
}

#[test]
fn the_manual_page_and_the_page_of_the_configuration_give_the_same_shares() {
    let page = read("docs/configuration.md");
    let mut seen = 0;
    for key in daemonlet::config::keys::KEYS {
        let doc: Vec<&str> = key.doc().collect();
        let doc = doc.join(" ");
        let heading =
            if key.section().is_empty() { "### Top of the file" } else { &format!("### [{}]", key.section()) };
        let part = &page[page.find(&format!("\n{heading}\n")).unwrap() + 1..];
        let part = &part[..part[3..].find("\n### ").map_or(part.len(), |end| end + 3)];
        for (at, _) in doc.match_indices('%') {
            let start =
                doc[..at].rfind(|c: char| c.is_alphabetic() && !"to".contains(c) || c == '"').map_or(0, |i| i + 1);
            let share = doc[start..=at].trim();
            assert!(part.contains(share), "{}: {heading} of docs/configuration.md does not say {share}", key.path);
            seen += 1;
        }
        // What a share is of.
        for word in ["cpu", "memory", "pods", "limits", "Ready"].into_iter().filter(|word| doc.contains(word)) {
            let row = part.lines().find(|line| line.starts_with(&format!("| `{}` |", key.name()))).unwrap_or_default();
            let is_said = row.contains(word) || !["policy.max-requests", "kubelet-endpoint"].contains(&key.path);
            assert!(is_said, "{}: docs/configuration.md does not say {word}", key.path);
        }
    }
    assert!(seen >= 2, "the shares are not found");
}

#[test]
fn the_page_of_commands_has_every_option_of_those_with_a_table() {
    let page = read("docs/cli.md");
    let command = daemonlet::cli::command();
    for (name, heading) in
        [("render", "## render"), ("run", "### Options of run"), ("support-bundle", "## support-bundle and replay")]
    {
        let known = command.find_subcommand(name).unwrap().get_arguments().filter(|argument| !argument.is_hide_set());
        let known: BTreeSet<String> = known.filter_map(|argument| argument.get_long()).map(str::to_owned).collect();
        let part = section(&page, heading);
        let on_page: BTreeSet<String> = rows(part, "option |").iter().flat_map(|row| spans(row[0])).collect();
        for long in known.iter().filter(|long| !["help", "version", "config", "filename"].contains(&long.as_str())) {
            let is_there = |span: &String| span.split(' ').next() == Some(&format!("--{long}"));
            let is_short = |span: &String| long == "output" && span.starts_with("-o ");
            let is_named = on_page.iter().any(|span| is_there(span) || is_short(span));
            assert!(is_named, "{heading}: --{long} is not in the table: {on_page:?}");
        }
        for span in on_page.iter().filter(|span| span.starts_with("--")) {
            let long = span.trim_start_matches("--").split(' ').next().unwrap();
            assert!(known.contains(long), "{heading}: there is no --{long}");
        }
    }
}

/// The words in quotes that begin with a capital, in the part of a source file that is not for tests.
fn capitals(file: &str) -> BTreeSet<String> {
    let source = read(file);
    let source = source.split("#[cfg(test)]").next().unwrap();
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let is_word = |word: &&str| {
        word.len() > 3
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_alphabetic())
    };
    code.split('"').skip(1).step_by(2).filter(is_word).map(str::to_owned).collect()
}

fn listed(page: &str, headings: &[&str], head: &str, cell: usize) -> BTreeSet<String> {
    let page = read(page);
    let of = |heading: &&str| -> Vec<String> {
        let part = section(&page, heading);
        let start = format!("| {head}");
        let tables = part.match_indices(&start).map(|(at, _)| &part[at..]);
        tables.flat_map(|table| rows(table, head)).flat_map(|row| spans(row[cell])).collect()
    };
    headings.iter().flat_map(of).collect()
}

#[test]
fn every_event_and_every_reason_of_a_condition_is_on_its_page() {
    let mut of_agents = capitals("src/node/agent/report/news.rs");
    of_agents.extend(capitals("src/node/agent/concerns/stock_controller.rs"));
    // What is done about the object, which the API asks for, and words of others.
    let actions = [
        "Apply",
        "Render",
        "Remove",
        "Start",
        "Select",
        "Judge",
        "RollBack",
        "Refresh",
        "Read",
        "Run",
        "Ready",
        "True",
        "PodScheduled",
    ];
    of_agents.retain(|word| !actions.contains(&word.as_str()));
    let on_page = listed("docs/status.md", &["## Events"], "reason |", 0);
    assert_eq!(on_page, of_agents);
    let mut of_coordinator = capitals("src/core/cluster/events.rs");
    of_coordinator.retain(|word| word.starts_with("Too") || word == "RolloutHalted");
    of_coordinator.insert("Degraded".to_owned());
    assert_eq!(listed("docs/coordinator.md", &["## Events"], "reason |", 0), of_coordinator);
    // Conditions: their types are the first column.
    let mut words = capitals("src/core/cluster/conditions.rs");
    words.extend(capitals("src/core/cluster/released.rs"));
    words.extend(["Conflict", "NoControllerRevision"].map(str::to_owned));
    words.retain(|word| !["True", "False", "ControllerRevision"].contains(&word.as_str()));
    let types = listed("docs/coordinator.md", &["## Conditions"], "condition |", 0);
    let mut reasons = listed("docs/coordinator.md", &["## Conditions"], "condition |", 1);
    reasons.retain(|word| word.starts_with(|c: char| c.is_ascii_uppercase()));
    let on_page: BTreeSet<String> = types.union(&reasons).cloned().collect();
    assert_eq!(on_page, words);
    let outcome = capitals("src/core/cluster/pass/outcome.rs");
    assert!(outcome.contains("Conflict") && outcome.contains("NoControllerRevision"), "{outcome:?}");
}

/// The names of the fields of what begins with `start` in a source file, as JSON has them; those of flattened ones, and
/// those that are skipped, are not among them.
fn fields(file: &str, start: &str) -> BTreeSet<String> {
    let source = read(file);
    let from = source.find(start).unwrap_or_else(|| panic!("{file} has no {start}"));
    let line = source[..from].rfind('\n').map_or(0, |at| at + 1);
    let indent = source[line..].len() - source[line..].trim_start().len();
    let end = format!("\n{}}}", " ".repeat(indent));
    let first = source[from..].lines().next().unwrap();
    let body = match first.strip_suffix(" },") {
        Some(fields) => fields.replace(" { ", "\n").replace(", ", "\n"),
        None => source[from..from + source[from..].find(&end).unwrap()].to_owned(),
    };
    let mut found = BTreeSet::new();
    let mut is_left_out = false;
    for line in body.lines().skip(1).map(str::trim) {
        assert!(!line.contains("rename ="), "{file}: {line}: this test does not know another name");
        let name = line.trim_start_matches("pub ").split_once(": ").map(|(name, _)| name);
        match name {
            _ if line.starts_with("#[") => is_left_out |= line.contains("flatten") || line == "#[serde(skip)]",
            Some(name)
                if name.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !std::mem::take(&mut is_left_out) =>
            {
                found.insert(camel(name));
            }
            _ => {}
        }
    }
    assert!(!found.is_empty(), "{file}: {start} has no fields");
    found
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_ascii_uppercase() + &word[1..])
}

const STATUS: &str = "src/core/status.rs";
const DAEMON: &str = "src/core/status/daemon.rs";
const REPLIES: &str = "src/core/replies.rs";
const OVERVIEW: &str = "src/core/cluster/overview.rs";
const LEADER: &str = "src/core/cluster/overview/leader.rs";
const EXPLAINED: &str = "src/cli/kubectl/explain.rs";
const DIFF: &str = "src/cli/kubectl/diff.rs";
const RENDER: &str = "src/cli/render/report.rs";

/// Where the page has the fields of what the program writes: the first cells of the table of that head.
const TABLES: [(&str, &str, &str, &str); 23] = [
    ("## status", "field |", STATUS, "struct StatusReport {"),
    ("### Agent", "field |", STATUS, "struct AgentStatus {"),
    ("### Daemon", "field |", DAEMON, "struct DaemonStatus {"),
    ("### Missing object", "field |", "src/core/render/missing.rs", "struct Missing {"),
    ("### Stale volume", "field |", DAEMON, "struct StaleVolume {"),
    ("### Problem", "field |", STATUS, "struct Problem {"),
    ("### Left alone", "field |", STATUS, "struct LeftAlone {"),
    ("## plan", "field |", REPLIES, "struct PlanReport {"),
    ("### Change", "field |", REPLIES, "struct PlannedChange {"),
    ("### Held", "field |", REPLIES, "struct HeldDaemon {"),
    ("## explain", "field |", REPLIES, "struct ExplainReport {"),
    ("### Term", "field |", REPLIES, "struct Term {"),
    ("## doctor", "field |", "src/core/doctor.rs", "struct DoctorReport {"),
    ("### Finding", "field |", "src/core/doctor.rs", "struct Finding {"),
    ("## retry, approve, restart, release", "field of `retry`", REPLIES, "struct RetryReport {"),
    ("## retry, approve, restart, release", "field of `approve`", REPLIES, "struct ApproveReport {"),
    ("## retry, approve, restart, release", "field of `restart`", REPLIES, "struct RestartReport {"),
    ("## retry, approve, restart, release", "field of `release`", REPLIES, "struct ReleaseReport {"),
    ("## render", "field |", RENDER, "struct RenderReport<'a> {"),
    ("### Outcome", "field |", RENDER, "DaemonSet {\n        namespace"),
    ("## kubectl daemonlet", "field |", OVERVIEW, "struct Overview {"),
    ("### Coordinator", "field |", LEADER, "struct Leader {"),
    ("### DaemonSet", "field |", OVERVIEW, "struct Rollout {"),
];

/// Where a sentence or a row has them, as `{a, b}` or each for itself.
const NAMED: [(&str, &str, &str); 16] = [
    ("## status", STATUS, "struct RefusedCount {"),
    ("### Agent", STATUS, "struct ApiUse {"),
    ("### Agent", STATUS, "struct Passes {"),
    ("### Agent", STATUS, "struct TokensStatus {"),
    ("### Agent", STATUS, "struct TokenStatus {"),
    ("### Agent", STATUS, "struct IdentityStatus {"),
    ("### Daemon", DAEMON, "struct FailedStatus {"),
    ("### Daemon", DAEMON, "struct PullStatus {"),
    ("### Daemon", DAEMON, "struct WaitingContainer {"),
    ("## retry, approve, restart, release", REPLIES, "struct ReleasedDaemon {"),
    ("## render", RENDER, "struct JsonProblem<'a> {"),
    ("### Outcome", RENDER, "Invalid {"),
    ("### On a node", EXPLAINED, "struct ExplainedNode {"),
    ("### On a node", EXPLAINED, "struct Absent {"),
    ("## kubectl daemonlet diff", DIFF, "struct DiffReport {"),
    ("## kubectl daemonlet diff", DIFF, "struct Compared {"),
];

#[test]
fn the_page_of_json_has_every_field_and_no_other() {
    let page = read("docs/json.md");
    for (heading, head, file, start) in TABLES {
        let of_page: BTreeSet<String> =
            rows(section(&page, heading), head).iter().flat_map(|row| spans(row[0])).collect();
        let mut known = fields(file, start);
        if head.starts_with("field of") {
            // The sentence before the tables.
            for common in ["schemaVersion", "node"] {
                assert!(known.remove(common), "{start} has no {common}");
            }
        }
        assert_eq!(of_page, known, "{heading}: {start}");
    }
    let node = rows(section(&page, "### On a node"), "field |").iter().flat_map(|row| spans(row[0])).collect();
    assert_eq!(fields(OVERVIEW, "struct DaemonOnNode {"), node);
    for (heading, file, start) in NAMED {
        let words: BTreeSet<String> = spans(section(&page, heading))
            .iter()
            .flat_map(|span| span.trim_matches(['{', '}']).split(", ").map(str::to_owned).collect::<Vec<_>>())
            .collect();
        let missing: Vec<String> = fields(file, start).difference(&words).cloned().collect();
        assert!(missing.is_empty(), "docs/json.md, {heading}: {start}: {missing:?}");
    }
    // What is serialized and on no list above.
    for file in [STATUS, DAEMON, REPLIES, OVERVIEW, LEADER, EXPLAINED, DIFF, RENDER] {
        let source = read(file);
        let derived =
            source.split("#[derive(").skip(1).filter(|part| part.split(')').next().unwrap().contains("Serialize"));
        for part in derived {
            let line =
                part.lines().find(|line| !line.trim_start().starts_with(['#', '/']) && line.contains('{')).unwrap();
            let Some((_, rest)) = line.split_once("struct ") else { continue };
            let name = rest.split([' ', '<']).next().unwrap();
            let declared = format!("struct {name}");
            let is_listed = |start: &str| start.starts_with(&declared);
            let listed =
                TABLES.iter().any(|(.., start)| is_listed(start)) || NAMED.iter().any(|(.., start)| is_listed(start));
            assert!(
                listed || ["DaemonOnNode", "ExplainedDaemon", "Field"].contains(&name),
                "{file}: {name} is on no page"
            );
        }
    }
}
