//! Programs that know nothing of Portcullis, against a running `portcullis serve` on a real OVN.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod ansible;
mod cloud;
mod faults;
mod filters;
mod openstack;
mod ovirt;
mod schemathesis;
mod serving;
mod several;
mod tempest;
