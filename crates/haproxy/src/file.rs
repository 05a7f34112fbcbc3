//! The configuration file, and what is read from one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use portcullis_core::{
    Admission, Duty, Family, HealthCheck, HealthPort, Listener, LoadBalancer, Member, Peer, Probe,
};

use crate::claims::{Claim, Placed};
use crate::names;
use crate::wanted::{Options, Tuning};

/// What is asked of members whose listener does not say: a connection every 2 s, to be accepted within 2 s. Two that are
/// make a member healthy, three that are not make it unhealthy.
pub const HEALTH_CHECK: &str = "tcp traffic port every 2s, timeout 2s, healthy after 2, unhealthy after 3";

/// How the members of a listener are checked.
pub fn health_check(listener: &Listener) -> HealthCheck {
    let default = || {
        let check = HealthCheck::new(Probe::Tcp, HealthPort::Traffic)?;
        check.with_timing(Duration::from_secs(2), Duration::from_secs(2))?.with_thresholds(2, 3)
    };
    listener.health_check().cloned().unwrap_or_else(|| default().expect("the default is one"))
}

/// What stands for a line with a member. All other lines are the structure, which takes a reload to change.
const SERVER: &str = "    server ";
/// What the line with the number of the structure begins with. Workers tell it as their description.
const GENERATION: &str = "    description ";

/// Writes the file. `generation` counts structures, so that a worker tells which one it has.
pub(crate) fn render(directory: &Path, generation: u64, tuning: &Tuning, claims: &[Claim<'_>]) -> String {
    let mut text = String::with_capacity(1024 + claims.len() * 1024);
    write_file(&mut text, directory, generation, tuning, claims).expect("a string takes everything");
    text
}

fn write_file(
    text: &mut String,
    directory: &Path,
    generation: u64,
    tuning: &Tuning,
    claims: &[Claim<'_>],
) -> std::fmt::Result {
    let directory = directory.display();
    writeln!(text, "# Written by portcullis, which replaces it: changes here do not stay.")?;
    writeln!(text, "global")?;
    writeln!(text, "{GENERATION}{generation}")?;
    writeln!(text, "    stats socket {directory}/worker.sock mode 600 level admin expose-fd listeners")?;
    writeln!(text, "    stats timeout 1m")?;
    writeln!(text, "    server-state-file {directory}/states")?;
    // HAProxy would end connections of old workers uncounted, by default after some number of reloads in some versions: how
    // many go on is decided here.
    writeln!(text, "    mworker-max-reloads {}", i32::MAX)?;
    if let Some(most) = tuning.max_connections {
        writeln!(text, "    maxconn {most}")?;
    }
    if let Some(user) = &tuning.user {
        // What no user is called would be read as something else; so HAProxy says that there is none of this name.
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '?' };
        let user: String = user.chars().map(plain).collect();
        writeln!(text, "    user {user}\n    group {user}")?;
    }
    writeln!(text, "\ndefaults")?;
    writeln!(text, "    mode tcp")?;
    writeln!(text, "    load-server-state-from-file global")?;
    writeln!(text, "    option redispatch 1")?;
    writeln!(text, "    retries 3")?;
    for side in ["cli", "srv"] {
        writeln!(text, "    option {side}tcpka")?;
        writeln!(text, "    {side}tcpka-idle 60s\n    {side}tcpka-intvl 20s\n    {side}tcpka-cnt 6")?;
    }
    writeln!(text, "    timeout connect {}", millis(tuning.connect))?;
    let idle = millis(tuning.idle);
    writeln!(text, "    timeout client {idle}\n    timeout server {idle}")?;
    // Who has closed one direction mostly has nothing to wait for, but may: a copy that is being stored.
    writeln!(text, "    timeout client-fin 10m\n    timeout server-fin 10m")?;
    for claim in claims {
        let Some(name) = &claim.name else { continue };
        for placed in &claim.placed {
            write_proxy(text, &format!("{directory}/ranges/{name}"), claim, placed)?;
        }
    }
    Ok(())
}

fn write_proxy(text: &mut String, ranges: &str, claim: &Claim<'_>, placed: &Placed<'_>) -> std::fmt::Result {
    let balancer = &claim.balancer.load_balancer;
    let (name, options) = (&placed.name, claim.balancer.options);
    writeln!(text, "\nfrontend {name}")?;
    for socket in &placed.sockets {
        let family = Family::of(socket.ip());
        let family_only = if family == Family::V6 { " v6only" } else { "" };
        // The address of a pair of machines is listened on also by the one that does not have it.
        let transparent = if socket.ip().is_unspecified() { "" } else { " transparent" };
        let word = names::family_word(family);
        writeln!(text, "    bind {socket} name {word}{family_only}{transparent}")?;
    }
    for family in Family::ALL {
        let has = placed.sockets.iter().any(|socket| Family::of(socket.ip()) == family);
        if has && limits(balancer.admission(), family) {
            // By socket, since HAProxy finds an IPv4 client in `::/0`, and one of IPv6 by 6to4 in ranges of IPv4.
            let word = names::family_word(family);
            writeln!(
                text,
                "    tcp-request connection reject if {{ so_name {word} }} !{{ src -f {ranges}.{word} }}"
            )?;
        }
    }
    writeln!(text, "    default_backend {name}")?;
    writeln!(text, "\nbackend {name}")?;
    writeln!(text, "    balance {}", options.balance.word())?;
    let check = health_check(placed.listener);
    writeln!(text, "    timeout check {}", millis(check.timeout()))?;
    if let Some(path) = check.probe().path() {
        writeln!(text, "    option httpchk GET {}", quoted(path))?;
        writeln!(text, "    http-check expect status 200")?;
    }
    // Servers that are added later do not look at this, and every line below repeats it. Here it is a part of the structure.
    writeln!(text, "    default-server {}", arguments(placed.listener, options))?;
    for member in balancer.members() {
        let aside = match member.duty() {
            Duty::Serve => "",
            Duty::Rest { .. } => " disabled",
            // A reload would bring it back.
            Duty::Leave { .. } => continue,
        };
        let line = server_line(member, placed.listener, options);
        writeln!(text, "{SERVER}{} {line}{aside}", names::server(member, placed.listener))?;
    }
    Ok(())
}

/// What follows the name of a member, in the file and where it is added to a worker.
pub(crate) fn server_line(member: &Member, listener: &Listener, options: Options) -> String {
    format!("{} {}", names::target(member, listener), arguments(listener, options))
}

/// How often members are asked that do not serve, or are about to.
const QUICK: Duration = Duration::from_millis(500);

fn arguments(listener: &Listener, options: Options) -> String {
    let check = health_check(listener);
    // Who is about to serve, or to serve no more, is asked more often: nobody should wait for a slow pace to find out.
    let quick = check.interval().min(QUICK);
    let mut line = format!(
        "check inter {} fastinter {quick} downinter {quick} rise {} fall {}",
        millis(check.interval()),
        check.healthy_threshold(),
        check.unhealthy_threshold(),
        quick = millis(quick),
    );
    if let HealthPort::Number(port) = check.port() {
        write!(line, " port {port}").expect("a string takes everything");
    }
    if matches!(check.probe(), Probe::Https { .. }) {
        line.push_str(" check-ssl verify none");
    }
    if options.send_proxy {
        line.push_str(" send-proxy-v2");
        if check.port() == HealthPort::Traffic {
            line.push_str(" check-send-proxy");
        }
    }
    line
}

/// Whether somebody of a family may not connect.
pub(crate) fn limits(admission: &Admission, family: Family) -> bool {
    !admission.peers(family).contains(&Peer::Everyone)
}

/// The files of ranges that a load balancer has, by name, and what is in them.
pub(crate) fn ranges(name: &str, of: &LoadBalancer) -> Vec<(String, BTreeSet<String>)> {
    let limited = Family::ALL.into_iter().filter(|family| limits(of.admission(), *family));
    let listed = |family| -> BTreeSet<String> {
        let peers = of.admission().peers(family).into_iter();
        let range = |peer| match peer {
            Peer::Range(range) => Some(range.network().to_string()),
            _ => None,
        };
        peers.filter_map(range).collect()
    };
    limited.map(|family| (names::ranges(name, family), listed(family))).collect()
}

/// What a file of ranges has in it.
pub(crate) fn ranges_text(ranges: &BTreeSet<String>) -> String {
    ranges.iter().fold(String::new(), |text, range| text + range + "\n")
}

/// The number of the structure that a file has.
pub(crate) fn generation(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(GENERATION)?.parse().ok())
}

/// Whether two files differ in members only.
pub(crate) fn same_structure(one: &str, other: &str) -> bool {
    let structure = |line: &&str| !line.starts_with(SERVER);
    one.lines().filter(structure).eq(other.lines().filter(structure))
}

/// Where what a file says listens, by the name of the proxy.
pub(crate) fn listening(text: &str) -> BTreeMap<String, BTreeSet<SocketAddr>> {
    let mut all: BTreeMap<String, BTreeSet<SocketAddr>> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("frontend ") {
            current = Some(all.entry(name.to_owned()).or_default());
        } else if let (Some(sockets), Some(bind)) = (&mut current, line.strip_prefix("    bind ")) {
            sockets.extend(bind.split(' ').next().and_then(|socket| socket.parse::<SocketAddr>().ok()));
        }
    }
    all
}

/// A server of a file.
struct Line<'a> {
    backend: &'a str,
    name: &'a str,
    target: SocketAddr,
    /// What a server has that passed all of its checks.
    full_health: u32,
    aside: bool,
}

/// The servers that a file has.
fn servers(text: &str) -> Vec<Line<'_>> {
    let (mut all, mut backend) = (Vec::new(), "");
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("backend ") {
            backend = name;
        } else if let Some(server) = line.strip_prefix(SERVER) {
            let words: Vec<&str> = server.split(' ').collect();
            let number = |word: &str| -> Option<u32> {
                words.iter().skip_while(|other| **other != word).nth(1)?.parse().ok()
            };
            let (Some(&name), Some(Ok(target))) = (words.first(), words.get(1).map(|word| word.parse()))
            else {
                continue;
            };
            let full_health = number("rise").unwrap_or(1) + number("fall").unwrap_or(1) - 1;
            all.push(Line { backend, name, target, full_health, aside: words.last() == Some(&"disabled") });
        }
    }
    all
}

/// HAProxy's memory of who is up, in its own format: those of `up` are, all others of the file have to pass a check first.
/// Without a line of its own a server would be up until its check fails.
pub(crate) fn states(text: &str, up: &BTreeSet<(String, String)>) -> String {
    let mut states = String::from("1\n");
    states.push_str("# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port\n");
    for line in servers(text).iter().filter(|line| !line.aside) {
        let Line { backend, name, target, full_health, .. } = line;
        let up = up.contains(&((*backend).to_owned(), (*name).to_owned()));
        let (state, result, health) = if up { (2, 3, *full_health) } else { (0, 0, 0) };
        let (address, port) = (target.ip(), target.port());
        writeln!(
            states,
            "1 {backend} 1 {name} {address} {state} 0 1 1 1 6 {result} {health} 6 0 0 0 - {port} - 0 0 - - 0"
        )
        .expect("a string takes everything");
    }
    states
}

/// A time as HAProxy takes it: more than nothing, and no more than it can count.
fn millis(duration: Duration) -> String {
    let most = u128::from(i32::MAX.unsigned_abs());
    format!("{}ms", duration.as_millis().clamp(1, most))
}

/// A word that is nothing but itself.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests;
