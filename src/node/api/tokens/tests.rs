use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use super::*;
use crate::core::model::Kind;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::TokenSource;
use crate::core::time::Span;
use crate::node::api::error::FailureKind;
use crate::node::api::store::Scope;

const BOOT: &str = "boot-1";

fn request(name: &str) -> TokenRequest {
    TokenRequest {
        service_account: ObjectKey::new("kube-system", name),
        audience: String::new(),
        expiration_seconds: 3600,
    }
}

fn issued(name: &str, ago: i64, uid: &str) -> IssuedToken {
    IssuedToken {
        request: request(name),
        token: "secret-value".into(),
        issued: now() - Span::from_secs(ago),
        expires: now() - Span::from_secs(ago - 3600),
        node_uid: uid.into(),
        received: Some(ReceivedAt { boot: BOOT.to_owned(), up: uptime() - Span::from_secs(ago) }),
    }
}

fn registered(uid: &str) -> Store {
    let store = Store::default();
    store.apply(&Scope::Node, json!({"metadata": {"name": "n", "uid": uid}}));
    store
}

fn wanted(names: &[&str]) -> BTreeSet<TokenRequest> {
    names.iter().map(|name| request(name)).collect()
}

#[test]
fn nothing_is_requested_before_the_node_is_registered() {
    let tokens = Tokens::default();
    tokens.set_wanted(&wanted(&["a"]));
    assert!(tokens.due(&Snapshot::default(), 1).0.is_empty());
    assert!(tokens.problems()[&request("a")].0.to_string().contains("has not shown yet"));
    assert_eq!(tokens.due(&registered("u").snapshot(), 1).0, [request("a")]);
    assert!(tokens.problems().is_empty());
}

#[test]
fn a_token_is_requested_only_of_the_cluster_that_has_said_who_it_is() {
    let tokens = Tokens::default();
    tokens.set_wanted(&wanted(&["a"]));
    tokens.import(vec![issued("a", 0, "u")], BOOT);
    let theirs = registered("another");
    tokens.ask_on(Some(1));
    assert!(tokens.due(&theirs.snapshot(), 2).0.is_empty(), "behind the new connection may be another cluster");
    tokens.ask_on(Some(0));
    assert!(tokens.due(&theirs.snapshot(), 2).0.is_empty());
    tokens.ask_on(Some(2));
    assert_eq!(tokens.due(&theirs.snapshot(), 2).0, [request("a")]);
    tokens.ask_on(None);
    assert_eq!(tokens.due(&theirs.snapshot(), 3).0, [request("a")], "no cluster is remembered");
}

#[test]
fn renewed_at_80_percent_of_its_life_and_for_another_node() {
    let tokens = Tokens::default();
    tokens.set_wanted(&wanted(&["fresh", "old", "other"]));
    tokens.import(vec![issued("fresh", 2600, "u"), issued("old", 2881, "u"), issued("other", 0, "before")], BOOT);
    assert_eq!(tokens.due(&registered("u").snapshot(), 1).0, [request("old"), request("other")]);
}

#[test]
fn a_long_token_is_renewed_after_a_day() {
    let tokens = Tokens::default();
    tokens.set_wanted(&wanted(&["a"]));
    let long = IssuedToken { expires: now() + Span::from_secs(10 * 86_400), ..issued("a", 86_401, "u") };
    tokens.import(vec![long], BOOT);
    assert_eq!(tokens.due(&registered("u").snapshot(), 1).0, [request("a")]);
}

#[test]
fn an_expired_token_is_handed_out_until_there_is_another() {
    let tokens = Tokens::default();
    tokens.import(vec![issued("a", 90_000, "u"), issued("b", 90_000, "u")], BOOT);
    tokens.set_wanted(&wanted(&["a"]));
    let snapshot = tokens.snapshot();
    assert_eq!(snapshot.token(&request("a")), Some("secret-value"));
    assert_eq!(snapshot.token(&request("b")), None, "not wanted and expired");
    tokens.record(request("a"), Ok(IssuedToken { token: "new".into(), ..issued("a", 0, "u") }), &Snapshot::default());
    assert_eq!(tokens.snapshot().token(&request("a")), Some("new"));
    assert!(tokens.due(&registered("u").snapshot(), 1).0.is_empty());
}

#[test]
fn a_valid_token_survives_a_pass_that_does_not_name_it() {
    let tokens = Tokens::default();
    tokens.set_wanted(&wanted(&["a"]));
    tokens.import(vec![issued("a", 0, "u")], BOOT);
    tokens.set_wanted(&BTreeSet::new());
    assert_eq!(tokens.snapshot().token(&request("a")), Some("secret-value"));
}

#[test]
fn a_refused_request_waits_unless_the_account_appears() {
    let tokens = Tokens::default();
    let store = registered("u");
    tokens.set_wanted(&wanted(&["a"]));
    let refused = ApiFailure::new(FailureKind::NotFound, "serviceaccounts \"a\" not found (404)");
    tokens.record(request("a"), Err(refused), &store.snapshot());
    let (due, next) = tokens.due(&store.snapshot(), 1);
    assert!(due.is_empty() && next < LOOK, "{next:?}");
    assert!(tokens.problems()[&request("a")].0.to_string().contains("not found"));
    let account = ObjectRef::new(Kind::ServiceAccount, "kube-system", "a");
    store.apply(&Scope::Object(account), json!({"metadata": {"namespace": "kube-system", "name": "a"}}));
    assert_eq!(tokens.due(&store.snapshot(), 1).0, [request("a")]);
}

#[test]
fn no_debug_output_shows_a_token() {
    let tokens = Tokens::default();
    tokens.import(vec![issued("a", 0, "u")], BOOT);
    assert!(!format!("{:?} {:?}", tokens.export(BOOT), tokens.snapshot()).contains("secret-value"));
}

#[test]
fn a_token_of_another_life_serves_until_there_is_one_of_the_wanted_life() {
    let long = TokenRequest { expiration_seconds: 86_400, ..request("a") };
    let tokens = Tokens::default();
    tokens.import(vec![issued("a", 90_000, "u"), issued("b", 90_000, "u")], BOOT);
    tokens.set_wanted(&BTreeSet::from([long.clone()]));
    assert_eq!(tokens.snapshot().token(&long), Some("secret-value"), "although it has expired");
    let other = TokenRequest { audience: "vault".to_owned(), ..long.clone() };
    assert_eq!(tokens.snapshot().token(&other), None);
    assert_eq!(tokens.due(&registered("u").snapshot(), 1).0, std::slice::from_ref(&long));
    let new = IssuedToken { request: long.clone(), token: "new".into(), ..issued("a", 0, "u") };
    tokens.record(long.clone(), Ok(new), &Snapshot::default());
    assert_eq!(tokens.snapshot().token(&long), Some("new"));
    assert_eq!(tokens.export(BOOT).len(), 1, "the one of the other life is gone");
}

#[test]
fn a_token_for_a_day_is_renewed_between_75_and_80_percent_of_its_life() {
    let is_due = |ago: i64| {
        let tokens = Tokens::default();
        tokens.set_wanted(&wanted(&["a"]));
        let received = Some(ReceivedAt { boot: BOOT.to_owned(), up: uptime() - Span::from_secs(ago) });
        let day = IssuedToken { received, expires: now() - Span::from_secs(ago - 86_400), ..issued("a", ago, "u") };
        tokens.import(vec![day], BOOT);
        !tokens.due(&registered("u").snapshot(), 1).0.is_empty()
    };
    assert!(!is_due(86_400 * 74 / 100) && is_due(86_400 * 81 / 100));
}

#[test]
fn a_new_token_is_due_when_a_suspended_machine_wakes_and_not_when_the_clock_is_ahead() {
    let up = Span::from_secs(1_000);
    let mut held = HeldToken::received(issued("a", 0, "u"), 0);
    held.received = Some(up);
    let is_due = |passed: i64, shown: i64| held.is_due(up + Span::from_secs(passed), now() + Span::from_secs(shown));
    assert!(!is_due(60, 60));
    assert!(is_due(36_000, 36_000), "it was suspended");
    assert!(!is_due(60, 36_000), "the clock was set forward: a new one would be requested for ever");
}

#[test]
fn an_imported_token_is_as_old_as_the_machine_has_been_up_since_it_was_received() {
    let is_due = |boot: &str, up: Span, ago: i64| {
        let tokens = Tokens::default();
        tokens.set_wanted(&wanted(&["a"]));
        let received = Some(ReceivedAt { boot: boot.to_owned(), up });
        tokens.import(vec![IssuedToken { received, ..issued("a", ago, "u") }], BOOT);
        assert_eq!(tokens.export(BOOT)[0].received.is_some(), boot == BOOT);
        !tokens.due(&registered("u").snapshot(), 1).0.is_empty()
    };
    let early = uptime() - Span::from_secs(36_000);
    assert!(is_due(BOOT, early, 60), "the clock was set back since");
    assert!(!is_due(BOOT, uptime(), 60));
    assert!(!is_due(BOOT, uptime(), 36_000), "the clock was set forward since");
    assert!(!is_due(BOOT, uptime(), -60));
}

#[test]
fn a_token_of_another_boot_is_renewed_soon_because_the_clock_may_have_stood_still() {
    let is_due = |up: i64, ago: i64| {
        let received = Some(ReceivedAt { boot: "another".to_owned(), up: Span::from_secs(9) });
        HeldToken::new(IssuedToken { received, ..issued("a", ago, "u") }, BOOT).is_due(Span::from_secs(up), now())
    };
    assert!(!is_due(30, 60), "a boot asks for none at once");
    assert!(is_due(600, 60), "what the wall clock says of its age may be days too little");
    assert!(is_due(30, 36_000) && is_due(30, -60), "it is old, or its age is not known");
}

#[test]
fn a_token_of_a_service_account_that_was_made_anew_is_renewed_once() {
    let of_account = |uid: &str| {
        let claims = json!({"kubernetes.io": {"serviceaccount": {"name": "a", "uid": uid}}}).to_string();
        IssuedToken { token: format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims)), ..issued("a", 10, "u") }
    };
    let store = registered("u");
    let scope = Scope::Object(ObjectRef::new(Kind::ServiceAccount, "kube-system", "a"));
    store.open(&scope);
    let show = |uid: &str| {
        store.apply(&scope, json!({"metadata": {"namespace": "kube-system", "name": "a", "uid": uid}}));
        store.snapshot()
    };
    let tokens = Tokens::default();
    tokens.set_wanted(&wanted(&["a"]));
    tokens.import(vec![of_account("first")], BOOT);
    assert!(tokens.due(&store.snapshot(), 1).0.is_empty(), "the API server has not shown it");
    assert!(tokens.due(&show("first"), 1).0.is_empty());
    let anew = show("second");
    assert_eq!(tokens.due(&anew, 1).0, [request("a")]);
    // It was made anew once more in between: what the store has is the older of the two.
    tokens.record(request("a"), Ok(of_account("third")), &anew);
    assert!(tokens.due(&anew, 1).0.is_empty());
    assert!(tokens.due(&show("third"), 1).0.is_empty());
    assert_eq!(tokens.due(&show("fourth"), 1).0, [request("a")]);
}

#[test]
fn what_is_no_token_of_an_api_server_names_no_service_account() {
    for token in ["secret-value", "a.b.c", "a.e30.c", ""] {
        let tokens = Tokens::default();
        tokens.set_wanted(&wanted(&["a"]));
        tokens.import(vec![IssuedToken { token: token.into(), ..issued("a", 10, "u") }], BOOT);
        let store = registered("u");
        let scope = Scope::Object(ObjectRef::new(Kind::ServiceAccount, "kube-system", "a"));
        store.open(&scope);
        store.apply(&scope, json!({"metadata": {"namespace": "kube-system", "name": "a", "uid": "v"}}));
        assert!(tokens.due(&store.snapshot(), 1).0.is_empty(), "{token}");
    }
}
