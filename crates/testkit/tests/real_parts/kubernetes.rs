use portcullis_testkit::{eventually, kubernetes, kubernetes_in, parts::Namespace};

const RANGES: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: openings.test.portcullis.dev}
spec:
  group: test.portcullis.dev
  names: {kind: Opening, plural: openings}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          range:
            type: string
            x-kubernetes-validations:
            - {rule: "isCIDR(self)", message: "not a range of addresses"}
"#;

fn opening(name: &str, range: &str) -> String {
    format!(
        "{{apiVersion: test.portcullis.dev/v1, kind: Opening, metadata: {{name: {name}}}, range: {range}}}"
    )
}

#[test]
fn a_type_with_a_rule_refuses_and_accepts() {
    let kubernetes = kubernetes();
    kubernetes.apply_types(RANGES).unwrap();
    eventually("the new type is served", || kubernetes.kubectl(&["get", "openings"]).is_ok());

    let refused = kubernetes.apply(&opening("wrong", "10.0.0.0/33")).unwrap_err().to_string();
    assert!(refused.contains("not a range of addresses"), "{refused}");

    kubernetes.apply(&opening("right", "2001:db8::/32")).unwrap();
    assert_eq!(
        kubernetes.kubectl(&["get", "opening", "right", "-o", "jsonpath={.range}"]).unwrap(),
        "2001:db8::/32"
    );
}

#[test]
fn a_user_may_do_what_rbac_grants_and_nothing_else() {
    let kubernetes = kubernetes();
    kubernetes.kubectl(&["create", "namespace", "rbac"]).unwrap();
    let reader = kubernetes.user("reader", None).unwrap();
    let refused =
        kubernetes.kubectl_as(&reader, &["get", "services", "-n", "rbac"], "").unwrap_err().to_string();
    assert!(refused.contains("forbidden"), "{refused}");

    kubernetes
        .kubectl(&["create", "rolebinding", "reader", "-n", "rbac", "--clusterrole=view", "--user=reader"])
        .unwrap();
    eventually("the grant is in force", || {
        kubernetes.kubectl_as(&reader, &["get", "services", "-n", "rbac"], "").is_ok()
    });
    let write = ["create", "configmap", "mine", "-n", "rbac"];
    assert!(kubernetes.kubectl_as(&reader, &write, "").unwrap_err().to_string().contains("forbidden"));
}

#[test]
fn what_depends_on_a_deleted_object_is_collected() {
    let kubernetes = kubernetes();
    kubernetes.kubectl(&["create", "configmap", "owner"]).unwrap();
    let uid = kubernetes.kubectl(&["get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}"]).unwrap();
    let owner = format!("[{{apiVersion: v1, kind: ConfigMap, name: owner, uid: {uid}}}]");
    let owned =
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: owned, ownerReferences: {owner}}}}}");
    kubernetes.apply(&owned).unwrap();
    kubernetes.kubectl(&["delete", "configmap", "owner"]).unwrap();
    eventually("the owned object is gone", || kubernetes.kubectl(&["get", "configmap", "owned"]).is_err());
}

#[test]
fn another_one_in_a_namespace_is_another_cluster() {
    let namespace = Namespace::new("cluster").unwrap();
    let inside = kubernetes_in(&namespace);
    inside.kubectl(&["create", "namespace", "only-inside"]).unwrap();
    let found = kubernetes().kubectl(&["get", "namespace", "only-inside"]);
    assert!(found.unwrap_err().to_string().contains("NotFound"));
}
