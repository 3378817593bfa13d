//! The agent's state in one line, as `systemctl status` shows it.

use jiff::Timestamp;

use crate::node::api::ApiState;

/// What there is to say.
pub(super) struct Words {
    /// Daemons of which something runs or is to run.
    pub(super) daemons: usize,
    /// Those of them that are ready.
    pub(super) ready: usize,
    /// Daemons that wait for something.
    pub(super) waiting: usize,
    /// Daemons that are refused.
    pub(super) refused: usize,
    /// The API; `None`: there is none.
    pub(super) api: Option<ApiState>,
    /// Whether the configuration on disk cannot be used.
    pub(super) kept_configuration: bool,
}

/// `5 daemons, 4 ready; API unreachable since 12:03 UTC (connection refused)`.
pub(super) fn line(words: &Words, now: Timestamp) -> String {
    let plural = if words.daemons == 1 { "" } else { "s" };
    let mut line = format!("{} daemon{plural}, {} ready", words.daemons, words.ready);
    for (count, what) in [(words.waiting, "waiting"), (words.refused, "refused")] {
        if count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    match &words.api {
        Some(ApiState::Ok) => {}
        None | Some(ApiState::NotConfigured) => line.push_str("; no API server configured"),
        Some(ApiState::Connecting) => line.push_str("; connecting to the API server"),
        Some(ApiState::Failing { error, since }) => {
            line.push_str(&format!("; API unreachable since {} ({error})", clock(*since, now)));
        }
    }
    if words.kept_configuration {
        line.push_str("; the changed configuration is not in force: it has mistakes, see the log");
    }
    line
}

/// The time of day; with the date where it was another day.
fn clock(at: Timestamp, now: Timestamp) -> String {
    let today = at.strftime("%F").to_string() == now.strftime("%F").to_string();
    at.strftime(if today { "%H:%M UTC" } else { "%F %H:%M UTC" }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(daemons: usize, api: Option<ApiState>) -> Words {
        Words { daemons, ready: 1, waiting: 0, refused: 0, api, kept_configuration: false }
    }

    #[test]
    fn it_says_what_an_administrator_asks_first() {
        let now: Timestamp = "2026-11-21T15:00:00Z".parse().unwrap();
        let failing =
            |since: &str| Some(ApiState::Failing { error: "connection refused".into(), since: since.parse().unwrap() });
        for (words, expected) in [
            (words(1, Some(ApiState::Ok)), "1 daemon, 1 ready"),
            (
                Words { waiting: 2, refused: 1, ..words(5, Some(ApiState::Ok)) },
                "5 daemons, 1 ready, 2 waiting, 1 refused",
            ),
            (words(5, None), "5 daemons, 1 ready; no API server configured"),
            (words(5, Some(ApiState::Connecting)), "5 daemons, 1 ready; connecting to the API server"),
            (
                words(5, failing("2026-11-21T12:03:59Z")),
                "5 daemons, 1 ready; API unreachable since 12:03 UTC (connection refused)",
            ),
            (
                words(5, failing("2026-11-20T12:03:59Z")),
                "5 daemons, 1 ready; API unreachable since 2026-11-20 12:03 UTC (connection refused)",
            ),
            (
                Words { kept_configuration: true, ..words(5, Some(ApiState::Ok)) },
                "5 daemons, 1 ready; the changed configuration is not in force: it has mistakes, see the log",
            ),
        ] {
            assert_eq!(line(&words, now), expected);
        }
    }
}
