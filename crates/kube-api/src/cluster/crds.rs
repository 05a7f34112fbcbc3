//! The types as `CustomResourceDefinitions`. What several of them have in common is said once.

use serde_json::{Map, Value, json};

use super::{Flavour, Kind};

/// All of them, in the order in which they can be installed.
pub fn crds(flavour: Flavour) -> Vec<Value> {
    let mut all = vec![load_balancer(flavour)];
    for (kind, what, spec) in [
        (flavour.aws_nlb(), "A network load balancer of AWS", aws_nlb()),
        (flavour.haproxy(), "HAProxy on machines that carry traffic", haproxy()),
        (flavour.ovn(), "A load balancer of OVN", ovn()),
    ] {
        all.push(infrastructure(kind, what, &spec));
        all.push(template(kind, what, spec));
    }
    all.push(load_balancer_template(flavour));
    if flavour == Flavour::Proposed {
        all.extend(proposed());
    }
    all
}

/// What Cluster API brings otherwise, in the shapes of the proposal.
fn proposed() -> [Value; 3] {
    let kind = |group, kind, plural| Kind { group, version: "v1alpha4", kind, plural };
    let status = |fields: Value| {
        let mut status = object("How it stands.", fields);
        status["properties"]["conditions"] = conditions();
        status["x-kubernetes-preserve-unknown-fields"] = json!(true);
        status
    };
    let flag = |what: &str| json!({"type": "boolean", "description": what});
    let cluster = object(
        "What is wanted.",
        json!({
            "paused": flag("Nothing is to be done about it for now."),
            "controlPlane": object("Its control plane.", json!({
                "endpoint": endpoint("Where it is found."),
                "providerRef": reference("What makes it. Without one others do."),
            })),
            "infrastructureRef": reference("What makes its network."),
        }),
    );
    let plane = object(
        "What is wanted.",
        json!({
            "endpoint": endpoint("Where it is found."),
            "loadBalancerRef": reference("The load balancer in front of it."),
            "machineTemplate": object("What its Machines are made from.", json!({"metadata": template_metadata()})),
        }),
    );
    let address = object("An address.", json!({"type": text("Its kind."), "address": text("The address.")}));
    let machine = object(
        "What is wanted.",
        json!({"clusterName": text("The Cluster."), "providerID": text("What its provider calls it.")}),
    );
    let age = json!([{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    let cluster_status = status(json!({"controlPlaneReady": flag("Whether its control plane can be used.")}));
    let plane_status = status(json!({
        "ready": flag("Whether it can be used."),
        "initialized": flag("Whether it could be used once."),
    }));
    let machine_status = status(json!({"addresses": {"type": "array", "items": address}}));
    let (clusters, planes) = ("cluster.x-k8s.io", "controlplane.cluster.x-k8s.io");
    [
        definition(
            kind(clusters, "Cluster", "clusters"),
            "A cluster.",
            &cluster,
            Some(&cluster_status),
            &age,
        ),
        definition(
            kind(planes, "KubeadmControlPlane", "kubeadmcontrolplanes"),
            "A control plane.",
            &plane,
            Some(&plane_status),
            &age,
        ),
        definition(
            kind(clusters, "Machine", "machines"),
            "A machine.",
            &machine,
            Some(&machine_status),
            &age,
        ),
    ]
}

fn load_balancer(flavour: Flavour) -> Value {
    let status = object(
        "How it stands.",
        json!({
            "observedGeneration": {"type": "integer", "format": "int64", "description": "The spec that this is about."},
            "targetKind": text("What members are: kind and group."),
            "targetSelector": text("Which of them, as a query has it."),
            "targets": members("Everybody who is a member, or was and has not left yet."),
            "activeTargets": texts("Who gets traffic."),
            "address": text("Where it is found, whatever its endpoint is called. It is known before there are members."),
            "allowedSourceRanges": texts("Who may connect, as it is in force: absent is everyone, an empty list is nobody."),
            "infrastructureRefs": {
                "type": "array",
                "description": "What is asked to make it, and what was before and has not been given up yet.",
                "items": reference("An object that makes it, or did."),
            },
            "conditions": conditions(),
        }),
    );
    let columns = json!([
        column("Cluster", ".spec.clusterName"),
        column("Endpoint", ".spec.endpoint.host"),
        column("Address", ".status.address"),
        column("Members", ".status.activeTargets"),
        column("Available", ".status.conditions[?(@.type=='Available')].status"),
        column("Provider", ".spec.infrastructureRef.kind"),
        json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}),
    ]);
    let what = "A load balancer for the control plane of a cluster, or for something else of it.";
    definition(flavour.load_balancer(), what, &load_balancer_spec(), Some(&status), &columns)
}

fn load_balancer_spec() -> Value {
    let mut spec = object(
        "What is wanted.",
        json!({
            "clusterName": {"type": "string", "minLength": 1, "maxLength": 63, "description": "The Cluster that it is for."},
            "endpoint": endpoint("Where clients find it: a name or an address, and a port. Who leaves it out gets what the provider has."),
            "alternateEndpoints": {
                "type": "array", "maxItems": 32, "items": endpoint("Another name."),
                "description": "Other names that clients use for it. Nobody checks that they lead here.",
            },
            "listeners": listeners(),
            "targetKind": object("What its members are; Machines, if nothing is said. Others need status.addresses in the shape that Machines have it, or status.podIPs.", json!({
                "apiGroup": text("Its group."),
                "kind": text("The kind."),
            })),
            "selector": selector(),
            "infrastructureRef": reference("What makes it. Without one somebody else does, and it is only looked at."),
            "allowedSourceRanges": texts("Who may connect, as address ranges: absent is everyone, an empty list is nobody."),
            "drainTimeoutSeconds": {
                "type": "integer", "minimum": 0, "maximum": 86400,
                "description": "For how long connections of a member that leaves are waited for; 150 if nothing is said.",
            },
        }),
    );
    spec["required"] = json!(["clusterName"]);
    spec
}

fn aws_nlb() -> Map<String, Value> {
    fields(json!({
        "region": text("The region; the configuration's, if nothing is said."),
        "vpc": text("The VPC; the configuration's, if nothing is said."),
        "name": text("Its name; one is made up where nothing is said."),
        "scheme": choice("From where it can be reached.", &["internet-facing", "internal"]),
        "ipAddressType": choice("The families that it has.", &["ipv4", "dualstack"]),
        "subnets": texts("Its subnets, by id or name; found by their tags where nothing is said."),
        "elasticAddresses": texts("Elastic addresses by their allocation ids, one for each subnet."),
        "securityGroups": texts("Groups to use instead of a managed one, by id or name. Source ranges do not count for these."),
        "crossZone": {"type": "boolean", "description": "Whether members in other zones get traffic as well."},
        "preserveClientIP": {"type": "boolean", "description": "Whether members see the addresses of clients."},
        "proxyProtocol": {"type": "boolean", "description": "Whether members are told of clients by the PROXY protocol, version 2."},
        "targetType": choice("How members are named: by their instances, or by addresses, which need not be of instances.", &["instance", "ip"]),
        "holdSeconds": {
            "type": "integer", "minimum": 0, "maximum": 3600,
            "description": "For how long a member is held after it was taken out, since AWS may still send connections to it; 120 if nothing is said.",
        },
        "tags": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Tags on everything that is made."},
        "attributes": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Further attributes of the load balancer, in AWS's words."},
    }))
}

fn haproxy() -> Map<String, Value> {
    fields(json!({
        "pool": text("The machines that carry it: those whose agents are of this pool; `default` if nothing is said."),
        "addresses": {
            "type": "array", "maxItems": 8, "items": address(),
            "description": "Where it listens. Without any it has the addresses of its machines.",
        },
        "addressFrom": object("Where an address comes from, where none is given.", json!({
            "poolRef": reference("A pool of addresses, which an IPAddressClaim is made for."),
        })),
        "virtualRouterID": {
            "type": "integer", "minimum": 1, "maximum": 255,
            "description": "Under which number machines agree who has the address; one is made from the address where nothing is said.",
        },
        "proxyProtocol": {"type": "boolean", "description": "Whether members are told of clients by the PROXY protocol, version 2."},
        "balance": choice("Who gets the next connection.", &["leastconn", "roundrobin", "random"]),
    }))
}

fn ovn() -> Map<String, Value> {
    fields(json!({
        "addresses": {
            "type": "array", "maxItems": 8, "items": address(),
            "description": "Where it listens: addresses outside of the subnets of its switches.",
        },
        "switches": texts("Logical switches whose ports reach it directly, by name or UUID."),
        "routers": texts("Logical routers that it is on, by name or UUID."),
    }))
}

fn infrastructure(kind: Kind, what: &str, spec: &Map<String, Value>) -> Value {
    let mut spec = spec.clone();
    spec.insert("assignment".to_owned(), assignment());
    let spec = object("What is wanted. All but `assignment` is its user's.", Value::Object(spec));
    let status = object(
        "How it stands. Only its provider writes it.",
        json!({
            "observedGeneration": {"type": "integer", "format": "int64", "description": "The spec that this is about."},
            "initialization": object("How far its making is.", json!({
                "provisioned": {"type": "boolean", "description": "It was made."},
            })),
            "address": text("Where it is found."),
            "allowedSourceRanges": texts("Who may connect, as it is in force: absent is everyone, an empty list is nobody."),
            "members": members("Where members are."),
            "instances": instances(),
            "conditions": conditions(),
        }),
    );
    let columns = json!([
        column("LoadBalancer", ".spec.assignment.loadBalancer"),
        column("Address", ".status.address"),
        column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
        json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}),
    ]);
    definition(kind, &format!("{what}."), &spec, Some(&status), &columns)
}

fn template(kind: Kind, what: &str, spec: Map<String, Value>) -> Value {
    let spec = object("What is wanted.", Value::Object(spec));
    of_template(kind, &format!("What is made for each cluster: {what}."), &spec)
}

fn load_balancer_template(flavour: Flavour) -> Value {
    let mut spec = load_balancer_spec();
    // The cluster is the one that it is made for, and what makes it comes from a template, too.
    spec.as_object_mut().map(|spec| spec.remove("required"));
    let fields = spec["properties"].as_object_mut();
    if let Some(fields) = fields {
        fields.remove("clusterName");
        fields.remove("endpoint");
        fields.insert(
            "infrastructureRef".to_owned(),
            reference("The template of what makes it, such as an HAProxyLoadBalancerTemplate."),
        );
    }
    of_template(
        flavour.load_balancer(),
        "What is made for each cluster that asks for it: a LoadBalancer.",
        &spec,
    )
}

/// The same kind, as a template.
fn of_template(kind: Kind, what: &str, spec: &Value) -> Value {
    let name = format!("{}Template", kind.kind);
    let plural = format!("{}templates", kind.plural.trim_end_matches('s'));
    let mut inner = object("What is made.", json!({"metadata": template_metadata(), "spec": spec}));
    inner["required"] = json!(["spec"]);
    let mut outer = object("What is wanted.", json!({"template": inner}));
    outer["required"] = json!(["template"]);
    let columns = json!([{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    let mut definition = named(kind, &name, &plural, what, &outer, None, &columns);
    // Nobody owns templates: by this they are moved all the same.
    definition["metadata"]["labels"]["clusterctl.cluster.x-k8s.io/move"] = json!("");
    definition
}

fn template_metadata() -> Value {
    object(
        "Labels and annotations of what is made.",
        json!({
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        }),
    )
}

fn definition(kind: Kind, what: &str, spec: &Value, status: Option<&Value>, columns: &Value) -> Value {
    named(kind, kind.kind, kind.plural, what, spec, status, columns)
}

fn named(
    kind: Kind,
    name: &str,
    plural: &str,
    what: &str,
    spec: &Value,
    status: Option<&Value>,
    columns: &Value,
) -> Value {
    let mut properties = json!({
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
    });
    let mut version = json!({
        "name": kind.version,
        "served": true,
        "storage": true,
        "additionalPrinterColumns": columns,
    });
    if let Some(status) = status {
        properties["status"] = status.clone();
        version["subresources"] = json!({"status": {}});
    }
    version["schema"] = json!({"openAPIV3Schema": {
        "type": "object", "description": what, "properties": properties, "required": ["spec"],
        // It stands in labels and in the keys of annotations.
        "x-kubernetes-validations": [{"rule": "self.metadata.name.size() <= 63", "message": "a name has at most 63 characters"}],
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{}", kind.group),
            "labels": {
                // By these, Cluster API finds which version of it this is made for, and takes it along when a cluster is moved.
                "cluster.x-k8s.io/provider": "infrastructure-portcullis",
                "cluster.x-k8s.io/v1beta1": kind.version,
                "cluster.x-k8s.io/v1beta2": kind.version,
                "clusterctl.cluster.x-k8s.io": "",
            },
        },
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {
                "kind": name,
                "listKind": format!("{name}List"),
                "plural": plural,
                "singular": name.to_ascii_lowercase(),
                "categories": ["cluster-api"],
            },
            "versions": [version],
        },
    })
}

fn assignment() -> Value {
    let member = object(
        "Someone who gets traffic, or who is to get none any more.",
        json!({
            "name": text("Its name."),
            "addresses": {"type": "array", "description": "Where it is found.", "items": {
                "type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}],
            }},
            "providerID": text("What its own provider calls it."),
            "duty": choice("What it is to do: take its share, be kept aside, or go.", &["Serve", "Rest", "Leave"]),
            "by": {"type": "string", "format": "date-time", "description": "When the connections of one that is not to serve are ended."},
        }),
    );
    let mut assignment = object(
        "What is asked of the provider. The controller of load balancers writes it; nothing is made while it is absent, and what was made goes when it does.",
        json!({
            "loadBalancer": name("The LoadBalancer that asks for it."),
            "service": name("The Service that asks for it, where that is who does."),
            "clusterName": name("The Cluster that it is for."),
            "generation": {"type": "integer", "format": "int64", "description": "The generation of the LoadBalancer that all of this was formed from."},
            "endpoint": endpoint("Where clients look for it, if somebody decided that."),
            "ipFamilies": texts("Of which families it has addresses, IPv4 or IPv6; of both, if nothing is said."),
            "listeners": listeners(),
            "allowedSourceRanges": texts("Who may connect: absent is everyone, an empty list is nobody."),
            "drainTimeoutSeconds": {"type": "integer", "minimum": 0, "description": "For how long connections of a member that leaves are waited for."},
            "replacedSince": {"type": "string", "format": "date-time", "description": "Since when another one has its place."},
            "members": keyed("Who gets the traffic. Who is not among them any more is taken out at once.", &member),
        }),
    );
    assignment["required"] = json!(["generation"]);
    // What is made is found again by these names.
    assignment["x-kubernetes-validations"] = json!([{
        "rule": "has(self.service) || (has(self.loadBalancer) && has(self.clusterName))",
        "message": "it has the loadBalancer and the clusterName that it is for, or the service",
    }]);
    assignment
}

fn members(what: &str) -> Value {
    let member = object(
        "A member.",
        json!({
            "name": text("Its name."),
            "status": text("Where it is: adding, active, disabling, disabled, draining, removed, or a provider's own word."),
            "connections": {"type": "integer", "format": "int64", "minimum": 0, "description": "How many connections it has, where that can be counted."},
            "message": text("What else there is to know."),
        }),
    );
    keyed(what, &member)
}

fn instances() -> Value {
    let member = object(
        "A member, as this machine sees it.",
        json!({
            "name": text("Its name."),
            "status": text("Where it is."),
            "connections": {"type": "integer", "format": "int64", "minimum": 0, "description": "How many connections it has there, if it is not to serve any more."},
            "ended": {"type": "integer", "format": "int64", "minimum": 0, "description": "How many connections were ended when their time was over."},
            "message": text("What its check says, if it does not pass."),
        }),
    );
    let instance = object(
        "A machine that carries it.",
        json!({
            "name": text("Its name."),
            "pool": text("The pool that it is of."),
            "observedGeneration": {"type": "integer", "format": "int64", "description": "The generation that it has carried out."},
            "addresses": texts("Addresses that it is found at."),
            "holdsAddress": {"type": "boolean", "description": "Whether it has the shared address now."},
            "allowedSourceRanges": texts("Who may connect by it, while that is not what is asked for: an empty list is nobody."),
            "members": keyed("Where members are, on it.", &member),
            "problem": text("Why it does not carry it."),
        }),
    );
    keyed("The machines that carry it. Each writes its own entry.", &instance)
}

fn listeners() -> Value {
    let port = json!({"type": "integer", "minimum": 1, "maximum": 65535});
    let described = |what: &str| {
        let mut port = port.clone();
        port["description"] = json!(what);
        port
    };
    let count = |what: &str, most: u32| json!({"type": "integer", "minimum": 1, "maximum": most, "description": what});
    let check = object(
        "How members are checked. API servers are asked for /readyz if nothing is said, others for a connection.",
        json!({
            "protocol": choice("How.", &["TCP", "HTTP", "HTTPS"]),
            "path": {"type": "string", "pattern": "^/", "maxLength": 1024, "description": "What is asked for by HTTP or HTTPS."},
            "port": described("The port that is asked; the one that traffic goes to, if nothing is said."),
            "intervalSeconds": count("The time between two checks.", 300),
            "timeoutSeconds": count("The time that an answer may take.", 300),
            "healthyThreshold": count("So many good answers in a row make a member healthy.", 10),
            "unhealthyThreshold": count("So many bad answers in a row make it unhealthy.", 10),
        }),
    );
    let mut listener = object(
        "A port.",
        json!({
            "name": text("What it is called."),
            "port": described("The port that clients connect to."),
            "targetPort": described("The port of the members; the same, if nothing is said."),
            "protocol": choice("What it carries.", &["TCP", "UDP"]),
            "healthCheck": check,
        }),
    );
    listener["required"] = json!(["port"]);
    json!({
        "type": "array", "maxItems": 50, "items": listener,
        "description": "Its ports. Without any it has the endpoint's, and leads to port 6443 of its members.",
    })
}

fn selector() -> Value {
    let expression = object(
        "A comparison.",
        json!({"key": {"type": "string"}, "operator": {"type": "string"}, "values": {"type": "array", "items": {"type": "string"}}}),
    );
    object(
        "Which of them. Without one these are the cluster's that carry the label loadbalancer.cluster.x-k8s.io/name with its name.",
        json!({
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
            "matchExpressions": {"type": "array", "items": expression},
        }),
    )
}

fn conditions() -> Value {
    let mut condition = object(
        "One thing to be known.",
        json!({
            "type": {"type": "string"},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string"},
            "message": {"type": "string"},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64"},
        }),
    );
    condition["required"] = json!(["type", "status"]);
    json!({
        "type": "array", "items": condition, "description": "What is to be known about it.",
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
    })
}

/// A list of what has names: each entry can have another writer.
fn keyed(what: &str, item: &Value) -> Value {
    let mut item = item.clone();
    item["required"] = json!(["name"]);
    json!({
        "type": "array", "items": item, "description": what,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
    })
}

fn endpoint(what: &str) -> Value {
    let mut endpoint = object(
        what,
        json!({
            "host": {"type": "string", "maxLength": 253},
            "port": {"type": "integer", "minimum": 0, "maximum": 65535},
        }),
    );
    endpoint["required"] = json!(["host", "port"]);
    endpoint
}

fn reference(what: &str) -> Value {
    let mut reference = object(
        what,
        json!({
            "apiGroup": {"type": "string"},
            "kind": {"type": "string", "minLength": 1},
            "name": {"type": "string", "minLength": 1},
        }),
    );
    reference["required"] = json!(["kind", "name"]);
    reference
}

fn object(what: &str, properties: Value) -> Value {
    let mut object = json!({"type": "object", "description": what});
    object["properties"] = properties;
    object
}

/// The name of an object.
fn name(what: &str) -> Value {
    json!({
        "type": "string", "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "description": what,
    })
}

fn text(what: &str) -> Value {
    json!({"type": "string", "description": what})
}

fn texts(what: &str) -> Value {
    json!({"type": "array", "items": {"type": "string"}, "description": what})
}

fn choice(what: &str, words: &[&str]) -> Value {
    json!({"type": "string", "enum": words, "description": what})
}

fn address() -> Value {
    json!({
        "type": "string", "maxLength": 45,
        "x-kubernetes-validations": [{"rule": "isIP(self)", "message": "it has to be an address"}],
    })
}

fn column(name: &str, path: &str) -> Value {
    json!({"name": name, "type": "string", "jsonPath": path})
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
