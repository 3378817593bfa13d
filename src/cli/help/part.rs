//! Parts of the pages below `docs`.
//!
//! The build script's, which takes them from the pages; else compiled for tests alone. Must not use anything of this crate.

/// The part of `page` below the heading `heading`, up to the next heading that is no deeper, without the targets of
/// links.
pub(crate) fn part(page: &str, heading: &str) -> String {
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
