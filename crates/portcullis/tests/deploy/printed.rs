//! What is printed, built and rendered says the same.

use std::fs;
use std::process::Command;

use portcullis_testkit::kubernetes;
use portcullis_testkit::parts::catalogue::find;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{deploy, helm, objects, output, portcullis, same, without_what_charts_differ_in};

/// As the guide has it: what `clusterctl init` would install.
#[test]
fn clusterctl_takes_it_for_a_provider() {
    let files = tempfile::tempdir().unwrap();
    let version = files.path().join(format!("infrastructure-portcullis/v{}", env!("CARGO_PKG_VERSION")));
    fs::create_dir_all(&version).unwrap();
    fs::copy(deploy("clusterctl/metadata.yaml"), version.join("metadata.yaml")).unwrap();
    let types = portcullis(&["crds", "--only", "cluster-api"]);
    let rest = output(find("kubectl").unwrap(), &["kustomize", &deploy("kustomize/cluster-api")]).unwrap();
    let components = version.join("infrastructure-components.yaml");
    fs::write(&components, format!("{types}---\n{rest}")).unwrap();
    let config = files.path().join("clusterctl.yaml");
    let provider = format!("name: portcullis, type: InfrastructureProvider, url: '{}'", components.display());
    fs::write(&config, format!("providers: [{{{provider}}}]\n")).unwrap();
    let made = Command::new(find("clusterctl").unwrap())
        .args(["generate", "provider", "--infrastructure"])
        .arg(concat!("portcullis:v", env!("CARGO_PKG_VERSION")))
        .arg("--config")
        .arg(&config)
        .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
        .env("HOME", files.path())
        .env("XDG_CONFIG_HOME", files.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let made = objects(&String::from_utf8(made.stdout).unwrap());
    let of_kind = |kind: &str| made.iter().filter(|object| object["kind"] == kind).collect::<Vec<_>>();
    assert_eq!(of_kind("CustomResourceDefinition").len(), 8, "four kinds, and a template of each");
    assert_eq!(
        of_kind("Deployment")[0]["metadata"]["labels"]["cluster.x-k8s.io/provider"],
        "infrastructure-portcullis"
    );
    assert!(made.iter().all(|object| object["metadata"]["labels"]["clusterctl.cluster.x-k8s.io"] == ""));
}

#[test]
fn the_kustomization_is_what_the_program_prints() {
    let built = |name| output(find("kubectl").unwrap(), &["kustomize", &deploy(name)]).unwrap();
    let printed = portcullis(&["manifests", "--cluster", "demo"]);
    let base = built("kustomize/base").replace("cluster: \"\"", "cluster: \"demo\"");
    same(&objects(&printed), &objects(&base));

    let eks = objects(&built("kustomize/eks"));
    let named = |kind: &str, name: &str| {
        eks.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap()
    };
    let account = named("ServiceAccount", "portcullis");
    assert!(account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].is_string(), "{account}");
    assert!(named("ConfigMap", "portcullis-overrides")["data"]["overrides.yaml"].is_string());
    let image = &named("Deployment", "portcullis")["spec"]["template"]["spec"]["containers"][0]["image"];
    assert!(image.as_str().unwrap().contains(".ecr."), "{image}");
}

#[test]
fn the_chart_is_what_the_program_prints() {
    let both = [
        (helm(&["--set=cluster=demo"]), portcullis(&["manifests", "--cluster=demo"])),
        (
            helm(&["--set=cluster=demo,mode=observe,replicas=1,image.repository=example.com/p,image.tag=v1"]),
            portcullis(&["manifests", "--cluster=demo", "--observe", "--image=example.com/p:v1"]),
        ),
        (
            helm(&["--namespace=edge", "--set=cluster=demo"]),
            portcullis(&["manifests", "--cluster=demo", "--namespace=edge"]),
        ),
    ];
    for (chart, printed) in both {
        let [chart, printed] =
            [chart.unwrap(), printed].map(|text| without_what_charts_differ_in(objects(&text)));
        same(&chart, &printed);
    }
}

#[test]
fn the_values_of_the_chart_reach_the_program() {
    let values = [
        "--set=cluster=demo,region=eu-central-1,vpc=vpc-1,nodeRules=off,resources.limits.memory=1Gi",
        "--set=config.services.withoutClass=true,config.log.format=json",
        "--set=serviceAccount.annotations.role=portcullis",
    ];
    let chart = helm(&values).unwrap();
    let files = TempDir::new().unwrap();
    fs::create_dir(files.path().join("config.d")).unwrap();
    for object in objects(&chart) {
        match object["kind"].as_str().unwrap() {
            "ConfigMap" if object["metadata"]["name"] == "portcullis-overrides" => {
                let text = object["data"]["overrides.yaml"].as_str().unwrap();
                fs::write(files.path().join("config.d/overrides.yaml"), text).unwrap();
            }
            "ConfigMap" => {
                let text = object["data"]["config.yaml"].as_str().unwrap();
                fs::write(files.path().join("config.yaml"), text).unwrap();
            }
            "ServiceAccount" => assert_eq!(object["metadata"]["annotations"]["role"], "portcullis"),
            "Deployment" => {
                let resources = &object["spec"]["template"]["spec"]["containers"][0]["resources"];
                assert_eq!(resources["limits"]["memory"], "1Gi");
            }
            _ => {}
        }
    }
    let file = files.path().join("config.yaml");
    let config = portcullis(&["show-config", "-o", "json", "--config", file.to_str().unwrap()]);
    let config: Value = serde_json::from_str(&config).unwrap();
    for (pointer, value) in [
        ("/aws/cluster", json!("demo")),
        ("/aws/region", json!("eu-central-1")),
        ("/aws/vpc", json!("vpc-1")),
        ("/aws/nodeRules", json!("off")),
        ("/services/withoutClass", json!(true)),
        ("/log/format", json!("json")),
    ] {
        assert_eq!(config.pointer(pointer), Some(&value), "{pointer}");
    }
    // Kubernetes takes it all; the namespace of another test may not be there yet.
    let chart = helm(&[&values[..], &["--namespace=default"]].concat()).unwrap();
    let kubernetes = kubernetes();
    let apply = ["apply", "--dry-run=server", "-f", "-"];
    kubernetes.kubectl_as(kubernetes.kubeconfig(), &apply, &chart).unwrap();

    for (wrong, value) in [
        ("a cluster without a name", "--set=mode=manage"),
        ("`off`, as YAML reads it without quotes", "--set=cluster=demo,nodeRules=false"),
        ("a mode that there is not", "--set=cluster=demo,mode=watch"),
        ("a value that there is not", "--set=cluster=demo,nodeRule=exact"),
    ] {
        assert!(helm(&[value]).unwrap_err().contains("values don't meet the specifications"), "{wrong}");
    }
}

/// Access as the chart and the kustomization give it for `IngressControllers`.
#[test]
fn the_chart_gives_the_rights_of_the_kustomization() {
    let built = output(find("kubectl").unwrap(), &["kustomize", &deploy("kustomize/ingress")]).unwrap();
    let values =
        "--set=cluster=NAME,ingressControllers.enabled=true,ingressControllers.image=example.com/router:1";
    let chart = helm(&[values]).unwrap();
    let about = |text: &str| -> Vec<Value> {
        let is_about = |object: &Value| {
            let name = object["metadata"]["name"].as_str().unwrap();
            name.contains("ingress") || name.contains("router")
        };
        objects(text).into_iter().filter(is_about).collect()
    };
    assert!(about(&built).len() > 12);
    same(&about(&chart), &about(&built));
    let observing = helm(&[values, "--set=mode=observe"]).unwrap();
    assert!(!observing.contains("portcullis-ingress-write"));
    assert!(
        helm(&["--set=cluster=NAME,ingressControllers.enabled=true"])
            .unwrap_err()
            .contains("has to be given")
    );
}
