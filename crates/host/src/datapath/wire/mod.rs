//! What is said to the kernel, in its bytes. Nothing outside knows them.

mod conntrack;
mod elements;
mod layout;
mod message;
mod news;
mod rule;
mod socket;

pub(crate) use conntrack::{Flow, delete_flow, flows, parse_flow};
pub(crate) use elements::{
    Raw, affinity_set, chains, clients_to_forget, counted, element_sets, gather, list_elements, names,
    parse_elements, read_element, sets, table, table_handle,
};
pub(crate) use layout::{Names, load, remove, replace};
pub(crate) use message::{Messages, Received};
pub(crate) use news::{News, news};
pub(crate) use socket::{Listener, Socket};
