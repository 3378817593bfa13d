use super::*;

const A: &str = "10.0.0.1:6443";
const B: &str = "[fd00::1]:6443";

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn addresses(list: &[&str]) -> BTreeSet<SocketAddr> {
    list.iter().map(|text| text.parse().unwrap()).collect()
}

fn guard(list: &[&str]) -> Guard {
    let mut guard = Guard::new(Duration::from_secs(300));
    guard.learn(at(0), &addresses(list));
    guard
}

/// The one probe that is due.
fn probe(guard: &mut Guard, now: Duration) -> AddressProbe {
    let probes = guard.probes(now);
    assert_eq!(probes.len(), 1, "{probes:?}");
    probes[0]
}

#[test]
fn the_rule_comes_before_the_first_probe() {
    let mut guard = guard(&[A]);
    assert_eq!(guard.refused(), addresses(&[A]));
    assert_eq!(guard.next(), at(0));
    probe(&mut guard, at(0));
    assert_eq!(guard.refused(), addresses(&[A]));
}

#[test]
fn an_answer_ends_it() {
    let mut guard = guard(&[A]);
    let first = probe(&mut guard, at(0));
    assert_eq!(guard.end(at(5)), None);
    assert_eq!(guard.observe(at(5), first, ProbeResult::Answer), Some(Face::Answering));
    assert_eq!(guard.refused(), addresses(&[]));
    assert_eq!(guard.end(at(5)), Some(End::Answered));
    assert_eq!(guard.probes(at(5_000)), []);
}

#[test]
fn a_refusal_takes_the_rule_away_and_silence_brings_it_back() {
    let mut guard = guard(&[A]);
    let first = probe(&mut guard, at(0));
    assert_eq!(guard.observe(at(5), first, ProbeResult::Refusal), Some(Face::Refusing));
    assert_eq!(guard.refused(), addresses(&[]));
    assert_eq!(guard.end(at(10)), None, "it may fall silent yet");
    let second = probe(&mut guard, at(200));
    assert_eq!(guard.observe(at(1_200), second, ProbeResult::NoAnswer), None, "a server that starts may be slow");
    assert_eq!(guard.refused(), addresses(&[]));
    let third = probe(&mut guard, at(9_900));
    assert_eq!(guard.observe(at(10_900), third, ProbeResult::NoAnswer), Some(Face::Unreachable));
    assert_eq!(guard.refused(), addresses(&[A]));
    let fourth = probe(&mut guard, at(10_900));
    assert_eq!(guard.observe(at(11_900), fourth, ProbeResult::NoAnswer), None, "nothing new");
}

#[test]
fn an_older_probe_does_not_overrule_a_younger_one_but_its_answer_counts() {
    let mut guard = guard(&[A]);
    let old = probe(&mut guard, at(0));
    let young = probe(&mut guard, at(200));
    guard.observe(at(210), young, ProbeResult::Refusal);
    assert_eq!(guard.observe(at(5_000), old, ProbeResult::NoAnswer), None);
    assert_eq!(guard.refused(), addresses(&[]));
    // A server under the load of a whole site's boot takes its time; it is there nevertheless.
    assert_eq!(guard.observe(at(5_000), old, ProbeResult::Answer), Some(Face::Answering));
    assert_eq!(guard.observe(at(5_200), young, ProbeResult::NoAnswer), None, "an answer is for good");
}

#[test]
fn addresses_are_judged_one_by_one() {
    let mut guard = guard(&[A, B]);
    let probes = guard.probes(at(0));
    assert_eq!(probes.len(), 2);
    let of_a = probes.iter().find(|probe| probe.address == A.parse().unwrap()).copied().unwrap();
    guard.observe(at(5), of_a, ProbeResult::Answer);
    assert_eq!(guard.refused(), addresses(&[B]));
    assert_eq!(guard.end(at(5)), None);
    // The name stands for another address now, which has to answer first.
    guard.learn(at(1_000), &addresses(&[A, "10.0.0.2:6443"]));
    assert_eq!(guard.refused(), addresses(&["10.0.0.2:6443"]));
    assert_eq!(guard.observe(at(1_000), probes[1], ProbeResult::Answer), None, "it is no longer named");
}

#[test]
fn without_an_address_it_waits_and_ends_in_time() {
    let guard = Guard::new(at(1_000));
    assert!(!guard.knows_any());
    assert_eq!(guard.end(at(999)), None);
    assert_eq!(guard.end(at(1_000)), Some(End::TimeUp));
    assert_eq!(guard.next(), at(1_000));
}

#[test]
fn it_ends_in_time_while_an_address_is_silent() {
    let mut guard = guard(&[A]);
    for second in 0..300 {
        assert_eq!(guard.end(at(1_000 * second)), None);
        for probe in guard.probes(at(1_000 * second)) {
            guard.observe(at(1_000 * second), probe, ProbeResult::NoAnswer);
        }
    }
    assert_eq!(guard.end(at(300_000)), Some(End::TimeUp));
}

#[test]
fn probes_are_quick_at_first() {
    let mut guard = guard(&[A]);
    let mut times = Vec::new();
    let mut now = at(0);
    while now < at(20_000) {
        times.extend(guard.probes(now).iter().map(|_| now));
        assert_eq!(guard.probes(now), [], "each is given once");
        now = guard.next();
    }
    assert_eq!(times[1], at(200));
    assert_eq!(times.iter().filter(|time| **time < at(10_000)).count(), 50);
    assert_eq!(times.iter().filter(|time| **time >= at(10_000)).count(), 10);
}
