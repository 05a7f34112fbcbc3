//! `LoadBalancers` of clusters that Cluster API makes: their types, those of their providers, and what is read of Cluster API's
//! own objects.
//!
//! There is one set of types under two names of groups, see [`Flavour`]. They are read leniently: of one that cannot be read
//! nobody knows what is wanted.

mod assignment;
mod capi;
mod crds;
mod hooks;
mod object;
mod providers;
mod spec;
mod status;

pub use assignment::{AssignedMember, Assignment, DutyWord, Unusable};
pub use capi::{
    ClusterSpec, ClusterStatus, ControlPlaneSpec, MachineAddress, MachineSpec, MachineStatus, ProposedStatus,
    Reference, is_moving_away, is_paused, is_paused_itself,
};
pub use crds::crds;
pub use hooks::{Hooks, hooks};
pub use object::Object;
pub use providers::{
    AWS_HOLD, AWS_REGION, AWS_VPC, AddressPool, AwsNlbSpec, HaProxyLoadBalancerSpec, InfrastructureSpec,
    OVN_ROUTERS, OVN_SWITCHES, OvnLoadBalancerSpec, ProviderSpec, TargetType,
};
pub use spec::{
    Endpoint, HealthCheckSpec, ListenerSpec, LoadBalancerSpec, Selection, TargetKind, selector_text,
};
pub use status::{
    Condition, InfrastructureStatus, Initialization, Instance, InstanceMember, LoadBalancerStatus,
    MemberStatus, Target, condition, set_condition,
};

/// The label by which a Machine belongs to a load balancer, unless its selector says otherwise.
pub const NAME_LABEL: &str = "loadbalancer.cluster.x-k8s.io/name";

/// The label of everything that belongs to a cluster.
pub const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// The label of Machines that are control planes.
pub const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";

/// The annotation of a member that names its load balancer.
pub const MEMBER: &str = "loadbalancer.cluster.x-k8s.io/member";

/// Another name for it, which is read and never written.
pub const MEMBER_TOO: &str = "loadbalancer.cluster.x-k8s.io/name";

/// The annotation of a member that says where it is.
pub const STATUS: &str = "loadbalancer.cluster.x-k8s.io/status";

/// The annotation by which somebody takes a member out for a time. Its value does not matter.
pub const DISABLED: &str = "loadbalancer.cluster.x-k8s.io/disabled";

/// The annotation of a Cluster that names the load balancer of its control plane, where Cluster API's types have no field for it.
pub const CONTROL_PLANE: &str = "portcullis.dev/control-plane-load-balancer";

/// The annotation of a Cluster that names the template which its load balancer is made from.
pub const TEMPLATE: &str = "portcullis.dev/load-balancer-template";

/// What keeps a load balancer, and what makes it, until all that was made for it is gone.
pub const CLUSTER_FINALIZER: &str = "loadbalancer.portcullis.dev/cleanup";

/// Under which names the types are installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// Beside a Cluster API installation, in a group of our own: none of its kinds is claimed.
    Own,
    /// As the proposal for Cluster API has them, with its own shapes of Cluster and `KubeadmControlPlane`.
    Proposed,
}

/// A kind in a group, with the version that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// The group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// What it is called in addresses of the API.
    pub plural: &'static str,
}

/// The group of our own.
pub const OWN_GROUP: &str = "loadbalancer.portcullis.dev";

impl Flavour {
    /// The kind that everybody uses.
    pub fn load_balancer(self) -> Kind {
        self.kind("cluster.x-k8s.io", "LoadBalancer", "loadbalancers")
    }

    /// Network load balancers of AWS.
    pub fn aws_nlb(self) -> Kind {
        self.infrastructure("AWSNLB", "awsnlbs")
    }

    /// `HAProxy` on machines.
    pub fn haproxy(self) -> Kind {
        self.infrastructure("HAProxyLoadBalancer", "haproxyloadbalancers")
    }

    /// Load balancers of OVN.
    pub fn ovn(self) -> Kind {
        self.infrastructure("OVNLoadBalancer", "ovnloadbalancers")
    }

    fn infrastructure(self, kind: &'static str, plural: &'static str) -> Kind {
        self.kind("infrastructure.cluster.x-k8s.io", kind, plural)
    }

    fn kind(self, proposed: &'static str, kind: &'static str, plural: &'static str) -> Kind {
        match self {
            Self::Own => Kind { group: OWN_GROUP, version: "v1alpha1", kind, plural },
            Self::Proposed => Kind { group: proposed, version: "v1alpha4", kind, plural },
        }
    }
}
