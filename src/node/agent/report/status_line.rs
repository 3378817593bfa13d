//! The agent's state in one line, as `systemctl status` shows it.

use crate::core::time::Timestamp;
use crate::node::api::LinkHealth;

/// The content of the line.
pub(super) struct StatusLine {
    /// Daemons of which something runs or is to run.
    pub(super) daemons: usize,
    /// Those of them that are ready.
    pub(super) ready: usize,
    /// Daemons that wait for something.
    pub(super) waiting: usize,
    /// Daemons that are refused.
    pub(super) refused: usize,
    /// The API; `None`: there is none.
    pub(super) api: Option<LinkHealth>,
    /// Whether the configuration on disk cannot be used.
    pub(super) kept_configuration: bool,
}

/// `5 daemons, 4 ready; API unreachable since 12:03 UTC (connection refused)`.
pub(super) fn line(status_line: &StatusLine, now: Timestamp) -> String {
    let plural = if status_line.daemons == 1 { "" } else { "s" };
    let mut line = format!("{} daemon{plural}, {} ready", status_line.daemons, status_line.ready);
    for (count, what) in [(status_line.waiting, "waiting"), (status_line.refused, "refused")] {
        if count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    match &status_line.api {
        Some(LinkHealth::Ok) => {}
        None => line.push_str("; no API server configured"),
        Some(LinkHealth::Connecting) => line.push_str("; connecting to the API server"),
        Some(LinkHealth::Failing { error, since }) => {
            line.push_str(&format!("; API unreachable since {} ({error})", clock(*since, now)));
        }
    }
    if status_line.kept_configuration {
        line.push_str("; the changed configuration is not in force: it has mistakes, see the log");
    }
    line
}

/// The time of day; with the date where it was another day.
fn clock(at: Timestamp, now: Timestamp) -> String {
    let (at, now) = (at.to_string(), now.to_string());
    let ((day, time), (today, _)) = (at.split_at(10), now.split_at(10));
    let time = &time[1..6];
    if day == today { format!("{time} UTC") } else { format!("{day} {time} UTC") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_line(daemons: usize, api: Option<LinkHealth>) -> StatusLine {
        StatusLine { daemons, ready: 1, waiting: 0, refused: 0, api, kept_configuration: false }
    }

    #[test]
    fn it_says_what_an_administrator_asks_first() {
        let now: Timestamp = "2026-11-21T15:00:00Z".parse().unwrap();
        let failing = |since: &str| {
            Some(LinkHealth::Failing { error: "connection refused".into(), since: since.parse().unwrap() })
        };
        for (status_line, expected) in [
            (status_line(1, Some(LinkHealth::Ok)), "1 daemon, 1 ready"),
            (
                StatusLine { waiting: 2, refused: 1, ..status_line(5, Some(LinkHealth::Ok)) },
                "5 daemons, 1 ready, 2 waiting, 1 refused",
            ),
            (status_line(5, None), "5 daemons, 1 ready; no API server configured"),
            (status_line(5, Some(LinkHealth::Connecting)), "5 daemons, 1 ready; connecting to the API server"),
            (
                status_line(5, failing("2026-11-21T12:03:59Z")),
                "5 daemons, 1 ready; API unreachable since 12:03 UTC (connection refused)",
            ),
            (
                status_line(5, failing("2026-11-20T12:03:59Z")),
                "5 daemons, 1 ready; API unreachable since 2026-11-20 12:03 UTC (connection refused)",
            ),
            (
                StatusLine { kept_configuration: true, ..status_line(5, Some(LinkHealth::Ok)) },
                "5 daemons, 1 ready; the changed configuration is not in force: it has mistakes, see the log",
            ),
        ] {
            assert_eq!(line(&status_line, now), expected);
        }
    }
}
