//! Tries each packaged admission policy in the name of whom it has to hold.
//!
//! Owns the requests: dry runs as an agent and as a coordinator, and the request for a certificate that is there while an
//! approval of it is tried.

use http::Request;
use http::request::Builder;
use kube::Client;
use serde_json::Value;
use serde_json::json;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::doctor::human;
use crate::cli::output;
use crate::cli::output::Colour;
use crate::core::doctor::DoctorReport;
use crate::core::doctor::Finding;
use crate::core::doctor::approvers::ActAs;
use crate::core::doctor::approvers::Approvers;
use crate::core::doctor::cluster_policies;
use crate::core::doctor::policies::PolicyProbe;
use crate::core::doctor::policies::PolicyProbeResult;
use crate::core::doctor::policies::ProbeWrite;
use crate::core::doctor::policies::Targets;
use crate::core::json::Json;
use crate::core::model::ObjectKey;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;

use super::cluster;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Tries the policies, and prints what was found.
pub(super) async fn print(client: &Client, json: bool) -> Result<Exit, CommandFailure> {
    let findings = examine(client).await.map_err(|failure| {
        let is_right = failure.kind == FailureKind::Forbidden;
        let failed = cluster::failed(failure);
        match is_right {
            true => {
                failed.hint("no policy is checked: run it as a cluster admin, who may impersonate users and groups")
            }
            false => failed,
        }
    })?;
    let report = DoctorReport::new("", findings);
    output::data(&match json {
        true => output::json(&report)?,
        false => human(&report, Colour::new(&std::io::stdout())),
    })?;
    Ok(if report.bad == 0 { Exit::Success } else { Exit::Refused })
}

async fn examine(client: &Client) -> Result<Vec<Finding>, ApiFailure> {
    let node = first(client, "/api/v1/nodes").await?.map(|key| key.name);
    let crd = match cluster::get(client, "/apis/daemonlet.dev/v1beta1").await {
        Ok(_) => true,
        Err(failure) if failure.kind == FailureKind::NotFound => false,
        Err(failure) => return Err(failure),
    };
    let question = cluster_policies::question_of_dry_runs();
    let answer = create(client, "/apis/authorization.k8s.io/v1/subjectaccessreviews", &question).await?;
    let targets = Targets {
        crd,
        tainted: node.clone(),
        conditions: node.clone(),
        asks_admission: answer.flag_at(["status", "allowed"]),
        pod: first(client, "/api/v1/pods").await?,
        account: first(client, "/api/v1/serviceaccounts").await?,
    };
    let (approvers, findings) = approvers(client).await?.judge();
    let mut tried = Vec::new();
    for (act_as, probe) in cluster_policies::agent_probes(node.as_deref().unwrap_or("none"), &targets) {
        tried.push(attempt(client, act_as, probe).await?);
    }
    if !approvers.is_empty() {
        let request = create(client, REQUESTS, &cluster_policies::request_for_nobody()).await?;
        let name = request.str_at(["metadata", "name"]);
        let outcomes = approvals(client, approvers, name).await;
        // Also where it could not be tried.
        send(client, Request::delete(format!("{REQUESTS}/{name}")), None).await?;
        tried.extend(outcomes?);
    }
    Ok(cluster_policies::examine(&tried).into_iter().chain(findings).collect())
}

/// Who may approve certificates; of each page of RBAC's objects no more is kept than that.
async fn approvers(client: &Client) -> Result<Approvers, ApiFailure> {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let mut approvers = Approvers::default();
    cluster::pages(client, &format!("{RBAC}/clusterroles"), |page| approvers.cluster_roles(&page)).await?;
    cluster::pages(client, &format!("{RBAC}/clusterrolebindings"), |page| approvers.cluster_role_bindings(&page))
        .await?;
    cluster::pages(client, &format!("{RBAC}/rolebindings"), |page| approvers.role_bindings(&page)).await?;
    Ok(approvers)
}

type Outcome = (ActAs, &'static str, PolicyProbeResult);

async fn approvals(client: &Client, approvers: Vec<ActAs>, request: &str) -> Result<Vec<Outcome>, ApiFailure> {
    let mut tried = Vec::new();
    for (act_as, probe) in cluster_policies::approval_probes(approvers, request) {
        tried.push(attempt(client, act_as, probe).await?);
    }
    Ok(tried)
}

/// The first object of a list.
async fn first(client: &Client, path: &str) -> Result<Option<ObjectKey>, ApiFailure> {
    let list = cluster::get(client, &format!("{path}?limit=1")).await?;
    let key =
        |object: &Value| ObjectKey::new(object.str_at(["metadata", "namespace"]), object.str_at(["metadata", "name"]));
    Ok(list.list_at("items").first().map(key))
}

async fn create(client: &Client, path: &str, object: &Value) -> Result<Value, ApiFailure> {
    send(client, Request::post(path).header("content-type", "application/json"), Some(object)).await
}

async fn send(client: &Client, request: Builder, body: Option<&Value>) -> Result<Value, ApiFailure> {
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    cluster::send(client, request, body).await
}

/// Sends a probe as a dry run, in the name of another user; fails where the API server does not let this user be that.
async fn attempt(client: &Client, act_as: ActAs, probe: PolicyProbe) -> Result<Outcome, ApiFailure> {
    let named = |request: Builder| {
        let request = request.header("impersonate-user", &act_as.user);
        act_as.groups.iter().fold(request, |request, group| request.header("impersonate-group", group))
    };
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request =
        Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews").header("content-type", "application/json");
    let me = send(client, named(request), Some(&review)).await?;
    if me.str_at(["status", "userInfo", "username"]) != act_as.user {
        let text = "the kubeconfig impersonates another user already, and so no policy can be tried: use one without";
        return Err(ApiFailure::new(FailureKind::Forbidden, text.to_owned()));
    }
    let path = format!("{}?dryRun=All", probe.path);
    let request = match probe.write {
        ProbeWrite::Create => Request::post(path).header("content-type", "application/json"),
        ProbeWrite::Patch => Request::patch(path).header("content-type", "application/merge-patch+json"),
    };
    let outcome = match send(client, named(request), Some(&probe.object)).await {
        Ok(_) => PolicyProbeResult::Accepted,
        Err(failure) if failure.kind == FailureKind::Forbidden => PolicyProbeResult::Forbidden(failure.message),
        Err(failure) if failure.is_link() => return Err(failure),
        Err(failure) => PolicyProbeResult::Unknown(failure.message),
    };
    Ok((act_as, probe.policy, outcome))
}
