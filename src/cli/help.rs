//! `daemonlet help`: the help of a command, or a part of the pages that the packages install.

mod layout;
#[cfg(test)]
mod part;
mod topics;

use std::io::Read;

use clap::Args;
use flate2::read::DeflateDecoder;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::output;
use crate::core::nearest;

use topics::TOPICS;

/// The parts of the pages in the order of [`TOPICS`], with a zero after each; deflated by `build.rs`.
const PARTS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/topics"));

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
        let topics: Vec<&str> = TOPICS.iter().map(|(topic, ..)| *topic).collect();
        command = command.after_long_help(format!("Topics, for daemonlet help TOPIC:\n  {}", topics.join(", ")));
    }
    command.build();
    if let [name] = arguments.what.as_slice()
        && let Some(index) = TOPICS.iter().position(|(topic, ..)| topic == name)
    {
        let (_, page, _) = TOPICS[index];
        let about = layout::laid_out(about(index).trim_end(), output::width());
        output::data(&format!("{about}\nMore: /usr/share/doc/daemonlet/docs/{page}\n"))?;
        return Ok(Exit::Success);
    }
    let found = arguments.what.iter().try_fold(&mut command, |command, name| command.find_subcommand_mut(name));
    let Some(found) = found else {
        let failure = CommandFailure::new(Exit::Usage, format!("{asked:?} is neither a command nor a topic"));
        let commands: Vec<String> = super::command().get_subcommands().map(|one| one.get_name().to_owned()).collect();
        let names = TOPICS.iter().map(|(topic, ..)| *topic).chain(commands.iter().map(String::as_str));
        let word = asked.replace(' ', "-");
        let part = names.clone().find(|name| word.len() > 3 && name.contains(&word));
        if asked == "kubectl" {
            return Err(failure.hint("`kubectl daemonlet --help` prints the help of the plugin for kubectl"));
        }
        return Err(failure.hint(match nearest::of(&word, names).or(part) {
            Some(name) => format!("did you mean {name:?}? `daemonlet help` lists all"),
            None => "`daemonlet help` lists both".to_owned(),
        }));
    };
    output::data(&found.render_long_help().to_string())?;
    Ok(Exit::Success)
}

/// What the page says about the topic at `index`.
fn about(index: usize) -> String {
    let mut parts = String::new();
    let read = DeflateDecoder::new(PARTS).read_to_string(&mut parts);
    checked!(read.is_ok());
    parts.split('\0').nth(index).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::part::TopicPart;
    use super::part::part;
    use super::part::with_targets;
    use super::*;

    #[test]
    fn every_topic_has_its_part_of_a_page() {
        for (index, (name, page, heading)) in TOPICS.iter().enumerate() {
            let part = about(index);
            assert!(part.lines().count() > 5, "{name}: {page} has no {heading}");
            assert!(!part.contains("]("), "{name}: {part}");
            assert!(super::super::command().find_subcommand(name).is_none(), "{name} is a command, too");
        }
        assert!(TOPICS.is_sorted_by_key(|(topic, ..)| topic));
    }

    #[test]
    fn a_part_ends_where_the_next_one_begins_and_code_has_no_headings() {
        let page = "# A\n\n## B\nx y\n```\n# code\n```\n### C\nd\n## E\ne\n";
        assert_eq!(part(page, "B"), "## B\nx y\n```\n# code\n```\n### C\nd\n");
        assert_eq!(part(page, "C"), "### C\nd\n");
        assert_eq!(part(page, "none"), "");
    }

    #[test]
    fn a_link_names_the_topic_that_has_its_target_or_else_the_page() {
        let topic = |name: &str, page: &str, text: &str| TopicPart {
            name: name.to_owned(),
            page: page.to_owned(),
            text: text.to_owned(),
        };
        let links = "## B\n[a](#c-d) [b](#e) [c](g.md) [d](g.md#h)\n[e](g.md#none) [f](i.md) [g](https://k)\n[`[h]`](g.md#h)\n### C: D\n";
        let topics = [topic("b", "a.md", links), topic("g", "g.md", "# G\n## H\n"), topic("h", "g.md", "## H\n")];
        let shown = "## B\na b (a.md) c (daemonlet help g) d (daemonlet help h)\ne (g.md) f (i.md) g (https://k)\n`[h]` (daemonlet help h)\n### C: D\n";
        assert_eq!(with_targets(&topics[0], &topics), shown);
    }

    #[test]
    fn the_runbook_says_where_its_links_lead() {
        let runbook = about(TOPICS.iter().position(|(name, ..)| *name == "runbook").unwrap());
        assert!(runbook.contains("take the rollout back (daemonlet help night)"), "{runbook}");
    }
}
