//! The host name of a pod that has its whole DNS name as its host name (`setHostnameAsFQDN`).
//!
//! The kubelet appends the node's name to that of a static pod, and starts no pod whose whole DNS name has more than 64
//! bytes (`GetNodenameForKernel`).

use crate::core::dns;
use crate::core::json::Json;
use crate::core::render::context::RenderContext;
use crate::core::render::json::Object;

/// The longest host name that Linux has, in bytes.
const LONGEST: usize = 64;
const FIELD: &str = "spec.template.spec.setHostnameAsFQDN";

/// Writes the pod's name without the node's as `hostname`, which is what a DaemonSet's pod has; refuses a name that is too
/// long in any cluster domain.
pub(super) fn shorten(ctx: &mut RenderContext<'_>, spec: &mut Object) {
    let text = |field: &str| spec.text_at(field).filter(|text| !text.is_empty());
    let Some(subdomain) = text("subdomain").filter(|_| spec.flag_at("setHostnameAsFQDN")) else { return };
    let domain = format!("{subdomain}.{}.svc.", ctx.namespace());
    let own = text("hostname");
    let name = &ctx.input.identity.pod_name;
    let host = match own {
        Some(own) => own.to_owned(),
        None if dns::label(name).is_none() => name.clone(),
        // The kubelet takes the pod's name as it is, cut to what a label may have.
        None => format!("{name}-{}", ctx.input.options.node_name).chars().take(63).collect(),
    };
    let bytes = host.len() + 1 + domain.len();
    if bytes > LONGEST {
        let reason = format!(
            "the pod cannot start: {host}.{domain} has {bytes} bytes without the cluster's domain, and a host name at most \
             {LONGEST}"
        );
        return ctx.refuse(FIELD, reason, "write a short hostname, or leave out setHostnameAsFQDN");
    }
    if own.is_none() && host == *name {
        let host = host.into();
        spec.insert("hostname".to_owned(), host);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::json;

    use crate::core::render::fixture::Fixture;
    use crate::core::render::fixture::spec;
    use crate::core::render::fixture::with;

    fn fixture(more: Value) -> Fixture {
        let mut fixture = Fixture::container(json!({}));
        let spec = &mut fixture.daemon_set.template["spec"];
        *spec = with(spec.take(), more);
        fixture
    }

    fn hostname(more: Value) -> Value {
        spec(&fixture(more).rendered(), "/hostname").clone()
    }

    #[test]
    fn the_pods_own_name_takes_the_place_of_that_with_the_nodes_where_the_whole_name_counts() {
        assert_eq!(hostname(json!({"setHostnameAsFQDN": true, "subdomain": "s"})), "agent-abcde");
        assert_eq!(hostname(json!({"setHostnameAsFQDN": true, "subdomain": "s", "hostname": "h"})), "h");
        for more in [json!({"setHostnameAsFQDN": true}), json!({"subdomain": "s"})] {
            assert_eq!(hostname(more), Value::Null);
        }
        let not = json!({"setHostnameAsFQDN": false, "subdomain": "s"});
        assert_eq!(hostname(not), Value::Null);
    }

    #[test]
    fn a_whole_name_that_is_too_long_is_refused_by_field() {
        let subdomain = |bytes: usize| json!({"setHostnameAsFQDN": true, "subdomain": "s".repeat(bytes)});
        // `agent-abcde.`, the subdomain and `.kube-system.svc.`
        assert_eq!(hostname(subdomain(64 - 12 - 17)), "agent-abcde");
        let refused = fixture(subdomain(64 - 12 - 16)).refused();
        assert!(refused[0].starts_with("spec.template.spec.setHostnameAsFQDN: the pod cannot start"), "{refused:?}");
    }
}
