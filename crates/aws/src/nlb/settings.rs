//! What is said for all load balancers of a cluster.

use crate::model::Tags;
use crate::{CloudConfig, CloudConfigError, ProbeMode, SecurityGroupMode};

/// What is said for all load balancers of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The cluster, by the name that is in the tags of what belongs to it.
    pub cluster: String,
    /// What tells the cluster from others of its name, if it is known. It is written on all that is made, and what does not
    /// carry it is never taken for something that was left over.
    pub identity: Option<String>,
    /// The VPC.
    pub vpc: String,
    /// The region; empty where nobody needs to know.
    pub region: String,
    /// Whether new load balancers get a group that is managed.
    pub mode: SecurityGroupMode,
    /// How nodes are checked that serve everything.
    pub probe: ProbeMode,
    /// The port of the one check of a node.
    pub probe_port: u16,
    /// Its path.
    pub probe_path: String,
    /// How the nodes' groups are opened for load balancers.
    pub node_rules: NodeRules,
    /// The nodes' groups, where they are not to be found by their tags.
    pub node_groups: Vec<String>,
    /// Where node ports are.
    pub node_ports: (u16, u16),
    /// How many rules a group can have in each direction.
    pub rules_per_group: usize,
    /// How many groups a load balancer can have.
    pub groups_per_load_balancer: usize,
    /// Subnets for load balancers that name none.
    pub subnets: Vec<String>,
    /// What is written on everything besides.
    pub tags: Tags,
    /// Whether it is told of each member where it is.
    pub members: MemberReports,
}

/// Whether it is told of each member where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberReports {
    /// Nobody asks: nodes come and go without waiting for load balancers.
    #[default]
    None,
    /// Somebody waits for them: how each does is looked at in every sync, by a call for each target group. Their checks are
    /// what listeners say, whatever they are.
    Each,
}

/// How the nodes' groups are opened for load balancers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeRules {
    /// All node ports, for one group that all load balancers have: three rules, however many load balancers there are.
    #[default]
    Shared,
    /// The ports of each load balancer, for its own group.
    Exact,
    /// Not at all: somebody else does.
    Off,
}

impl Settings {
    /// What a cloud-config says, and the usual for the rest.
    pub fn new(cluster: &str, vpc: &str, config: &CloudConfig) -> Result<Self, CloudConfigError> {
        let global = &config.global;
        Ok(Settings {
            cluster: cluster.to_owned(),
            identity: None,
            vpc: vpc.to_owned(),
            region: global.region.clone(),
            mode: config.mode()?,
            probe: config.probe_mode()?,
            probe_port: config.probe_port(),
            probe_path: config.probe_path().to_owned(),
            node_rules: if global.disable_security_group_ingress {
                NodeRules::Off
            } else {
                NodeRules::Shared
            },
            node_groups: Vec::new(),
            node_ports: (30000, 32767),
            rules_per_group: 60,
            groups_per_load_balancer: 5,
            subnets: Vec::new(),
            tags: Tags::new(),
            members: MemberReports::None,
        })
    }
}
