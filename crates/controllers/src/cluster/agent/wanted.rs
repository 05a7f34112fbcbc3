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

/// What was carried last, of each: what is refused changes nothing.
pub(super) type Carried = BTreeMap<ObjectKey, Balancer>;

pub(super) fn wanted(
    objects: &[Arc<HaProxyLoadBalancer>],
    settings: &HaProxyAgentSettings,
    last: &mut Carried,
) -> ToCarry {
    let mut all = ToCarry::default();
    last.retain(|known, _| objects.iter().any(|object| key(object) == *known));
    let mut routers: BTreeMap<(Family, u8), IpAddr> = BTreeMap::new();
    all.carried.tuning.clone_from(&settings.tuning);
    for object in objects {
        match balancer(object) {
            Ok(Some(balancer)) => {
                if let Some(sharing) = &settings.sharing {
                    for address in addresses(object).unwrap_or_default() {
                        let place = (Family::of(address), router(object, address));
                        let shared = match routers.get(&place) {
                            Some(other) if *other != address => Err(format!(
                                "{address} and {other} have the same virtual router id, {}: give one of them another, by spec.virtualRouterID",
                                place.1
                            )),
                            Some(_) => continue,
                            None => share(address, place.1, sharing),
                        };
                        match shared {
                            Ok(shared) => {
                                routers.insert(place, address);
                                all.shared.push(shared);
                            }
                            Err(why) => drop(all.refused.insert(key(object), why)),
                        }
                    }
                }
                last.insert(key(object), balancer.clone());
                all.carried.balancers.push(balancer);
            }
            // It waits for an address.
            Ok(None) => {}
            Err(why) => {
                all.carried.balancers.extend(last.get(&key(object)).cloned());
                all.refused.insert(key(object), why);
            }
        }
    }
    all
}

/// The addresses that were given to a load balancer: its own, or what a pool gave.
pub(super) fn addresses(object: &HaProxyLoadBalancer) -> Result<Vec<IpAddr>, String> {
    if !object.spec.addresses.is_empty() || object.spec.address_from.is_none() {
        return object.spec.addresses().map_err(|why| why.to_string());
    }
    Ok(object.status.address.parse().into_iter().collect())
}

fn balancer(object: &HaProxyLoadBalancer) -> Result<Option<Balancer>, String> {
    let Some(assignment) = &object.spec.assignment else { return Ok(None) };
    let addresses = addresses(object)?;
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

/// The number under which machines agree on an address.
fn router(object: &HaProxyLoadBalancer, address: IpAddr) -> u8 {
    // The last byte tells addresses of one network apart, as well as anything does.
    let last = match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    object.spec.virtual_router_id.unwrap_or(if last == 0 { 255 } else { last })
}

fn share(address: IpAddr, router: u8, sharing: &Sharing) -> Result<SharedAddress, String> {
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
        wanted(&[Arc::new(object)], &settings(), &mut Carried::new())
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

    fn object(name: &str, spec: &Value) -> Arc<HaProxyLoadBalancer> {
        let mut object = json!({"metadata": {"namespace": "a", "name": name}, "spec": spec});
        object["spec"]["assignment"] = json!({"loadBalancer": name, "generation": 1, "listeners": [{"port": 443, "targetPort": 6443}], "members": []});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn what_is_refused_goes_on_as_it_was() {
        let mut last = Carried::new();
        let fine = wanted(&[object("lb", &json!({"addresses": ["192.0.2.10"]}))], &settings(), &mut last);
        let wrong = wanted(&[object("lb", &json!({"addresses": ["192.0.2.300"]}))], &settings(), &mut last);
        assert_eq!((wrong.carried.balancers, wrong.refused.len()), (fine.carried.balancers, 1));
        assert!(wanted(&[], &settings(), &mut last).carried.balancers.is_empty() && last.is_empty());
    }

    #[test]
    fn one_number_is_for_one_address() {
        let both = [
            object("one", &json!({"addresses": ["192.0.2.10"]})),
            object("two", &json!({"addresses": ["198.51.100.10"]})),
        ];
        let found = wanted(&both, &settings(), &mut Carried::new());
        assert_eq!((found.carried.balancers.len(), found.shared.len(), found.refused.len()), (2, 1, 1));
        let words = found.refused.values().next().unwrap();
        assert!(words.contains("spec.virtualRouterID"), "{words}");
    }

    #[test]
    fn what_cannot_be_carried_is_said() {
        let refused = carried(json!({"balance": "fastest"}), json!({}));
        let words: Vec<&String> = refused.refused.values().collect();
        assert_eq!(words, ["spec.balance is `fastest`: it can be leastconn, roundrobin or random"]);
        assert!(refused.carried.balancers.is_empty());
    }
}
