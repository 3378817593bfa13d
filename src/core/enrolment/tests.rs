use super::*;
use crate::core::enrolment;
use crate::core::time::Timestamp;
use crate::core::time::at;

const POINT: [u8; 65] = [4; 65];

fn pem(node: &str) -> String {
    enrolment::request(node, &POINT, &[0x30, 0]).unwrap()
}

fn verdict(user: &str, groups: &[&str], pem: &str) -> ApprovalVerdict {
    let groups: Vec<String> = groups.iter().map(|g| (*g).to_owned()).collect();
    let usages: Vec<String> = USAGES.iter().map(|u| (*u).to_owned()).collect();
    judge(&CertificateRequest { signer: SIGNER, usages: &usages, user, groups: &groups, request: pem.as_bytes() })
}

fn is_left_alone(verdict: &ApprovalVerdict) -> bool {
    matches!(verdict, ApprovalVerdict::LeaveAlone(_))
}

#[test]
fn a_request_is_read_as_it_was_written() {
    for node in ["n1", "a.b-c.example", &"x".repeat(63)] {
        assert_eq!(node_of(pem(node).as_bytes()), Ok(node.to_owned()));
    }
    assert!(node_of(pem("N_1").as_bytes()).unwrap_err().to_string().contains("CN=daemonlet:node:N_1"));
}

#[test]
fn who_may_ask_for_whom() {
    let yes = ApprovalVerdict::IfNodeExists("n1".to_owned());
    assert_eq!(verdict("system:node:n1", &["system:nodes"], &pem("n1")), yes);
    assert_eq!(verdict("daemonlet:node:n1", &[GROUP], &pem("n1")), yes);
    assert_eq!(verdict("system:bootstrap:abcdef", &["system:bootstrappers", BOOTSTRAP_GROUP], &pem("n1")), yes);
    for (user, groups) in [
        ("system:node:n2", vec!["system:nodes"]),
        ("system:node:n1", vec![]),
        ("daemonlet:node:n2", vec![GROUP]),
        ("daemonlet:node:n1", vec!["system:nodes"]),
        ("system:bootstrap:abcdef", vec!["system:bootstrappers"]),
        ("daemonlet:node:n2", vec![GROUP, "system:nodes"]),
        ("a-person", vec!["system:authenticated"]),
    ] {
        assert!(is_left_alone(&verdict(user, &groups, &pem("n1"))), "{user} {groups:?}");
    }
}

#[test]
fn requests_for_other_signers_and_of_unknown_users_are_not_ours() {
    let good = pem("n1");
    for (signer, request) in [("kubernetes.io/kubelet-serving", good.as_bytes()), (SIGNER, b"nonsense")] {
        let asked = CertificateRequest { signer, usages: &[], user: "a-person", groups: &[], request };
        assert_eq!(judge(&asked), ApprovalVerdict::NotOurs);
    }
}

#[test]
fn more_usages_than_a_client_needs_are_left_alone() {
    let groups = ["system:nodes".to_owned()];
    for usages in [vec!["client auth", "server auth"], vec!["digital signature"], vec![]] {
        let usages: Vec<String> = usages.into_iter().map(str::to_owned).collect();
        let pem = pem("n1");
        let asked = CertificateRequest {
            signer: SIGNER,
            usages: &usages,
            user: "system:node:n1",
            groups: &groups,
            request: pem.as_bytes(),
        };
        assert!(is_left_alone(&judge(&asked)), "{usages:?}");
    }
}

#[test]
fn nothing_may_stand_around_or_beside_the_one_block() {
    let good = pem("n1");
    let other = pem("n2");
    for bad in [
        format!("{other}{good}"),
        format!("{good}{other}"),
        format!("x\n{good}"),
        format!(" {good}"),
        format!("{good}x"),
    ] {
        assert_eq!(node_of(bad.as_bytes()), Err(RequestError::NotPem), "{bad}");
    }
}

/// Subjects made with openssl: what each is taken for.
#[test]
fn a_subject_with_more_or_other_names_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let make = |subject: &str, more: &[&str]| {
        let key = folder.path().join("key");
        let made = std::process::Command::new("openssl")
            .args(["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject])
            .args(["-keyout", key.to_str().unwrap()])
            .args(more)
            .output()
            .unwrap();
        String::from_utf8(made.stdout).unwrap()
    };
    assert_eq!(node_of(make("/O=daemonlet:nodes/CN=daemonlet:node:n1", &[]).as_bytes()), Ok("n1".to_owned()));
    for subject in [
        "/O=daemonlet:nodes/O=system:masters/CN=daemonlet:node:n1",
        "/O=daemonlet:nodes/CN=daemonlet:node:n1/CN=daemonlet:node:n2",
        "/CN=daemonlet:node:n1/O=daemonlet:nodes",
        "/CN=daemonlet:node:n1",
        "/O=daemonlet:coordinators/CN=daemonlet:node:n1",
        "/O=daemonlet:nodes/CN=daemonlet:coordinator",
        "/O=daemonlet:nodes+CN=daemonlet:node:n1",
        "/O=daemonlet:nodes/CN=daemonlet:node:n1/OU=x",
    ] {
        let error = node_of(make(subject, &["-multivalue-rdn"]).as_bytes()).unwrap_err();
        assert!(error.names_an_agent(), "{subject}: {error}");
    }
    let names = make("/O=daemonlet:nodes/CN=daemonlet:node:n1", &["-addext", "subjectAltName=DNS:x"]);
    assert_eq!(node_of(names.as_bytes()), Err(RequestError::Attributes));
}

fn certificate(public_key: Vec<u8>) -> Certificate {
    Certificate { user: user("n1"), public_key, not_before: at(1_000), not_after: at(101_000) }
}

#[test]
fn renewal_is_due_at_seventy_to_eighty_percent_and_not_for_all_at_once() {
    let times: std::collections::BTreeSet<i64> =
        (0..100).map(|n| certificate(vec![4, n, n]).renew_at().as_millis()).collect();
    assert!(times.len() > 50, "{times:?}");
    assert!(times.iter().all(|at| (71_000..=81_000).contains(at)), "{times:?}");
    let odd = Certificate { not_after: at(0), ..certificate(Vec::new()) };
    assert_eq!(odd.renew_at(), at(1_000));
}

#[test]
fn what_is_wrong_with_an_identity() {
    let at = Timestamp::from_secs;
    let it = Certificate { user: user("n1"), public_key: Vec::new(), not_before: at(0), not_after: at(1_000) };
    let reason = |renewal: &Renewal, now| problem(&it, renewal, now).map(|p| p.reason);
    let waiting_for = |awaited: AwaitedStep| Renewal::Waiting { request: "r".to_owned(), awaited, since: at(700) };
    let [waiting, approved] = [AwaitedStep::Approval, AwaitedStep::Signature].map(waiting_for);
    let denied = Renewal::Denied { request: "r".to_owned(), message: "no".to_owned() };
    assert_eq!(reason(&Renewal::None, at(700)), None);
    assert_eq!(reason(&waiting, at(730)), None);
    assert!(reason(&waiting, at(760)).unwrap().ends_with("r waits for approval"));
    let unsigned = problem(&it, &approved, at(760)).unwrap();
    assert!(unsigned.reason.ends_with("r is approved, and nothing has signed it yet"), "{}", unsigned.reason);
    assert!(!unsigned.hint.unwrap().contains("approve"));
    assert!(reason(&denied, at(701)).unwrap().ends_with("r was denied: no"));
    assert_eq!(reason(&Renewal::Failing("x".to_owned()), at(701)), None);
    assert!(reason(&Renewal::Failing("x".to_owned()), at(851)).unwrap().ends_with("renewal failed: x"));
    assert!(reason(&Renewal::None, at(851)).unwrap().ends_with("it is not renewed"));
    assert!(reason(&denied, at(1_000)).unwrap().contains("expired at 1970-01-01T00:16:40Z"));
}
