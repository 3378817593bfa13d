//! What `/proc` and the kubelet's folder show of this boot.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use std::time::SystemTime;

use crate::clock;
use crate::config::Config;
use crate::core::local_failure::LocalFailure;
use crate::core::record::DaemonRecord;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::agent::boot::Boot;
use crate::node::agent::failure::EffectFailure;
use crate::node::agent::records::Records;
use crate::node::agent::state::AgentState;
use crate::node::fsx::Shared;
use crate::node::kubelet::HEALTHZ;
use crate::node::manifests::Scan;
use crate::node::volumes::Volumes;

/// Times of files are coarser than the clock.
const COARSE: Duration = Duration::from_secs(1);

/// A kubelet that refuses its configuration ends sooner.
const SETTLED: Span = Span::from_secs(10);

/// When the youngest kubelet of this node was started; `None` if there is none to be seen.
pub(super) fn kubelet_started(files: &Shared, booted: Timestamp) -> Option<Timestamp> {
    let ticks = ticks_a_second()?;
    let proc = Path::new("/proc");
    let started = files.list(proc).ok()?.into_iter().filter_map(|process| {
        let stat = files.text(proc.join(process).join("stat")).ok()?;
        Some(booted + Span::from_millis(start_ticks(&stat, "kubelet")? * 1_000 / ticks))
    });
    started.max()
}

/// Why the configured manifest folder is not the kubelet's yet, if another one was: the kubelet reads its configuration when
/// it starts. The agent's own configuration counts at once.
pub(super) fn has_moved(
    files: &Shared,
    state: &AgentState,
    config: &Config,
    boot: &Boot,
    now: Timestamp,
) -> Option<EffectFailure> {
    let former = state.inputs.manifest_dir.as_ref().filter(|former| **former != config.manifest_dir)?;
    if config.is_written("manifest-dir") {
        return None;
    }
    let written = written(files, &config.kubelet_config).and_then(|written| {
        let written = (written + COARSE).duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(boot.present(Timestamp::from_millis(i64::try_from(written.as_millis()).ok()?), now))
    });
    // Since when is not known of a file that is away, or that was written at a time that is still to come.
    let known = written.filter(|written| *written <= now);
    let has_run = || !run_in_this_boot(files, &config.kubelet_root, &state.records).is_empty();
    let is_first = state.concerns.manifests_lost_at_boot.asks() && (state.passes == 0 || !has_run());
    let uses_former = || uses_former(kubelet_started(files, boot.at), known.unwrap_or(state.started), now, is_first);
    // A kubelet of this boot has read it, whatever its clock showed.
    let is_of_an_earlier_boot = is_first && known.is_none();
    (!is_of_an_earlier_boot && uses_former()).then(|| {
        let configured = config.manifest_dir.display();
        let hint =
            format!("restart the kubelet; if it uses {configured} already, write manifest-dir = \"{configured}\"");
        let cause = LocalFailure::ManifestFolderMoved {
            by: config.kubelet_config.clone(),
            configured: config.manifest_dir.clone(),
            former: former.clone(),
        };
        EffectFailure { cause, hint: Some(hint) }
    })
}

/// Since when the file is there as it is. One that was made earlier and moved here keeps the time of its content.
fn written(files: &Shared, file: &Path) -> Option<SystemTime> {
    files.look(file).ok().map(|stat| stat.stamp.changed())
}

/// Whether no kubelet, as `started` tells of the youngest, has shown by its life that it uses what was written at `written`.
/// Until then the pods of the former folder run on. At the first pass of a boot there are none: the next kubelet reads it.
fn uses_former(started: Option<Timestamp>, written: Timestamp, now: Timestamp, is_first: bool) -> bool {
    match started {
        Some(started) => started <= written || !is_first && now - started < SETTLED,
        None => !is_first,
    }
}

/// A port of this node answers or refuses at once.
const ANSWERS: Duration = Duration::from_millis(50);

/// Whether a kubelet runs: a process of that name, or something that listens where a kubelet does.
pub(super) fn has_kubelet(files: &Shared) -> bool {
    let proc = Path::new("/proc");
    let is_kubelet = |process: &OsString| {
        let stat = files.text(proc.join(process).join("stat"));
        stat.is_ok_and(|stat| start_ticks(&stat, "kubelet").is_some())
    };
    // Where processes cannot be seen, one may be there.
    files.list(proc).map_or(true, |processes| processes.iter().any(is_kubelet)) || answers()
}

/// Whether something listens where a kubelet does.
fn answers() -> bool {
    #[cfg(feature = "simulation")]
    if let Some(world) = crate::simulation::world() {
        return world.is_kubelet_healthy();
    }
    std::net::TcpStream::connect_timeout(&HEALTHZ, ANSWERS).is_ok()
}

fn ticks_a_second() -> Option<i64> {
    nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten().filter(|ticks| *ticks > 0)
}

/// The start time of a process of that name (`/proc/<pid>/stat`, field 22), in ticks since boot.
fn start_ticks(stat: &str, name: &str) -> Option<i64> {
    let (head, rest) = stat.rsplit_once(')')?;
    let (_, command) = head.split_once('(')?;
    if command != name {
        return None;
    }
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The live instances of which the kubelet has made something since the machine booted.
pub(super) fn run_in_this_boot(files: &Shared, kubelet_root: &Path, records: &Records) -> BTreeSet<String> {
    // Where the kernel does not say when that was, all of them: what is missing was removed.
    let booted = machine_booted(files);
    let live = records.values().flat_map(DaemonRecord::live);
    let run = live
        .filter(|i| booted.is_none_or(|booted| kubelet_knows(files, &kubelet_root.join("pods").join(&i.uid), booted)));
    run.map(|i| i.uid.clone()).collect()
}

/// Whether the kubelet may have run a pod since the machine booted. It is not asked when: a clock that was set after the boot
/// makes what was run before that look older than the boot.
pub(super) fn may_have_run(files: &Shared, kubelet_root: &Path) -> bool {
    let root = kubelet_root.join("pods");
    let pods = match files.list(&root) {
        Ok(pods) => pods,
        Err(error) => return error.kind() != std::io::ErrorKind::NotFound,
    };
    pods.iter().any(|pod| kubelet_knows(files, &root.join(pod), SystemTime::UNIX_EPOCH))
}

/// The volumes that the kubelet would start pods with, and that have no data: nothing was ever made of the pods on this disk,
/// or the volumes were emptied, as at a shutdown where secrets are sealed. A kubelet that runs may have made it elsewhere;
/// so may one of this boot, where a record knows more, unless it is not known in which boot that was written.
pub(super) fn empty_volumes(
    files: &Shared,
    kubelet_root: &Path,
    scan: &Scan,
    state: &AgentState,
    volumes: &Volumes,
) -> BTreeMap<String, BTreeSet<String>> {
    let is_first = state.concerns.manifests_lost_at_boot.asks();
    let is_known = |uid: &str| state.records.values().any(|record| record.instance(uid).is_some());
    let needs_data = scan.ours.values().filter(|m| !m.data_volumes.is_empty() && !m.uid.is_empty());
    let asked: Vec<_> = needs_data.filter(|m| is_first || state.inputs.incomplete || !is_known(&m.uid)).collect();
    let is_away = |uid: &String| {
        let looked = files.look_at_link(&kubelet_root.join("pods").join(uid));
        looked.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    };
    let asked = asked.into_iter().filter(|m| is_first || is_away(&m.uid));
    let empty = without_data(files, kubelet_root, volumes, asked.map(|m| (&m.uid, m.data_volumes.as_slice())));
    if empty.is_empty() || has_kubelet(files) { BTreeMap::new() } else { empty }
}

/// The volumes that have no data, of pods and the names of their volumes. Where the kubelet's root cannot be read itself,
/// nothing is known of what is in it.
fn without_data<'m>(
    files: &Shared,
    kubelet_root: &Path,
    volumes: &Volumes,
    pods: impl Iterator<Item = (&'m String, &'m [String])>,
) -> BTreeMap<String, BTreeSet<String>> {
    let has_none = |uid: &str, name: &String| !volumes.has_data(uid, std::slice::from_ref(name));
    let of_pod = |(uid, names): (&String, &[String])| {
        let empty: BTreeSet<String> = names.iter().filter(|name| has_none(uid, name)).cloned().collect();
        (!empty.is_empty()).then(|| (uid.clone(), empty))
    };
    let empty: BTreeMap<_, _> = pods.filter_map(of_pod).collect();
    if empty.is_empty() || files.list(kubelet_root).is_err() { BTreeMap::new() } else { empty }
}

/// Whether the kubelet has made a container of the pod since the machine booted: each gets a hosts file
/// and a folder of its own below the pod's.
fn kubelet_knows(files: &Shared, pod: &Path, booted: SystemTime) -> bool {
    let changed = |path: &Path| match files.look_at_link(path) {
        Ok(stat) => stat.stamp.modified() + COARSE >= booted,
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    };
    if changed(&pod.join("etc-hosts")) {
        return true;
    }
    let folder = pod.join("containers");
    match files.list(&folder) {
        Ok(containers) => containers.iter().any(|container| changed(&folder.join(container))),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// When the machine booted, by the age of its first process: the kernel's own uptime is the host's where
/// the machine is a container.
fn machine_booted(files: &Shared) -> Option<SystemTime> {
    let stat = files.text("/proc/1/stat").ok()?;
    let started: f64 = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let ticks = ticks_a_second()?;
    let up = clock::uptime().as_millis() as f64 / 1_000.0;
    let age = Duration::try_from_secs_f64((up - started / ticks as f64).max(0.0)).ok()?;
    clock::system().checked_sub(age)
}

#[cfg(test)]
mod tests {
    use crate::core::model::ObjectKey;
    use crate::core::record::Instance;
    use crate::node::agent::concerns::manifests_lost_at_boot::ManifestsLostAtBoot;
    use crate::node::fsx::Real;
    use crate::node::volumes::VolumesRoot;

    use super::*;

    #[test]
    fn what_the_kubelet_ran_counts_whatever_the_clock_was_then() {
        let folder = tempfile::tempdir().unwrap();
        let files: Shared = Real::shared();
        assert!(!may_have_run(&files, folder.path()), "it has no folder for pods");
        let pod = folder.path().join("pods/u");
        std::fs::create_dir_all(&pod).unwrap();
        assert!(!may_have_run(&files, folder.path()), "no container of it was made");
        let hosts = std::fs::File::create(pod.join("etc-hosts")).unwrap();
        hosts.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)).unwrap();
        assert!(may_have_run(&files, folder.path()));
    }

    #[test]
    fn a_process_is_known_by_its_name_whatever_is_in_it() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(start_ticks(&format!("42 (kubelet) {rest}"), "kubelet"), Some(4_711));
        assert_eq!(start_ticks(&format!("42 (not) kubelet) {rest}"), "kubelet"), None);
        assert_eq!(start_ticks("42 (kubelet", "kubelet"), None);
    }

    #[test]
    fn a_kubelet_that_started_before_its_configuration_was_written_uses_the_former_folder() {
        let at = Timestamp::from_secs;
        let uses_former = |started: Option<i64>, now: i64, is_first| {
            uses_former(started.map(Timestamp::from_secs), at(2), at(now), is_first)
        };
        for is_first in [false, true] {
            assert!(uses_former(Some(1), 99, is_first), "it has not read it");
            assert!(!uses_former(Some(3), 13, is_first));
        }
        assert!(uses_former(Some(3), 12, false), "it may crash, as each before it");
        assert!(uses_former(None, 99, false), "what runs is of the former folder, and nothing ends or starts");
        assert!(!uses_former(Some(3), 4, true) && !uses_former(None, 4, true), "nothing runs yet in this boot");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "node-name = \"n1\"\nkubelet-config = \"/none\"\n").unwrap();
        let mut config = crate::config::load(Some(file.path())).unwrap();
        let mut state = crate::node::agent::decide::tests::state(&config);
        let moved = |state: &AgentState, config: &Config| {
            has_moved(&Real::shared(), state, config, &Boot::new("b".to_owned(), at(0)), at(9)).is_some()
        };
        assert!(!moved(&state, &config), "no other folder is known");
        state.inputs.manifest_dir = Some(config.manifest_dir.clone());
        assert!(!moved(&state, &config));
        config.manifest_dir = "/elsewhere".into();
        assert!(moved(&state, &config), "no kubelet has worked with it");
        state.concerns.manifests_lost_at_boot = ManifestsLostAtBoot::new(Some("a"), "b");
        assert!(!moved(&state, &config), "nothing has run in this boot");
        let root = tempfile::tempdir().unwrap();
        config.kubelet_root = root.path().to_owned();
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        record.instances.push(Instance::new("u", "b-n1", 0, "r", at(0)));
        state.records.insert(record.key.clone(), record);
        assert!(!moved(&state, &config), "its pod was not made again in this boot");
        std::fs::create_dir_all(root.path().join("pods/u/containers/c")).unwrap();
        assert!(moved(&state, &config), "a kubelet has run it from the former folder");
        state.passes = 0;
        assert!(!moved(&state, &config), "in the first pass of another boot");
        let made = SystemTime::now() - Duration::from_secs(86_400);
        file.as_file().set_modified(made).unwrap();
        let since = written(&Real::shared(), file.path()).unwrap();
        assert!(since > made + Duration::from_secs(3_600), "it was made a day ago, and is here since now");
    }

    #[test]
    fn what_the_kubelet_made_since_the_boot_tells_that_it_ran_the_pod() {
        let (files, root) = (Real::shared(), tempfile::tempdir().unwrap());
        let pod = root.path().join("pods/live");
        std::fs::create_dir_all(pod.join("containers/c")).unwrap();
        let before = SystemTime::now() + Duration::from_secs(60);
        assert!(!kubelet_knows(&files, &pod, before), "older than the boot");
        assert!(kubelet_knows(&files, &pod, SystemTime::UNIX_EPOCH));
        assert!(!kubelet_knows(&files, &root.path().join("pods/other"), SystemTime::UNIX_EPOCH), "no folder at all");
        std::fs::remove_dir(pod.join("containers/c")).unwrap();
        std::fs::create_dir(pod.join("volumes")).unwrap();
        assert!(!kubelet_knows(&files, &pod, SystemTime::UNIX_EPOCH), "volume data is our own");
        std::fs::write(pod.join("etc-hosts"), "").unwrap();
        assert!(kubelet_knows(&files, &pod, SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn a_volume_is_without_data_where_the_pod_is_away_or_its_data_was_taken() {
        let root = tempfile::tempdir().unwrap();
        let (files, pods) = (Real::shared(), ["has".to_owned(), "has-not".to_owned()]);
        let below = root.path().join("pods/has/volumes/kubernetes.io~empty-dir");
        std::fs::create_dir_all(below.join("taken")).unwrap();
        std::fs::create_dir_all(below.join("full")).unwrap();
        std::os::unix::fs::symlink("..1", below.join("full/..data")).unwrap();
        let names = ["full".to_owned(), "taken".to_owned()];
        let empty = |root: &Path| {
            let volumes = Volumes::new(Real::shared(), VolumesRoot::kubelet(root));
            without_data(&files, root, &volumes, pods.iter().map(|uid| (uid, names.as_slice())))
        };
        let found = empty(root.path());
        assert_eq!(found["has"], ["taken".to_owned()].into());
        assert_eq!(found["has-not"], names.clone().into());
        assert!(empty(&root.path().join("not-there")).is_empty(), "what cannot be read has lost nothing");
    }

    #[test]
    fn the_machine_booted_in_the_past() {
        let booted = machine_booted(&Real::shared()).unwrap();
        assert!(booted < SystemTime::now() && booted > SystemTime::UNIX_EPOCH);
    }
}
