//! Real programs on this machine.
