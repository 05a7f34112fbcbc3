//! `portcullis networkpolicy`

use clap::builder::NonEmptyStringValueParser;
use portcullis_core::Cidr;
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::output;

/// Print a network policy that lets only some clients reach a router
///
/// The network between pods stays allowed, so that what runs in the cluster reaches the router as before; without --allow
/// nobody else does. It takes a network that knows network policies, and a Service with externalTrafficPolicy Local: with
/// Cluster, routers do not see who a client is.
///
/// For example: portcullis networkpolicy --pod-network 10.42.0.0/16 --allow 192.0.2.0/24 | kubectl apply -f -
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A range of the network between pods; may be repeated
    #[arg(long, value_name = "RANGE", required = true)]
    pod_network: Vec<Cidr>,

    /// A range of clients that are let in; may be repeated
    #[arg(long, value_name = "RANGE")]
    allow: Vec<Cidr>,

    /// Only to these ports of the router; to all, if none are named
    #[arg(long, value_name = "PORT", requires = "allow", value_parser = clap::value_parser!(u16).range(1..))]
    port: Vec<u16>,

    /// The router, by the name of its ingress controller
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = NonEmptyStringValueParser::new())]
    router: String,

    /// The namespace of routers
    #[arg(long, value_name = "NAME", default_value = "openshift-ingress", value_parser = NonEmptyStringValueParser::new())]
    namespace: String,

    /// Its name
    #[arg(long, default_value = "limit-router", value_parser = NonEmptyStringValueParser::new())]
    name: String,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    Ok(output::print(&output::yaml(&policy(args))?)?)
}

fn policy(args: &Args) -> Value {
    let blocks = |ranges: &[Cidr]| -> Vec<Value> {
        ranges.iter().map(|range| json!({"ipBlock": {"cidr": range.network().to_string()}})).collect()
    };
    let mut rules = vec![json!({"from": blocks(&args.pod_network)})];
    if !args.allow.is_empty() {
        let mut rule = json!({"from": blocks(&args.allow)});
        if !args.port.is_empty() {
            let ports = args.port.iter().map(|port| json!({"protocol": "TCP", "port": port}));
            rule["ports"] = ports.collect();
        }
        rules.push(rule);
    }
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": args.name, "namespace": args.namespace},
        "spec": {
            "podSelector": {"matchLabels": {
                "ingresscontroller.operator.openshift.io/deployment-ingresscontroller": args.router,
            }},
            "policyTypes": ["Ingress"],
            "ingress": rules,
        },
    })
}
