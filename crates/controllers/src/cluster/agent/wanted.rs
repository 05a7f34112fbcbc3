//! What a machine is to carry, from the objects that say so.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use portcullis_core::{Family, Protocol, Scheme};
use portcullis_haproxy::vrrp::SharedAddress;
use portcullis_haproxy::{Balance, Balancer, BalancerId, Options, Wanted};
use portcullis_kube_api::cluster::{condition, is_paused_itself};

use super::carrier::Obstacles;
use super::kept::Kept;
use super::{HaProxyAgentSettings, ObjectKey, Sharing};
use crate::cluster::admitted::{admitted, narrowed, ranges};
use crate::cluster::carried::WAITING_FOR_ADDRESS;
use crate::cluster::haproxy::HaProxyLoadBalancer;
use crate::cluster::shelf::key;

/// All of it.
#[derive(Clone, Debug, Default)]
pub(super) struct ToCarry {
    pub(super) carried: Wanted,
    /// Addresses that other machines may have as well.
    pub(super) shared: Vec<SharedAddress>,
    /// What cannot be carried as it stands, and why.
    pub(super) refused: BTreeMap<ObjectKey, String>,
    /// Each object as it is carried.
    pub(super) forms: BTreeMap<ObjectKey, HaProxyLoadBalancer>,
    /// Those that are to listen elsewhere than they did, or in another way.
    pub(super) changes: Vec<ObjectKey>,
    /// Those whose addresses machines of another pool have, and let go of once this one has all but these.
    pub(super) waiting: BTreeSet<ObjectKey>,
}

/// A number under which machines agree on an address, and who has it.
type Number = (Family, u8);
type Routers = BTreeMap<Number, IpAddr>;

/// What is to be carried, where `obstacles` tells what would be in the way. Who is to listen where it cannot stays where it is, and comes
/// first from then on: it may be in the way of somebody else, who thought that it would go. Where that cannot be known, nobody goes.
pub(super) async fn decide<F: Future<Output = Result<Obstacles, String>>>(
    objects: &[Arc<HaProxyLoadBalancer>],
    settings: &HaProxyAgentSettings,
    kept: &Mutex<Kept>,
    obstacles: impl Fn(Wanted) -> F,
) -> ToCarry {
    let mut in_the_way = BTreeMap::new();
    loop {
        let all = {
            let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            wanted(objects, settings, &kept, &in_the_way)
        };
        let known = in_the_way.len();
        for (place, why) in &all.refused {
            in_the_way.entry(place.clone()).or_insert_with(|| why.clone());
        }
        if in_the_way.len() == known && !all.changes.is_empty() {
            let found = obstacles(all.carried.clone()).await;
            for place in &all.changes {
                let why = match &found {
                    Ok(found) => found.get(&BalancerId::new(&place.0, &place.1)).cloned(),
                    Err(why) => {
                        Some(format!("It stays as it is, since nobody knows what is in its way: {why}"))
                    }
                };
                in_the_way.extend(why.map(|why| (place.clone(), why)));
            }
        }
        if in_the_way.len() == known {
            return all;
        }
    }
}

/// Who gets a place that several want: the first of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Who has its places, and wants no others.
    Stays,
    /// Who is carried, and wants others. What it has already is not for who comes.
    Moves,
    Comes,
}

/// Load balancers in the order in which they get what several want; of equals, who was made first is next.
fn in_order(
    objects: &[Arc<HaProxyLoadBalancer>],
    settings: &HaProxyAgentSettings,
    kept: &Kept,
    in_the_way: &BTreeMap<ObjectKey, String>,
) -> Vec<Arc<HaProxyLoadBalancer>> {
    let mut all = objects.to_vec();
    all.sort_by_cached_key(|object| {
        let rank = if !kept.has(object) {
            Rank::Comes
        } else if !in_the_way.contains_key(&key(object)) && moves(object, settings, kept) {
            Rank::Moves
        } else {
            Rank::Stays
        };
        let created = object.metadata.creation_timestamp.clone().map(|time| time.0);
        (rank, created, key(object))
    });
    all
}

/// What only one load balancer can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Spot {
    /// A port, at an address or at all of a family.
    Port(IpAddr, u16, Protocol),
    Number(Number),
}

fn spots(object: &HaProxyLoadBalancer, settings: &HaProxyAgentSettings) -> Option<BTreeSet<Spot>> {
    let balancer = balancer(object).ok()??.load_balancer;
    let given = balancer.addresses();
    let everywhere = |family: &Family| match family {
        Family::V4 => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let addresses: Vec<IpAddr> =
        if given.is_empty() { balancer.families().iter().map(everywhere).collect() } else { given.to_vec() };
    let mut all = BTreeSet::new();
    for address in addresses {
        for listener in balancer.listeners() {
            let transports = listener.protocol().transports().iter();
            all.extend(transports.map(|protocol| Spot::Port(address, listener.port(), *protocol)));
        }
        if settings.sharing.is_some() && !given.is_empty() {
            all.insert(Spot::Number((Family::of(address), router(object, address))));
        }
    }
    Some(all)
}

/// Whether it wants what it does not have.
fn moves(object: &HaProxyLoadBalancer, settings: &HaProxyAgentSettings, kept: &Kept) -> bool {
    if is_paused_itself(object) || object.spec.pool() != settings.pool {
        return false;
    }
    let before = kept.form(object).and_then(|before| spots(&before, settings));
    spots(object, settings).zip(before).is_some_and(|(now, before)| !now.is_subset(&before))
}

/// Whether it is to listen elsewhere than it does, or in another way, which may be one that `HAProxy` does not have.
fn changes(object: &HaProxyLoadBalancer, kept: &Kept) -> bool {
    let places = |object: &HaProxyLoadBalancer| {
        let balancer = balancer(object).ok()??.load_balancer;
        Some((balancer.families().clone(), balancer.addresses().to_vec(), balancer.listeners().to_vec()))
    };
    let (now, before) = (places(object), kept.form(object).as_ref().and_then(places));
    !is_paused_itself(object) && now.is_some() && before.is_some() && now != before
}

/// What is refused, paused, or has something in its way is carried as it was before.
pub(super) fn wanted(
    objects: &[Arc<HaProxyLoadBalancer>],
    settings: &HaProxyAgentSettings,
    kept: &Kept,
    in_the_way: &BTreeMap<ObjectKey, String>,
) -> ToCarry {
    let mut all = ToCarry::default();
    let mut routers = Routers::new();
    all.carried.tuning.clone_from(&settings.tuning);
    for object in &in_order(objects, settings, kept, in_the_way) {
        let before = kept.form(object);
        let form = if is_paused_itself(object) {
            before
        } else if object.spec.pool() != settings.pool {
            // It goes on until machines of that pool have it.
            before.map(|before| as_before(before, object))
        } else {
            let obstacle = in_the_way.get(&key(object)).filter(|_| before.is_some());
            match is_complete(object, settings, &routers).and_then(|is| obstacle.cloned().map_or(Ok(is), Err))
            {
                Ok(true) => None,
                // It waits for an address.
                Ok(false) => before.map(|before| as_before(before, object)),
                Err(why) => {
                    all.refused.insert(key(object), why);
                    before.map(|before| as_before(before, object))
                }
            }
        };
        let form = form.unwrap_or_else(|| HaProxyLoadBalancer::clone(object));
        let Ok(Some(balancer)) = balancer(&form) else { continue };
        // Two pools agree on nothing: two machines would have the address at once.
        let is_held = !kept.has(object) && is_held_by_others(object);
        for (place, shared) in shared(&form, settings, &routers).into_iter().flatten() {
            routers.insert(place, shared.address());
            if is_held {
                all.waiting.insert(key(object));
            } else {
                all.shared.push(shared);
            }
        }
        all.carried.balancers.push(balancer);
        if changes(&form, kept) {
            all.changes.push(key(object));
        }
        all.forms.insert(key(object), form);
    }
    all
}

/// An object without an address that no pool gave to it. Until one did, its status has the address of before, which may be one that a
/// machine has for itself: that is nobody else's to have.
pub(super) fn as_given(object: Arc<HaProxyLoadBalancer>, kept: &Kept) -> Arc<HaProxyLoadBalancer> {
    let spec = &object.spec;
    if !spec.addresses.is_empty() || spec.address_from.is_none() || object.status.address.is_empty() {
        return object;
    }
    // It was given when this was carried, and whatever else was asked for since makes no difference to that.
    let was_given = kept.form(&object).is_some_and(|before| {
        before.spec.addresses.is_empty()
            && before.spec.address_from == spec.address_from
            && before.status.address == object.status.address
    });
    let is_told = condition(&object.status.conditions, "Ready").is_some_and(|ready| {
        ready.observed_generation == object.metadata.generation && ready.reason != WAITING_FOR_ADDRESS
    });
    if was_given || is_told {
        return object;
    }
    let mut without = HaProxyLoadBalancer::clone(&object);
    without.0.status.address.clear();
    Arc::new(without)
}

/// Whether a machine of another pool, as of the one before, has its address. Those of one pool settle that among themselves.
fn is_held_by_others(object: &HaProxyLoadBalancer) -> bool {
    object.status.instances.iter().any(|instance| {
        instance.holds_address == Some(true)
            && !instance.pool.is_empty()
            && instance.pool != object.spec.pool()
    })
}

/// Whether all is known that is needed to carry it.
fn is_complete(
    object: &HaProxyLoadBalancer,
    settings: &HaProxyAgentSettings,
    routers: &Routers,
) -> Result<bool, String> {
    let is_known = balancer(object)?.is_some();
    shared(object, settings, routers).into_iter().collect::<Result<Vec<_>, String>>()?;
    Ok(is_known)
}

/// As it was before, but for who is not to get in any more, and with who is there now: whatever else is wrong, it is open to nobody who
/// is not asked for, and Machines come and go.
fn as_before(mut before: HaProxyLoadBalancer, object: &HaProxyLoadBalancer) -> HaProxyLoadBalancer {
    let Some(asked) = &object.spec.assignment else { return before };
    if let Some(carried) = &mut before.0.spec.assignment {
        let has = carried.allowed_source_ranges.as_deref();
        carried.allowed_source_ranges = narrowed(has, asked.allowed_source_ranges.as_deref());
    }
    let mut form = before.clone();
    if let Some(carried) = &mut form.0.spec.assignment {
        carried.members.clone_from(&asked.members);
    }
    if balancer(&form).is_ok() { form } else { before }
}

/// Who may connect to what is carried in this form, where that is not what the object asks for.
pub(super) fn admits(form: &HaProxyLoadBalancer, object: &HaProxyLoadBalancer) -> Option<Vec<String>> {
    let of = |object: &HaProxyLoadBalancer| {
        admitted(object.spec.assignment.as_ref()?.allowed_source_ranges.as_deref())
    };
    let carried = of(form)?;
    (of(object).as_ref() != Some(&carried)).then(|| ranges(&carried))
}

/// The addresses of a load balancer that this machine shares with others, each with its place among the numbers.
fn shared(
    object: &HaProxyLoadBalancer,
    settings: &HaProxyAgentSettings,
    routers: &Routers,
) -> Vec<Result<(Number, SharedAddress), String>> {
    let Some(sharing) = &settings.sharing else { return Vec::new() };
    let mut taken = routers.clone();
    let mut all = Vec::new();
    for address in addresses(object).unwrap_or_default() {
        let place = (Family::of(address), router(object, address));
        match taken.get(&place) {
            Some(other) if *other != address => all.push(Err(format!(
                "{address} and {other} have the same virtual router id, {}: give one of them another, by spec.virtualRouterID",
                place.1
            ))),
            // Somebody has it at another port.
            Some(_) => {}
            None => {
                taken.insert(place, address);
                all.push(share(address, place.1, sharing).map(|shared| (place, shared)));
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

pub(super) fn balancer(object: &HaProxyLoadBalancer) -> Result<Option<Balancer>, String> {
    let Some(assignment) = &object.spec.assignment else { return Ok(None) };
    let addresses = addresses(object)?;
    if addresses.is_empty() && object.spec.address_from.is_some() {
        return Ok(None);
    }
    let wanted = assignment.load_balancer(Scheme::Internal, assignment.families());
    let wanted = wanted.map_err(|why| why.to_string())?;
    let wanted = wanted.with_addresses(addresses).map_err(|why| match why.source() {
        Some(source) => format!("{why}: {source}"),
        None => why.to_string(),
    })?;
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
mod tests;
