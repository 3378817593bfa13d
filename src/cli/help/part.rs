//! Parts of the pages below `docs`.
//!
//! The build script's, which takes them from the pages; else compiled for tests alone. Must not use anything of this crate.

/// What a page says about a topic.
pub(crate) struct TopicPart {
    /// The topic, for `daemonlet help`.
    pub name: String,
    /// The page below `docs`.
    pub page: String,
    /// As it stands in the page.
    pub text: String,
}

/// The part of `page` below the heading `heading`, up to the next heading that is no deeper.
pub(crate) fn part(page: &str, heading: &str) -> String {
    let mut lines = page.lines().skip_while(|line| depth(line) == 0 || line.trim_start_matches(['#', ' ']) != heading);
    let Some(first) = lines.next() else { return String::new() };
    let mut is_code = false;
    let body = lines.take_while(|line| {
        is_code ^= line.starts_with("```");
        is_code || depth(line) == 0 || depth(line) > depth(first)
    });
    std::iter::once(first).chain(body).map(|line| format!("{line}\n")).collect()
}

/// The text of `topic` with `[words](target)` as `words (daemonlet help TOPIC)` if one of `topics` has the target, else as
/// `words (PAGE)`; what leads to the same topic as `words`.
pub(crate) fn with_targets(topic: &TopicPart, topics: &[TopicPart]) -> String {
    let (mut plain, mut text) = (String::new(), topic.text.as_str());
    while let Some((before, after)) = text.split_once("](")
        && let (Some((start, words)), Some((target, rest))) = (split_at_opening(before), after.split_once(')'))
    {
        plain.push_str(start);
        plain.push_str(words);
        plain.push_str(&named(target, topic, topics));
        text = rest;
    }
    plain + text
}

/// `text` before and after the bracket that the one behind it closes.
fn split_at_opening(text: &str) -> Option<(&str, &str)> {
    let mut closed = 0;
    let opens = |letter| {
        match letter {
            ']' => closed += 1,
            '[' if closed > 0 => closed -= 1,
            _ => return letter == '[',
        }
        false
    };
    let at = text.rfind(opens)?;
    Some((&text[..at], &text[at + 1..]))
}

/// What is printed for a `target` in the page of `from`; empty: it is in the same text.
fn named(target: &str, from: &TopicPart, topics: &[TopicPart]) -> String {
    if target.contains("://") {
        return format!(" ({target})");
    }
    let (page, anchor) = target.split_once('#').unwrap_or((target, ""));
    let page = if page.is_empty() { &from.page } else { page };
    if page == from.page && has(&from.text, anchor) {
        return String::new();
    }
    // The shortest text that has it says the least beside it.
    let has_it = |topic: &&TopicPart| topic.page == page && has(&topic.text, anchor);
    match topics.iter().filter(has_it).min_by_key(|topic| topic.text.len()) {
        Some(topic) => format!(" (daemonlet help {})", topic.name),
        None => format!(" ({page})"),
    }
}

/// Whether `text` has the heading of `anchor`; of no anchor: whether it is a whole page.
fn has(text: &str, anchor: &str) -> bool {
    match anchor {
        "" => text.starts_with("# "),
        anchor => text.lines().filter(|line| depth(line) > 0).any(|line| slug(line) == anchor),
    }
}

fn depth(line: &str) -> usize {
    line.len() - line.trim_start_matches('#').len()
}

/// The anchor of a heading.
fn slug(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let letters = words.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    letters.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}
