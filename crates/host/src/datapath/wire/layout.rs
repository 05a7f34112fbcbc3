//! The skeleton: which sets, chains and rules the table has. It can be written over itself at any time: all of it happens in
//! one step, rules are replaced, and elements of sets stay.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portcullis_core::Family;

use super::super::{Ruleset, Skeleton};
use super::elements::{self, INET, TABLE, affinity_set, digit, member_set};
use super::message::{CREATE, Messages, NFTABLES};
use super::rule::{Rule, Scope};

const NEW_TABLE: u16 = NFTABLES;
const DELETE_TABLE: u16 = NFTABLES + 2;
const NEW_CHAIN: u16 = NFTABLES + 3;
const DELETE_CHAIN: u16 = NFTABLES + 5;
const NEW_RULE: u16 = NFTABLES + 6;
const DELETE_RULE: u16 = NFTABLES + 8;
const NEW_SET: u16 = NFTABLES + 9;
const DELETE_SET: u16 = NFTABLES + 11;
const APPEND: u16 = 0x800;

const PREROUTING: u32 = 0;
const OUTPUT: u32 = 3;
const POSTROUTING: u32 = 4;
const INGRESS: u32 = 5;

/// After conntrack has seen a packet, and before anybody translates it.
const ADMISSION: i32 = -150;
/// Five ahead of where others translate: what they do about the same address does not count then.
const SERVE: i32 = -105;
const LEAVE: i32 = 95;
const ARRIVING: i32 = -500;

/// So many clients at most keep an endpoint for the same time. Who comes when it is full gets any, as without affinity.
const CLIENTS: u32 = 262_144;

const SCOPES: [Scope; 2] = [Scope::Address, Scope::Node];

/// What is in the table by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) sets: BTreeSet<String>,
    pub(crate) chains: BTreeSet<String>,
}

/// Makes the table be like this. What is of `loaded` is there already; what else is there goes.
pub(crate) fn load(skeleton: &Skeleton, loaded: Option<&Skeleton>, there: &Names) -> Messages {
    let loaded = loaded.map(Layout::new).unwrap_or_default();
    Messages::batch(|messages| Layout::new(skeleton).write(messages, &loaded, there))
}

/// Makes the table anew with all that is in it.
pub(crate) fn replace(ruleset: &Ruleset) -> Messages {
    Messages::batch(|messages| {
        write_removal(messages);
        if let Some(skeleton) = &ruleset.skeleton {
            Layout::new(skeleton).write(messages, &Layout::default(), &Names::default());
        }
        elements::write_ruleset(messages, ruleset);
    })
}

/// Removes the table, which need not be there.
pub(crate) fn remove() -> Messages {
    Messages::batch(write_removal)
}

fn write_removal(messages: &mut Messages) {
    for (kind, flags) in [(NEW_TABLE, CREATE), (DELETE_TABLE, 0)] {
        messages.add(kind, flags, INET, |attributes| attributes.text(1, TABLE));
    }
}

/// What the table has, in the order in which it is made.
#[derive(Default)]
struct Layout {
    sets: Vec<Set>,
    chains: Vec<Chain>,
    rules: BTreeMap<String, Vec<Rule>>,
    local: BTreeSet<IpAddr>,
    /// None where nothing is forwarded.
    kept: Option<BTreeSet<IpAddr>>,
}

#[derive(PartialEq)]
struct Set {
    name: String,
    key: Vec<Field>,
    value: Vec<Field>,
    counts: bool,
    /// The kernel adds elements, which go after so many seconds.
    seconds: Option<u32>,
}

#[derive(PartialEq)]
struct Chain {
    name: String,
    hook: Option<Hook>,
}

#[derive(PartialEq)]
struct Hook {
    kind: &'static str,
    number: u32,
    priority: i32,
    device: Option<String>,
}

/// What a key or a value is made of.
#[derive(Clone, Copy, PartialEq)]
enum Field {
    Address(Family),
    Protocol,
    Port,
    Number,
}

impl Layout {
    fn new(skeleton: &Skeleton) -> Self {
        let kept = skeleton.forwards.then(|| skeleton.kept.clone());
        let mut layout = Self { local: skeleton.local.clone(), kept, ..Self::default() };
        for family in Family::ALL {
            layout.sets(skeleton, family);
        }
        layout.admission(skeleton);
        layout.ingress(skeleton);
        if skeleton.forwards {
            layout.serve(skeleton);
            layout.leave(skeleton);
        }
        layout
    }

    fn sets(&mut self, skeleton: &Skeleton, family: Family) {
        let (digit, address) = (digit(family), Field::Address(family));
        let place = [address, Field::Protocol, Field::Port];
        let endpoint = [address, Field::Port];
        self.set(format!("frontend{digit}"), &[&place]);
        self.set(format!("arrived{digit}"), &[&place]).counts = true;
        self.set(format!("dropped{digit}"), &[&place]).counts = true;
        for length in of(family, &skeleton.prefixes) {
            self.set(format!("admit{digit}_{length}"), &[&[address], &place]);
        }
        self.set(format!("local{digit}"), &[&[address]]);
        if !skeleton.forwards {
            return;
        }
        self.set(format!("kept{digit}"), &[&[address]]);
        self.set(format!("refuse{digit}"), &[&place]);
        for count in of(family, &skeleton.picks) {
            self.set(format!("pick{digit}_{count}"), &[&place]);
        }
        self.set(format!("slot{digit}"), &[&place, &[Field::Number]]).value = endpoint.to_vec();
        self.set(format!("masquerade{digit}"), &[&place]);
        self.set(format!("hairpin{digit}"), &[&[address, address], &place]);
        for timeout in of(family, &skeleton.timeouts) {
            self.set(member_set(family, timeout), &[&place, &endpoint]);
            let clients = self.set(affinity_set(family, timeout), &[&[address], &place]);
            clients.value = endpoint.to_vec();
            clients.seconds = Some(timeout);
        }
    }

    /// Who is not admitted is dropped: every packet is looked at, so every jump and every set that a packet meets here counts. An
    /// answer to a connection from here may well arrive at the port of a frontend, and is none of its.
    fn admission(&mut self, skeleton: &Skeleton) {
        for (chain, hook) in [("prerouting", PREROUTING), ("output", OUTPUT)] {
            self.base_chain(chain, "filter", hook, ADMISSION);
            self.rule(chain, Rule::new().when_answer().back());
            for family in Family::ALL {
                let here = |scope| Rule::of(family).place(family, scope);
                let arrived = format!("arrived{}", digit(family));
                let found = here(Scope::Address).when_in(&arrived);
                self.rule(chain, found.goto(&scoped("admit", Scope::Address, family)));
                // What goes on to another machine has not arrived.
                let found = here(Scope::Node).when_in(&format!("frontend{}", digit(family)));
                let found = found.when_for_this_node(family).place(family, Scope::Node).when_in(&arrived);
                self.rule(chain, found.goto(&scoped("admit", Scope::Node, family)));
            }
        }
        for (family, scope) in everywhere() {
            self.admit("admit", family, scope, skeleton, None);
        }
    }

    /// A chain that whoever is admitted gets out of, and nobody else. What it drops is counted as arrived where that is not done yet.
    fn admit(
        &mut self,
        name: &str,
        family: Family,
        scope: Scope,
        skeleton: &Skeleton,
        arrived: Option<&str>,
    ) {
        let (digit, chain) = (digit(family), scoped(name, scope, family));
        let here = || Rule::of(family).place(family, scope);
        self.chain(&chain);
        for length in of(family, &skeleton.prefixes) {
            let from = Rule::of(family).source(family, length).place(family, scope);
            self.rule(&chain, from.when_in(&format!("admit{digit}_{length}")).back());
        }
        if let Some(arrived) = arrived {
            self.rule(&chain, here().when_in(arrived));
        }
        self.rule(&chain, here().when_in(&format!("dropped{digit}")).drop());
        self.rule(&chain, Rule::new().drop());
    }

    /// The same where a packet arrives, so that it holds also where no other table sees the packet. There the kernel cannot be
    /// asked which addresses are its own.
    fn ingress(&mut self, skeleton: &Skeleton) {
        if skeleton.interfaces.is_empty() {
            return;
        }
        for interface in &skeleton.interfaces {
            let chain = format!("ingress_{interface}");
            self.base_chain(&chain, "filter", INGRESS, ARRIVING).device = Some(interface.clone());
            self.rule(&chain, Rule::new().jump("arriving"));
        }
        self.chain("arriving");
        for (family, scope) in everywhere() {
            let digit = digit(family);
            let found = Rule::of(family).place(family, scope).when_in(&format!("frontend{digit}"));
            let found = match scope {
                Scope::Address => found,
                Scope::Node => found.destination(family).when_in(&format!("local{digit}")),
            };
            self.rule("arriving", found.goto(&scoped("arriving", scope, family)));
            // Who is admitted is counted later, with what comes through other interfaces.
            self.admit("arriving", family, scope, skeleton, Some(&format!("arrived{digit}")));
        }
    }

    /// New connections get an endpoint: the one their client had, or any.
    ///
    /// There is a set for every number of endpoints, rather than one map that says where to go: the kernel checks such a map
    /// for loops, all of it, whenever something is added.
    fn serve(&mut self, skeleton: &Skeleton) {
        for (chain, hook) in [("serve_prerouting", PREROUTING), ("serve_output", OUTPUT)] {
            self.base_chain(chain, "nat", hook, SERVE);
            for family in Family::ALL {
                for scope in SCOPES {
                    let digit = digit(family);
                    let found = Rule::of(family).place(family, scope).when_in(&format!("frontend{digit}"));
                    let found = match scope {
                        Scope::Address => found,
                        // What the machine is looked after by goes on to it. Ranges count there all the same: somebody else may
                        // forward.
                        Scope::Node => {
                            let found = found.when_for_this_node(family).destination(family);
                            found.when_not_in(&format!("kept{digit}"))
                        }
                    };
                    self.rule(chain, found.goto(&scoped("serve", scope, family)));
                }
            }
        }
        self.chain("refuse");
        self.rule("refuse", Rule::new().refuse());
        for family in Family::ALL {
            let digit = digit(family);
            for scope in SCOPES {
                let chain = scoped("serve", scope, family);
                let here = || Rule::of(family).place(family, scope);
                self.chain(&chain);
                for timeout in of(family, &skeleton.timeouts) {
                    let client = Rule::of(family).source(family, family.bits()).place(family, scope);
                    self.rule(&chain, client.translate(family, &affinity_set(family, timeout)));
                }
                for count in of(family, &skeleton.picks) {
                    let pick = format!("pick{digit}_{count}");
                    self.rule(&chain, here().when_in(&pick).goto(&pick));
                }
                self.rule(&chain, here().when_in(&format!("refuse{digit}")).goto("refuse"));
            }
            for count in of(family, &skeleton.picks) {
                let chain = format!("pick{digit}_{count}");
                self.chain(&chain);
                for scope in SCOPES {
                    let drawn = Rule::of(family).place(family, scope).draw(count);
                    self.rule(&chain, drawn.translate(family, &format!("slot{digit}")));
                }
                // Never on to the node's own programs.
                self.rule(&chain, Rule::new().goto("refuse"));
            }
        }
    }

    /// New connections on their way to an endpoint: it is noted which one a client has, and who has to see the node as its
    /// client does.
    fn leave(&mut self, skeleton: &Skeleton) {
        self.base_chain("postrouting", "nat", POSTROUTING, LEAVE);
        self.rule("postrouting", Rule::new().when_translated().jump("leave"));
        self.chain("leave");
        for family in Family::ALL {
            let digit = digit(family);
            for scope in SCOPES {
                for timeout in of(family, &skeleton.timeouts) {
                    let noted = Rule::of(family)
                        .first_place(family, scope)
                        .destination(family)
                        .port()
                        .when_in(&member_set(family, timeout))
                        .source(family, family.bits())
                        .first_place(family, scope)
                        .note(&affinity_set(family, timeout), timeout, |rule| {
                            rule.destination(family).port()
                        });
                    self.rule("leave", noted);
                }
                let first = Rule::of(family).first_place(family, scope);
                self.rule("leave", first.when_in(&format!("masquerade{digit}")).masquerade());
                let both = Rule::of(family).source(family, family.bits()).destination(family);
                let to_itself = both.first_place(family, scope).when_in(&format!("hairpin{digit}"));
                self.rule("leave", to_itself.masquerade());
            }
        }
    }

    fn set(&mut self, name: String, key: &[&[Field]]) -> &mut Set {
        self.sets.push(Set { name, key: key.concat(), value: Vec::new(), counts: false, seconds: None });
        self.sets.last_mut().expect("it was just added")
    }

    fn chain(&mut self, name: &str) {
        self.chains.push(Chain { name: name.to_owned(), hook: None });
    }

    fn base_chain(&mut self, name: &str, kind: &'static str, number: u32, priority: i32) -> &mut Hook {
        let hook = Hook { kind, number, priority, device: None };
        self.chains.push(Chain { name: name.to_owned(), hook: Some(hook) });
        self.chains.last_mut().and_then(|chain| chain.hook.as_mut()).expect("it was just added")
    }

    fn rule(&mut self, chain: &str, rule: Rule) {
        self.rules.entry(chain.to_owned()).or_default().push(rule);
    }

    /// Whether that chain is the same in both.
    fn has_the_same(&self, chain: &str, other: &Self) -> bool {
        other.rules.contains_key(chain) && self.rules.get(chain) == other.rules.get(chain)
    }

    /// What is there and not wanted loses its rules first, then its elements: then nothing refers to it.
    fn write(&self, messages: &mut Messages, loaded: &Self, there: &Names) {
        messages.add(NEW_TABLE, CREATE, INET, |attributes| attributes.text(1, TABLE));
        for (number, set) in (1..).zip(&self.sets).filter(|(_, set)| !loaded.sets.contains(set)) {
            set.write(messages, number);
        }
        for chain in self.chains.iter().filter(|chain| !loaded.chains.contains(chain)) {
            chain.write(messages);
        }
        let chains: BTreeSet<&str> = self.chains.iter().map(|chain| chain.name.as_str()).collect();
        let others: Vec<&str> =
            there.chains.iter().map(String::as_str).filter(|chain| !chains.contains(chain)).collect();
        let changed = || chains.iter().filter(|chain| !self.has_the_same(chain, loaded));
        for chain in others.iter().chain(changed()) {
            write_name(messages, DELETE_RULE, 2, chain);
        }
        for chain in changed() {
            for rule in self.rules.get(*chain).into_iter().flatten() {
                write_rule(messages, chain, rule);
            }
        }
        elements::write_addresses(messages, "local", &self.local);
        if let Some(kept) = &self.kept {
            elements::write_addresses(messages, "kept", kept);
        }
        let sets: BTreeSet<&str> = self.sets.iter().map(|set| set.name.as_str()).collect();
        for set in there.sets.iter().filter(|set| !sets.contains(set.as_str())) {
            write_name(messages, DELETE_SET, 2, set);
        }
        for chain in others {
            write_name(messages, DELETE_CHAIN, 3, chain);
        }
    }
}

fn write_rule(messages: &mut Messages, chain: &str, rule: &Rule) {
    messages.add(NEW_RULE, CREATE | APPEND, INET, |attributes| {
        attributes.text(1, TABLE);
        attributes.text(2, chain);
        attributes.put(4 | 0x8000, rule.bytes());
    });
}

/// A message about something in the table that has a name.
fn write_name(messages: &mut Messages, kind: u16, attribute: u16, name: &str) {
    messages.add(kind, 0, INET, |attributes| {
        attributes.text(1, TABLE);
        attributes.text(attribute, name);
    });
}

impl Set {
    fn write(&self, messages: &mut Messages, number: u32) {
        const IS_MAP: u32 = 0x8;
        const HAS_TIMEOUT: u32 = 0x10;
        const BY_RULES: u32 = 0x20;
        const HAS_EXPRESSION: u32 = 0x100;
        let mut flags = if self.counts { HAS_EXPRESSION } else { 0 };
        if !self.value.is_empty() {
            flags |= IS_MAP;
        }
        if self.seconds.is_some() {
            flags |= HAS_TIMEOUT | BY_RULES;
        }
        messages.add(NEW_SET, CREATE, INET, |attributes| {
            attributes.text(1, TABLE);
            attributes.text(2, &self.name);
            attributes.number(3, flags);
            let (kind, length) = shape(&self.key);
            attributes.number(4, kind);
            attributes.number(5, length);
            if !self.value.is_empty() {
                let (kind, length) = shape(&self.value);
                attributes.number(6, kind);
                attributes.number(7, length);
            }
            attributes.number(10, number);
            if let Some(seconds) = self.seconds {
                attributes.nest(9, |description| description.number(1, CLIENTS));
                attributes.put(11, &(u64::from(seconds) * 1000).to_be_bytes());
            }
            if self.counts {
                attributes.nest(17, |expression| {
                    expression.text(1, "counter");
                    expression.nest(2, |_| ());
                });
            }
        });
    }
}

impl Chain {
    fn write(&self, messages: &mut Messages) {
        const ACCEPT: u32 = 1;
        messages.add(NEW_CHAIN, CREATE, INET, |attributes| {
            attributes.text(1, TABLE);
            attributes.text(3, &self.name);
            let Some(hook) = &self.hook else { return };
            attributes.nest(4, |attributes| {
                attributes.number(1, hook.number);
                attributes.put(2, &hook.priority.to_be_bytes());
                if let Some(device) = &hook.device {
                    attributes.text(3, device);
                }
            });
            attributes.number(5, ACCEPT);
            attributes.text(7, hook.kind);
        });
    }
}

/// What nft calls these fields together, for people who list them, and how long they are.
fn shape(fields: &[Field]) -> (u32, u32) {
    fields.iter().fold((0, 0), |(kind, length), field| {
        let (of, long) = match field {
            Field::Address(Family::V4) => (7, 4),
            Field::Address(Family::V6) => (8, 16),
            Field::Protocol => (12, 4),
            Field::Port => (13, 4),
            Field::Number => (19, 4),
        };
        (kind << 6 | of, length + long)
    })
}

/// The chain for one of the two scopes.
fn scoped(name: &str, scope: Scope, family: Family) -> String {
    let digit = digit(family);
    match scope {
        Scope::Address => format!("{name}_address{digit}"),
        Scope::Node => format!("{name}_node{digit}"),
    }
}

/// Every scope of both families.
fn everywhere() -> impl Iterator<Item = (Family, Scope)> {
    Family::ALL.into_iter().flat_map(|family| SCOPES.map(|scope| (family, scope)))
}

/// Those of one family.
fn of<T: Copy>(family: Family, all: &BTreeSet<(Family, T)>) -> impl Iterator<Item = T> {
    all.iter().filter(move |(of, _)| *of == family).map(|(_, one)| *one)
}

#[cfg(test)]
mod tests {
    use portcullis_core::Family::{V4, V6};

    use super::super::message::messages;
    use super::*;

    fn skeleton(prefixes: &[u8], picks: &[u32]) -> Skeleton {
        Skeleton {
            forwards: true,
            prefixes: prefixes.iter().map(|length| (V4, *length)).collect(),
            picks: picks.iter().map(|count| (V4, *count)).collect(),
            timeouts: [(V6, 60)].into(),
            ..Skeleton::default()
        }
    }

    fn names(skeleton: &Skeleton) -> Names {
        let layout = Layout::new(skeleton);
        Names {
            sets: layout.sets.into_iter().map(|set| set.name).collect(),
            chains: layout.chains.into_iter().map(|chain| chain.name).collect(),
        }
    }

    /// How many messages of a kind there are.
    fn count(batch: &Messages, kind: u16) -> usize {
        messages(batch.bytes()).filter(|message| message.kind == kind).count()
    }

    #[test]
    fn what_is_loaded_is_not_written_again() {
        let loaded = skeleton(&[8, 24], &[1, 2]);
        let same = load(&loaded, Some(&loaded), &names(&loaded));
        for kind in [NEW_SET, NEW_CHAIN, NEW_RULE, DELETE_RULE, DELETE_SET, DELETE_CHAIN] {
            assert_eq!(count(&same, kind), 0, "{kind:#x}");
        }
        // One more length: its set, and the two chains that look at it.
        let wider = load(&skeleton(&[8, 16, 24], &[1, 2]), Some(&loaded), &names(&loaded));
        assert_eq!([NEW_SET, NEW_CHAIN, DELETE_RULE].map(|kind| count(&wider, kind)), [1, 0, 2]);
        // Another number of endpoints: its set and its chain, and the two that send there.
        let more = load(&skeleton(&[8, 24], &[1, 2, 3]), Some(&loaded), &names(&loaded));
        assert_eq!([NEW_SET, NEW_CHAIN, DELETE_RULE].map(|kind| count(&more, kind)), [1, 1, 3]);
    }

    #[test]
    fn what_is_not_wanted_goes() {
        let loaded = skeleton(&[8, 24], &[1, 2]);
        let fewer = load(&skeleton(&[8], &[1]), Some(&loaded), &names(&loaded));
        assert_eq!([DELETE_SET, DELETE_CHAIN].map(|kind| count(&fewer, kind)), [2, 1]);
        // What is there without anybody knowing how it came there is written over.
        let fresh = load(&loaded, None, &names(&loaded));
        let layout = Layout::new(&loaded);
        assert_eq!(count(&fresh, NEW_CHAIN), layout.chains.len());
        assert_eq!(count(&fresh, DELETE_RULE), layout.chains.len());
        assert_eq!(count(&fresh, NEW_RULE), layout.rules.values().map(Vec::len).sum::<usize>());
    }

    #[test]
    fn keys_fit_into_the_kernels_registers() {
        let layout = Layout::new(&skeleton(&[8], &[1]));
        for set in layout.sets {
            let (key, value) = (shape(&set.key).1, shape(&set.value).1);
            // A rule that notes something has key and value loaded at once.
            assert!(key + if set.seconds.is_some() { value } else { 0 } <= 64, "{}", set.name);
        }
    }
}
