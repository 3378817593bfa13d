//! `KUBERNETES_SERVICE_HOST` and `_PORT`: written into the manifest, because at boot the kubelet may not know the
//! Service.

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::render::Endpoint;
use crate::core::render::containers;
use crate::core::render::context::RenderContext;
use crate::core::render::env;
use crate::core::render::json;
use crate::core::render::json::Object;

const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";

/// Adds the two variables to every container that does not set them itself. With hostNetwork they are a pair: one's own
/// address does not go with our port.
pub(super) fn add(ctx: &mut RenderContext<'_>, spec: &mut Object) {
    let host_network = spec.flag_at("hostNetwork");
    let endpoint = if host_network { ctx.input.options.api_endpoint.clone() } else { service(ctx) };
    let Some(endpoint) = endpoint else {
        let may_do_without = ctx.is_from_folder() && ctx.tokens.is_empty();
        if ctx.input.options.has_api && !may_do_without {
            match host_network {
                true => ctx.miss_in("APIEndpoint", "", "api-endpoint", ""),
                false => ctx.miss_in(Kind::Service.as_str(), "default", "kubernetes", ""),
            }
        }
        return;
    };
    let host = endpoint.host.trim_start_matches('[').trim_end_matches(']');
    let variables = [env::literal(HOST, host), env::literal(PORT, &endpoint.port.to_string())];
    containers::for_each_mut(spec, |_, _, container| {
        let Some(own) = json::list_mut(container, "env") else { return };
        let missing: Vec<&Value> = variables
            .iter()
            .filter(|variable| !own.iter().any(|own| own.text_at("name") == variable.text_at("name")))
            .collect();
        if host_network && missing.len() < variables.len() {
            return;
        }
        // `$(X)` sees only what is declared before it; otherwise the container's own come first.
        let first = own.iter().any(|own| env::refers_to(own, HOST) || env::refers_to(own, PORT));
        let at = if first { 0 } else { own.len() };
        own.splice(at..at, missing.into_iter().cloned());
    });
}

/// Address and port of the Service `default/kubernetes`, as the kubelet would write them.
fn service(ctx: &mut RenderContext<'_>) -> Option<Endpoint> {
    let Lookup::Present(service) = ctx.look_up_in(Kind::Service, "default", "kubernetes") else { return None };
    let spec = service.at("spec")?;
    let host = spec.text_at("clusterIP").filter(|address| *address != "None")?;
    let ports = spec.list_at("ports");
    let port = ports.iter().find(|port| port.text_at("name") == Some("https")).or_else(|| ports.first())?;
    let port = u16::try_from(port.get("port")?.as_u64()?).ok()?;
    Some(Endpoint { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests;
