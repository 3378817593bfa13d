//! The laws of what the agent reports of itself: its status and its metrics.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::node::Node;
use crate::node::SPACE;

use super::Laws;

impl Laws {
    /// What the agent says is what is.
    pub(crate) fn status(&mut self, node: &Node, status: Option<Value>) {
        let Some(status) = status.filter(|_| !node.kubelet.room.is_rejection_missed) else { return };
        let daemons = status["daemons"].as_array().cloned().unwrap_or_default();
        for daemon in &node.daemons {
            let of = daemons.iter().find(|d| d["name"] == *daemon.name && d["namespace"] == SPACE);
            let state = of.and_then(|d| d["state"].as_str()).unwrap_or("not there").to_owned();
            let runs = daemon.is_to_run();
            if runs != (state == "running") {
                let what =
                    format!("{}: {state}, and {}", daemon.name, if runs { "it runs" } else { "it does not run" });
                if runs || !matches!(state.as_str(), "not there" | "none" | "notHere" | "unselected") {
                    self.violate(node.steady, "what status says is what is", format!("{what}; {}", status));
                    return;
                }
            }
        }
        let problems = status["problems"].as_array().cloned().unwrap_or_default();
        self.problems = problems.len();
        // What a process has set aside at its start, it names for as long as it lives.
        let is_left = |problem: &&Value| self.before_restart.is_none() || problem["object"] != "checkpoint";
        if let Some(problem) = problems.iter().find(|problem| is_left(problem)) {
            self.violate(node.steady, "what status says is what is", format!("a problem is left: {problem}"));
        }
    }

    /// What metrics say is what is; `None`: this life has none.
    pub(crate) fn metrics(&mut self, node: &Node, text: Option<String>) {
        let Some(text) = text.filter(|_| !node.kubelet.room.is_rejection_missed) else { return };
        if std::env::var_os("DAEMONLET_SIM_METRICS").is_some() {
            eprintln!("{text}");
        }
        // Each names the node.
        let of_node = format!("node=\"{}\"", node.name);
        let text = text.replace(&format!(",{of_node}"), "").replace(&format!("{{{of_node}}}"), "");
        let samples: BTreeMap<&str, f64> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.rsplit_once(' ').and_then(|(name, value)| Some((name, value.parse().ok()?))))
            .collect();
        let bridged = node.bridges.iter().filter(|bridge| !bridge.is_handed_over_in_the_end()).count();
        let running = node.daemons.iter().filter(|daemon| daemon.is_to_run()).count() + bridged;
        let mut expected = vec![
            ("daemonlet_daemons{state=\"running\"}".to_owned(), running as f64),
            ("daemonlet_problems".to_owned(), self.problems as f64),
            ("daemonlet_api_connected".to_owned(), 1.0),
        ];
        for daemon in node.daemons.iter().filter(|daemon| daemon.is_to_run()) {
            let labels = format!("namespace=\"{SPACE}\",daemonset=\"{}\"", daemon.name);
            expected.push((format!("daemonlet_daemon_ready{{{labels}}}"), 1.0));
        }
        let is_other = |(name, value): &&(String, f64)| samples.get(name.as_str()) != Some(value);
        if let Some((name, value)) = expected.iter().find(is_other) {
            let what = format!("{name} is {:?}, and {value} is true", samples.get(name.as_str()));
            return self.violate(node.steady, "what metrics say is what is", what);
        }
        // What an earlier process had begun, or others have removed, is counted by none, or by this one.
        let counted = |name: &str| samples.get(name).copied().unwrap_or(f64::NAN);
        let (starts, ends) = (counted("daemonlet_starts_total"), counted("daemonlet_ends_total"));
        let begun = self.begun.len() as f64;
        if !(starts <= begun && ends >= self.ends as f64) || self.restarted && starts + ends > 0.0 {
            let what = format!("{starts} starts and {ends} ends, and {begun} and {} are true", self.ends);
            return self.violate(node.steady, "what metrics say is what is", what);
        }
        let of = |prefix: &str| samples.keys().find(|name| name.starts_with(prefix)).map(|name| (*name).to_owned());
        // The cluster has no NodeDaemons.
        let is_watch = |name: &str| name.starts_with("daemonlet_api_watch_up") && !name.contains("nodedaemons");
        let is_down = samples.iter().find(|(name, up)| is_watch(name) && **up != 1.0);
        let wrong = ["daemonlet_volume_refresh_blocked", "daemonlet_failed_revision"].into_iter().find_map(of);
        if let Some(name) = wrong.or_else(|| is_down.map(|(name, _)| (*name).to_owned())) {
            self.violate(node.steady, "what metrics say is what is", name);
        }
    }
}
