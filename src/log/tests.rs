use std::sync::Arc;
use std::sync::Mutex;

use super::*;

/// Keeps what would go to the journal: message, then each key value.
#[derive(Clone, Default)]
struct JournalLines(Arc<Mutex<Vec<String>>>);

struct KeepPairs<'a>(&'a mut Vec<String>);

impl<'kvs> ::log::kv::VisitSource<'kvs> for KeepPairs<'_> {
    fn visit_pair(&mut self, key: ::log::kv::Key<'kvs>, value: ::log::kv::Value<'kvs>) -> Result<(), ::log::kv::Error> {
        self.0.push(format!("{key}={value}"));
        Ok(())
    }
}

impl<S: Subscriber> Layer<S> for JournalLines {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        as_record(event, |record| {
            let mut kept = self.0.lock().unwrap();
            kept.push(format!("{} {}", record.level(), record.args()));
            record.key_values().visit(&mut KeepPairs(&mut kept)).unwrap();
        });
    }
}

#[test]
fn every_field_of_an_event_is_a_key_value_of_the_record_and_the_message_names_the_daemon_set() {
    let kept = JournalLines::default();
    let subscriber = tracing_subscriber::registry().with(kept.clone());
    tracing::subscriber::with_default(subscriber, || {
        let pod = "cni-7x2kp";
        tracing::warn!(daemonset = "kube-system/cni", pod, incarnation = 3, mode = ?"static", "not ready: {}", "probe");
    });
    let expected = [
        "WARN kube-system/cni: not ready: probe",
        "daemonset=kube-system/cni",
        "pod=cni-7x2kp",
        "incarnation=3",
        "mode=\"static\"",
    ];
    assert_eq!(*kept.0.lock().unwrap(), expected);
}

#[test]
fn an_error_is_logged_with_its_sources() {
    let kept = JournalLines::default();
    let error = LogError::Journal { source: std::io::Error::other("no such socket") };
    tracing::subscriber::with_default(tracing_subscriber::registry().with(kept.clone()), || {
        tracing::error!(error = &error as &dyn std::error::Error, "failed");
    });
    let kept = kept.0.lock().unwrap();
    assert_eq!(kept[1], "error=log.target: the journal cannot be reached: no such socket");
}

#[test]
fn a_line_is_one_line_and_coloured_only_when_asked() {
    let now: jiff::Timestamp = "2026-11-21T09:30:00.1234Z".parse().unwrap();
    let fields = LogFields {
        message: "two\nlines".to_owned(),
        pairs: vec![("pod", "cni-7x2kp".to_owned()), ("reason", "a b".to_owned()), ("x", String::new())],
    };
    assert_eq!(
        line(&now, Level::INFO, &fields, false),
        "2026-11-21T09:30:00.123Z info  two\\nlines pod=cni-7x2kp reason=\"a b\" x=\"\"\n"
    );
    assert!(line(&now, Level::ERROR, &fields, true).contains("\x1b[31merror\x1b[0m"));
}

#[test]
fn a_hint_that_is_not_there_leaves_no_field() {
    let kept = JournalLines::default();
    let subscriber = tracing_subscriber::registry().with(kept.clone());
    tracing::subscriber::with_default(subscriber, || {
        tracing::warn!(object = "API", hint = None::<&str>, "away");
        tracing::warn!(object = "API", hint = Some("wait"), "away");
    });
    assert_eq!(*kept.0.lock().unwrap(), ["WARN away", "object=API", "WARN away", "object=API", "hint=wait"]);
}
