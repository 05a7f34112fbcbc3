//! What holds for all values: each decision is compared with a plain reading of the rules over a small world
//! in which every packet can be tried.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod addresses;
mod load_balancer;
mod owner;
mod reach;
mod rules;
mod world;
