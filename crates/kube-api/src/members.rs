//! Endpoints as members of load balancers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use portcullis_core::Member;

/// The addresses behind a Service that serve, each with the ports on which it takes the traffic of the Service's ports.
/// One that is going away and still serves stays until nobody else does.
pub fn endpoint_members<'a>(
    service: &Service,
    slices: impl IntoIterator<Item = &'a EndpointSlice>,
) -> Vec<Member> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
    let mut ready: BTreeMap<IpAddr, BTreeMap<u16, u16>> = BTreeMap::new();
    let mut serving: BTreeMap<IpAddr, BTreeMap<u16, u16>> = BTreeMap::new();
    for slice in slices {
        let found: BTreeMap<u16, u16> = ports
            .into_iter()
            .flatten()
            .filter_map(|port| {
                let same = slice.ports.iter().flatten().find(|found| {
                    found.name.as_deref().unwrap_or_default() == port.name.as_deref().unwrap_or_default()
                })?;
                Some((u16::try_from(port.port).ok()?, u16::try_from(same.port?).ok()?))
            })
            .collect();
        for endpoint in &slice.endpoints {
            let conditions = endpoint.conditions.as_ref();
            // What is not said is so.
            let is_ready = conditions.and_then(|all| all.ready).unwrap_or(true);
            let is_serving = conditions.and_then(|all| all.serving).unwrap_or(is_ready);
            let place = match (is_ready, is_serving) {
                (true, _) => &mut ready,
                (false, true) => &mut serving,
                (false, false) => continue,
            };
            for address in endpoint.addresses.iter().filter_map(|address| address.parse().ok()) {
                place.entry(address).or_default().extend(found.clone());
            }
        }
    }
    let chosen = if ready.is_empty() { serving } else { ready };
    let members = chosen.into_iter().filter_map(|(address, ports)| {
        Some(Member::new(address.to_string(), [address]).ok()?.with_ports(ports))
    });
    members.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::{Listener, ListenerProtocol};
    use serde_json::json;

    #[test]
    fn who_serves() {
        let service: Service = serde_json::from_value(json!({
            "spec": {"ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]}
        }))
        .unwrap();
        let slice = |endpoints: serde_json::Value, http: u16| -> EndpointSlice {
            serde_json::from_value(json!({
                "addressType": "IPv4",
                "metadata": {"name": "s"},
                "ports": [{"name": "http", "port": http}, {"name": "dns", "port": 5353, "protocol": "UDP"}],
                "endpoints": endpoints,
            }))
            .unwrap()
        };
        let one = slice(
            json!([
                {"addresses": ["10.0.0.1"]},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false, "serving": true}},
                {"addresses": ["10.0.0.3"], "conditions": {"ready": false}},
            ]),
            8080,
        );
        let other = slice(json!([{"addresses": ["10.0.0.4"], "conditions": {"ready": true}}]), 9090);
        let members = endpoint_members(&service, [&one, &other]);
        let listener = Listener::new(80, ListenerProtocol::Tcp, 1).unwrap();
        let found: Vec<(&str, u16)> =
            members.iter().map(|member| (member.name(), member.port(&listener))).collect();
        assert_eq!(found, [("10.0.0.1", 8080), ("10.0.0.4", 9090)]);

        let last = slice(
            json!([{"addresses": ["10.0.0.2"], "conditions": {"ready": false, "serving": true}}]),
            8080,
        );
        assert_eq!(endpoint_members(&service, [&last]).len(), 1, "better than nobody");
    }
}
