//! Makes load balancers in OVN.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use portcullis_core::{
    Address, Enforcement, LoadBalancer, MemberReport, MemberState, Members, Outcome, Owner, PlanView,
    Problem, Report, Target, Want,
};
use portcullis_ovsdb::{Client, Error, Remote, Replica, Settings as ClientSettings, Tls};
use tracing::{debug, info};
use uuid::Uuid;

use super::desired::{Asked, Desired, desired};
use super::difference::{Operation, difference, transaction};
use super::report::{self, Health};
use super::rows::Rows;
use super::scene::{self, Places};
use super::tables::{MONITOR, OURS, SOUTHBOUND, northbound, owner, southbound};
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
}

/// What was wanted, and what was said.
#[derive(Default)]
struct State {
    wants: HashMap<Owner, Want>,
    told: HashMap<Owner, Vec<String>>,
    members: HashMap<Owner, Vec<(String, MemberState)>>,
}

/// What would be done for a want.
struct Plan {
    decided: Desired,
    there: Rows,
    operations: Vec<Operation>,
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

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("client", &self.0.client).finish_non_exhaustive()
    }
}

impl Provider {
    /// Starts following the databases. Must be called within a tokio runtime.
    pub fn start(settings: Settings) -> Self {
        let Settings { remotes, southbound: south, tls, durable, sweep } = settings;
        let client = Client::new(ClientSettings {
            remotes,
            tls: tls.clone(),
            database: DATABASE.to_owned(),
            tables: northbound(),
            leader_only: true,
        });
        let southbound = (!south.is_empty()).then(|| {
            Client::new(ClientSettings {
                remotes: south,
                tls,
                database: SOUTHBOUND.to_owned(),
                tables: southbound(),
                // What is a moment old is good enough to tell how somebody is.
                leader_only: false,
            })
        });
        Provider(Arc::new(Inner { client, southbound, durable, sweep, state: Mutex::default() }))
    }

    /// Whether the northbound database can be reached just now, and if not, why.
    pub fn state(&self) -> Result<(), Arc<str>> {
        self.0.client.state()
    }

    fn known(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connected(&self) -> Result<(), Error> {
        self.0.client.connected(PATIENCE).await
    }

    fn plan(&self, want: &Want) -> Result<Plan, Problem> {
        self.0.client.read(|replica| self.plan_on(want, replica))
    }

    fn plan_on(&self, want: &Want, replica: &Replica) -> Result<Plan, Problem> {
        let there = Rows::of(&want.owner, replica);
        let mut places = BTreeMap::new();
        let decided = match &want.target {
            Target::Gone => Desired::default(),
            Target::Present(wanted) => {
                let scene = scene::read(replica, &want.owner, &named(want))?;
                places.extend(scene.switches.iter().map(|one| ((SWITCH, one.uuid), one.name.clone())));
                places.extend(scene.routers.iter().map(|one| ((ROUTER, one.uuid), one.name.clone())));
                let identity = self.0.sweep.as_ref().map(|sweep| sweep.identity.as_str());
                // Nobody comes back soon to see whether a node of a Service answers by now, and one that is ready serves.
                let at_once = want.owner.kind() == "Service";
                let health = |asked: &Asked| if at_once { Health::Unknown } else { self.health(asked) };
                desired(&want.owner, identity, wanted, &scene, &there, &health, SystemTime::now())?
            }
        };
        let operations = difference(&decided.rows, &there);
        for operation in &operations {
            // Its number is ours, and its marks are not: somebody took them off.
            if let Operation::Insert { table, uuid, .. } = operation
                && replica.row(table, *uuid).is_some()
            {
                return Err(Problem::new(
                    format!("{}: the row {uuid} of {table} is in the way, and is not ours.", want.owner),
                    "Nothing was changed.",
                    "Remove the row, or give it back its external_ids.",
                ));
            }
        }
        Ok(Plan { decided, there, operations, places })
    }

    /// Makes it so; what was decided in the end.
    async fn make(&self, want: &Want) -> Result<Plan, Outcome> {
        let pending = |why: String| Outcome::Pending { why, retry_after: Some(AGAIN) };
        self.connected().await.map_err(|error| pending(error.to_string()))?;
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            let plan = self.plan(want).map_err(Outcome::Blocked)?;
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
            return Health::Unknown;
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

    fn members_of(&self, wanted: &LoadBalancer, decided: &Desired) -> Vec<MemberReport> {
        report::members(wanted, decided, |asked| self.health(asked), SystemTime::now())
    }

    /// Whether something is not as it should be, or has to be said anew.
    fn is_wrong(&self, want: &Want) -> bool {
        let Ok(plan) = self.plan(want) else { return true };
        if !plan.operations.is_empty() {
            return true;
        }
        let Target::Present(wanted) = &want.target else { return false };
        let now = states(&self.members_of(wanted, &plan.decided));
        self.known().members.get(&want.owner).is_some_and(|said| *said != now)
    }
}

fn states(members: &[MemberReport]) -> Vec<(String, MemberState)> {
    members.iter().map(|member| (member.name.clone(), member.state)).collect()
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
        let members = self.members_of(wanted, &plan.decided);
        let mut known = self.known();
        known.members.insert(want.owner.clone(), states(&members));
        // What was said already is not said again at every look.
        let before = known.told.insert(want.owner.clone(), plan.decided.told.clone());
        let told = if before.as_ref() == Some(&plan.decided.told) { Vec::new() } else { plan.decided.told };
        Report {
            outcome: Outcome::Done,
            addresses: wanted.addresses().iter().copied().map(Address::Ip).collect(),
            told,
            enforcement: Some(Enforcement::By("OVN ACLs".to_owned())),
            members,
        }
    }

    async fn preview(&self, want: &Want) -> Result<PlanView, Problem> {
        self.connected().await.map_err(|error| unseen(&error))?;
        let plan = self.plan(want)?;
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
        known.members.remove(owner);
    }

    fn forgotten(&self) -> Vec<Owner> {
        let Some(sweep) = &self.0.sweep else { return Vec::new() };
        let found: BTreeSet<Owner> = self.0.client.read(|replica| {
            let rows = OURS.iter().flat_map(|table| replica.rows(table));
            let ours = rows
                .filter(|row| row.get("external_ids").value_of(Owner::IDENTITY_KEY) == Some(&sweep.identity));
            ours.filter_map(|row| owner(row)).collect()
        });
        let known = self.known();
        let is_ours = |owner: &Owner| owner.cluster() == sweep.cluster && owner.kind() == sweep.kind;
        found.into_iter().filter(|owner| is_ours(owner) && !known.wants.contains_key(owner)).collect()
    }

    async fn look_at_all(&self) -> Result<Vec<Owner>, Problem> {
        self.connected().await.map_err(|error| unseen(&error))?;
        let wants: Vec<Want> = self.known().wants.values().cloned().collect();
        Ok(wants.iter().filter(|want| self.is_wrong(want)).map(|want| want.owner.clone()).collect())
    }

    async fn look_closely(&self, owner: &Owner) -> Result<bool, Problem> {
        self.connected().await.map_err(|error| unseen(&error))?;
        let want = self.known().wants.get(owner).cloned();
        Ok(want.is_some_and(|want| self.is_wrong(&want)))
    }
}
