//! Makes load balancers in OVN.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use portcullis_core::{
    Address, Enforcement, LoadBalancer, MemberReport, MemberState, Members, Outcome, Owner, PlanView,
    Problem, Report, Target, Want,
};
use portcullis_ovsdb::{
    Change, Client, Columns as Values, Error, Remote, Replica, Rows as Where, Settings as ClientSettings,
    Tls, Transaction, Until,
};
use tracing::{debug, info};
use uuid::Uuid;

use super::desired::{Asked, Desired, Moment, desired, retreat};
use super::difference::{Operation, difference, transaction};
use super::report::{self, Health, Heard};
use super::rows::Rows;
use super::scene::{self, Places, STAYS, Scene};
use super::tables::{GLOBAL, MONITOR, OURS, SOUTHBOUND, northbound, owner, southbound};
use super::view;
use crate::schema::DATABASE;
use crate::tables::{ROUTER, SWITCH};

/// Where the databases are, and how to treat them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the northbound database is served; of a cluster, all members.
    pub remotes: Vec<Remote>,
    /// Where the southbound database is served, which knows how members are; nowhere if nobody is to look there.
    pub southbound: Vec<Remote>,
    /// The certificates, for both.
    pub tls: Option<Tls>,
    /// Whether a change counts as made only once it is on disk.
    pub durable: bool,
    /// What may be taken away when nobody wants it any more.
    pub sweep: Option<Sweep>,
}

/// Whose load balancers may be taken away when nobody wants them: a database may have those of several clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The cluster, by the name of its owners.
    pub cluster: String,
    /// The kind of owners.
    pub kind: String,
    /// What tells the cluster from others of its name.
    pub identity: String,
}

/// Makes load balancers in OVN. Cloned, it is the same provider.
#[derive(Clone)]
pub struct Provider(Arc<Inner>);

struct Inner {
    client: Client,
    southbound: Option<Client>,
    durable: bool,
    sweep: Option<Sweep>,
    state: Mutex<State>,
    since: Instant,
    /// How often something changed in the databases that load balancers depend on.
    changes: Arc<AtomicU64>,
}

/// What was wanted, and what was said.
#[derive(Default)]
struct State {
    wants: HashMap<Owner, Want>,
    told: HashMap<Owner, Vec<String>>,
    said: HashMap<Owner, Said>,
    /// Whose end is waited for.
    waits: HashMap<Owner, BTreeMap<String, Wait>>,
    /// When everything was found to be well, after how many changes.
    well: Option<(Instant, u64)>,
}

/// What was said of a load balancer.
#[derive(Clone, Debug, Default, PartialEq)]
struct Said {
    members: Vec<(String, MemberState)>,
    problem: Option<String>,
    leaks: Vec<String>,
}

/// Waits until all chassis have heard of something.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// What they count up to when they have.
    until: i64,
    /// What they had counted up to when that last changed, and when it did.
    last: i64,
    since: Instant,
    heard: Heard,
}

impl Wait {
    /// They have counted up to this by now. Who counts on is waited for: who does not may be gone for good.
    fn look(&mut self, counted: i64, now: Instant) {
        if counted >= self.until {
            self.heard = Heard::Everywhere;
        } else if counted != self.last {
            (self.last, self.since) = (counted, now);
        } else if self.heard == Heard::NotYet && now.duration_since(self.since) >= SILENCE {
            self.heard = Heard::NotEverywhere;
        }
    }
}

/// What would be done for a want.
#[derive(Default)]
struct Plan {
    decided: Desired,
    there: Rows,
    operations: Vec<Operation>,
    /// What is in the way of all but that members leave, and that something is closed.
    blocked: Option<Problem>,
    /// When it was decided; never if nothing can be. What is said is said of that time: what was over a moment later is not
    /// done yet.
    at: Option<SystemTime>,
    /// What named switches and routers are called.
    places: BTreeMap<(&'static str, Uuid), String>,
}

/// Where a load balancer is, among what is said to the provider.
const SWITCHES: &str = "portcullis.dev/ovn-switches";
const ROUTERS: &str = "portcullis.dev/ovn-routers";

/// How often something is decided anew because somebody else was faster.
const ATTEMPTS: usize = 10;

/// For how long a connection is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// When to look again after something went wrong that may pass.
const AGAIN: Duration = Duration::from_secs(2);

/// For how long chassis are waited for that say nothing.
const SILENCE: Duration = Duration::from_secs(10);

/// For how long nothing is looked at if nothing changed. Time alone changes things, too: members leave by some time.
const REST: Duration = Duration::from_secs(5);

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("client", &self.0.client).finish_non_exhaustive()
    }
}

impl Provider {
    /// Starts following the databases. Must be called within a tokio runtime.
    pub fn start(settings: Settings) -> Self {
        let Settings { remotes, southbound: south, tls, durable, sweep } = settings;
        let changes = Arc::new(AtomicU64::new(0));
        let count = || {
            let changes = Arc::clone(&changes);
            move |all: &[Change]| {
                // Who counts chassis counts all the time.
                if all.iter().any(|change| change.table != GLOBAL) {
                    changes.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let settings = ClientSettings {
            remotes,
            tls: tls.clone(),
            database: DATABASE.to_owned(),
            tables: northbound(),
            leader_only: true,
        };
        let client = Client::observed(settings, count());
        let southbound = (!south.is_empty()).then(|| {
            let settings = ClientSettings {
                remotes: south,
                tls,
                database: SOUTHBOUND.to_owned(),
                tables: southbound(),
                // What is a moment old is good enough to tell how somebody is.
                leader_only: false,
            };
            Client::observed(settings, count())
        });
        let (state, since) = (Mutex::default(), Instant::now());
        Provider(Arc::new(Inner { client, southbound, durable, sweep, state, since, changes }))
    }

    /// Whether the northbound database can be reached just now, and if not, why.
    pub fn state(&self) -> Result<(), Arc<str>> {
        self.0.client.state()
    }

    fn known(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the databases. One that only tells how members are is waited for after the start, when nothing is known of
    /// them; later, who serves goes on without it.
    async fn connected(&self) -> Result<(), Error> {
        self.0.client.connected(PATIENCE).await?;
        if let Some(southbound) = self.0.southbound.as_ref().filter(|southbound| southbound.copies() == 0) {
            let _ = southbound.connected(PATIENCE.saturating_sub(self.0.since.elapsed())).await;
        }
        Ok(())
    }

    fn plan(&self, want: &Want) -> Plan {
        self.0.client.read(|replica| self.plan_on(want, replica))
    }

    fn plan_on(&self, want: &Want, replica: &Replica) -> Plan {
        let there = Rows::of(&want.owner, replica);
        let Target::Present(wanted) = &want.target else {
            let operations = difference(&Rows::default(), &there);
            return Plan { there, operations, ..Plan::default() };
        };
        let health = |asked: &Asked| self.health(asked);
        let now = SystemTime::now();
        // A node of a Service is ready when it is one.
        let moment = Moment { now, health: &health, at_once: is_service(&want.owner) };
        let identity = self.0.sweep.as_ref().map(|sweep| sweep.identity.as_str());
        let planned = scene::find(replica, &want.owner, &named(want)).and_then(|found| {
            let scene = scene::around(replica, &want.owner, &found, wanted.addresses());
            let decided = desired(&want.owner, identity, wanted, &scene, &there, &moment)?;
            let operations = difference(&decided.rows, &there);
            in_the_way(&want.owner, &operations, replica).map_or(Ok(()), Err)?;
            Ok((decided, operations, places(&scene)))
        });
        let blocked = match planned {
            Ok((decided, operations, places)) => {
                return Plan { decided, there, operations, blocked: None, at: Some(now), places };
            }
            Err(problem) => Some(problem),
        };
        let scene = scene::around(replica, &want.owner, &scene::found_by(&there), &there.addresses());
        // A row of those that keep somebody out may be in the way itself: then who leaves goes all the same.
        for narrow in [true, false] {
            let decided = retreat(&want.owner, identity, wanted, &scene, &there, &moment, narrow);
            let operations = difference(&decided.rows, &there);
            if in_the_way(&want.owner, &operations, replica).is_none() {
                return Plan { decided, there, operations, blocked, at: Some(now), places: places(&scene) };
            }
        }
        Plan { there, blocked, ..Plan::default() }
    }

    /// Makes it so; what was decided in the end.
    async fn make(&self, want: &Want) -> Result<Plan, Outcome> {
        let pending = |why: String| Outcome::Pending { why, retry_after: Some(AGAIN) };
        self.connected().await.map_err(|error| pending(error.to_string()))?;
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            let plan = self.plan(want);
            if plan.operations.is_empty() {
                return Ok(plan);
            }
            let changes = transaction(&plan.operations, &plan.places, self.0.durable);
            match self.0.client.transact(&changes).await {
                Ok(_) => {
                    info!(owner = %want.owner, changes = plan.operations.len(), "a load balancer was changed");
                }
                // Somebody else was faster, or it is not known whether it was done: what is there now is looked at.
                Err(error @ (Error::Refused { .. } | Error::InDoubt { .. })) => {
                    debug!(owner = %want.owner, %error, "decided anew");
                    last = error.to_string();
                }
                Err(error) => return Err(pending(error.to_string())),
            }
        }
        Err(pending(last))
    }

    fn health(&self, asked: &Asked) -> Health {
        let Some(southbound) = &self.0.southbound else { return Health::Unknown };
        if southbound.state().is_err() {
            return Health::Unseen;
        }
        southbound.read(|replica| {
            let mut monitors = replica.find(MONITOR, "ip", &asked.address.to_string());
            let found = monitors.find(|row| {
                row.get("port").integer() == Some(i64::from(asked.port))
                    && row.get("logical_port").text() == Some(&asked.logical_port)
                    && row.get("protocol").text().unwrap_or("tcp") == asked.protocol
            });
            match found.and_then(|row| row.get("status").text()) {
                None => Health::Waiting,
                Some("online") => Health::Well,
                Some(_) => Health::Ill,
            }
        })
    }

    fn members_of(&self, want: &Want, wanted: &LoadBalancer, plan: &Plan) -> Vec<MemberReport> {
        let Some(at) = plan.at else { return Vec::new() };
        let waits = self.known().waits.get(&want.owner).cloned().unwrap_or_default();
        let heard = |member: &str| waits.get(member).map_or(Heard::NotYet, |wait| wait.heard);
        report::members(wanted, &plan.decided, |asked| self.health(asked), heard, at)
    }

    /// Has the chassis count once they have heard of the end of members, and looks how far they are.
    ///
    /// Each chassis copies the number once it does all that was written before, and OVN tells of the slowest of them.
    async fn count(&self, owner: &Owner, ended: &BTreeSet<String>) -> Result<(), Error> {
        let is_new = {
            let known = self.known();
            let waits = known.waits.get(owner);
            ended.iter().any(|name| waits.is_none_or(|waits| !waits.contains_key(name)))
        };
        let counter = || {
            self.0.client.read(|replica| {
                let row = replica.rows(GLOBAL).next()?;
                let number = |column| row.get(column).integer().unwrap_or_default();
                Some((row.uuid(), number("nb_cfg"), number("hv_cfg")))
            })
        };
        // Nobody counts in a database that OVN never saw.
        let mut until = i64::MAX;
        if is_new && let Some((row, number, _)) = counter() {
            let mut transaction = Transaction::new();
            let is = |number: i64| Values::new().with("nb_cfg", number);
            transaction.wait(GLOBAL, Where::Row(row), &["nb_cfg"], Until::Equal, vec![is(number)]);
            transaction.update(GLOBAL, Where::Row(row), is(number + 1));
            match self.0.client.transact(&transaction).await {
                // If somebody else was faster they counted to the same number, and also after the end.
                Ok(_) | Err(Error::Refused { .. }) => until = number + 1,
                Err(error) => return Err(error),
            }
        }
        let counted = counter().map_or(0, |(_, _, counted)| counted);
        let now = Instant::now();
        let mut known = self.known();
        let waits = known.waits.entry(owner.clone()).or_default();
        waits.retain(|name, _| ended.contains(name));
        for name in ended {
            let wait = Wait { until, last: counted, since: now, heard: Heard::NotYet };
            waits.entry(name.clone()).or_insert(wait);
        }
        for wait in waits.values_mut() {
            wait.look(counted, now);
        }
        if waits.is_empty() {
            known.waits.remove(owner);
        }
        Ok(())
    }

    /// Whether something is not as it should be, or has to be said anew.
    fn is_wrong(&self, want: &Want) -> bool {
        let plan = self.plan(want);
        if !plan.operations.is_empty() {
            return true;
        }
        let Target::Present(wanted) = &want.target else { return false };
        let said = said(&want.owner, &plan, &self.members_of(want, wanted, &plan));
        let known = self.known();
        // Who waits is looked at again.
        known.said.get(&want.owner).is_some_and(|before| *before != said)
            || known
                .waits
                .get(&want.owner)
                .is_some_and(|waits| waits.values().any(|wait| wait.heard == Heard::NotYet))
    }
}

fn is_service(owner: &Owner) -> bool {
    owner.kind() == "Service"
}

fn said(owner: &Owner, plan: &Plan, members: &[MemberReport]) -> Said {
    // A Service has no place for what is said of its nodes.
    let members = members.iter().filter(|_| !is_service(owner));
    Said {
        members: members.map(|member| (member.name.clone(), member.state)).collect(),
        problem: plan.blocked.as_ref().map(|problem| problem.what.clone()),
        leaks: plan.decided.leaks.clone(),
    }
}

/// What the switches and routers are called that it is on.
fn places(scene: &Scene) -> BTreeMap<(&'static str, Uuid), String> {
    let switches = scene.switches.iter().map(|one| ((SWITCH, one.uuid), one.name.clone()));
    switches.chain(scene.routers.iter().map(|one| ((ROUTER, one.uuid), one.name.clone()))).collect()
}

/// A row whose number is ours, and whose marks are not: somebody took them off.
fn in_the_way(owner: &Owner, operations: &[Operation], replica: &Replica) -> Option<Problem> {
    operations.iter().find_map(|operation| {
        let Operation::Insert { table, uuid, .. } = operation else { return None };
        replica.row(table, *uuid)?;
        Some(Problem::new(
            format!("{owner}: the row {uuid} of {table} is in the way, and is not ours."),
            STAYS,
            "Remove the row, or give it back its external_ids.",
        ))
    })
}

fn named(want: &Want) -> Places {
    let list = |key: &str| {
        let words = want.parameters.get(key).map(|list| list.split(',')).into_iter().flatten();
        words.map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    Places { switches: list(SWITCHES), routers: list(ROUTERS) }
}

fn unseen(error: &Error) -> Problem {
    Problem::new(
        format!("Load balancers of OVN cannot be looked at: {error}."),
        "They stay as they are.",
        "See that the northbound database can be reached.",
    )
}

impl portcullis_core::Provider for Provider {
    fn members(&self, _: &BTreeMap<String, String>) -> Result<Members, Problem> {
        Ok(Members::Nodes(BTreeMap::new()))
    }

    fn is_settled(&self, want: &Want) -> bool {
        self.0.client.state().is_ok() && !self.is_wrong(want)
    }

    async fn sync(&self, want: &Want) -> Report {
        self.known().wants.insert(want.owner.clone(), want.clone());
        let made = self.make(want).await;
        let wanted = match (&want.target, &made) {
            (Target::Gone, Ok(_)) => {
                self.forget(&want.owner);
                return Report::new(Outcome::Done);
            }
            (Target::Present(wanted), Ok(_)) => wanted,
            (_, Err(outcome)) => return Report::new(outcome.clone()),
        };
        let Ok(plan) = made else { return Report::new(Outcome::Done) };
        let ended = plan.at.map(|at| report::ended(wanted, &plan.decided, at)).unwrap_or_default();
        if let Err(error) = self.count(&want.owner, &ended).await {
            return Report::new(Outcome::Pending { why: error.to_string(), retry_after: Some(AGAIN) });
        }
        let members = self.members_of(want, wanted, &plan);
        let mut known = self.known();
        known.said.insert(want.owner.clone(), said(&want.owner, &plan, &members));
        if let Some(problem) = plan.blocked {
            let admitted = plan.decided.admitted;
            return Report { members, admitted, ..Report::new(Outcome::Blocked(problem)) };
        }
        // What was said already is not said again at every look.
        let before = known.told.insert(want.owner.clone(), plan.decided.told.clone());
        let told = if before.as_ref() == Some(&plan.decided.told) { Vec::new() } else { plan.decided.told };
        let enforcement = if plan.decided.leaks.is_empty() {
            Enforcement::By("OVN ACLs".to_owned())
        } else {
            Enforcement::Not(plan.decided.leaks.join(" "))
        };
        Report {
            outcome: Outcome::Done,
            addresses: wanted.addresses().iter().copied().map(Address::Ip).collect(),
            told,
            enforcement: Some(enforcement),
            admitted: None,
            members,
        }
    }

    async fn preview(&self, want: &Want) -> Result<PlanView, Problem> {
        self.connected().await.map_err(|error| unseen(&error))?;
        let plan = self.plan(want);
        if let Some(problem) = plan.blocked {
            return Err(problem);
        }
        let called = |reference: &crate::rows::Reference| {
            self.0.client.read(|replica| {
                let row = replica.row(reference.table, reference.row);
                row.and_then(|row| row.get("name").text()).unwrap_or_default().to_owned()
            })
        };
        view::plan(&want.owner, &plan.operations, &plan.there, &plan.decided.rows, called).map_err(|error| {
            Problem::new(
                format!("{}: {error}.", want.owner),
                "Nothing was changed.",
                "This is a fault of Portcullis: report it.",
            )
        })
    }

    fn forget(&self, owner: &Owner) {
        let mut known = self.known();
        known.wants.remove(owner);
        known.told.remove(owner);
        known.said.remove(owner);
        known.waits.remove(owner);
    }

    fn forgotten(&self) -> Vec<Owner> {
        let Some(sweep) = &self.0.sweep else { return Vec::new() };
        let found: BTreeSet<Owner> = self.0.client.read(|replica| {
            let ours = OURS.iter().flat_map(|table| replica.find(table, "identity", &sweep.identity));
            ours.filter_map(|row| owner(row)).collect()
        });
        let known = self.known();
        let is_ours = |owner: &Owner| owner.cluster() == sweep.cluster && owner.kind() == sweep.kind;
        found.into_iter().filter(|owner| is_ours(owner) && !known.wants.contains_key(owner)).collect()
    }

    async fn look_at_all(&self) -> Result<Vec<Owner>, Problem> {
        self.connected().await.map_err(|error| unseen(&error))?;
        let changes = self.0.changes.load(Ordering::Relaxed);
        let wants: Vec<Want> = {
            let known = self.known();
            if known.well.is_some_and(|(when, after)| after == changes && when.elapsed() < REST) {
                return Ok(Vec::new());
            }
            known.wants.values().cloned().collect()
        };
        let when = Instant::now();
        let wrong: Vec<Owner> =
            wants.iter().filter(|want| self.is_wrong(want)).map(|want| want.owner.clone()).collect();
        self.known().well = wrong.is_empty().then_some((when, changes));
        Ok(wrong)
    }

    async fn look_closely(&self, owner: &Owner) -> Result<bool, Problem> {
        self.connected().await.map_err(|error| unseen(&error))?;
        let want = self.known().wants.get(owner).cloned();
        Ok(want.is_some_and(|want| self.is_wrong(&want)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_counts_on_is_waited_for_and_who_does_not_for_a_while() {
        let start = Instant::now();
        let (second, silence) = (Duration::from_secs(1), SILENCE);
        for (looks, expected) in [
            (&[(6, second)][..], Heard::NotYet),
            (&[(7, second)], Heard::Everywhere),
            (&[(6, silence)], Heard::NotYet),
            (&[(5, silence)], Heard::NotEverywhere),
            (&[(6, silence), (6, second)], Heard::NotYet),
            (&[(6, silence), (6, silence)], Heard::NotEverywhere),
            (&[(5, silence), (8, second)], Heard::Everywhere),
            (&[(7, second), (0, silence)], Heard::Everywhere),
        ] {
            let mut wait = Wait { until: 7, last: 5, since: start, heard: Heard::NotYet };
            let mut now = start;
            for (counted, later) in looks {
                now += *later;
                wait.look(*counted, now);
            }
            assert_eq!(wait.heard, expected, "{looks:?}");
        }
    }
}
