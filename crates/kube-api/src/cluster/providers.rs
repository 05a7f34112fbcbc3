//! What makes load balancers, and how. Each has what is asked of it in `assignment`, which only the controller of load balancers
//! writes; everything else is its user's.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::net::IpAddr;
use std::sync::Arc;

use portcullis_core::{Family, LoadBalancer, Owner, Scheme, Target, Want};
use serde::{Deserialize, Serialize};

use super::assignment::{Assignment, Unusable};
use super::capi::Reference;
use super::object::null_is_default;

/// What every provider has, whatever else it has.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfrastructureSpec {
    /// What is asked of it.
    pub assignment: Option<Assignment>,
}

/// A network load balancer of AWS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AwsNlbSpec {
    /// What is asked of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignment: Option<Assignment>,
    /// The region; the configuration's, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The VPC; the configuration's, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpc: Option<String>,
    /// Its name; one is made up where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `internet-facing` or `internal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// `ipv4` or `dualstack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address_type: Option<String>,
    /// Its subnets, by id or name.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<String>,
    /// Elastic addresses, one for each subnet.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub elastic_addresses: Vec<String>,
    /// Groups to use instead of a managed one, by id or name.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<String>,
    /// Whether members in other zones get traffic as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_zone: Option<bool>,
    /// Whether members see the addresses of clients.
    #[serde(rename = "preserveClientIP", skip_serializing_if = "Option::is_none")]
    pub preserve_client_ip: Option<bool>,
    /// Whether members are told of clients by the PROXY protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<bool>,
    /// How members are named: by their instances, or by addresses, which need not be of instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_type: Option<TargetType>,
    /// For how long a member is held after AWS took it out, since connections may still be sent to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_seconds: Option<u32>,
    /// Tags on everything that is made.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Further attributes of the load balancer, in AWS's words.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// How members are named to AWS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetType {
    /// By their instances.
    #[default]
    Instance,
    /// By addresses.
    Ip,
}

/// `HAProxy` on machines that carry traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HaProxyLoadBalancerSpec {
    /// What is asked of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignment: Option<Assignment>,
    /// The machines that carry it: those whose agents are of this pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Where it listens. Without any it has the addresses of its machines.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Where an address comes from, where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_from: Option<AddressPool>,
    /// Under which number machines agree who has the address; one is made from it where nothing is said.
    #[serde(rename = "virtualRouterID", skip_serializing_if = "Option::is_none")]
    pub virtual_router_id: Option<u8>,
    /// Whether members are told of clients by the PROXY protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<bool>,
    /// `leastconn`, `roundrobin` or `random`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
}

impl HaProxyLoadBalancerSpec {
    /// Where it listens. One that is no address must not be taken for none, which is all of them.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, Unusable> {
        parsed(&self.addresses)
    }

    /// The machines that carry it.
    pub fn pool(&self) -> &str {
        self.pool.as_deref().filter(|pool| !pool.is_empty()).unwrap_or("default")
    }
}

/// Where an address comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AddressPool {
    /// A pool of addresses, which an `IPAddressClaim` is made for.
    pub pool_ref: Reference,
}

/// A load balancer of OVN.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OvnLoadBalancerSpec {
    /// What is asked of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignment: Option<Assignment>,
    /// Where it listens.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Logical switches whose ports reach it directly.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<String>,
    /// Logical routers that it is on.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub routers: Vec<String>,
}

/// What a provider of ours makes load balancers from.
pub trait ProviderSpec: Default + serde::de::DeserializeOwned {
    /// What is asked of it.
    fn assignment(&self) -> Option<&Assignment>;

    /// What that means, in words of the core.
    fn want(&self, owner: Owner, uid: String) -> Result<Want, Unusable>;

    /// What is left to ask for while something is wrong with all of it: that who leaves goes, and that what is not asked for any
    /// more is closed. The provider makes nothing of it that is not there.
    fn retreat(&self, _owner: Owner, _uid: String) -> Option<Want> {
        None
    }

    /// What says where the load balancer is, also when nothing is asked of it any more.
    fn place(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

/// What AWS is told of a load balancer has these keys, as the annotations of Services have them.
const AWS: &str = "service.beta.kubernetes.io/aws-load-balancer-";

/// The VPC that a load balancer is in, among what is said to the provider.
pub const AWS_VPC: &str = "portcullis.dev/aws-vpc";

/// The region that it is in.
pub const AWS_REGION: &str = "portcullis.dev/aws-region";

/// For how long a member is held after it was taken out.
pub const AWS_HOLD: &str = "portcullis.dev/aws-hold-seconds";

/// Logical switches whose ports reach a load balancer directly, among what is said to the provider.
pub const OVN_SWITCHES: &str = "portcullis.dev/ovn-switches";

/// Logical routers that it is on.
pub const OVN_ROUTERS: &str = "portcullis.dev/ovn-routers";

impl ProviderSpec for AwsNlbSpec {
    fn assignment(&self) -> Option<&Assignment> {
        self.assignment.as_ref()
    }

    fn want(&self, owner: Owner, uid: String) -> Result<Want, Unusable> {
        let assignment = self.assignment.as_ref().ok_or_else(|| Unusable::new("nothing is asked of it"))?;
        // Who does not say that everybody may look for it is not found by everybody.
        let (scheme, word) = match self.scheme.as_deref() {
            Some("internet-facing") => (Scheme::InternetFacing, "internet-facing"),
            _ => (Scheme::Internal, "internal"),
        };
        let families: &[Family] =
            if self.ip_address_type.as_deref() == Some("dualstack") { &Family::ALL } else { &[Family::V4] };
        let mut parameters = BTreeMap::new();
        let mut say = |key: &str, value: Option<String>| {
            parameters
                .extend(value.filter(|value| !value.is_empty()).map(|value| (format!("{AWS}{key}"), value)));
        };
        let pairs = |pairs: &BTreeMap<String, String>| {
            pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
        };
        say("scheme", Some(word.to_owned()));
        say("name", self.name.clone());
        say("ip-address-type", self.ip_address_type.clone());
        say("subnets", Some(self.subnets.join(",")));
        say("eip-allocations", Some(self.elastic_addresses.join(",")));
        say("security-groups", Some(self.security_groups.join(",")));
        say("cross-zone-load-balancing-enabled", self.cross_zone.map(|on| on.to_string()));
        say("additional-resource-tags", Some(pairs(&self.tags)));
        say("attributes", Some(pairs(&self.attributes)));
        let target = match self.target_type.unwrap_or_default() {
            TargetType::Instance => "instance",
            TargetType::Ip => "ip",
        };
        say("nlb-target-type", Some(target.to_owned()));
        // What is left when its time is over is ended: AWS would leave it otherwise.
        let mut of_targets = BTreeMap::from([
            (
                "deregistration_delay.timeout_seconds".to_owned(),
                assignment.drain_timeout_seconds.min(3600).to_string(),
            ),
            ("deregistration_delay.connection_termination.enabled".to_owned(), true.to_string()),
        ]);
        let flags = [
            ("preserve_client_ip.enabled", self.preserve_client_ip),
            ("proxy_protocol_v2.enabled", self.proxy_protocol),
        ];
        of_targets.extend(flags.iter().filter_map(|(key, on)| Some(((*key).to_owned(), (*on)?.to_string()))));
        say("target-group-attributes", Some(pairs(&of_targets)));
        parameters.extend(self.place());
        parameters.extend(self.hold_seconds.map(|seconds| (AWS_HOLD.to_owned(), seconds.to_string())));
        let wanted = assignment.load_balancer(scheme, families.iter().copied())?;
        Ok(want(owner, uid, wanted, parameters))
    }

    fn place(&self) -> BTreeMap<String, String> {
        let said = [(AWS_VPC, &self.vpc), (AWS_REGION, &self.region)];
        let said = said.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)));
        said.filter(|(_, value)| !value.is_empty()).collect()
    }
}

impl ProviderSpec for OvnLoadBalancerSpec {
    fn assignment(&self) -> Option<&Assignment> {
        self.assignment.as_ref()
    }

    fn want(&self, owner: Owner, uid: String) -> Result<Want, Unusable> {
        let assignment = self.assignment.as_ref().ok_or_else(|| Unusable::new("nothing is asked of it"))?;
        let addresses = self.addresses(assignment)?;
        let families: BTreeSet<Family> = addresses.iter().copied().map(Family::of).collect();
        let wanted = assignment.load_balancer(Scheme::Internal, families)?;
        let wanted = wanted.with_addresses(addresses).map_err(|why| match why.source() {
            Some(source) => Unusable::new(format!("spec.addresses cannot be used: {source}")),
            None => Unusable::new(why),
        })?;
        Ok(want(owner, uid, wanted, self.places()))
    }

    /// OVN makes nothing that has no address, and finds by whose it is what is there.
    fn retreat(&self, owner: Owner, uid: String) -> Option<Want> {
        let wanted = self.assignment.as_ref()?.load_balancer(Scheme::Internal, Family::ALL).ok()?;
        Some(want(owner, uid, wanted, self.places()))
    }
}

impl OvnLoadBalancerSpec {
    /// Where it listens.
    fn addresses(&self, assignment: &Assignment) -> Result<Vec<IpAddr>, Unusable> {
        let mut addresses = parsed(&self.addresses)?;
        // Where clients look for it is where it is, if that is an address.
        let given: Option<IpAddr> =
            assignment.endpoint.as_ref().and_then(|endpoint| endpoint.host.parse().ok());
        if addresses.is_empty() {
            addresses.extend(given);
        }
        if addresses.is_empty() {
            return Err(Unusable::new(
                "it has no address, and OVN has none to give: name one in spec.addresses",
            ));
        }
        Ok(addresses)
    }

    /// The switches and routers that it is on.
    fn places(&self) -> BTreeMap<String, String> {
        let lists = [(OVN_SWITCHES, &self.switches), (OVN_ROUTERS, &self.routers)];
        let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
        lists.map(|(key, list)| (key.to_owned(), list.join(","))).collect()
    }
}

impl ProviderSpec for HaProxyLoadBalancerSpec {
    fn assignment(&self) -> Option<&Assignment> {
        self.assignment.as_ref()
    }

    fn want(&self, owner: Owner, uid: String) -> Result<Want, Unusable> {
        let assignment = self.assignment.as_ref().ok_or_else(|| Unusable::new("nothing is asked of it"))?;
        let wanted = assignment.load_balancer(Scheme::Internal, assignment.families())?;
        let wanted = wanted.with_addresses(self.addresses()?).map_err(Unusable::new)?;
        Ok(want(owner, uid, wanted, BTreeMap::new()))
    }
}

/// Addresses, as somebody wrote them: one object that cannot be read would keep all others from being seen.
fn parsed(addresses: &[String]) -> Result<Vec<IpAddr>, Unusable> {
    let parse = |text: &String| {
        text.trim()
            .parse()
            .map_err(|_| Unusable::new(format!("spec.addresses has `{text}`, which is no address")))
    };
    addresses.iter().map(parse).collect()
}

fn want(owner: Owner, uid: String, wanted: LoadBalancer, parameters: BTreeMap<String, String>) -> Want {
    Want { owner, uid, target: Target::Present(wanted), parameters, nodes: Arc::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn owner() -> Owner {
        Owner::new("c", "AWSNLB", Some("a".to_owned()), "lb").unwrap()
    }

    fn assignment() -> Value {
        json!({"loadBalancer": "lb", "clusterName": "c", "generation": 1, "drainTimeoutSeconds": 20,
            "listeners": [{"port": 443, "targetPort": 6443}], "members": []})
    }

    #[test]
    fn aws_hears_it_in_the_words_of_annotations() {
        let spec: AwsNlbSpec = serde_json::from_value(json!({
            "assignment": assignment(), "subnets": ["subnet-1", "subnet-2"], "crossZone": true, "preserveClientIP": false,
            "targetType": "ip", "vpc": "vpc-1", "holdSeconds": 5, "tags": {"a": "b"},
        }))
        .unwrap();
        let want = spec.want(owner(), "uid".to_owned()).unwrap();
        let said: Vec<String> = want
            .parameters
            .iter()
            .map(|(key, value)| format!("{} {value}", key.strip_prefix(AWS).unwrap_or(key)))
            .collect();
        assert_eq!(
            said,
            [
                "portcullis.dev/aws-hold-seconds 5",
                "portcullis.dev/aws-vpc vpc-1",
                "additional-resource-tags a=b",
                "cross-zone-load-balancing-enabled true",
                "nlb-target-type ip",
                "scheme internal",
                "subnets subnet-1,subnet-2",
                "target-group-attributes deregistration_delay.connection_termination.enabled=true,deregistration_delay.timeout_seconds=20,preserve_client_ip.enabled=false",
            ]
        );
        assert_eq!(spec.place(), BTreeMap::from([(AWS_VPC.to_owned(), "vpc-1".to_owned())]));
        let open: AwsNlbSpec =
            serde_json::from_value(json!({"assignment": assignment(), "scheme": "internet-facing"})).unwrap();
        let Target::Present(wanted) = open.want(owner(), String::new()).unwrap().target else { panic!() };
        assert_eq!(wanted.scheme(), Scheme::InternetFacing);
    }

    #[test]
    fn ovn_needs_an_address() {
        let mut spec = json!({"assignment": assignment(), "switches": ["a", "b"]});
        let read = |spec: &Value| serde_json::from_value::<OvnLoadBalancerSpec>(spec.clone()).unwrap();
        let without = read(&spec).want(owner(), String::new()).unwrap_err();
        assert!(without.to_string().contains("spec.addresses"), "{without}");
        spec["assignment"]["endpoint"] = json!({"host": "192.0.2.1", "port": 443});
        let want = read(&spec).want(owner(), String::new()).unwrap();
        let Target::Present(wanted) = want.target else { panic!() };
        assert_eq!(wanted.addresses(), ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(want.parameters[OVN_SWITCHES], "a,b");
        spec["addresses"] = json!(["2001:db8::1"]);
        let Target::Present(wanted) = read(&spec).want(owner(), String::new()).unwrap().target else {
            panic!()
        };
        assert_eq!(wanted.families().len(), 1);
    }

    #[test]
    fn ovn_lets_go_whatever_is_wrong_with_addresses() {
        for (addresses, words) in [
            (json!([]), "it has no address, and OVN has none to give: name one in spec.addresses"),
            (json!(["192.0.2.1", "x"]), "spec.addresses has `x`, which is no address"),
            (
                json!(["224.0.0.1"]),
                "spec.addresses cannot be used: 224.0.0.1 is not the address of one machine: it is a multicast address",
            ),
        ] {
            let mut asked = assignment();
            asked["members"] = json!([{"name": "one", "addresses": ["10.0.0.1"], "duty": "Leave"}]);
            let spec: OvnLoadBalancerSpec = serde_json::from_value(
                json!({"assignment": asked, "addresses": addresses, "switches": ["a"], "routers": ["r"]}),
            )
            .unwrap();
            assert_eq!(spec.want(owner(), String::new()).unwrap_err().to_string(), words);
            let want = spec.retreat(owner(), String::new()).unwrap();
            assert_eq!((&*want.parameters[OVN_SWITCHES], &*want.parameters[OVN_ROUTERS]), ("a", "r"));
            let Target::Present(wanted) = want.target else { panic!() };
            assert_eq!(wanted.addresses(), [] as [IpAddr; 0], "nothing is made of the others");
            assert_eq!((wanted.members()[0].name(), wanted.listeners()[0].port()), ("one", 443));
        }
    }
}
