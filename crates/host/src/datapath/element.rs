use std::net::{IpAddr, SocketAddr};

use portcullis_core::Cidr;

/// One element that a frontend has in one of the table's sets or maps. The place of the frontend is part of its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// There is such a frontend. Has the owner's name as a comment.
    Frontend(String),
    /// What comes to it is counted, and dropped if it is not admitted.
    Arrived,
    /// Counts what is dropped.
    Dropped,
    /// Who comes from here is admitted. Without host bits.
    Admit(Cidr),
    /// What becomes of a new connection.
    Serve(Verdict),
    /// The endpoint with this number, which is drawn for a connection.
    Slot(u32, SocketAddr),
    /// Endpoints see the node as their client.
    Masquerade,
    /// This endpoint sees the node as its client when it connects to itself: it would not take an answer to itself
    /// from itself.
    Hairpin(IpAddr),
    /// Clients that had this endpoint keep it for so many seconds.
    Member(u32, SocketAddr),
}

/// What becomes of a new connection that is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It goes to one of so many endpoints.
    Pick(u32),
    /// There is no endpoint: the client is told at once.
    Refuse,
}
