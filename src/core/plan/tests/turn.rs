//! Starts after other daemons.

use crate::core::pass;

use super::*;

mod gates;

fn waiting() -> Bench {
    let names = BTreeSet::from([ObjectKey::new("a", "x")]);
    let after = After { daemons: names.clone(), timeout: Span::from_secs(120), ..After::default() };
    Bench { after: Some(after), awaited: names.into_iter().collect(), ..Bench::new() }
}

#[test]
fn a_first_start_waits_and_says_for_whom_and_how_long() {
    let mut bench = waiting();
    let desired = wanted(&daemon_set("v1"));
    let plan = bench.plan(&desired);
    assert_eq!(plan.actions, []);
    assert_eq!((plan.summary.state, plan.wake_at), (State::Waiting, Some(NOW + Span::from_secs(1))));
    assert_eq!(plan.summary.waiting_for[0].to_string(), "DaemonSet a/x");
    assert_eq!(
        plan.summary.reasons.to_string(),
        "waits until a/x is Ready here (daemonlet.dev/after), since 1970-01-01T00:16:40Z and at most until \
         1970-01-01T00:18:40Z (daemonlet.dev/after-timeout)"
    );
    assert!(plan.pull.is_some(), "its images are pulled meanwhile");
    bench.pass(&desired);
    bench.now += Span::from_secs(10);
    assert_eq!(bench.plan(&desired).summary.reasons, plan.summary.reasons, "it does not wait anew");
    bench.awaited.clear();
    assert_eq!(bench.pass(&desired), ["start uid-v1-0"]);
}

#[test]
fn it_starts_after_the_timeout_and_says_so() {
    let mut bench = waiting();
    let desired = wanted(&daemon_set("v1"));
    bench.pass(&desired);
    bench.now += Span::from_secs(120) - ms(1);
    assert_eq!(bench.plan(&desired).wake_at, Some(NOW + Span::from_secs(120)));
    assert_eq!(bench.pass(&desired), Vec::<String>::new());
    bench.now += ms(1);
    let [Action::Start { reason, .. }] = &bench.plan(&desired).actions[..] else { panic!("it waits on") };
    assert_eq!(
        reason.to_string(),
        "it should run here and does not, though a/x is not Ready here after 120 s (daemonlet.dev/after-timeout)"
    );
}

#[test]
fn a_wait_of_an_earlier_boot_does_not_count() {
    let mut bench = waiting();
    let desired = wanted(&daemon_set("v1"));
    bench.pass(&desired);
    bench.now += Span::from_secs(120);
    bench.boot = "boot-2".to_owned();
    assert_eq!(bench.pass(&desired), Vec::<String>::new());
}

#[test]
fn what_has_had_a_manifest_in_this_boot_never_waits() {
    let mut bench = waiting();
    let awaited = std::mem::take(&mut bench.awaited);
    assert_eq!(bench.pass(&wanted(&daemon_set("v1"))), ["start uid-v1-0"]);
    bench.awaited = awaited;
    bench.boot = "boot-2".to_owned();
    assert_eq!(bench.pass(&wanted(&daemon_set("v1"))), Vec::<String>::new(), "its manifest stays at a boot");
    assert_eq!(bench.record.live().count(), 1);
    assert_eq!(bench.pass(&wanted(&daemon_set("v2"))), ["end uid-v1-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&wanted(&daemon_set("v2"))), ["finish uid-v1-0", "start uid-v2-1"]);
}

#[test]
fn it_claims_no_slot_while_it_waits() {
    let mut bench = waiting();
    let mut of_api = daemon_set("v1");
    of_api.source = Source::Api;
    of_api.annotations.insert(crate::core::model::FIRST_INSTALL.to_owned(), "1".to_owned());
    bench.world.permission = Some(Permission::Approved);
    let desired = wanted(&of_api);
    assert_eq!(bench.plan(&desired).replacing, None);
    bench.awaited.clear();
    assert_eq!(bench.plan(&desired).replacing.as_deref(), Some("v1"));
}

#[test]
fn only_readiness_of_this_boot_is_noted_and_only_where_it_is_needed() {
    let mut bench = Bench { booted: NOW - Span::from_secs(10), ..Bench::running("v1") };
    let desired = wanted(&daemon_set("v1"));
    bench.world.ready.insert("uid-v1-0".to_owned(), NOW - Span::from_secs(12));
    let noted = |bench: &mut Bench| {
        bench.pass(&desired);
        bench.record.this_boot.as_ref().is_some_and(|this| this.ready)
    };
    bench.is_named = true;
    assert!(!noted(&mut bench), "the mirror pod shows what was before the boot");
    // The API says no fractions of a second.
    bench.world.ready.insert("uid-v1-0".to_owned(), NOW - Span::from_millis(10_999));
    bench.is_named = false;
    assert!(!noted(&mut bench));
    bench.is_named = true;
    assert!(noted(&mut bench));
    bench.world.ready.clear();
    assert!(noted(&mut bench), "it has been Ready");
    bench.boot = "boot-2".to_owned();
    bench.world.steady.insert("uid-v1-0".to_owned(), NOW);
    bench.pass(&desired);
    let boot = |bench: &Bench| bench.record.this_boot.as_ref().map(|this| this.boot.clone());
    assert_eq!(boot(&bench).as_deref(), Some("boot-1"), "it has not run for long enough");
    bench.now += Span::from_secs(30);
    bench.pass(&desired);
    assert_eq!(boot(&bench).as_deref(), Some("boot-2"));
}

#[test]
fn how_long_the_boot_before_took_does_not_matter_in_this_one() {
    let mut bench = Bench { booted: NOW - Span::from_secs(60), is_named: true, ..Bench::running("v1") };
    let this = bench.record.in_boot("boot-0");
    this.before_kubelet = Some(Span::from_secs(180));
    bench.world.ready.insert("uid-v1-0".to_owned(), NOW - Span::from_secs(35));
    bench.pass(&wanted(&daemon_set("v1")));
    assert!(bench.record.this_boot.as_ref().is_some_and(|this| this.boot == "boot-1" && this.ready));
}

#[test]
fn what_runs_steadily_is_available_after_its_min_ready_seconds() {
    let mut bench = Bench { is_named: true, ..Bench::running("v1") };
    let mut definition = DaemonSet::clone(&daemon_set("v1"));
    definition.min_ready_seconds = 120;
    let definition = Arc::new(definition);
    bench.record.instances[0].daemon_set = Some(Arc::clone(&definition));
    bench.world.steady.insert("uid-v1-0".to_owned(), NOW);
    let noted = |bench: &mut Bench, seconds: i64| {
        bench.now = NOW + Span::from_secs(seconds);
        bench.pass(&wanted(&definition));
        bench.record.this_boot.as_ref().is_some_and(|this| this.steady)
    };
    assert_eq!([119, 120].map(|seconds| noted(&mut bench, seconds)), [false, true]);
}

#[test]
fn what_runs_steadily_while_nobody_reports_readiness_is_not_ready() {
    let mut bench = Bench { is_named: true, ..Bench::running("v1") };
    let desired = wanted(&daemon_set("v1"));
    bench.world.steady.insert("uid-v1-0".to_owned(), NOW);
    bench.pass(&desired);
    assert_eq!(bench.record.this_boot, None);
    bench.now += Span::from_secs(30);
    bench.pass(&desired);
    let noted = |bench: &Bench| bench.record.this_boot.as_ref().map(|this| (this.ready, this.steady));
    assert_eq!(noted(&bench), Some((false, true)));
    bench.world.steady.clear();
    bench.world.not_ready.insert("uid-v1-0".to_owned());
    bench.pass(&desired);
    assert_eq!(noted(&bench), Some((false, true)), "the mirror pod is not Ready");
    bench.world.not_ready.clear();
    bench.world.ready.insert("uid-v1-0".to_owned(), bench.now);
    bench.pass(&desired);
    assert_eq!(noted(&bench), Some((true, true)));
}

#[test]
fn circles_and_unknown_names_are_reported() {
    let mut bench = waiting();
    let after = bench.after.as_mut().unwrap();
    after.circle = Arc::new([ObjectKey::new("a", "x"), ObjectKey::new("kube-system", "net")].into());
    after.unknown = BTreeSet::from([ObjectKey::new("a", "y")]);
    let notes = bench.plan(&wanted(&daemon_set("v1"))).summary.notes;
    assert_eq!(
        notes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "daemonlet.dev/after makes a circle of a/x, kube-system/net: there each waits only for names that come \
             before its own",
            "daemonlet.dev/after: this node knows no DaemonSet a/y, and does not wait for it"
        ]
    );
    let after = bench.after.as_mut().unwrap();
    after.overruled = BTreeSet::from([ObjectKey::new("a", "z")]);
    (after.circle, after.unknown) = (Arc::new([ObjectKey::new("kube-system", "net")].into()), BTreeSet::new());
    let notes = bench.plan(&wanted(&daemon_set("v1"))).summary.notes;
    assert_eq!(notes[0].to_string(), "daemonlet.dev/after names the DaemonSet itself: it does not wait for itself");
    assert_eq!(
        notes[1].to_string(),
        "daemonlet.dev/after makes a circle with a/z: a namespace that is not trusted changes no order of trusted ones, \
         so it does not wait for them"
    );
}

#[test]
fn a_pass_looks_at_those_before_first_unless_it_is_the_only_one() {
    let mut bench = Bench::new();
    let mut first = daemon_set("v1");
    first.key = ObjectKey::new("z", "first");
    let mut second = daemon_set("v2");
    second.annotations.insert(crate::core::model::AFTER.to_owned(), "z/first".to_owned());
    let mut records = [&second.key, &first.key].map(|key| DaemonRecord::new(key.clone(), 0));
    let desired = [wanted(&second), wanted(&first)];
    let mut pass = |bench: &mut Bench, is_only: bool| {
        let context = pass::PassContext {
            now: bench.now,
            node: &bench.node,
            update_jitter: ms(0),
            max_removals: pass::MaxRemovals::Off,
            second_list: false,
            boot: "boot-1",
            booted: at(0),
            is_only,
        };
        let subjects = desired.iter().zip(&records);
        let subjects: Vec<pass::Subject<'_>> = subjects
            .map(|(desired, record)| pass::Subject { desired: desired.clone(), record, unlisted: false })
            .collect();
        let plan = pass::plan(&subjects, &context, &bench.world);
        let starts = plan.daemons.iter().flat_map(|daemon| &daemon.actions).map(short).collect::<Vec<_>>();
        if !is_only {
            plan.daemons.iter().for_each(|daemon| bench.world.apply(daemon));
            records = [0, 1].map(|index: usize| plan.daemons[index].record.clone());
        }
        starts
    };
    assert_eq!(pass(&mut bench, true), ["start uid-v2-0", "start uid-v1-0"]);
    assert_eq!(pass(&mut bench, false), ["start uid-v1-0"]);
    assert_eq!(pass(&mut bench, false), Vec::<String>::new());
    bench.world.ready.insert("uid-v1-0".to_owned(), NOW);
    assert_eq!(pass(&mut bench, false), ["start uid-v2-0"]);
}
