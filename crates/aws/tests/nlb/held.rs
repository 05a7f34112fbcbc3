//! What owners have in the fake, in few words.

use portcullis_aws_fake::{LoadBalancer, SecurityGroup, TargetGroup, World};

/// Whose something is, by what is written on it.
const NAME: &str = "portcullis.dev/name";

/// The load balancer of an owner.
pub(crate) fn balancer<'a>(world: &'a World, name: &str) -> &'a LoadBalancer {
    let mut found =
        world.load_balancers.values().filter(|found| found.tags.get(NAME).is_some_and(|tag| tag == name));
    let only = found.next().unwrap_or_else(|| panic!("{name} has no load balancer"));
    assert!(found.next().is_none(), "{name} has several load balancers");
    only
}

/// The target group behind a port of an owner's load balancer.
pub(crate) fn pool<'a>(world: &'a World, name: &str, port: u16) -> &'a TargetGroup {
    let mut listeners = balancer(world, name).listeners.values();
    let listener = listeners.find(|listener| listener.port == port);
    let listener = listener.unwrap_or_else(|| panic!("{name} does not listen on {port}"));
    &world.target_groups[&listener.target_group]
}

/// The group that was made for an owner, if one was.
pub(crate) fn group<'a>(world: &'a World, name: &str) -> Option<&'a SecurityGroup> {
    world.groups.values().find(|group| group.name.starts_with(&format!("k8s-shop-{name}-")))
}

/// What a group is called here: `own` for that of an owner, `backend` for the one that all have.
fn short(group: &SecurityGroup) -> &str {
    match group.name.as_str() {
        name if name.starts_with("k8s-backend-") => "backend",
        name if name.starts_with("k8s-shop-") => "own",
        name => name,
    }
}

/// Texts with names in place of ids, in their order.
fn named(world: &World, texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let name = |text: String| {
        world.groups.iter().fold(text, |text, (id, group)| text.replace(id.as_str(), short(group)))
    };
    let mut texts: Vec<String> = texts.into_iter().map(name).collect();
    texts.sort();
    texts
}

/// The groups that an owner's load balancer has.
pub(crate) fn attached(world: &World, name: &str) -> Vec<String> {
    named(world, balancer(world, name).groups.iter().cloned())
}

/// What the group lets in that was made for an owner.
pub(crate) fn lets_in(world: &World, name: &str) -> Vec<String> {
    named(world, group(world, name).map(SecurityGroup::lets_in).unwrap_or_default())
}

/// What the group lets out that was made for an owner.
pub(crate) fn lets_out(world: &World, name: &str) -> Vec<String> {
    named(world, group(world, name).map(SecurityGroup::lets_out).unwrap_or_default())
}

/// What the nodes let in.
pub(crate) fn nodes(world: &World) -> Vec<String> {
    named(world, world.groups["sg-nodes"].lets_in())
}

/// What the nodes let in for all load balancers by the group that all have.
pub(crate) const SHARED: [&str; 3] =
    ["tcp 10256-10256 backend", "tcp 30000-32767 backend", "udp 30000-32767 backend"];

/// Where an owner's load balancer listens, and where it sends to: `80 TCP to instance TCP 30080`.
pub(crate) fn listeners(world: &World, name: &str) -> Vec<String> {
    let told = balancer(world, name).listeners.values().map(|listener| {
        let pool = &world.target_groups[&listener.target_group];
        let (kind, protocol, port) = (&pool.kind, &pool.protocol, pool.port);
        format!("{} {} to {kind} {protocol} {port}", listener.port, listener.protocol)
    });
    named(world, told)
}

/// Who is behind a port of an owner's load balancer: `i-1:30080`.
pub(crate) fn targets(world: &World, name: &str, port: u16) -> Vec<String> {
    let targets = pool(world, name, port).targets.keys();
    targets.map(|target| format!("{}:{}", target.id, target.port)).collect()
}

/// How those behind a port are checked: `HTTP /healthz on 10256 every 30 s, 6 s, 3/3`.
pub(crate) fn checked(world: &World, name: &str, port: u16) -> String {
    let check = &pool(world, name, port).health_check;
    let path = check.path.as_ref().map(|path| format!(" {path}")).unwrap_or_default();
    format!(
        "{}{path} on {} every {} s, {} s, {}/{}",
        check.protocol, check.port, check.interval, check.timeout, check.healthy, check.unhealthy
    )
}
