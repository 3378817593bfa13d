use super::*;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::status::AgentStatus;
use crate::core::status::ApiLink;
use crate::core::status::LeftAloneCause;
use crate::core::status::Passes;
use crate::core::status::Problem;
use crate::core::status::PullStatus;

fn daemon(name: &str, state: State) -> DaemonStatus {
    DaemonStatus {
        mode: Some(Mode::Static),
        revision: "5d8c7".into(),
        pod: format!("{name}-7x2kp"),
        uid: "u".into(),
        ready: Some(true),
        since: Some("2026-11-21T09:00:00Z".into()),
        ..DaemonStatus::bare(&ObjectKey::new("kube-system", name), Some(Source::Api), state, "")
    }
}

fn report(daemons: Vec<DaemonStatus>) -> StatusReport {
    StatusReport {
        schema_version: 1,
        node: "n1".into(),
        kubelet_version: None,
        agent: AgentStatus {
            running: true,
            since: None,
            version: "0".into(),
            api: ApiLink::Connected,
            api_since: None,
            api_use: None,
            tokens: None,
            identity: None,
            passes: Passes::default(),
        },
        daemons,
        problems: Vec::new(),
        notes: Vec::new(),
        left_alone: Vec::new(),
        refused: Vec::new(),
    }
}

#[test]
fn what_is_left_alone_is_counted_with_what_selects_it() {
    let group = |count, names: &[&str]| LeftAlone {
        cause: LeftAloneCause::ModeLabelled,
        count,
        daemon_sets: names.iter().map(|&name| name.to_owned()).collect(),
        hint: "label it".to_owned(),
    };
    let mut report = report(Vec::new());
    assert!(human(&report, Colour::none(), None).starts_with("no daemons on this node\nhint: put a DaemonSet into "));
    report.left_alone = vec![group(1, &["a/b"])];
    assert_eq!(
        human(&report, Colour::none(), None),
        "no daemons on this node\nleft alone (mode: labelled): 1 DaemonSet of the API: a/b\nhint: label it\n"
    );
    assert_eq!(exit(&report), Exit::Success);
    let more = "left alone (mode: labelled): 5 DaemonSets of the API: a/b, a/c, a/d and 2 more\nhint: a/b: label it\n";
    assert_eq!(left_alone(&[group(5, &["a/b", "a/c", "a/d"])], Colour::none()), more);
    assert_eq!(serde_json::to_value(&report).unwrap()["leftAlone"][0]["cause"], "modeLabelled");
}

#[test]
fn the_table_has_a_line_a_daemon_and_problems_below() {
    let missing = Missing { kind: "Secret".into(), namespace: "a".into(), name: "b".into(), key: "c".into() };
    let waiting = DaemonStatus {
        pod: String::new(),
        ready: None,
        since: None,
        waiting_for: vec![missing],
        ..daemon("a", State::Waiting)
    };
    let mut report = report(vec![daemon("cni", State::Running), waiting]);
    report.agent.api = ApiLink::Failing("refused".to_owned());
    report.agent.api_since = Some("2026-11-21T09:01:00Z".into());
    report.problems.push(Problem { object: "/etc/x".into(), reason: "is bad".into(), hint: Some("mend it".into()) });
    assert_eq!(
        human(&report, Colour::none(), None),
        "DAEMONSET        SOURCE  REVISION  POD        STATE    READY  SINCE                 REASON\n\
         kube-system/cni  API     5d8c7     cni-7x2kp  running  yes    2026-11-21T09:00:00Z\n\
         kube-system/a    API     5d8c7     -          waiting  -      -                     waits for Secret a/b (c)\n\
         API: refused since 2026-11-21T09:01:00Z\n\
         problem: /etc/x: is bad\n\
         hint: mend it\n"
    );
    let hint = "label it".to_owned();
    report.left_alone =
        vec![LeftAlone { cause: LeftAloneCause::UnknownMode, count: 1, daemon_sets: vec!["a/b".to_owned()], hint }];
    let pulling = &mut report.daemons[0];
    (pulling.notes, pulling.hints) = (vec!["a note".to_owned()], vec!["a hint".to_owned()]);
    pulling.replacing = Some("r2".to_owned());
    pulling.pull = Some(PullStatus { image: "x:2".into(), number: 1, count: 2, since: "now".into() });
    for screen in [None, Some(Screen::new(Timestamp::from_secs(0)))] {
        output::assert_unforgeable(&report, |report| {
            human(report, Colour::none(), screen)
                + &live::lines(report, screen.map(|screen| screen.now), Colour::none())
        });
    }
}

#[test]
fn no_source_is_the_api_where_none_is_configured() {
    let unknown = DaemonStatus { source: None, ..daemon("a", State::Running) };
    let mut report = report(vec![daemon("cni", State::Running), unknown]);
    let sources = |report: &StatusReport| {
        let text = human(report, Colour::none(), None);
        let column =
            |line: &str| line.split("  ").filter(|cell| !cell.is_empty()).nth(1).map(str::trim).map(str::to_owned);
        text.lines().skip(1).filter_map(column).collect::<Vec<_>>()
    };
    assert_eq!(sources(&report), ["API", "-"]);
    report.agent.api = serde_json::from_str("\"none\"").unwrap();
    assert_eq!(report.agent.api, ApiLink::NotConfigured);
    assert_eq!(sources(&report), ["API (former)", "-"]);
}

#[test]
fn stale_refused_failing_and_unknown_are_exit_code_1() {
    for (state, exit_code) in [
        (State::Running, Exit::Success),
        (State::Waiting, Exit::Success),
        (State::NotSelected, Exit::Success),
        (State::LeftAlone, Exit::Success),
        (State::StandingBy, Exit::Success),
        (State::Stale, Exit::Refused),
        (State::Refused, Exit::Refused),
        (State::Failing, Exit::Refused),
        (State::Unknown, Exit::Refused),
    ] {
        assert_eq!(exit(&report(vec![daemon("a", State::Running), daemon("b", state)])), exit_code, "{state:?}");
    }
}

#[test]
fn the_json_keeps_its_names() {
    let json = serde_json::to_value(report(vec![daemon("cni", State::NotSelected)])).unwrap();
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(keys(&json), "agent daemons node problems schemaVersion");
    assert_eq!(keys(&json["agent"]), "api apiSince apiUse passes running since version");
    assert_eq!(
        keys(&json["daemons"][0]),
        "hints mode name namespace notes pod ready reason revision since source state uid waitingFor"
    );
    assert_eq!(json["daemons"][0]["state"], "notSelected");
    assert_eq!(json["daemons"][0]["mode"], "static");
}

#[test]
fn counters_alone_are_no_change_to_watch() {
    let before = report(vec![daemon("cni", State::Running)]);
    let mut after = before.clone();
    after.agent.passes.count += 1;
    assert!(says_the_same(&before, &after));
    after.daemons[0].ready = None;
    assert!(!says_the_same(&before, &after));
}

#[test]
fn on_a_screen_the_table_fits_and_says_how_long_ago() {
    let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
    for (then, expected) in [
        ("2026-11-21T09:58:01Z", "119s ago"),
        ("2026-11-21T09:58:00Z", "2m ago"),
        ("2026-11-21T08:00:00Z", "2h ago"),
        ("2026-11-19T10:00:00Z", "2d ago"),
        ("2026-11-21T10:00:09Z", "0s ago"),
    ] {
        assert_eq!(age(now, then.parse().unwrap()), expected, "{then}");
    }
    let path = "/etc/daemonlet/daemonsets.d/kube-flannel.yaml".into();
    let [mut short, mut long] = ["kube-flannel-ds", "net"].map(|name| daemon(name, State::Running));
    (short.source, long.reason) = (Some(Source::File { path }), "because ".repeat(40));
    let screen = Screen::new(now);
    let whole = daemon("a", State::Running);
    for (one, is_cut) in [(&whole, false), (&short, true), (&long, true)] {
        assert_eq!(screen.cuts(&report(vec![one.clone()])), is_cut, "{one:?}");
    }
    let text = human(&report(vec![short, long]), Colour::none(), Some(screen));
    let table: Vec<&str> = text.lines().take(3).collect();
    assert!(table.iter().all(|line| line.chars().count() <= output::COLUMNS), "{text}");
    assert!(table[1].contains("…d/kube-flannel.yaml ") && table[1].ends_with(" 60m ago"), "{text}");
    assert!(table[2].ends_with('…'), "{text}");
}
