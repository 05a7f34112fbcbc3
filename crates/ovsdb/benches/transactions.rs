//! How many changes a second a real ovsdb-server makes for this client, with northd following them.
//!
//! A change is one security group as OVN has it: a port group and two rules. The rates are of this machine and moment;
//! the ratios are what to look at: what it brings not to wait for an answer before the next change, and what the
//! journal costs, which makes one transaction at a time, and gives back with several changes in each.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench talks")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use portcullis_ovsdb::{Client, Columns, Datum, Journal, Place, Rows, Settings, TableSpec, Transaction};
use portcullis_testkit::parts::ovn::Ovn;
use uuid::Uuid;

/// Each way is measured for so long.
const WHILE: Duration = Duration::from_millis(1000);

const TABLES: &[TableSpec] = &[
    TableSpec { name: "Port_Group", columns: &["name", "acls", "external_ids"], indexes: &[] },
    TableSpec {
        name: "ACL",
        columns: &["priority", "direction", "match", "action", "external_ids"],
        indexes: &[],
    },
    TableSpec { name: "Address_Set", columns: &["external_ids"], indexes: &[] },
];

fn add_group(transaction: &mut Transaction) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("group{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let rules = ["ip4 && tcp.dst == 443", "ip6 && tcp.dst == 443"].map(|packets| {
        let uuid = Uuid::new_v4();
        let rule = Columns::new()
            .with("priority", 1002)
            .with("direction", "to-lport")
            .with("match", format!("outport == @{name} && {packets}"))
            .with("action", "allow-related")
            .with("external_ids", [("group", &*name)].into_iter().collect::<Datum>());
        transaction.insert("ACL", uuid, rule);
        uuid
    });
    let group = Columns::new().with("name", name).with("acls", rules.into_iter().collect::<Datum>());
    transaction.insert("Port_Group", Uuid::new_v4(), group);
}

fn groups(count: usize) -> Transaction {
    let mut transaction = Transaction::new();
    (0..count).for_each(|_| add_group(&mut transaction));
    transaction
}

struct Bench {
    ovn: Ovn,
    client: Client,
    /// What everything is compared to.
    first: Option<f64>,
}

impl Bench {
    /// Groups a second, by `depth` tasks that each make one change after the other.
    async fn sent(&mut self, depth: usize, durable: bool) {
        let start = Instant::now();
        let tasks: Vec<_> = (0..depth)
            .map(|_| {
                let client = self.client.clone();
                tokio::spawn(async move {
                    let mut made = 0;
                    while start.elapsed() < WHILE {
                        let mut transaction = groups(1);
                        if durable {
                            transaction.durable();
                        }
                        client.transact(&transaction).await.unwrap();
                        made += 1;
                    }
                    made
                })
            })
            .collect();
        let mut made = 0;
        for task in tasks {
            made += task.await.unwrap();
        }
        self.row(&format!("{depth} at a time"), durable, made, start).await;
    }

    /// Groups a second, through the journal, with so many in each of its changes.
    async fn journalled(&mut self, batch: u32, durable: bool) {
        let place = Place {
            table: "Address_Set",
            row: Uuid::from_u128(1),
            column: "external_ids",
            columns: Columns::new().with("name", "journal"),
        };
        let journal = Journal::new(self.client.clone(), place).unwrap().durable(durable);
        let start = Instant::now();
        let mut made = 0;
        while start.elapsed() < WHILE {
            let basis = journal.generation();
            journal.commit(groups(batch as usize), basis).await.unwrap();
            made += batch;
        }
        self.row(&format!("journal, {batch} in each"), durable, made, start).await;
    }

    async fn row(&mut self, what: &str, durable: bool, made: u32, start: Instant) {
        let rate = f64::from(made) / start.elapsed().as_secs_f64();
        let first = *self.first.get_or_insert(rate);
        let durable = if durable { "on disk" } else { "" };
        println!("{what:<24} {durable:<8} {rate:>10.0}   ×{:<6.2}", rate / first);
        // The next way begins with as little in the database, and with nothing left to do for northd.
        let mut clear = Transaction::new();
        clear.delete("Port_Group", Rows::All);
        self.client.transact(&clear).await.unwrap();
        tokio::task::block_in_place(|| self.ovn.settle()).unwrap();
    }
}

#[tokio::main]
async fn main() {
    let directory = tempfile::tempdir().unwrap();
    let ovn = Ovn::start(directory.path(), directory.path(), None).unwrap();
    let settings = Settings {
        remotes: vec![ovn.northbound().parse().unwrap()],
        tls: None,
        database: "OVN_Northbound".into(),
        tables: TABLES.to_vec(),
        leader_only: true,
    };
    let client = Client::new(settings);
    client.connected(Duration::from_secs(10)).await.unwrap();
    let mut bench = Bench { ovn, client, first: None };
    println!("{:<33} {:>10}", "", "groups/s");
    for durable in [false, true] {
        for depth in [1, 8, 64] {
            bench.sent(depth, durable).await;
        }
        for batch in [1, 8] {
            bench.journalled(batch, durable).await;
        }
    }
}
