//! What is under way on this node, a line each.

use crate::cli::output;
use crate::cli::output::Colour;
use crate::core::escape;
use crate::core::status::DaemonStatus;
use crate::core::status::State;
use crate::core::status::StatusReport;
use crate::core::time::Timestamp;

/// A line for each pull and each replacement; `now`: say for how long, where the text is drawn anew.
pub(super) fn lines(report: &StatusReport, now: Option<Timestamp>, colour: Colour) -> String {
    report.daemons.iter().filter_map(|daemon| line(daemon, now, colour)).collect()
}

fn line(daemon: &DaemonStatus, now: Option<Timestamp>, colour: Colour) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(to) = &daemon.replacing {
        parts.push(match daemon.revision == *to {
            true => format!("revision {to} takes over"),
            false => format!("revision {} -> {to}", if daemon.revision.is_empty() { "none" } else { &daemon.revision }),
        });
    }
    if let Some(pull) = &daemon.pull {
        // Whole images alone are known, so that the bar never shows the last one as done.
        let done = pull.number.saturating_sub(1) * 10 / pull.count.max(1);
        let bar = format!("[{}{}]", "#".repeat(done), ".".repeat(10 - done.min(10)));
        parts.push(format!(
            "{bar} image {} of {} ({}) {}",
            pull.number,
            pull.count,
            pull.image,
            since(&pull.since, now)
        ));
    }
    let is_moving = matches!(daemon.state, State::Starting | State::Replacing | State::Stopping);
    if is_moving && daemon.pull.is_none() {
        let age = daemon.since.as_deref().map(|time| format!(" {}", since(time, now))).unwrap_or_default();
        parts.push(format!("{}{age}", daemon.state.as_str()));
    }
    if parts.is_empty() {
        return None;
    }
    let said = format!("{}/{}: {}", daemon.namespace, daemon.name, parts.join(", "));
    Some(format!("{} {}", colour.yellow("now:"), output::line(said)))
}

/// `for 12 s`, or `since` the time.
fn since(time: &str, now: Option<Timestamp>) -> String {
    match (now, time.parse::<Timestamp>()) {
        (Some(now), Ok(then)) => format!("for {} s", (now.as_secs() - then.as_secs()).max(0)),
        _ => format!("since {time}"),
    }
}

/// `text` in place of what the terminal shows: from its first line on, each line to its end, and nothing below.
pub(super) fn redrawn(text: &str) -> String {
    format!("\x1b[H{}\x1b[J", escape::terminal(text).replace('\n', "\x1b[K\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::status::PullStatus;

    #[test]
    fn pulls_and_replacements_are_shown_with_how_long_they_take() {
        let daemon = |state: &str, more: serde_json::Value| {
            let mut value = serde_json::json!({"namespace": "a", "name": "b", "source": "api", "mode": "static",
                "revision": "old", "pod": "p", "uid": "u", "state": state, "ready": true,
                "since": "2026-11-21T10:00:00Z", "reason": "", "waitingFor": [], "notes": []});
            value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value::<DaemonStatus>(value).unwrap()
        };
        let now = "2026-11-21T10:00:12Z".parse().ok();
        let pull = PullStatus { image: "x:2".into(), number: 2, count: 3, since: "2026-11-21T10:00:05Z".into() };
        let pulling = daemon("running", serde_json::json!({"replacing": "new", "pull": pull}));
        for (daemon, now, expected) in [
            (&pulling, now, "now: a/b: revision old -> new, [###.......] image 2 of 3 (x:2) for 7 s\n"),
            (
                &pulling,
                None,
                "now: a/b: revision old -> new, [###.......] image 2 of 3 (x:2) since 2026-11-21T10:00:05Z\n",
            ),
            (&daemon("replacing", serde_json::json!({})), now, "now: a/b: replacing for 12 s\n"),
        ] {
            assert_eq!(line(daemon, now, Colour::none()).as_deref(), Some(expected));
        }
        assert_eq!(line(&daemon("running", serde_json::json!({})), now, Colour::none()), None);
    }

    #[test]
    fn a_redrawn_screen_leaves_nothing_of_the_one_before() {
        assert_eq!(redrawn("a\nb\n"), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
