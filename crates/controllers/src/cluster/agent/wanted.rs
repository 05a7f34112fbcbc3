//! What a machine is to carry, from the objects that say so.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use portcullis_core::{Family, Scheme};
use portcullis_haproxy::vrrp::SharedAddress;
use portcullis_haproxy::{Balance, Balancer, BalancerId, Options, Wanted};

use super::{HaProxyAgentSettings, ObjectKey, Sharing};
use crate::cluster::haproxy::HaProxyLoadBalancer;
use crate::cluster::shelf::key;

/// All of it.
#[derive(Clone, Debug, Default)]
pub(super) struct ToCarry {
    pub(super) carried: Wanted,
    /// Addresses that other machines may have as well.
    pub(super) shared: Vec<SharedAddress>,
    /// What cannot be carried, and why.
    pub(super) refused: BTreeMap<ObjectKey, String>,
}

pub(super) fn wanted(objects: &[Arc<HaProxyLoadBalancer>], settings: &HaProxyAgentSettings) -> ToCarry {
    let mut all = ToCarry::default();
    all.carried.tuning.clone_from(&settings.tuning);
    for object in objects {
        match balancer(object) {
            Ok(Some(balancer)) => {
                if let Some(sharing) = &settings.sharing {
                    for address in addresses(object) {
                        match share(object, address, sharing) {
                            Ok(shared) if all.shared.iter().all(|other| other.address() != address) => {
                                all.shared.push(shared);
                            }
                            Ok(_) => {}
                            Err(why) => drop(all.refused.insert(key(object), why)),
                        }
                    }
                }
                all.carried.balancers.push(balancer);
            }
            // It waits for an address.
            Ok(None) => {}
            Err(why) => drop(all.refused.insert(key(object), why)),
        }
    }
    all
}

/// The addresses that were given to a load balancer: its own, or what a pool gave.
pub(super) fn addresses(object: &HaProxyLoadBalancer) -> Vec<IpAddr> {
    if !object.spec.addresses.is_empty() || object.spec.address_from.is_none() {
        return object.spec.addresses.clone();
    }
    object.status.address.parse().into_iter().collect()
}

fn balancer(object: &HaProxyLoadBalancer) -> Result<Option<Balancer>, String> {
    let Some(assignment) = &object.spec.assignment else { return Ok(None) };
    let addresses = addresses(object);
    if addresses.is_empty() && object.spec.address_from.is_some() {
        return Ok(None);
    }
    let wanted = assignment.load_balancer(Scheme::Internal, Family::ALL).map_err(|why| why.to_string())?;
    let wanted = wanted.with_addresses(addresses).map_err(|why| why.to_string())?;
    let balance = match object.spec.balance.as_deref() {
        None | Some("leastconn") => Balance::LeastConnections,
        Some("roundrobin") => Balance::RoundRobin,
        Some("random") => Balance::Random,
        Some(other) => {
            return Err(format!("spec.balance is `{other}`: it can be leastconn, roundrobin or random"));
        }
    };
    Ok(Some(Balancer {
        id: BalancerId::new(object.namespace(), object.name()),
        load_balancer: wanted,
        options: Options { send_proxy: object.spec.proxy_protocol.unwrap_or(false), balance },
    }))
}

fn share(object: &HaProxyLoadBalancer, address: IpAddr, sharing: &Sharing) -> Result<SharedAddress, String> {
    // The last byte tells addresses of one network apart, as well as anything does.
    let last = match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    let router = object.spec.virtual_router_id.unwrap_or(if last == 0 { 255 } else { last });
    let peers =
        sharing.peers.iter().copied().filter(|peer| Family::of(*peer) == Family::of(address)).collect();
    SharedAddress::new(address, sharing.interface.as_str(), router, sharing.priority)
        .and_then(|shared| shared.with_peers(peers))
        .and_then(|shared| shared.with_interval(sharing.interval))
        .map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_haproxy::Tuning;
    use portcullis_host::interfaces::Selection;
    use portcullis_kube_api::cluster::Flavour;
    use serde_json::{Value, json};
    use std::time::Duration;

    fn settings() -> HaProxyAgentSettings {
        HaProxyAgentSettings {
            flavour: Flavour::Own,
            namespace: None,
            agents: "a".to_owned(),
            pool: "default".to_owned(),
            name: "m".to_owned(),
            sharing: Some(Sharing {
                interface: "eth0".to_owned(),
                priority: 100,
                peers: vec!["192.0.2.3".parse().unwrap(), "2001:db8::3".parse().unwrap()],
                interval: Duration::from_secs(1),
            }),
            selection: Selection::usual(),
            tuning: Tuning::default(),
        }
    }

    #[allow(clippy::needless_pass_by_value, reason = "samples are easier to read so")]
    fn carried(spec: Value, status: Value) -> ToCarry {
        let mut object =
            json!({"metadata": {"namespace": "a", "name": "lb"}, "spec": spec, "status": status});
        object["spec"]["assignment"] = json!({"loadBalancer": "lb", "generation": 1, "listeners": [{"port": 443, "targetPort": 6443}], "members": []});
        let object: HaProxyLoadBalancer = serde_json::from_value(object).unwrap();
        wanted(&[Arc::new(object)], &settings())
    }

    #[test]
    fn addresses_are_shared_and_machines_own_are_not() {
        let own = carried(json!({}), json!({}));
        assert_eq!((own.carried.balancers.len(), own.shared.len()), (1, 0));
        let given = carried(json!({"addresses": ["192.0.2.10", "2001:db8::10"]}), json!({}));
        assert_eq!((given.carried.balancers.len(), given.shared.len()), (1, 2));
        let waits = carried(json!({"addressFrom": {"poolRef": {"kind": "P", "name": "p"}}}), json!({}));
        assert_eq!((waits.carried.balancers.len(), waits.refused.len()), (0, 0));
        let claimed = carried(
            json!({"addressFrom": {"poolRef": {"kind": "P", "name": "p"}}}),
            json!({"address": "192.0.2.11"}),
        );
        assert_eq!(claimed.carried.balancers[0].load_balancer.addresses().len(), 1);
    }

    #[test]
    fn what_cannot_be_carried_is_said() {
        let refused = carried(json!({"balance": "fastest"}), json!({}));
        let words: Vec<&String> = refused.refused.values().collect();
        assert_eq!(words, ["spec.balance is `fastest`: it can be leastconn, roundrobin or random"]);
        assert!(refused.carried.balancers.is_empty());
    }
}
