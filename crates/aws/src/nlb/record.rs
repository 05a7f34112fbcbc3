//! What AWS had at one time, as a file.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::execute::{self, Seen};
use super::listing::{Listing, Ours, Reading};
use super::look::Look;
use super::provider::Provider;
use super::refresh::{self, Again, Everything, KnownTags, owner_of};
use super::settings::Settings;
use super::spec::instance_id;
use crate::client::{CallError, Client};
use crate::model::{
    Attributes, Instance, Listener, LoadBalancer, RouteTable, SecurityGroup, Subnet, Tags, Target,
    TargetGroup, TargetState, pairs,
};

/// So many calls are under way at the same time; how many there are in a second is limited elsewhere.
const TOGETHER: usize = 16;

/// What AWS had at one time: all that a plan for a cluster may look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    format: u32,
    taken: String,
    region: String,
    vpc: String,
    cluster: String,
    /// All of the VPC.
    security_groups: Vec<SecurityGroup>,
    /// Those of the cluster.
    load_balancers: BTreeMap<String, RecordedBalancer>,
    /// Those of the cluster.
    target_groups: BTreeMap<String, RecordedPool>,
    subnets: Vec<Subnet>,
    route_tables: Vec<RouteTable>,
    /// The machines of the nodes; nothing where AWS knows none of that id.
    instances: BTreeMap<String, Option<Instance>>,
}

#[allow(clippy::struct_field_names, reason = "it is what AWS tells of it")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedBalancer {
    #[serde(flatten)]
    balancer: LoadBalancer,
    tags: Tags,
    attributes: Attributes,
    listeners: Vec<Listener>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedPool {
    #[serde(flatten)]
    group: TargetGroup,
    tags: Tags,
    attributes: Attributes,
    #[serde(with = "pairs")]
    targets: BTreeMap<Target, TargetState>,
}

/// Why a record cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It was cut off, or it is something else.
    #[error("it is damaged, or no record of AWS: {0}")]
    Damaged(String),
    /// Another version wrote it.
    #[error("it has format {0}, and this version reads format {known}", known = Record::FORMAT)]
    Format(u32),
    /// It is of another place than is configured.
    #[error("it is of {what} `{recorded}`, and `{configured}` is configured")]
    Elsewhere {
        /// What is another one: the cluster, the VPC or the region.
        what: &'static str,
        /// What it is in the record.
        recorded: String,
        /// What it is in the configuration.
        configured: String,
    },
}

impl Record {
    /// The format that is written. A change of what a record holds makes it one more.
    pub const FORMAT: u32 = 1;

    /// Looks at all that a plan may look at. The nodes are named by what Kubernetes knows their machines by.
    pub async fn take<'a>(
        provider: &Provider,
        nodes: impl Iterator<Item = &'a str>,
    ) -> Result<Self, CallError> {
        let (client, settings) = (provider.client(), provider.settings());
        let taken = DateTime::from(SystemTime::now()).fmt(Format::DateTime).unwrap_or_default();
        let vpc = [settings.vpc.clone()];
        let mut record = Record {
            format: Self::FORMAT,
            taken,
            region: settings.region.clone(),
            vpc: settings.vpc.clone(),
            cluster: settings.cluster.clone(),
            security_groups: client.security_groups(&[("vpc-id", &vpc)]).await?,
            load_balancers: BTreeMap::new(),
            target_groups: BTreeMap::new(),
            subnets: Vec::new(),
            route_tables: Vec::new(),
            instances: BTreeMap::new(),
        };
        record.look_at_ours(client, settings).await?;
        let machines = nodes.filter_map(instance_id).map(|id| Look::Instance(id.to_owned()));
        let shared = machines.chain([Look::Subnets, Look::RouteTables]).collect();
        record.look(client, settings, &shared).await?;
        let others = record.groups_elsewhere(settings).map(Look::SharedGroup).collect();
        record.look(client, settings, &others).await?;
        record.look_into_ours(client, settings).await?;
        Ok(record)
    }

    async fn look(
        &mut self,
        client: &Client,
        settings: &Settings,
        looks: &BTreeSet<Look>,
    ) -> Result<(), CallError> {
        for seen in execute::look(client, settings, looks).await? {
            self.take_in(seen);
        }
        Ok(())
    }

    /// Groups that the nodes are said to have, and that are not in the VPC.
    fn groups_elsewhere(&self, settings: &Settings) -> impl Iterator<Item = String> {
        let known: BTreeSet<&String> = self.security_groups.iter().map(|group| &group.id).collect();
        let machines = self.instances.values().flatten();
        let named = machines.flat_map(|machine| &machine.groups).chain(&settings.node_groups);
        named.filter(|id| !known.contains(id)).cloned().collect::<BTreeSet<_>>().into_iter()
    }

    /// Listeners, targets and attributes of what is ours.
    async fn look_into_ours(&mut self, client: &Client, settings: &Settings) -> Result<(), CallError> {
        let (balancers, pools) = (self.load_balancers.keys(), self.target_groups.keys());
        let looks: Vec<Look> = balancers
            .flat_map(|arn| [Look::Listeners(arn.clone()), Look::Attributes(arn.clone())])
            .chain(pools.flat_map(|arn| [Look::Targets(arn.clone()), Look::PoolAttributes(arn.clone())]))
            .collect();
        for some in looks.chunks(TOGETHER) {
            let some: Vec<BTreeSet<Look>> = some.iter().map(|look| [look.clone()].into()).collect();
            for seen in join_all(some.iter().map(|look| execute::look(client, settings, look))).await {
                seen?.into_iter().for_each(|seen| self.take_in(seen));
            }
        }
        Ok(())
    }

    /// The load balancers and target groups of the cluster, by what is written on them.
    async fn look_at_ours(&mut self, client: &Client, settings: &Settings) -> Result<(), CallError> {
        let reading = Reading::since(Instant::now());
        let Ours { balancers, pools, mut tags } =
            Listing::default().ours(client, settings, &KnownTags::new(), &reading).await?;
        let mut ours =
            |arn: &str| tags.remove(arn).filter(|tags| owner_of(tags, &settings.cluster).is_some());
        for balancer in balancers {
            if let Some(tags) = ours(&balancer.arn) {
                let arn = balancer.arn.clone();
                self.load_balancers
                    .insert(arn, RecordedBalancer { balancer, tags, ..RecordedBalancer::default() });
            }
        }
        for group in pools {
            if let Some(tags) = ours(&group.arn) {
                let arn = group.arn.clone();
                self.target_groups.insert(arn, RecordedPool { group, tags, ..RecordedPool::default() });
            }
        }
        Ok(())
    }

    fn take_in(&mut self, seen: Seen) {
        match seen {
            Seen::Subnets(found) => self.subnets = found,
            Seen::RouteTables(found) => self.route_tables = found,
            Seen::Instances(asked, found) => {
                self.instances.extend(asked.into_iter().map(|id| (id, None)));
                self.instances.extend(found.into_iter().map(|found| (found.id.clone(), Some(found))));
            }
            Seen::Listeners(arn, found) => {
                self.load_balancers.entry(arn).and_modify(|known| known.listeners = found);
            }
            Seen::Attributes(arn, found) => {
                self.load_balancers.entry(arn).and_modify(|known| known.attributes = found);
            }
            Seen::PoolAttributes(arn, found) => {
                self.target_groups.entry(arn).and_modify(|known| known.attributes = found);
            }
            Seen::Targets(arn, found, _) => {
                self.target_groups.entry(arn).and_modify(|known| known.targets = found);
            }
            Seen::Groups(_, found) | Seen::Own(_, found) => self.security_groups.extend(found),
        }
    }

    /// Reads what [`Record::write`] gave.
    pub fn read(text: &str) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Start {
            format: u32,
        }
        let damaged = |error: serde_json::Error| RecordError::Damaged(error.to_string());
        // The format comes first: another one may have all else otherwise.
        let Start { format } = serde_json::from_str(text).map_err(damaged)?;
        if format != Self::FORMAT {
            return Err(RecordError::Format(format));
        }
        serde_json::from_str(text).map_err(damaged)
    }

    /// It as text, for people too.
    pub fn write(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("all of it can be written");
        text + "\n"
    }

    /// When it was taken, as people write it.
    pub fn taken(&self) -> &str {
        &self.taken
    }

    /// The region.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The VPC.
    pub fn vpc(&self) -> &str {
        &self.vpc
    }

    /// The cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// What would be seen; an error names what the record does not have. A group that it does not have does not exist.
    pub(super) fn answer(&self, look: &Look) -> Result<Seen, String> {
        let groups = |name: &String| {
            let named = self.security_groups.iter().filter(|group| group.id == *name || group.name == *name);
            Seen::Groups([name.clone()].into(), named.cloned().collect())
        };
        let balancer = |arn| self.load_balancers.get(arn).ok_or_else(|| format!("load balancer {arn}"));
        let pool = |arn| self.target_groups.get(arn).ok_or_else(|| format!("target group {arn}"));
        Ok(match look {
            Look::Subnets => Seen::Subnets(self.subnets.clone()),
            Look::RouteTables => Seen::RouteTables(self.route_tables.clone()),
            Look::Instance(id) => {
                let found = self.instances.get(id).ok_or_else(|| format!("machine {id}"))?;
                Seen::Instances([id.clone()].into(), found.iter().cloned().collect())
            }
            Look::SharedGroup(name) | Look::NamedGroup(name) => groups(name),
            Look::Listeners(arn) => Seen::Listeners(arn.clone(), balancer(arn)?.listeners.clone()),
            Look::Attributes(arn) => Seen::Attributes(arn.clone(), balancer(arn)?.attributes.clone()),
            Look::PoolAttributes(arn) => Seen::PoolAttributes(arn.clone(), pool(arn)?.attributes.clone()),
            Look::Targets(arn) => Seen::Targets(arn.clone(), pool(arn)?.targets.clone(), BTreeMap::new()),
            // A plan answers these itself.
            Look::Groups(owner) | Look::Whose(owner) | Look::Leftovers(owner) => {
                return Err(owner.to_string());
            }
        })
    }

    /// What a first look at everything would have found.
    pub(super) fn everything(&self) -> Everything {
        let (groups, others) = refresh::own_and_marked(self.security_groups.clone(), &self.cluster);
        let (balancers, pools) = (self.load_balancers.values(), self.target_groups.values());
        let written = balancers.clone().map(|found| (found.balancer.arn.clone(), found.tags.clone()));
        let tags = written.chain(pools.clone().map(|found| (found.group.arn.clone(), found.tags.clone())));
        Everything {
            again: Again::default(),
            groups,
            others,
            tags: tags.collect(),
            balancers: balancers.map(|found| found.balancer.clone()).collect(),
            pools: pools.map(|found| found.group.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{HealthCheck, Peer, Permission};

    fn tags(name: &str) -> Tags {
        let owner = portcullis_core::Owner::new("demo", "Service", Some("shop".into()), name).unwrap();
        owner.to_pairs().into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// One of everything, with what is written in another way than it is held.
    fn record() -> Record {
        let range = Peer::Range("203.0.113.0/24".parse().unwrap());
        let ingress = [
            (Permission::ports("tcp", 443, 443, range), "clients".to_owned()),
            (Permission::ports("tcp", 443, 443, Peer::PrefixList("pl-1".into())), String::new()),
        ];
        let egress = [(Permission::all(Peer::Group("sg-2".into())), String::new())];
        let group = SecurityGroup {
            id: "sg-1".into(),
            tags: tags("web"),
            ingress: ingress.into(),
            egress: egress.into(),
            ..SecurityGroup::default()
        };
        let listener = Listener { port: 443, target_group: Some("arn:pool".into()), ..Listener::default() };
        let balancer = RecordedBalancer {
            balancer: LoadBalancer { arn: "arn:lb".into(), ..LoadBalancer::default() },
            tags: tags("web"),
            attributes: [("deletion_protection.enabled".into(), "false".into())].into(),
            listeners: vec![listener],
        };
        let target = Target { id: "i-1".into(), port: 30443, outside: false };
        let health_check = HealthCheck { path: Some("/healthz".into()), ..HealthCheck::default() };
        let pool = RecordedPool {
            group: TargetGroup { arn: "arn:pool".into(), health_check, ..TargetGroup::default() },
            tags: tags("web"),
            targets: [(target, TargetState::Draining)].into(),
            ..RecordedPool::default()
        };
        let subnet = Subnet { range: Some("10.0.0.0/24".parse().unwrap()), ..Subnet::default() };
        Record {
            format: Record::FORMAT,
            taken: "2026-01-01T00:00:00Z".into(),
            region: "eu-central-1".into(),
            vpc: "vpc-1".into(),
            cluster: "demo".into(),
            security_groups: vec![group],
            load_balancers: [("arn:lb".into(), balancer)].into(),
            target_groups: [("arn:pool".into(), pool)].into(),
            subnets: vec![subnet],
            route_tables: vec![RouteTable { main: true, ..RouteTable::default() }],
            instances: [("i-1".into(), Some(Instance::default())), ("i-2".into(), None)].into(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let record = record();
        assert_eq!(Record::read(&record.write()), Ok(record));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let text = record().write();
        let newer = text.replacen("\"format\": 1", "\"format\": 2, \"all\": \"else\"", 1);
        let cut = &text[..text.len() / 2];
        let lacking = text.replacen("\"subnets\"", "\"nets\"", 1);
        for (text, expected) in [
            (newer.as_str(), "it has format 2, and this version reads format 1"),
            (cut, "it is damaged, or no record of AWS: EOF while parsing"),
            (&lacking, "it is damaged, or no record of AWS: missing field `subnets`"),
            ("{}", "it is damaged, or no record of AWS: missing field `format`"),
            ("", "it is damaged, or no record of AWS: EOF while parsing"),
        ] {
            let error = Record::read(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
