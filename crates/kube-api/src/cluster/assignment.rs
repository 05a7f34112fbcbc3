//! What the controller of load balancers hands to a provider: all that it needs, in one field of the provider's own object.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portcullis_core::{
    Admission, Duty, EmptyMeans, Family, HealthCheck, HealthPort, Listener, ListenerProtocol, LoadBalancer,
    Member, Probe, SourceRanges,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::object::{count, null_is_default};
use super::spec::{Endpoint, HealthCheckSpec, ListenerSpec};

/// What a provider is to make.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Assignment {
    /// The `LoadBalancer` that asks for it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub load_balancer: String,
    /// The Service that asks for it, where that is who does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service: String,
    /// The cluster that it is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_name: String,
    /// The generation of the `LoadBalancer` that all of this was formed from. While it is absent nothing is to be made.
    pub generation: i64,
    /// Where clients look for it, if somebody decided that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// Of which families it has addresses, in the words of Services; of both, if nothing is said.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub ip_families: Vec<String>,
    /// Its ports, with all that there is to say of them.
    #[serde(deserialize_with = "null_is_default")]
    pub listeners: Vec<ListenerSpec>,
    /// Who may connect: absent is everyone, an empty list is nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_source_ranges: Option<Vec<String>>,
    /// For how long connections of a member that leaves are waited for.
    #[serde(deserialize_with = "count")]
    pub drain_timeout_seconds: u32,
    /// Since when another one has its place. It goes on for a while, for clients that do not know yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced_since: Option<Time>,
    /// Who gets the traffic.
    #[serde(deserialize_with = "null_is_default")]
    pub members: Vec<AssignedMember>,
}

/// Someone who gets traffic, or who is to get none any more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AssignedMember {
    /// Its name.
    pub name: String,
    /// Where it is found.
    #[serde(deserialize_with = "addresses")]
    pub addresses: Vec<IpAddr>,
    /// What its own provider calls it.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// What it is to do.
    pub duty: DutyWord,
    /// When the connections of one that is not to serve are ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Time>,
}

/// What is no address leads nowhere. Who has no other is refused when something is made of it.
fn addresses<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<IpAddr>, D::Error> {
    let given: Vec<String> = null_is_default(deserializer)?;
    Ok(given.iter().filter_map(|address| address.parse().ok()).collect())
}

/// What a member is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DutyWord {
    /// Take its share.
    #[default]
    Serve,
    /// Be kept aside, until somebody wishes otherwise.
    Rest,
    /// Go.
    Leave,
}

/// Why no load balancer can be made of what is given.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Unusable(String);

impl Unusable {
    /// For this reason.
    pub fn new(why: impl std::fmt::Display) -> Self {
        Unusable(why.to_string())
    }
}

impl ListenerSpec {
    /// What the core calls it.
    pub fn to_core(&self) -> Result<Listener, Unusable> {
        let protocol = match self.protocol.as_deref().unwrap_or("TCP").to_ascii_uppercase().as_str() {
            "TCP" => ListenerProtocol::Tcp,
            "UDP" => ListenerProtocol::Udp,
            other => {
                return Err(Unusable(format!(
                    "the listener on port {} has the protocol `{other}`: it can be TCP or UDP",
                    self.port
                )));
            }
        };
        let target = self.target_port.unwrap_or(self.port);
        let mut listener = Listener::new(self.port, protocol, target).map_err(Unusable::new)?;
        if let Some(name) = &self.name {
            listener = listener.with_name(name);
        }
        let Some(check) = &self.health_check else { return Ok(listener) };
        let check =
            check.to_core().map_err(|why| Unusable(format!("the listener on port {}: {why}", self.port)))?;
        Ok(listener.with_health_check(check))
    }
}

impl HealthCheckSpec {
    fn to_core(&self) -> Result<HealthCheck, Unusable> {
        let path = || self.path.clone().unwrap_or_else(|| "/".to_owned());
        let probe = match self.protocol.as_deref().unwrap_or("TCP").to_ascii_uppercase().as_str() {
            "TCP" if self.path.is_some() => {
                return Err(Unusable("a health check by TCP has no path: use HTTP or HTTPS".to_owned()));
            }
            "TCP" => Probe::Tcp,
            "HTTP" => Probe::Http { path: path() },
            "HTTPS" => Probe::Https { path: path() },
            other => {
                let why =
                    format!("the health check has the protocol `{other}`: it can be TCP, HTTP or HTTPS");
                return Err(Unusable(why));
            }
        };
        let port = self.port.map_or(HealthPort::Traffic, HealthPort::Number);
        let check = HealthCheck::new(probe, port).map_err(Unusable::new)?;
        let interval =
            self.interval_seconds.map_or(check.interval(), |seconds| Duration::from_secs(seconds.into()));
        let timeout = self
            .timeout_seconds
            .map_or(check.timeout().min(interval), |seconds| Duration::from_secs(seconds.into()));
        let healthy = self.healthy_threshold.unwrap_or(check.healthy_threshold());
        let unhealthy = self.unhealthy_threshold.unwrap_or(check.unhealthy_threshold());
        let check = check.with_timing(interval, timeout).map_err(Unusable::new)?;
        check.with_thresholds(healthy, unhealthy).map_err(Unusable::new)
    }
}

impl AssignedMember {
    /// What the core calls it.
    pub fn to_core(&self) -> Result<Member, Unusable> {
        let member =
            Member::new(self.name.as_str(), self.addresses.iter().copied()).map_err(Unusable::new)?;
        // Who is to go by an unknown time is to go now.
        let by = self.by.as_ref().map_or(SystemTime::UNIX_EPOCH, at);
        let member = member.with_duty(match self.duty {
            DutyWord::Serve => Duty::Serve,
            DutyWord::Rest => Duty::Rest { by },
            DutyWord::Leave => Duty::Leave { by },
        });
        Ok(match &self.provider_id {
            Some(id) => member.with_reference(id),
            None => member,
        })
    }
}

/// A listener of the core, with all that there is to say of it.
impl From<&Listener> for ListenerSpec {
    fn from(listener: &Listener) -> Self {
        let seconds = |time: Duration| u16::try_from(time.as_secs()).unwrap_or(u16::MAX).max(1);
        let check = listener.health_check().map(|check| HealthCheckSpec {
            protocol: Some(
                match check.probe() {
                    Probe::Tcp => "TCP",
                    Probe::Http { .. } => "HTTP",
                    Probe::Https { .. } => "HTTPS",
                }
                .to_owned(),
            ),
            path: check.probe().path().map(str::to_owned),
            port: match check.port() {
                HealthPort::Traffic => None,
                HealthPort::Number(port) => Some(port),
            },
            interval_seconds: Some(seconds(check.interval())),
            timeout_seconds: Some(seconds(check.timeout())),
            healthy_threshold: Some(check.healthy_threshold()),
            unhealthy_threshold: Some(check.unhealthy_threshold()),
        });
        ListenerSpec {
            name: listener.name().map(str::to_owned),
            port: listener.port(),
            target_port: Some(listener.target_port()),
            protocol: Some(listener.protocol().to_string().to_ascii_uppercase()),
            health_check: check,
        }
    }
}

/// A time of Kubernetes, as everybody else has it.
fn at(time: &Time) -> SystemTime {
    let millis = u64::try_from(time.0.as_millisecond()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

/// What Services call a family.
fn family_word(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

impl Assignment {
    /// What is to be said of these families.
    pub fn words_of(families: &BTreeSet<Family>) -> Vec<String> {
        let is_all = Family::ALL.iter().all(|family| families.contains(family));
        let said = families.iter().filter(|_| !is_all);
        said.map(|family| family_word(*family).to_owned()).collect()
    }

    /// Of which families it has addresses.
    pub fn families(&self) -> BTreeSet<Family> {
        let is_said = |family: &Family| self.ip_families.iter().any(|said| said == family_word(*family));
        let said: BTreeSet<Family> = Family::ALL.into_iter().filter(is_said).collect();
        if said.is_empty() { Family::ALL.into() } else { said }
    }

    /// Who may connect.
    pub fn admission(&self) -> Result<Admission, Unusable> {
        let ranges = SourceRanges::parse(self.allowed_source_ranges.as_ref())
            .map_err(|error| Unusable(format!("spec.allowedSourceRanges{error}")))?;
        Ok(Admission { ranges, empty_means: EmptyMeans::Nobody })
    }

    /// The load balancer that is asked for, of these families and from there.
    pub fn load_balancer(
        &self,
        scheme: portcullis_core::Scheme,
        families: impl IntoIterator<Item = Family>,
    ) -> Result<LoadBalancer, Unusable> {
        let listeners: Result<Vec<Listener>, Unusable> =
            self.listeners.iter().map(ListenerSpec::to_core).collect();
        let members: Result<Vec<Member>, Unusable> =
            self.members.iter().map(AssignedMember::to_core).collect();
        let name = if self.load_balancer.is_empty() { &self.service } else { &self.load_balancer };
        let made = LoadBalancer::new(name.as_str(), scheme, families, listeners?, self.admission()?)
            .map_err(Unusable::new)?;
        let made = made.with_members(members?).map_err(Unusable::new)?;
        Ok(made.with_drain_deadline(Duration::from_secs(self.drain_timeout_seconds.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::Scheme;
    use serde_json::{Value, json};

    fn made(assignment: Value) -> Result<LoadBalancer, Unusable> {
        let assignment: Assignment = serde_json::from_value(assignment).unwrap();
        assignment.load_balancer(Scheme::Internal, Family::ALL)
    }

    #[test]
    fn what_is_no_address_and_no_number_keeps_nothing_from_being_read() {
        let read = |members: Value, seconds: Value| -> Assignment {
            let given = json!({"loadBalancer": "lb", "listeners": [{"port": 443}], "members": members, "drainTimeoutSeconds": seconds});
            serde_json::from_value(given).unwrap()
        };
        let some = json!([{"name": "one", "addresses": ["nowhere", "10.0.0.1"]}]);
        for (seconds, expected) in [(json!(-1), 0), (json!(20), 20), (json!(null), 0)] {
            let read = read(some.clone(), seconds);
            assert_eq!(read.drain_timeout_seconds, expected);
            assert_eq!(read.members[0].addresses, [IpAddr::from([10, 0, 0, 1])]);
            assert!(read.load_balancer(Scheme::Internal, Family::ALL).is_ok());
        }
        let none = read(json!([{"name": "one", "addresses": ["nowhere"]}]), json!(20));
        let why = none.load_balancer(Scheme::Internal, Family::ALL).unwrap_err().to_string();
        assert!(why.contains("one"), "{why}");
    }

    #[test]
    fn all_of_it_reaches_the_core() {
        let made = made(json!({
            "loadBalancer": "lb", "generation": 3, "drainTimeoutSeconds": 20,
            "listeners": [{"name": "api", "port": 443, "targetPort": 6443, "protocol": "TCP", "healthCheck":
                {"protocol": "HTTPS", "path": "/readyz", "intervalSeconds": 2, "timeoutSeconds": 1, "healthyThreshold": 1, "unhealthyThreshold": 2}}],
            "allowedSourceRanges": [],
            "members": [
                {"name": "a", "addresses": ["10.0.0.1"], "providerID": "aws:///z/i-1", "duty": "Serve"},
                {"name": "b", "addresses": ["10.0.0.2"], "duty": "Leave", "by": "1970-01-01T00:01:00Z"},
            ],
        }))
        .unwrap();
        assert_eq!((made.name(), made.drain_deadline()), ("lb", Duration::from_secs(20)));
        assert_eq!(
            made.listeners()[0].health_check().unwrap().probe(),
            &Probe::Https { path: "/readyz".to_owned() }
        );
        assert_eq!(made.members()[0].reference(), Some("aws:///z/i-1"));
        let by = SystemTime::UNIX_EPOCH + Duration::from_secs(60);
        assert_eq!(made.members()[1].duty(), Duty::Leave { by });
        assert_eq!(made.ingress_rules(), [], "an empty list is nobody");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let listener = |change: Value| {
            let mut listener = json!({"port": 443});
            listener.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            made(json!({"loadBalancer": "lb", "listeners": [listener]}))
                .map(drop)
                .map_err(|error| error.to_string())
        };
        for (change, words) in [
            (
                json!({"protocol": "SCTP"}),
                "the listener on port 443 has the protocol `SCTP`: it can be TCP or UDP",
            ),
            (json!({"port": 0}), "a listener cannot be on port 0: give a port from 1 to 65535"),
            (
                json!({"healthCheck": {"protocol": "GRPC"}}),
                "the listener on port 443: the health check has the protocol `GRPC`: it can be TCP, HTTP or HTTPS",
            ),
            (
                json!({"healthCheck": {"path": "/x"}}),
                "the listener on port 443: a health check by TCP has no path: use HTTP or HTTPS",
            ),
        ] {
            assert_eq!(listener(change), Err(words.to_owned()));
        }
        assert_eq!(listener(json!({"healthCheck": {"protocol": "http", "intervalSeconds": 2}})), Ok(()));
        let ranges = made(
            json!({"loadBalancer": "lb", "listeners": [{"port": 1}], "allowedSourceRanges": ["10.0.0.0/33"]}),
        );
        assert!(ranges.unwrap_err().to_string().starts_with("spec.allowedSourceRanges[0]: "));
    }
}
