//! Host ports that prevent a new instance from starting.
//!
//! Owns the report of a conflict. It is found before anything is written: the kubelet would reject the pod and never
//! retry it, and with surge the old instance would wait for nothing.

use crate::core::ports;
use crate::core::record::Instance;

use super::Hint;
use super::Planner;
use super::Reason;
use super::progress::Target;

impl Planner<'_> {
    /// The daemon whose host port prevents the target from starting beside `old`, or in its place.
    pub(super) fn in_the_way(&mut self, target: &Target, old: &Instance, beside: bool) -> Option<Reason> {
        match beside {
            true => self.clash_in_surge(target, old).or_else(|| self.clash_with_others(target, false)),
            false => self.clash_with_others(target, true),
        }
    }

    /// Why a new instance cannot run beside `old`, which uses a port that it needs.
    fn clash_in_surge(&mut self, target: &Target, old: &Instance) -> Option<Reason> {
        let wanted = ports::host_ports(target.daemon_set.pod_template());
        let held = ports::host_ports(old.daemon_set.as_ref()?.pod_template());
        let port = ports::clash(&wanted, &held)?.clone();
        self.plan.summary.hints.push(Hint::NoSurge);
        Some(Reason::PortClash { pod: old.pod_name.clone(), port })
    }

    /// Which port of the target another daemon of this node uses; `only_desired`: and will still use once it follows
    /// its definition.
    pub(super) fn clash_with_others(&mut self, target: &Target, only_desired: bool) -> Option<Reason> {
        let found = self.clash(target, only_desired);
        if found.is_some() {
            self.plan.summary.hints.push(Hint::OtherHostPort);
        }
        found
    }

    /// Whether the target waits for a host port of another daemon, and policy refuses it anyway.
    pub(super) fn is_refused_at_a_port(&self, target: &Target) -> bool {
        self.is_refused(&target.daemon_set) && self.clash(target, false).is_some()
    }

    fn clash(&self, target: &Target, only_desired: bool) -> Option<Reason> {
        let wanted = ports::host_ports(target.daemon_set.pod_template());
        if wanted.is_empty() {
            return None;
        }
        self.facts.held_ports(&target.daemon_set.key, only_desired).into_iter().find_map(|(by, held)| {
            let port = ports::clash(&wanted, &held)?.clone();
            Some(Reason::PortTaken { port, by })
        })
    }
}
