//! The provider of network load balancers, against two that take AWS's place.

mod faults;
mod moto;
mod scene;
mod strict;
