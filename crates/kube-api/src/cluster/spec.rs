use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};

use super::capi::Reference;
use super::object::{null_is_default, number};
use super::{CLUSTER_LABEL, NAME_LABEL};

/// What a `LoadBalancer` wants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerSpec {
    /// The cluster that it is for.
    pub cluster_name: String,
    /// Where clients find it. Who leaves it out gets what the provider has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// Other names that clients use for it. Nobody checks that they lead here.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub alternate_endpoints: Vec<Endpoint>,
    /// Its ports. Without any it has the endpoint's, and leads to port 6443 of its members.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerSpec>,
    /// What its members are; Machines, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_kind: Option<TargetKind>,
    /// Which of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// What makes it. Without one somebody else does, and it is only looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<Reference>,
    /// Who may connect: absent is everyone, an empty list is nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_source_ranges: Option<Vec<String>>,
    /// For how long connections of a member that leaves are waited for.
    #[serde(deserialize_with = "number", skip_serializing_if = "Option::is_none")]
    pub drain_timeout_seconds: Option<u32>,
}

/// A name or an address, and a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    /// The name or address.
    #[serde(deserialize_with = "null_is_default")]
    pub host: String,
    /// The port; 0 for one that is none.
    #[serde(deserialize_with = "port")]
    pub port: u16,
}

/// In Clusters it may be any number.
fn port<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let number: i64 = null_is_default(deserializer)?;
    Ok(u16::try_from(number).unwrap_or_default())
}

impl Endpoint {
    /// It, unless it says nothing: Cluster API writes an empty one for none.
    pub fn given(&self) -> Option<&Self> {
        (!self.host.is_empty() && self.port != 0).then_some(self)
    }

    /// Whether both lead to the same place: case makes no difference in names, nor does the way an address is written.
    pub fn is_same(&self, other: &Self) -> bool {
        let plain = |host: &str| {
            let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
            host.parse().map_or(host, |address: std::net::IpAddr| address.to_string())
        };
        self.port == other.port && plain(&self.host) == plain(&other.host)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') && !self.host.starts_with('[') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A port of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerSpec {
    /// What it is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The port that clients connect to.
    pub port: u16,
    /// The port of the members; the same, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_port: Option<u16>,
    /// `TCP` or `UDP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// How members are checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheckSpec>,
}

/// How members are checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HealthCheckSpec {
    /// `TCP`, `HTTP` or `HTTPS`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// What is asked for by HTTP or HTTPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The port that is asked; the one that traffic goes to, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The time between two checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<u16>,
    /// The time that an answer may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u16>,
    /// So many good answers in a row make a member healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthy_threshold: Option<u8>,
    /// So many bad answers in a row make it unhealthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unhealthy_threshold: Option<u8>,
}

/// A kind of objects that can be members.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetKind {
    /// Its group.
    #[serde(deserialize_with = "null_is_default")]
    pub api_group: String,
    /// The kind.
    #[serde(deserialize_with = "null_is_default")]
    pub kind: String,
}

impl Default for TargetKind {
    fn default() -> Self {
        TargetKind { api_group: "cluster.x-k8s.io".to_owned(), kind: "Machine".to_owned() }
    }
}

impl TargetKind {
    /// Whether these are Machines of Cluster API, whose deletion can be held.
    pub fn is_machine(&self) -> bool {
        *self == Self::default()
    }
}

/// Kind and group, as people write it: `Machine.cluster.x-k8s.io`, `Node`.
impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.api_group.is_empty() {
            f.pad(&self.kind)
        } else {
            write!(f, "{}.{}", self.kind, self.api_group)
        }
    }
}

impl LoadBalancerSpec {
    /// The endpoint, if it says anything.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        self.endpoint.as_ref().and_then(Endpoint::given)
    }

    /// What its members are.
    pub fn target_kind(&self) -> TargetKind {
        let given = self.target_kind.clone().unwrap_or_default();
        // The group of Machines is meant by who leaves it out.
        if given.kind == "Machine" && given.api_group.is_empty() { TargetKind::default() } else { given }
    }

    /// Its selector, if it says anything.
    pub fn selector(&self) -> Option<&LabelSelector> {
        self.selector.as_ref().filter(|selector| {
            selector.match_labels.as_ref().is_some_and(|labels| !labels.is_empty())
                || selector.match_expressions.as_ref().is_some_and(|all| !all.is_empty())
        })
    }

    /// Which objects are its members. Without a selector these are the cluster's that carry the load balancer's name.
    pub fn selection(&self, name: &str) -> Selection {
        let selector = self.selector().cloned();
        let default = || LabelSelector {
            match_labels: Some(BTreeMap::from([
                (CLUSTER_LABEL.to_owned(), self.cluster_name.clone()),
                (NAME_LABEL.to_owned(), name.to_owned()),
            ])),
            match_expressions: None,
        };
        Selection(selector.unwrap_or_else(default))
    }
}

/// Which objects are meant.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection(LabelSelector);

impl Selection {
    /// Whether an object with these labels is among them. A comparison that is new to us matches nothing.
    pub fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let value = |key: &str| labels.and_then(|labels| labels.get(key));
        let equal = self.0.match_labels.iter().flatten().all(|(key, wanted)| value(key) == Some(wanted));
        let compared = self.0.match_expressions.iter().flatten().all(|expression| {
            let found = value(&expression.key);
            let named = |found: &String| expression.values.iter().flatten().any(|value| value == found);
            match expression.operator.as_str() {
                "In" => found.is_some_and(named),
                "NotIn" => !found.is_some_and(named),
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        });
        equal && compared
    }

    /// As a query has it.
    pub fn text(&self) -> String {
        selector_text(&self.0)
    }
}

/// A selector as a query has it: `a=b,c in (d,e),!f`.
pub fn selector_text(selector: &LabelSelector) -> String {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let compared = selector.match_expressions.iter().flatten().map(|expression| {
        let (key, values) = (&expression.key, expression.values.clone().unwrap_or_default().join(","));
        match expression.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.clone(),
            "DoesNotExist" => format!("!{key}"),
            other => format!("{key} {other} ({values})"),
        }
    });
    equal.chain(compared).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(spec: Value) -> LoadBalancerSpec {
        serde_json::from_value(spec).unwrap()
    }

    fn labels(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn without_a_selector_members_carry_the_name() {
        for empty in [json!(null), json!({}), json!({"matchLabels": {}, "matchExpressions": []})] {
            let selection = spec(json!({"clusterName": "c", "selector": empty})).selection("lb");
            assert_eq!(
                selection.text(),
                "cluster.x-k8s.io/cluster-name=c,loadbalancer.cluster.x-k8s.io/name=lb"
            );
            assert!(selection.matches(Some(&labels(&[(CLUSTER_LABEL, "c"), (NAME_LABEL, "lb")]))));
            assert!(!selection.matches(Some(&labels(&[(CLUSTER_LABEL, "c")]))));
            assert!(!selection.matches(None));
        }
    }

    #[test]
    fn selectors_compare_as_kubernetes_does() {
        let selection = spec(json!({"selector": {
            "matchLabels": {"a": "1"},
            "matchExpressions": [
                {"key": "b", "operator": "In", "values": ["x", "y"]},
                {"key": "c", "operator": "NotIn", "values": ["z"]},
                {"key": "d", "operator": "Exists"},
                {"key": "e", "operator": "DoesNotExist"},
            ],
        }}))
        .selection("lb");
        assert_eq!(selection.text(), "a=1,b in (x,y),c notin (z),d,!e");
        let fine = [("a", "1"), ("b", "y"), ("d", "")];
        assert!(selection.matches(Some(&labels(&fine))));
        for change in [("a", "2"), ("b", "z"), ("c", "z"), ("e", "")] {
            let mut changed = labels(&fine);
            changed.insert(change.0.to_owned(), change.1.to_owned());
            assert!(!selection.matches(Some(&changed)), "{change:?}");
        }
        assert!(!selection.matches(Some(&labels(&fine[..2]))), "without d");
        let new = spec(json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}));
        assert!(!new.selection("lb").matches(Some(&labels(&fine))));
    }

    #[test]
    fn endpoints_are_the_same_however_they_are_written() {
        let endpoint = |host: &str, port| Endpoint { host: host.to_owned(), port };
        for (one, other, same) in [
            (endpoint("API.example.com", 443), endpoint("api.example.com.", 443), true),
            (endpoint("api.example.com", 443), endpoint("api.example.com", 6443), false),
            (endpoint("[2001:db8::1]", 443), endpoint("2001:DB8:0::1", 443), true),
            (endpoint("192.0.2.1", 443), endpoint("192.0.2.2", 443), false),
        ] {
            assert_eq!(one.is_same(&other), same, "{one} {other}");
        }
        assert_eq!(endpoint("2001:db8::1", 443).to_string(), "[2001:db8::1]:443");
        for empty in
            [json!({}), json!({"host": "", "port": 0}), json!({"host": "x", "port": 0}), json!({"port": 1})]
        {
            assert_eq!(spec(json!({"endpoint": empty})).endpoint(), None);
        }
    }

    #[test]
    fn absent_and_empty_ranges_are_two_things() {
        assert_eq!(spec(json!({})).allowed_source_ranges, None);
        assert_eq!(spec(json!({"allowedSourceRanges": null})).allowed_source_ranges, None);
        assert_eq!(spec(json!({"allowedSourceRanges": []})).allowed_source_ranges, Some(Vec::new()));
    }
}
