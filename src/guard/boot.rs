//! Whether this is the boot: the guard acts once, before the kubelet, and never later.
//!
//! Owns the evidence (`/run`, `/proc`) and the judgement over it. A clock is of no use: it runs on
//! in a container that boots, and a boot may take long.

use std::fs;
use std::io;
use std::io::Write;
use std::path::Path;

use nix::unistd::SysconfVar;
use nix::unistd::sysconf;

/// A unit that is started later than this after the boot's first process was started by hand.
const BOOT_TAKES: u64 = 15 * 60;
const MARKER: &str = "boot-guard";

/// What tells whether this is the boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BootEvidence {
    /// A guard has started before in this boot.
    pub(super) started_before: bool,
    pub(super) kubelet_runs: bool,
    /// Seconds from the start of process 1 to the start of this one.
    pub(super) age: Option<u64>,
}

impl BootEvidence {
    /// Why the guard must not act, if so.
    pub(super) fn objection(&self) -> Option<&'static str> {
        if self.started_before {
            Some("it has been started before in this boot")
        } else if self.kubelet_runs {
            Some("the kubelet runs already")
        } else if self.age.is_some_and(|age| age > BOOT_TAKES) {
            Some("the boot was long ago")
        } else {
            None
        }
    }

    /// Looks, and leaves the mark that a guard was started in this boot.
    ///
    /// # Errors
    /// The mark cannot be left; the evidence is complete nevertheless.
    pub(super) fn gather(run_dir: &Path, proc: &Path) -> (Self, io::Result<()>) {
        let marker = run_dir.join(MARKER);
        let boot = fs::read_to_string(proc.join("sys/kernel/random/boot_id")).unwrap_or_default();
        let started_before = match fs::read_to_string(&marker) {
            // A folder on a disk keeps the mark of an earlier boot.
            Ok(of) => of == boot || of.is_empty() || boot.is_empty(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        let marked = fs::create_dir_all(run_dir).and_then(|()| write(&marker, &boot));
        let age = start(proc, "1").zip(start(proc, "self")).and_then(|(first, own)| {
            let ticks = u64::try_from(sysconf(SysconfVar::CLK_TCK).ok().flatten()?).ok()?;
            own.checked_sub(first)?.checked_div(ticks)
        });
        (Self { started_before, kubelet_runs: kubelet_runs(proc), age }, marked)
    }
}

/// Writes what a loss of power must not leave empty.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// When a process started, in ticks since the kernel did (proc(5), field 22 of `stat`).
fn start(proc: &Path, process: &str) -> Option<u64> {
    let stat = fs::read_to_string(proc.join(process).join("stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

fn kubelet_runs(proc: &Path) -> bool {
    let Ok(entries) = fs::read_dir(proc) else { return false };
    let numbers = entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    let names = numbers.filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok());
    names.into_iter().any(|name| name.trim_end() == "kubelet")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: BootEvidence = BootEvidence { started_before: false, kubelet_runs: false, age: Some(3) };

    #[test]
    fn it_acts_in_the_boot_alone() {
        assert_eq!(BOOT.objection(), None);
        assert_eq!(BootEvidence { age: None, ..BOOT }.objection(), None);
        assert!(BootEvidence { started_before: true, ..BOOT }.objection().is_some());
        assert!(BootEvidence { kubelet_runs: true, ..BOOT }.objection().is_some());
        assert!(BootEvidence { age: Some(7_200), ..BOOT }.objection().is_some());
    }

    /// A `/proc` with these processes: number, name, start in ticks.
    fn proc(processes: &[(&str, &str, u64)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (number, name, start) in processes {
            let path = folder.path().join(number);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("comm"), format!("{name}\n")).unwrap();
            let stat = format!("{number} ({name}) S{} {start} 0 0\n", " 0".repeat(18));
            fs::write(path.join("stat"), stat).unwrap();
        }
        folder
    }

    #[test]
    fn the_first_start_leaves_a_mark() {
        let run = tempfile::tempdir().unwrap();
        let proc = proc(&[("1", "systemd", 1_000), ("self", "a) b", 1_000 + 100 * 7), ("30", "kubelet-helper", 0)]);
        let (first, marked) = BootEvidence::gather(&run.path().join("daemonlet"), proc.path());
        marked.unwrap();
        assert_eq!(first, BootEvidence { started_before: false, kubelet_runs: false, age: Some(7) });
        let (second, _) = BootEvidence::gather(&run.path().join("daemonlet"), proc.path());
        assert!(second.started_before);
    }

    #[test]
    fn the_mark_of_an_earlier_boot_does_not_count() {
        let (run, proc) = (tempfile::tempdir().unwrap(), proc(&[("1", "systemd", 1_000)]));
        let random = proc.path().join("sys/kernel/random");
        fs::create_dir_all(&random).unwrap();
        let started_before = |boot: &str| {
            fs::write(random.join("boot_id"), boot).unwrap();
            BootEvidence::gather(run.path(), proc.path()).0.started_before
        };
        assert_eq!(["a\n", "a\n", "b\n", "b\n"].map(started_before), [false, true, false, true]);
        fs::write(run.path().join(MARKER), "").unwrap();
        assert_eq!(["c\n", ""].map(started_before), [true, true], "of which boot it is cannot be told");
    }

    #[test]
    fn a_kubelet_is_seen() {
        let run = tempfile::tempdir().unwrap();
        let proc = proc(&[("77", "kubelet", 5)]);
        assert!(BootEvidence::gather(run.path(), proc.path()).0.kubelet_runs);
    }
}
