//! All objects, with what they are looked up by.
//!
//! A model is a value: a clone costs nothing and shares everything that does not change afterwards. Readers keep the
//! one they started with, and a change is decided on a clone that is thrown away if it is not made.

use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use rpds::{RedBlackTreeMapSync, RedBlackTreeSetSync};
use uuid::Uuid;

use crate::Mac;
use crate::objects::{
    AddressGroup, FloatingIp, Kind, Meta, Network, Port, Project, Quota, RbacPolicy, RevokedToken, Router,
    Rule, RuleTemplate, SecurityGroup, SigningKey, Subnet, User,
};

/// The objects of one kind, in order of their ids.
pub(crate) type Table<T> = RedBlackTreeMapSync<Uuid, Arc<T>>;

/// Ids under keys. A pair of a key and an id is there, or it is not.
#[derive(Clone, Debug)]
struct Index<K: Ord>(RedBlackTreeSetSync<(K, Uuid)>);

impl<K: Ord> Default for Index<K> {
    fn default() -> Self {
        Self(RedBlackTreeSetSync::new_sync())
    }
}

impl<K: Ord + Clone> Index<K> {
    fn set(&mut self, present: bool, key: K, id: Uuid) {
        if present {
            self.0.insert_mut((key, id));
        } else {
            self.0.remove_mut(&(key, id));
        }
    }

    /// The ids under a key that come after another id, in order.
    fn after(&self, key: K, after: Option<Uuid>) -> impl DoubleEndedIterator<Item = Uuid> + '_ {
        let start = match after {
            None => Bound::Included((key.clone(), Uuid::nil())),
            Some(id) => Bound::Excluded((key.clone(), id)),
        };
        self.0.range((start, Bound::Included((key, Uuid::max())))).map(|(_, id)| *id)
    }

    /// The ids under keys from one to another.
    fn between(&self, from: K, to: K) -> impl DoubleEndedIterator<Item = Uuid> + '_ {
        self.0.range((from, Uuid::nil())..=(to, Uuid::max())).map(|(_, id)| *id)
    }

    fn under(&self, key: K) -> impl DoubleEndedIterator<Item = Uuid> + '_ {
        self.after(key, None)
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// How many changes were made to the database by us and our like.
    pub generation: u64,
    /// Rows that say that they are ours and cannot be read, with why: their objects are not here, and nothing may be
    /// concluded from that.
    pub unreadable: RedBlackTreeMapSync<Uuid, Arc<str>>,
    networks: Table<Network>,
    subnets: Table<Subnet>,
    ports: Table<Port>,
    routers: Table<Router>,
    floating_ips: Table<FloatingIp>,
    security_groups: Table<SecurityGroup>,
    rules: Table<Rule>,
    address_groups: Table<AddressGroup>,
    rule_templates: Table<RuleTemplate>,
    rbac_policies: Table<RbacPolicy>,
    quotas: Table<Quota>,
    projects: Table<Project>,
    users: Table<User>,
    revoked_tokens: Table<RevokedToken>,
    signing_keys: Table<SigningKey>,

    by_project: Index<(Kind, Arc<str>)>,
    by_name: Index<(Kind, Arc<str>)>,
    /// The group of a project that ports get which name none.
    default_groups: RedBlackTreeMapSync<Arc<str>, Uuid>,
    /// How many of a kind a project has.
    counts: RedBlackTreeMapSync<(Kind, Arc<str>), u64>,
    subnets_of_network: Index<Uuid>,
    ports_of_network: Index<Uuid>,
    ports_of_subnet: Index<Uuid>,
    ports_of_device: Index<Arc<str>>,
    ports_of_group: Index<Uuid>,
    /// By group, and in it by the first port: a large group mostly has rules for many ports.
    rules_of_group: Index<(Uuid, Option<u16>)>,
    /// Rules whose other end is a group, or an address group.
    rules_to: Index<Uuid>,
    policies_of: Index<Uuid>,
    /// What was given to a project: policies whose target it is.
    policies_for: Index<Arc<str>>,
    floating_ips_of_port: Index<Uuid>,
    floating_ips_of_router: Index<Uuid>,
    /// Who has an address of a subnet.
    addresses: RedBlackTreeMapSync<(Uuid, IpAddr), Uuid>,
    /// Who has a hardware address of a network.
    macs: Index<(Uuid, Mac)>,
    /// How many ports of a network are filtered.
    protected: RedBlackTreeMapSync<Uuid, u64>,
}

/// A kind of object that a model holds.
pub trait Stored: Sized + Clone + std::fmt::Debug + PartialEq + Send + Sync + 'static {
    const KIND: Kind;

    fn meta(&self) -> &Meta;
    fn meta_mut(&mut self) -> &mut Meta;
    fn table(model: &Model) -> &Table<Self>;
    fn table_mut(model: &mut Model) -> &mut Table<Self>;

    /// Brings the indexes up to date with an object that comes, or goes.
    fn index(&self, _model: &mut Model, _present: bool) {}

    /// Whether the indexes know another version of the object under the same keys.
    fn is_indexed_like(&self, _other: &Self) -> bool {
        true
    }

    /// Takes over what only the database says of an object, whoever changes it.
    fn keep_observed(&mut self, _old: &Self) {}

    fn id(&self) -> Uuid {
        self.meta().id
    }
}

macro_rules! stored {
    ($($type:ident in $table:ident $(, $index:expr, by [$($key:ident),*])? $(, observed $observed:ident)?;)*) => {
        impl Model {
            /// Every object, by kind and id.
            pub fn ids(&self) -> Vec<(Kind, Uuid)> {
                let mut ids = Vec::new();
                $(ids.extend(self.$table.keys().map(|id| (Kind::$type, *id)));)*
                ids
            }

            /// An object, for people to read.
            pub(crate) fn describe(&self, kind: Kind, id: Uuid) -> Option<String> {
                match kind {
                    $(Kind::$type => self.get::<$type>(id).map(|object| format!("{object:?}")),)*
                }
            }

            /// Removes an object, if it is there.
            pub(crate) fn remove_kind(&mut self, kind: Kind, id: Uuid) {
                match kind {
                    $(Kind::$type => drop(self.remove::<$type>(id)),)*
                }
            }
        }

        $(
        impl Stored for $type {
            const KIND: Kind = Kind::$type;

            fn meta(&self) -> &Meta {
                &self.meta
            }

            fn meta_mut(&mut self) -> &mut Meta {
                &mut self.meta
            }

            fn table(model: &Model) -> &Table<Self> {
                &model.$table
            }

            fn table_mut(model: &mut Model) -> &mut Table<Self> {
                &mut model.$table
            }

            $(fn index(&self, model: &mut Model, present: bool) {
                let index: fn(&Self, &mut Model, bool) = $index;
                index(self, model, present);
            }

            fn is_indexed_like(&self, other: &Self) -> bool {
                true $(&& self.$key == other.$key)*
            })?

            $(fn keep_observed(&mut self, old: &Self) {
                self.$observed.clone_from(&old.$observed);
            })?
        }
        )*
    };
}

stored! {
    Network in networks;
    Subnet in subnets, |subnet, model, present| {
        model.subnets_of_network.set(present, subnet.network, subnet.meta.id);
    }, by [network];
    Port in ports, index_port,
        by [network, device_id, mac, security_groups, fixed_ips, port_security],
        observed up;
    Router in routers;
    FloatingIp in floating_ips, |floating_ip, model, present| {
        let id = floating_ip.meta.id;
        if let Some(port) = floating_ip.fixed_port {
            model.floating_ips_of_port.set(present, port, id);
        }
        if let Some(router) = floating_ip.router {
            model.floating_ips_of_router.set(present, router, id);
        }
    }, by [fixed_port, router];
    SecurityGroup in security_groups, |group, model, present| {
        let project: Arc<str> = group.meta.project.as_str().into();
        match (group.is_default, present) {
            (true, true) => model.default_groups.insert_mut(project, group.meta.id),
            (true, false) => drop(model.default_groups.remove_mut(&project)),
            (false, _) => {}
        }
    }, by [is_default];
    Rule in rules, |rule, model, present| {
        let id = rule.meta.id;
        model.rules_of_group.set(present, (rule.group, rule.first_port()), id);
        for remote in [rule.remote_group, rule.remote_address_group].into_iter().flatten() {
            model.rules_to.set(present, remote, id);
        }
    }, by [group, port_min, port_max, remote_group, remote_address_group];
    AddressGroup in address_groups;
    RuleTemplate in rule_templates;
    RbacPolicy in rbac_policies, |policy, model, present| {
        model.policies_of.set(present, policy.object, policy.meta.id);
        model.policies_for.set(present, policy.target.as_str().into(), policy.meta.id);
    }, by [object, target];
    Quota in quotas;
    Project in projects;
    User in users;
    RevokedToken in revoked_tokens;
    SigningKey in signing_keys;
}

fn index_port(port: &Port, model: &mut Model, present: bool) {
    let id = port.meta.id;
    model.ports_of_network.set(present, port.network, id);
    model.ports_of_device.set(present, port.device_id.as_str().into(), id);
    model.macs.set(present, (port.network, port.mac), id);
    for group in &port.security_groups {
        model.ports_of_group.set(present, *group, id);
    }
    for fixed in &port.fixed_ips {
        let key = (fixed.subnet, fixed.address);
        if present {
            model.addresses.insert_mut(key, id);
        } else if model.addresses.get(&key) == Some(&id) {
            model.addresses.remove_mut(&key);
        }
        model.ports_of_subnet.set(present, fixed.subnet, id);
    }
    if port.port_security {
        count(&mut model.protected, port.network, present);
    }
}

fn same_keys(one: &Meta, other: &Meta) -> bool {
    one.project == other.project && one.name == other.name
}

/// One more, or one less.
fn count<K: Ord + Clone>(counts: &mut RedBlackTreeMapSync<K, u64>, key: K, more: bool) {
    let old = counts.get(&key).copied().unwrap_or_default();
    match if more { old + 1 } else { old.saturating_sub(1) } {
        0 => drop(counts.remove_mut(&key)),
        new => counts.insert_mut(key, new),
    }
}

impl Model {
    /// The object of that id.
    pub fn get<T: Stored>(&self, id: Uuid) -> Option<&Arc<T>> {
        T::table(self).get(&id)
    }

    /// All objects of a kind that come after an id, in order of their ids.
    pub fn all<T: Stored>(&self, after: Option<Uuid>) -> impl DoubleEndedIterator<Item = &Arc<T>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        T::table(self).range((start, Bound::Unbounded)).map(|(_, object)| object)
    }

    /// Adds an object, or changes the one that has its id.
    pub fn put<T: Stored>(&mut self, object: impl Into<Arc<T>>) {
        let object = object.into();
        let id = object.id();
        match T::table(self).get(&id).cloned() {
            // Most changes are of what nobody looks for.
            Some(old) if old.is_indexed_like(&object) && same_keys(old.meta(), object.meta()) => {}
            Some(old) => {
                self.index(&*old, false);
                self.index(&*object, true);
            }
            None => self.index(&*object, true),
        }
        T::table_mut(self).insert_mut(id, object);
    }

    /// Removes an object, and gives it back if it was there.
    pub fn remove<T: Stored>(&mut self, id: Uuid) -> Option<Arc<T>> {
        let old = T::table(self).get(&id).cloned()?;
        self.index(&*old, false);
        T::table_mut(self).remove_mut(&id);
        Some(old)
    }

    fn index<T: Stored>(&mut self, object: &T, present: bool) {
        let meta = object.meta();
        let project: (Kind, Arc<str>) = (T::KIND, meta.project.as_str().into());
        count(&mut self.counts, project.clone(), present);
        self.by_project.set(present, project, meta.id);
        if !meta.name.is_empty() {
            self.by_name.set(present, (T::KIND, meta.name.as_str().into()), meta.id);
        }
        object.index(self, present);
    }

    /// How many objects of a kind there are.
    pub fn total<T: Stored>(&self) -> usize {
        T::table(self).size()
    }

    /// How many objects of a kind a project has.
    pub fn count<T: Stored>(&self, project: &str) -> u64 {
        self.counts.get(&(T::KIND, project.into())).copied().unwrap_or_default()
    }

    fn found<T: Stored>(&self, id: Uuid) -> Option<&Arc<T>> {
        let object = self.get(id);
        debug_assert!(object.is_some(), "an index has {id}, which is not there");
        object
    }

    /// The objects of a project that come after an id, in order of their ids.
    pub fn of_project<'a, T: Stored>(
        &'a self,
        project: &str,
        after: Option<Uuid>,
    ) -> impl DoubleEndedIterator<Item = &'a Arc<T>> + use<'a, T> {
        self.by_project.after((T::KIND, project.into()), after).filter_map(|id| self.found(id))
    }

    /// The objects with a name. Those without one are not found.
    pub fn named<'a, T: Stored>(
        &'a self,
        name: &str,
    ) -> impl DoubleEndedIterator<Item = &'a Arc<T>> + use<'a, T> {
        self.by_name.under((T::KIND, name.into())).filter_map(|id| self.found(id))
    }

    pub fn subnets_of_network(&self, network: Uuid) -> impl DoubleEndedIterator<Item = &Arc<Subnet>> {
        self.subnets_of_network.under(network).filter_map(|id| self.found(id))
    }

    pub fn ports_of_network(&self, network: Uuid) -> impl DoubleEndedIterator<Item = &Arc<Port>> {
        self.ports_of_network.under(network).filter_map(|id| self.found(id))
    }

    pub fn ports_of_subnet(&self, subnet: Uuid) -> impl DoubleEndedIterator<Item = &Arc<Port>> {
        self.ports_of_subnet.under(subnet).filter_map(|id| self.found(id))
    }

    pub fn ports_of_device<'a>(
        &'a self,
        device: &str,
    ) -> impl DoubleEndedIterator<Item = &'a Arc<Port>> + use<'a> {
        self.ports_of_device.under(device.into()).filter_map(|id| self.found(id))
    }

    pub fn ports_of_group(&self, group: Uuid) -> impl DoubleEndedIterator<Item = &Arc<Port>> {
        self.ports_of_group.under(group).filter_map(|id| self.found(id))
    }

    /// The ports that connect a router, its way out among them.
    pub fn ports_of_router(&self, router: Uuid) -> impl Iterator<Item = &Arc<Port>> {
        self.ports_of_device(&router.to_string()).filter(|port| port.is_router())
    }

    pub fn rules_of_group(&self, group: Uuid) -> impl DoubleEndedIterator<Item = &Arc<Rule>> {
        let all = self.rules_of_group.between((group, None), (group, Some(u16::MAX)));
        all.filter_map(|id| self.found(id))
    }

    /// The rules of a group among which those are that allow the same as this one.
    pub fn rules_like(&self, rule: &Rule) -> impl DoubleEndedIterator<Item = &Arc<Rule>> {
        self.rules_of_group.under((rule.group, rule.first_port())).filter_map(|id| self.found(id))
    }

    /// The group of a project that ports get which name none.
    pub fn default_group(&self, project: &str) -> Option<&Arc<SecurityGroup>> {
        self.default_groups.get(project).and_then(|id| self.found(*id))
    }

    /// The rules whose other end is a group or an address group.
    pub fn rules_to(&self, remote: Uuid) -> impl DoubleEndedIterator<Item = &Arc<Rule>> {
        self.rules_to.under(remote).filter_map(|id| self.found(id))
    }

    /// Who else may use an object.
    pub fn policies_of(&self, object: Uuid) -> impl DoubleEndedIterator<Item = &Arc<RbacPolicy>> {
        self.policies_of.under(object).filter_map(|id| self.found(id))
    }

    /// What a project, or `*`, was allowed to use.
    pub fn policies_for<'a>(
        &'a self,
        target: &str,
    ) -> impl DoubleEndedIterator<Item = &'a Arc<RbacPolicy>> + use<'a> {
        self.policies_for.under(target.into()).filter_map(|id| self.found(id))
    }

    pub fn floating_ips_of_port(&self, port: Uuid) -> impl DoubleEndedIterator<Item = &Arc<FloatingIp>> {
        self.floating_ips_of_port.under(port).filter_map(|id| self.found(id))
    }

    pub fn floating_ips_of_router(&self, router: Uuid) -> impl DoubleEndedIterator<Item = &Arc<FloatingIp>> {
        self.floating_ips_of_router.under(router).filter_map(|id| self.found(id))
    }

    /// The port that has an address of a subnet.
    pub fn holder(&self, subnet: Uuid, address: IpAddr) -> Option<Uuid> {
        self.addresses.get(&(subnet, address)).copied()
    }

    /// The addresses of a subnet that are taken, from one to another, in order.
    pub fn taken(
        &self,
        subnet: Uuid,
        from: IpAddr,
        to: IpAddr,
    ) -> impl DoubleEndedIterator<Item = IpAddr> + '_ {
        self.addresses.range((subnet, from)..=(subnet, to)).map(|((_, address), _)| *address)
    }

    /// The ports of a network with a hardware address.
    pub fn ports_with_mac(&self, network: Uuid, mac: Mac) -> impl Iterator<Item = Uuid> + '_ {
        self.macs.under((network, mac))
    }

    /// Whether some port of a network is filtered.
    pub fn has_protected_port(&self, network: Uuid) -> bool {
        self.protected.get(&network).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::FixedIp;
    use proptest::prelude::*;

    fn port(id: u128, network: u128, address: &str) -> Port {
        let fixed = FixedIp { subnet: Uuid::from_u128(9), address: address.parse().unwrap() };
        Port {
            meta: Meta { id: Uuid::from_u128(id), project: "p".into(), ..Meta::default() },
            network: Uuid::from_u128(network),
            fixed_ips: vec![fixed],
            ..Port::default()
        }
    }

    #[test]
    fn indexes_follow_every_change() {
        let mut model = Model::default();
        let (network, subnet) = (Uuid::from_u128(7), Uuid::from_u128(9));
        model.put(port(1, 7, "10.0.0.1"));
        model.put(port(2, 7, "10.0.0.2"));
        let before = model.clone();
        assert_eq!((model.count::<Port>("p"), model.ports_of_network(network).count()), (2, 2));

        model.put(Port { port_security: false, ..port(1, 8, "10.0.0.9") });
        assert_eq!(model.ports_of_network(network).count(), 1);
        assert_eq!(model.holder(subnet, "10.0.0.1".parse().unwrap()), None);
        assert_eq!(model.holder(subnet, "10.0.0.9".parse().unwrap()), Some(Uuid::from_u128(1)));
        assert!(model.has_protected_port(network) && !model.has_protected_port(Uuid::from_u128(8)));

        model.remove::<Port>(Uuid::from_u128(2));
        assert!(!model.has_protected_port(network));
        assert_eq!(model.count::<Port>("p"), 1);
        assert_eq!(
            model.taken(subnet, "10.0.0.0".parse().unwrap(), "10.0.0.255".parse().unwrap()).count(),
            1
        );
        assert_eq!(before.ports_of_network(network).count(), 2, "who looked before still sees what was");
    }

    /// Everything that can be looked up in a model of ports.
    fn looked_up(model: &Model) -> String {
        let mut found = Vec::new();
        for id in 0..4 {
            let id = Uuid::from_u128(id);
            let ids = |ports: &mut dyn Iterator<Item = &Arc<Port>>| {
                ports.map(|port| port.meta.id).collect::<Vec<_>>()
            };
            found.push(format!(
                "{:?} {:?} {:?} {:?}",
                ids(&mut model.ports_of_network(id)),
                ids(&mut model.ports_of_subnet(id)),
                ids(&mut model.ports_of_group(id)),
                model.has_protected_port(id),
            ));
        }
        for name in ["a", "b"] {
            let of: Vec<Uuid> = model.of_project::<Port>(name, None).map(|port| port.meta.id).collect();
            let named: Vec<Uuid> = model.named::<Port>(name).map(|port| port.meta.id).collect();
            let of_device: Vec<Uuid> = model.ports_of_device(name).map(|port| port.meta.id).collect();
            found.push(format!("{of:?} {named:?} {of_device:?} {}", model.count::<Port>(name)));
        }
        found.join("\n")
    }

    prop_compose! {
        fn any_port()(
            (id, network, subnet, group) in (0_u128..4, 0_u128..3, 0_u128..3, 0_u128..3),
            (project, name, device) in (0_usize..2, 0_usize..2, 0_usize..2),
            (security, host) in (any::<bool>(), 0_u8..4),
        ) -> Port {
            let words = ["a", "b"];
            Port {
                meta: Meta {
                    id: Uuid::from_u128(id),
                    project: words[project].into(),
                    name: words[name].into(),
                    ..Meta::default()
                },
                network: Uuid::from_u128(network),
                device_id: words[device].into(),
                security_groups: vec![Uuid::from_u128(group)],
                port_security: security,
                fixed_ips: vec![FixedIp { subnet: Uuid::from_u128(subnet), address: IpAddr::from([10, 0, 0, host]) }],
                ..Port::default()
            }
        }
    }

    proptest! {
        #[test]
        fn a_model_that_changed_is_as_one_that_was_always_so(
            steps in prop::collection::vec((any_port(), any::<bool>()), 1..30)
        ) {
            let mut model = Model::default();
            for (port, put) in steps {
                if put {
                    model.put(port);
                } else {
                    model.remove::<Port>(port.meta.id);
                }
            }
            let mut fresh = Model::default();
            for port in model.all::<Port>(None) {
                fresh.put(Port::clone(port));
            }
            prop_assert_eq!(looked_up(&model), looked_up(&fresh));
        }
    }
}
