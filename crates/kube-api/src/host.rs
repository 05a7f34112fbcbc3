//! Services whose load balancer is the node itself.

/// The class of Services that get addresses of nodes.
pub const HOST_CLASS: &str = "portcullis.dev/host";

/// The annotation that says at which addresses of nodes a Service is reached: names of interfaces and addresses, with commas
/// between them.
pub const LISTEN_ADDRESSES: &str = "portcullis.dev/listen-addresses";
