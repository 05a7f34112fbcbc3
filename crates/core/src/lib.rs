//! What may reach what, through which load balancer: the model and the decisions about it.
//!
//! Everything here is pure: no I/O, no clock, no async, no wire format.
