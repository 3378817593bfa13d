use super::*;

fn event(note: &str) -> AgentEvent {
    AgentEvent {
        regarding: Regarding::DaemonSet { cause: note.into() },
        daemon_set: ObjectKey::new("kube-system", "cni"),
        uid: "u".into(),
        kind: EventKind::Warning,
        reason: "Refused".into(),
        action: "Render".into(),
        note: note.into(),
    }
}

#[test]
fn the_same_again_becomes_a_series_and_not_an_event() {
    let events = EventRecorder::new("n1");
    let now = Instant::now();
    for note in ["a", "a", "b"] {
        events.record(event(note));
    }
    let first = events.next(now).unwrap();
    let other = events.next(now).unwrap();
    assert_eq!((&first.event.note, &other.event.note), (&"a".to_string(), &"b".to_string()));
    assert_ne!(first.name, other.name);
    assert_eq!(events.next(now), None);
    events.record(event("a"));
    let series = events.next(now + SERIES_WRITE).unwrap();
    assert!(series.is_series && series.name == first.name);
    assert_eq!(series.body["series"]["count"], 3);
    events.record(event("a"));
    assert!(!events.next(now + SERIES_WRITE + SERIES).unwrap().is_series, "a series ends");
}

#[test]
fn what_went_as_it_should_waits_for_a_moment_and_a_warning_does_not() {
    let events = EventRecorder::new("n1");
    let normal = |note: &str| AgentEvent { kind: EventKind::Normal, ..event(note) };
    let not_before = || events.with(|state| state.not_before);
    events.record(normal("a"));
    let first = not_before().unwrap();
    assert!(first > Instant::now() && first <= Instant::now() + SPREAD);
    events.record(normal("b"));
    assert_eq!(not_before(), Some(first), "they go together");
    events.record(event("c"));
    assert_eq!(not_before(), None, "and with the warning, in their order");
    assert_eq!(events.next(Instant::now()).unwrap().event.note, "a");
}

#[test]
fn the_oldest_goes_when_there_are_too_many() {
    let events = EventRecorder::new("n1");
    for number in 0..QUEUE + 3 {
        events.record(event(&number.to_string()));
    }
    assert_eq!(events.dropped(), 3);
    assert_eq!(events.next(Instant::now()).unwrap().event.note, "3");
}

#[test]
fn a_daemon_from_a_folder_gets_none() {
    let events = EventRecorder::new("n1");
    events.record(AgentEvent { uid: String::new(), ..event("a") });
    assert_eq!(events.next(Instant::now()), None);
}

#[test]
fn limits_of_the_api_are_kept() {
    let long = "ü".repeat(600);
    let body = new_event(&event(&long), "n", "node", jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(body["note"].as_str().unwrap().len(), 1024);
    assert_eq!(body["eventTime"], "1970-01-01T00:00:00.000000Z");
}

fn on_node(node: &str) -> AgentEvent {
    AgentEvent { regarding: Regarding::Node { name: node.into(), uid: "n".into() }, ..event("a") }
}

#[test]
fn all_nodes_name_an_event_on_a_daemon_set_alike_for_its_cause_and_hour() {
    let at = |second: i64| jiff::Timestamp::from_second(second).unwrap();
    let name = event_name(&event("a"), "n1", at(7_200));
    assert_eq!(event_name(&AgentEvent { note: "pod x-n2".into(), ..event("a") }, "n2", at(10_799)), name);
    let other = AgentEvent { reason: "RolledBack".into(), ..event("a") };
    let anew = AgentEvent { uid: "v".into(), ..event("a") };
    for different in [event_name(&event("b"), "n1", at(7_200)), event_name(&event("a"), "n1", at(10_800))]
        .into_iter()
        .chain([other, anew].map(|event| event_name(&event, "n1", at(7_200))))
    {
        assert_ne!(different, name);
    }
    let names = ["n1", "n2"].map(|node| event_name(&on_node(node), node, at(7_200)));
    assert!(names[0].starts_with("n1.") && names[1].starts_with("n2."), "{names:?}");
    assert_ne!(event_name(&on_node("n1"), "n1", at(7_201)), names[0]);
}

#[test]
fn what_another_node_has_said_is_neither_lost_nor_continued() {
    let events = EventRecorder::new("n1");
    let conflict = || ApiFailure::new(FailureKind::Conflict, "events \"cni.0\" already exists (409)");
    let now = Instant::now();
    events.record(event("a"));
    events.give_up(events.next(now).unwrap(), conflict());
    assert_eq!(events.dropped(), 0);
    events.record(event("a"));
    assert!(!events.next(now + SERIES_WRITE).unwrap().is_series, "that event is another node's");
    events.record(on_node("n1"));
    events.give_up(events.next(now).unwrap(), conflict());
    assert_eq!(events.dropped(), 1, "no other event repeats it");
}

#[test]
fn an_event_on_the_node_names_the_daemon_set() {
    let body = new_event(&on_node("n1"), "x", "n1", jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(body["metadata"]["namespace"], "default");
    assert_eq!(body["regarding"], json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n"}));
    assert_eq!((&body["related"]["kind"], &body["related"]["name"]), (&json!("DaemonSet"), &json!("cni")));
    let body = new_event(&event("a"), "x", "n1", jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(
        (&body["metadata"]["namespace"], &body["regarding"]["kind"]),
        (&json!("kube-system"), &json!("DaemonSet"))
    );
    assert_eq!(body["related"], Value::Null);
}
