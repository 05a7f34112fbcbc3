//! Services of type `LoadBalancer`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use portcullis_core::{
    Admission, EmptyMeans, Family, HealthCheck, HealthPort, Listener, ListenerProtocol, LoadBalancer, Member,
    Probe, Problem, Scheme, SourceRanges,
};

use crate::adoption::Adopted;

/// What holds a Service until its load balancer is gone. Nobody else acts on it.
pub const FINALIZER: &str = "portcullis.dev/load-balancer";

const CLOUD_PROVIDER_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// What other controllers hold a Service by, and who they are.
pub(crate) const FOREIGN_FINALIZERS: [(&str, &str); 2] = [
    (CLOUD_PROVIDER_FINALIZER, "the service controller of a cloud provider"),
    ("service.k8s.aws/resources", "the AWS Load Balancer Controller"),
];

/// The annotation that limits who may connect, where the field of the spec is empty.
pub const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// The annotation that says of which type a load balancer of AWS is.
pub const TYPE: &str = "service.beta.kubernetes.io/aws-load-balancer-type";

/// Its value for load balancers that the controllers of cloud providers leave to others.
pub(crate) const EXTERNAL: &str = "external";

/// The annotation by which a Service is only looked at, and told what would be done.
pub const DRY_RUN: &str = "portcullis.dev/dry-run";

/// Which Services are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerClass {
    /// Those of this class.
    pub name: String,
    /// Those without any class that have this annotation with this value, if there is one here.
    pub without_class: Option<(String, String)>,
}

/// Whether a Service is to have a load balancer of ours.
pub fn wants_load_balancer(service: &Service, class: &LoadBalancerClass) -> bool {
    let Some(spec) = service.spec.as_ref().filter(|spec| spec.type_.as_deref() == Some("LoadBalancer"))
    else {
        return false;
    };
    match (&spec.load_balancer_class, &class.without_class) {
        (Some(found), _) => *found == class.name,
        (None, _) if Adopted::of(service).is_some() => true,
        (None, Some((key, value))) => annotation(service, key) == Some(value),
        (None, None) => false,
    }
}

/// Whether a Service is of a class that others look after. What is of a class stays so for as long as it is of that type.
pub fn is_of_another_class(service: &Service, class: &LoadBalancerClass) -> bool {
    let spec = service.spec.as_ref().filter(|spec| spec.type_.as_deref() == Some("LoadBalancer"));
    let found = spec.and_then(|spec| spec.load_balancer_class.as_ref());
    found.is_some_and(|found| *found != class.name)
}

/// By what another controller holds a Service, and who that is.
pub fn foreign_finalizer(service: &Service) -> Option<(&'static str, &'static str)> {
    let finalizers = service.metadata.finalizers.as_ref()?;
    // On a Service that was taken over, the controller of a cloud provider puts its finalizer again, and does nothing
    // else: the type says that somebody else looks after it.
    let is_idle = |name: &str| {
        name == CLOUD_PROVIDER_FINALIZER
            && Adopted::of(service).is_some()
            && annotation(service, TYPE).is_some_and(|value| value == EXTERNAL)
    };
    let mut foreign = FOREIGN_FINALIZERS.into_iter();
    foreign.find(|(name, _)| finalizers.iter().any(|found| found == name) && !is_idle(name))
}

pub(crate) fn annotation<'a>(service: &'a Service, key: &str) -> Option<&'a String> {
    service.metadata.annotations.as_ref()?.get(key)
}

/// Who may connect: as the field says, or else the annotation.
pub fn source_ranges(service: &Service) -> Result<SourceRanges, String> {
    let field = service.spec.as_ref().and_then(|spec| spec.load_balancer_source_ranges.as_ref());
    if let Some(ranges) = field.filter(|ranges| !ranges.is_empty()) {
        return SourceRanges::parse(Some(ranges))
            .map_err(|error| format!("spec.loadBalancerSourceRanges{error}"));
    }
    let text = annotation(service, SOURCE_RANGES).map(|text| text.trim()).filter(|text| !text.is_empty());
    let entries = text.map(|text| text.split(','));
    SourceRanges::parse(entries).map_err(|error| format!("annotation {SOURCE_RANGES}{error}"))
}

/// The load balancer that a Service asks for, before its annotations, which are for providers.
///
/// `by_node_port` says whether members get traffic on node ports, as nodes do, or on the ports behind the Service.
pub fn load_balancer(
    service: &Service,
    members: Arc<[Member]>,
    by_node_port: bool,
) -> Result<LoadBalancer, Problem> {
    let spec = service.spec.clone().unwrap_or_default();
    let name = service.metadata.name.clone().unwrap_or_default();
    let namespace = service.metadata.namespace.clone().unwrap_or_default();
    let refused = |what: String, remedy: &str| {
        Problem::new(format!("Service {namespace}/{name}: {what}."), "Nothing was changed.", remedy)
    };
    let address = spec.load_balancer_ip.as_ref().filter(|address| !address.is_empty());
    let addresses: Vec<IpAddr> = match address {
        Some(address) => vec![address.parse().map_err(|_| {
            refused(
                format!("spec.loadBalancerIP is `{address}`, which is no address"),
                "Correct it, or remove it.",
            )
        })?],
        None => Vec::new(),
    };
    if spec.session_affinity.as_ref().is_some_and(|affinity| affinity != "None") {
        let affinity = spec.session_affinity.unwrap_or_default();
        return Err(refused(
            format!("spec.sessionAffinity is `{affinity}`, which a network load balancer does not keep to"),
            "Set it to `None`.",
        ));
    }
    let ranges = source_ranges(service)
        .map_err(|what| refused(what, "Correct the range; nothing is opened until then."))?;
    let ports = spec.ports.clone().unwrap_or_default();
    if ports.is_empty() {
        return Err(refused("it has no ports".to_owned(), "Give it at least one."));
    }
    let mut listeners = Vec::new();
    for port in &ports {
        listeners
            .push(listener(&spec, port, by_node_port).map_err(|what| refused(what, "Correct the port."))?);
    }
    let families = spec.ip_families.iter().flatten();
    let mut families: Vec<Family> = families
        .filter_map(|family| match family.as_str() {
            "IPv4" => Some(Family::V4),
            "IPv6" => Some(Family::V6),
            _ => None,
        })
        .collect();
    if families.is_empty() {
        families.push(Family::V4);
    }
    let admission = Admission { ranges, empty_means: EmptyMeans::Everyone };
    LoadBalancer::new(name.clone(), Scheme::InternetFacing, families, listeners, admission)
        .and_then(|wanted| wanted.with_addresses(addresses)?.with_members(members))
        .map_err(|error| refused(error.to_string(), "Correct the Service."))
}

fn listener(spec: &ServiceSpec, port: &ServicePort, by_node_port: bool) -> Result<Listener, String> {
    let protocol = match port.protocol.as_deref().unwrap_or("TCP") {
        "TCP" => ListenerProtocol::Tcp,
        "UDP" => ListenerProtocol::Udp,
        other => {
            return Err(format!(
                "port {} is for {other}, and there are listeners for TCP and UDP only",
                port.port
            ));
        }
    };
    let number = |number: i32| u16::try_from(number).unwrap_or_default();
    let target = match (by_node_port, port.node_port, &port.target_port) {
        (true, Some(node_port), _) if node_port > 0 => number(node_port),
        (true, _, _) => {
            return Err(format!(
                "port {} has no node port, on which nodes take traffic: set spec.allocateLoadBalancerNodePorts to true, or have the pods' addresses as targets",
                port.port
            ));
        }
        (false, _, Some(IntOrString::Int(target))) => number(*target),
        // Each member has its own number for a name.
        (false, _, _) => number(port.port),
    };
    let listener = Listener::new(number(port.port), protocol, target).map_err(|error| error.to_string())?;
    let listener = match port.name.as_ref().filter(|name| !name.is_empty()) {
        Some(name) => listener.with_name(name),
        None => listener,
    };
    Ok(match health_check(spec).filter(|_| by_node_port) {
        Some(check) => listener.with_health_check(check),
        None => listener,
    })
}

/// Where only nodes with a pod serve, each node tells whether it has one.
fn health_check(spec: &ServiceSpec) -> Option<HealthCheck> {
    let port =
        spec.health_check_node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)?;
    if spec.external_traffic_policy.as_deref() != Some("Local") {
        return None;
    }
    let probe = Probe::Http { path: "/healthz".to_owned() };
    let check = HealthCheck::new(probe, HealthPort::Number(port)).ok()?;
    check.with_timing(Duration::from_secs(10), Duration::from_secs(6)).ok()?.with_thresholds(2, 2).ok()
}

/// What a Service says to providers.
pub fn parameters(service: &Service) -> BTreeMap<String, String> {
    let mut all = Adopted::of(service).map(|adopted| adopted.annotations).unwrap_or_default();
    all.extend(service.metadata.annotations.clone().unwrap_or_default());
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(spec: &Value, annotations: &Value) -> Service {
        let mut full = json!({
            "type": "LoadBalancer",
            "loadBalancerClass": "portcullis.dev/aws-nlb",
            "ports": [{"name": "http", "port": 80, "nodePort": 30080, "targetPort": 8080}],
        });
        for (key, value) in spec.as_object().unwrap() {
            full[key] = value.clone();
        }
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
            "spec": full,
        }))
        .unwrap()
    }

    fn class(without_class: bool) -> LoadBalancerClass {
        LoadBalancerClass {
            name: "portcullis.dev/aws-nlb".into(),
            without_class: without_class.then(|| (TYPE.to_owned(), "nlb".to_owned())),
        }
    }

    #[test]
    fn whose_it_is() {
        let nlb = json!({TYPE: "nlb"});
        for (spec, annotations, without_class, expected) in [
            (json!({}), json!({}), false, true),
            (json!({"type": "ClusterIP"}), json!({}), true, false),
            (json!({"loadBalancerClass": "other"}), nlb.clone(), true, false),
            (json!({"loadBalancerClass": null}), nlb.clone(), true, true),
            (json!({"loadBalancerClass": null}), nlb.clone(), false, false),
            (json!({"loadBalancerClass": null}), json!({TYPE: "external"}), true, false),
            (json!({"loadBalancerClass": null}), json!({}), true, false),
        ] {
            let found = wants_load_balancer(&service(&spec, &annotations), &class(without_class));
            assert_eq!(found, expected, "{spec}");
        }
        for (spec, expected) in [
            (json!({}), false),
            (json!({"loadBalancerClass": null}), false),
            (json!({"loadBalancerClass": "other"}), true),
            (json!({"type": "ClusterIP", "loadBalancerClass": "other"}), false),
        ] {
            let found = is_of_another_class(&service(&spec, &json!({})), &class(true));
            assert_eq!(found, expected, "{spec}");
        }
    }

    #[test]
    fn others_hold_it() {
        let mut found = service(&json!({}), &json!({}));
        assert_eq!(foreign_finalizer(&found), None);
        found.metadata.finalizers = Some(vec![FINALIZER.into(), "service.k8s.aws/resources".into()]);
        assert_eq!(foreign_finalizer(&found).unwrap().1, "the AWS Load Balancer Controller");
    }

    #[test]
    fn the_field_comes_before_the_annotation() {
        let ranges = |spec: Value, annotations: Value| source_ranges(&service(&spec, &annotations)).unwrap();
        let listed = |range: &str| SourceRanges::parse(Some([range])).unwrap();
        assert!(ranges(json!({}), json!({})).is_absent());
        assert!(ranges(json!({"loadBalancerSourceRanges": []}), json!({SOURCE_RANGES: " "})).is_absent());
        let field = json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]});
        assert_eq!(ranges(field, json!({SOURCE_RANGES: "192.0.2.0/24"})), listed("10.0.0.0/8"));
        assert_eq!(ranges(json!({}), json!({SOURCE_RANGES: " 192.0.2.0/24 "})), listed("192.0.2.0/24"));
        let wrong = source_ranges(&service(&json!({}), &json!({SOURCE_RANGES: "10.0.0.0/8,x"}))).unwrap_err();
        assert!(
            wrong.starts_with("annotation service.beta.kubernetes.io/load-balancer-source-ranges[1]: "),
            "{wrong}"
        );
    }

    #[test]
    fn what_it_asks_for() {
        let local = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 31000, "ipFamilies": ["IPv6", "IPv4"]});
        let found = load_balancer(&service(&local, &json!({})), Arc::default(), true).unwrap();
        let listener = &found.listeners()[0];
        assert_eq!((listener.port(), listener.target_port(), listener.name()), (80, 30080, Some("http")));
        assert_eq!(listener.health_check().unwrap().port(), HealthPort::Number(31000));
        assert_eq!(found.families().len(), 2);
        let direct = load_balancer(&service(&local, &json!({})), Arc::default(), false).unwrap();
        assert_eq!(direct.listeners()[0].target_port(), 8080);
        assert_eq!(direct.listeners()[0].health_check(), None);
    }

    #[test]
    fn what_cannot_be_is_told() {
        for (spec, what) in [
            (json!({"loadBalancerIP": "somewhere"}), "spec.loadBalancerIP is `somewhere`"),
            (json!({"sessionAffinity": "ClientIP"}), "spec.sessionAffinity is `ClientIP`"),
            (json!({"ports": []}), "it has no ports"),
            (json!({"ports": [{"port": 80}]}), "port 80 has no node port"),
            (json!({"ports": [{"port": 80, "protocol": "SCTP", "nodePort": 30000}]}), "port 80 is for SCTP"),
            (json!({"loadBalancerSourceRanges": ["10.0.0.0/33"]}), "spec.loadBalancerSourceRanges[0]: "),
        ] {
            let problem = load_balancer(&service(&spec, &json!({})), Arc::default(), true).unwrap_err();
            assert!(problem.what.starts_with(&format!("Service shop/web: {what}")), "{problem}");
        }
    }
}
