//! `daemonlet help`: the help of a command, or a part of the pages that the packages install.

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::output;
use crate::core::nearest;

/// What can be asked about.
struct Topic {
    name: &'static str,
    /// The page below `docs`, and its text.
    page: (&'static str, &'static str),
    /// The heading of the part.
    heading: &'static str,
}

macro_rules! topics {
    ($($name:literal: $page:literal, $heading:literal;)*) => {
        &[$(Topic { name: $name, page: ($page, include_str!(concat!("../../docs/", $page))), heading: $heading }),*]
    };
}

const TOPICS: &[Topic] = topics! {
    "annotations": "daemonsets.md", "Annotations and labels";
    "boot": "boot-and-outages.md", "A boot";
    "changes": "daemonsets.md", "What a change does";
    "conditions": "rollouts.md", "Conditions";
    "configuration": "configuration.md", "Files";
    "exit-codes": "cli.md", "Exit codes";
    "first-install": "rollouts.md", "First installs";
    "full-node": "daemonsets.md", "On a full node";
    "halt": "rollouts.md", "A halt";
    "held": "daemonsets.md", "What is held";
    "json": "cli.md", "JSON";
    "limits": "limits.md", "What a static pod cannot be";
    "modes": "daemonsets.md", "Modes";
    "night": "operations.md", "What to do at night";
    "node-conditions": "daemonsets.md", "Node conditions";
    "overlays": "daemonsets.md", "One DaemonSet, different nodes";
    "policy-keys": "security.md", "Policy: what may run here";
    "removal": "daemonsets.md", "What removes a daemon";
    "rollouts": "rollouts.md", "How a rollout goes";
    "sources": "daemonsets.md", "Where DaemonSets come from";
    "start-order": "daemonsets.md", "Start order";
    "startup-taint": "daemonsets.md", "No workload before its daemons";
    "states": "operations.md", "States";
    "steps": "rollouts.md", "Steps";
    "windows": "rollouts.md", "Windows";
    "words": "glossary.md", "Glossary";
};

/// Print the help of a command, or what the pages say about a topic
///
/// Without an argument: the commands and the topics.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  # the codes with which commands end\n  daemonlet help exit-codes\n  \
                        # the same as daemonlet generate rbac --help\n  daemonlet help generate rbac")]
pub(super) struct Arguments {
    /// A topic, or a command with its subcommand
    #[arg(value_name = "TOPIC")]
    what: Vec<String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let asked = arguments.what.join(" ");
    let mut command = super::command();
    if asked.is_empty() {
        let topics: Vec<&str> = TOPICS.iter().map(|topic| topic.name).collect();
        command = command.after_long_help(format!("Topics, for daemonlet help TOPIC:\n  {}", topics.join(", ")));
    }
    command.build();
    if let [name] = arguments.what.as_slice()
        && let Some(topic) = TOPICS.iter().find(|topic| topic.name == name)
    {
        let (page, text) = topic.page;
        output::data(&format!("{}\nMore: /usr/share/doc/daemonlet/docs/{page}\n", part(text, topic.heading)))?;
        return Ok(Exit::Success);
    }
    let found = arguments.what.iter().try_fold(&mut command, |command, name| command.find_subcommand_mut(name));
    let Some(found) = found else {
        let failure = CommandFailure::new(Exit::Usage, format!("{asked:?} is neither a command nor a topic"));
        let commands: Vec<String> = super::command().get_subcommands().map(|one| one.get_name().to_owned()).collect();
        let names = TOPICS.iter().map(|topic| topic.name).chain(commands.iter().map(String::as_str));
        let word = asked.replace(' ', "-");
        let part = names.clone().find(|name| word.len() > 3 && name.contains(&word));
        return Err(failure.hint(match nearest::of(&word, names).or(part) {
            Some(name) => format!("did you mean {name:?}? `daemonlet help` lists all"),
            None => "`daemonlet help` lists both".to_owned(),
        }));
    };
    output::data(&found.render_long_help().to_string())?;
    Ok(Exit::Success)
}

/// The part of `page` below the heading `heading`, up to the next heading that is no deeper, without the targets of
/// links.
fn part(page: &str, heading: &str) -> String {
    let depth = |line: &str| line.len() - line.trim_start_matches('#').len();
    let mut lines = page.lines().skip_while(|line| depth(line) == 0 || line.trim_start_matches(['#', ' ']) != heading);
    let Some(first) = lines.next() else { return String::new() };
    let mut is_code = false;
    let body = lines.take_while(|line| {
        is_code ^= line.starts_with("```");
        is_code || depth(line) == 0 || depth(line) > depth(first)
    });
    let part: String = std::iter::once(first).chain(body).map(|line| format!("{line}\n")).collect();
    without_targets(&part)
}

/// `text` with `[words](target)` as `words`.
fn without_targets(mut text: &str) -> String {
    let mut plain = String::new();
    while let Some((before, after)) = text.split_once("](")
        && let (Some((start, words)), Some((_, rest))) = (before.rsplit_once('['), after.split_once(')'))
    {
        plain.push_str(start);
        plain.push_str(words);
        text = rest;
    }
    plain + text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_has_its_part_of_a_page() {
        for Topic { name, page: (page, text), heading } in TOPICS {
            let part = part(text, heading);
            assert!(part.lines().count() > 5, "{name}: {page} has no {heading}");
            assert!(!part.contains("]("), "{name}: {part}");
            assert!(super::super::command().find_subcommand(name).is_none(), "{name} is a command, too");
        }
        assert!(TOPICS.is_sorted_by_key(|topic| topic.name));
    }

    #[test]
    fn a_part_ends_where_the_next_one_begins_and_code_has_no_headings() {
        let page = "# A\n\n## B\nx [y](z) [v](w)\n```\n# code\n```\n### C\nd\n## E\ne\n";
        assert_eq!(part(page, "B"), "## B\nx y v\n```\n# code\n```\n### C\nd\n");
        assert_eq!(part(page, "C"), "### C\nd\n");
        assert_eq!(part(page, "none"), "");
    }
}
