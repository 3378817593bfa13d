//! Shutdowns, losses of power, sleep and the clock.

use std::path::Path;

use daemonlet::simulation::Disk;
use daemonlet::simulation::DiskHandle;
use daemonlet::simulation::PowerLossKeeps;

use crate::api::Reach;
use crate::moves::Fault;

use super::Node;
use super::heal::Heal;

impl Node {
    /// The machine begins to shut down, and the agent is to leave the startup taint, or need not.
    pub(crate) fn begin_shutdown(&mut self, owes_taint: bool) {
        (self.is_shutting_down, self.owes_taint) = (true, owes_taint);
        // What was to end the process has no time to.
        self.effects.lock().unwrap().left = None;
    }

    /// At the boot after a shutdown, volumes have no Secrets where these are sealed, and what seals may come later than the
    /// agent. What needs a Secret that no source holds waits for it then.
    pub(crate) fn lose_secrets(&mut self) {
        if !self.is_sealed {
            return;
        }
        self.allow_anew();
        if self.draw.below(3) > 0 {
            return;
        }
        (self.seals, self.refuses_to_seal) = (false, self.draw.below(2) == 0);
        self.daemons.iter_mut().for_each(|daemon| daemon.allowed += 1);
        let seconds = 20 + self.draw.one_of(&[0, 2, 8, 70]);
        self.heal_after(seconds, Heal::Seal);
    }

    /// The machine has lost its power and boots.
    pub(crate) fn lose_power(&mut self, kept: u8, reach: Reach) {
        let number = self.draw.next();
        self.as_world(|disk| {
            disk.crash(match kept {
                0 => PowerLossKeeps::Nothing,
                1 => PowerLossKeeps::Names,
                2 => PowerLossKeeps::Torn(number),
                _ => PowerLossKeeps::All,
            });
        });
        self.kubelet.crash();
        self.as_world(|disk| disk.unlink(&DiskHandle::Start, Path::new(crate::kubelet::PROCESS)).is_ok());
        self.take_disk();
        // An end that was to come has come.
        self.effects.lock().unwrap().left = None;
        self.set_time(self.steady + 20_000);
        self.booted = self.steady;
        let of_manifests = [Fault::ManifestsReadOnly, Fault::ManifestsBroken];
        self.manifests_at_boot = of_manifests.into_iter().find(|fault| self.faults.contains(fault));
        self.boots_behind = self.latest >= self.booted + self.wall.get();
        self.suspended.set(0);
        self.forgets_gates = false;
        (self.is_shutting_down, self.owes_taint) = (false, false);
        self.kubelet.booted = self.steady;
        // What the kubelet was before says nothing of it now.
        self.seems_unready = false;
        self.kubelet.forget_foreign();
        self.kubelet.look_at = self.steady + 300;
        self.is_mounted = false;
        let late = self.draw.one_of(&[0, 1, 4, 40, 400]);
        self.heal_after(late, Heal::Mount);
        if reach != Reach::Up {
            self.server.lock().unwrap().set_reach(reach);
            self.heal_after(90, Heal::Reach);
        }
        self.server.lock().unwrap().break_connections();
    }

    pub(super) fn set_clock(&mut self, seconds: i64) {
        self.clock_set_at = self.steady;
        self.latest = self.latest.max(self.clock.get());
        self.wall.set(self.wall.get() + seconds * 1_000);
    }

    /// Nothing shows that the clock was another one in this boot (not-mended).
    pub(crate) fn forget_clock(&mut self) {
        if self.clock_set_at >= self.booted {
            self.clock_forgotten_in = Some(self.booted);
        }
    }

    pub(super) fn suspend(&mut self, seconds: u32, is_cut: bool) {
        let seconds = i64::from(seconds);
        self.set_clock(seconds);
        if !self.has_agent {
            // Nothing distinguishes that from time that has passed.
            self.clock_forgotten_in = Some(self.booted);
        }
        if !self.is_labelled && (!self.has_agent || self.effects.lock().unwrap().left.is_some()) {
            // So the time may be over in which a new Node gets its labels.
            let selective = self.selective.iter().copied();
            selective.for_each(|daemon| self.daemons[daemon].allowed += 1);
        }
        self.suspended.set(self.suspended.get() + seconds * 1_000);
        self.suspended_in_all += seconds * 1_000;
        self.kubelet.booted -= seconds * 1_000;
        if is_cut {
            self.server.lock().unwrap().break_connections();
        }
    }
}
