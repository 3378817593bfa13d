//! The variables of the Service `kubernetes`: written into the manifest, because the kubelet starts a static pod before it
//! knows Services.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::render::Endpoint;
use crate::core::render::containers;
use crate::core::render::context::RenderContext;
use crate::core::render::env;
use crate::core::render::expansion;
use crate::core::render::json;
use crate::core::render::json::Object;

const PREFIX: &str = "KUBERNETES";
const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";
/// How many names of variables one note has.
const NOTED: usize = 5;

/// Adds the variables to every container that does not set them itself. With hostNetwork they are host and port of the API
/// endpoint alone, and a pair: one's own address does not go with our port, and the others name the Service's address.
pub(super) fn add(ctx: &mut RenderContext<'_>, spec: &mut Object) {
    let host_network = spec.flag_at("hostNetwork");
    note_services(ctx, spec);
    let variables = match host_network {
        true => ctx.input.options.api_endpoint.as_ref().map(endpoint),
        false => service(ctx),
    };
    let Some(variables) = variables else {
        let may_do_without = ctx.is_from_folder() && ctx.tokens.is_empty();
        if ctx.input.options.has_api && !may_do_without {
            match host_network {
                true => ctx.miss_in("APIEndpoint", "", "api-endpoint", ""),
                false => ctx.miss_in(Kind::Service.as_str(), "default", "kubernetes", ""),
            }
        }
        return;
    };
    containers::for_each_mut(spec, |_, _, container| {
        let Some(own) = json::list_mut(container, "env") else { return };
        let set_at = |variable: &Value| own.iter().position(|own| own.text_at("name") == variable.text_at("name"));
        // `$(X)` sees what is declared before it, and else the variable of the Service. What a container sets later counts
        // for itself.
        let is_read_unset = |variable: &&Value| {
            let before = &own[..set_at(variable).map_or(own.len(), |at| at + 1)];
            before.iter().any(|own| env::references(own).any(|name| Some(name) == variable.text_at("name")))
        };
        let has_pair = !host_network || variables.iter().all(|variable| set_at(variable).is_none());
        let added: Vec<Value> = variables
            .iter()
            .filter(|variable| set_at(variable).is_none() && has_pair || is_read_unset(variable))
            .cloned()
            .collect();
        let at = if added.iter().any(|variable| is_read_unset(&variable)) { 0 } else { own.len() };
        own.splice(at..at, added);
    });
}

/// The variables for an address that is no Service's.
fn endpoint(endpoint: &Endpoint) -> Vec<Value> {
    let host = endpoint.host.trim_start_matches('[').trim_end_matches(']');
    vec![env::literal(HOST, host), env::literal(PORT, &endpoint.port.to_string())]
}

/// The variables of the Service `default/kubernetes`, as the kubelet would write them (`envvars.FromServices`).
fn service(ctx: &mut RenderContext<'_>) -> Option<Vec<Value>> {
    let Lookup::Present(service) = ctx.look_up_in(Kind::Service, "default", "kubernetes") else { return None };
    let spec = service.at("spec")?;
    let host = spec.text_at("clusterIP").filter(|address| *address != "None")?;
    let number = |port: &Value| u16::try_from(port.get("port")?.as_u64()?).ok();
    let ports = spec.list_at("ports");
    let mut variables = vec![env::literal(HOST, host), env::literal(PORT, &number(ports.first()?)?.to_string())];
    let mut write = |name: String, value: &str| variables.push(env::literal(&name, value));
    for port in ports {
        if let (Some(name), Some(number)) = (port.text_at("name"), number(port)) {
            write(format!("{PORT}_{}", name.replace('-', "_").to_uppercase()), &number.to_string());
        }
    }
    let address = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    for (index, port) in ports.iter().enumerate() {
        let Some(number) = number(port) else { continue };
        let protocol = port.text_at("protocol").unwrap_or("TCP");
        let lower = protocol.to_lowercase();
        let link = format!("{lower}://{address}:{number}");
        if index == 0 {
            write(format!("{PREFIX}_PORT"), &link);
        }
        let name = format!("{PREFIX}_PORT_{number}_{}", protocol.to_uppercase());
        write(name.clone(), &link);
        write(format!("{name}_PROTO"), &lower);
        write(format!("{name}_PORT"), &number.to_string());
        write(format!("{name}_ADDR"), host);
    }
    Some(variables)
}

/// Notes the containers that use variables of other Services, which a static pod may start without.
fn note_services(ctx: &mut RenderContext<'_>, spec: &Object) {
    for (place, container) in containers::all(spec) {
        let own: BTreeSet<&str> = container.list_at("env").iter().map(|variable| variable.str_at("name")).collect();
        let texts =
            ["command", "args"].into_iter().flat_map(|field| container.list_at(field)).filter_map(Value::as_str);
        let values = container.list_at("env").iter().filter_map(|variable| variable.text_at("value"));
        let names: BTreeSet<&str> = texts
            .chain(values)
            .flat_map(expansion::references)
            .filter(|name| is_of_service(name) && !own.contains(name))
            .collect();
        if names.is_empty() {
            continue;
        }
        let more = if names.len() > NOTED { ", …" } else { "" };
        let names: Vec<&str> = names.into_iter().take(NOTED).collect();
        let reason = format!(
            "uses {}{more} of Services: the kubelet starts a static pod before it knows Services, and may leave such a \
             variable as it is written",
            names.join(", ")
        );
        ctx.note(place, reason, "use the DNS name of the Service, or set the variable in env");
    }
}

/// Whether the kubelet makes a variable of this name from a Service, other than those that are written here.
fn is_of_service(name: &str) -> bool {
    let service = name.strip_suffix("_SERVICE_HOST").or_else(|| name.strip_suffix("_SERVICE_PORT"));
    let is_plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    service.is_some_and(|service| service != PREFIX && !service.is_empty() && service.bytes().all(is_plain))
}

#[cfg(test)]
mod tests;
