//! The store on real databases.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod faults;
mod neighbours;
mod ovirt;

use portcullis_ovn::objects::{Meta, Network, SecurityGroup};
use portcullis_ovn::{Draft, Options, Store, StoreSettings};
use uuid::Uuid;

fn settings(remotes: &[String]) -> StoreSettings {
    StoreSettings {
        remotes: remotes.iter().map(|remote| remote.parse().unwrap()).collect(),
        tls: None,
        durable: false,
        coexist: false,
        read_only: false,
        options: Options::default(),
    }
}

async fn open(remotes: &[String]) -> Store {
    let store = Store::start(settings(remotes));
    store.opened().await.unwrap();
    store
}

fn meta(name: &str) -> Meta {
    Meta { id: Uuid::new_v4(), project: "p".into(), name: name.into(), ..Meta::default() }
}

fn add_network(draft: &mut Draft, name: &str) -> Uuid {
    let network = Network { meta: meta(name), ..Network::default() };
    let id = network.meta.id;
    draft.put(network);
    id
}

fn add_group(draft: &mut Draft, name: &str) -> Uuid {
    let group = SecurityGroup { meta: meta(name), ..SecurityGroup::default() };
    let id = group.meta.id;
    draft.put(group);
    id
}
