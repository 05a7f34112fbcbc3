use std::net::SocketAddr;
use std::time::Duration;

use portcullis_parts::kubernetes::Kubernetes;
use portcullis_parts::{self as parts, Launch, Process, answers};

/// With ten thousand Services it takes minutes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// kube-proxy in its nftables mode, in the network namespace of the API it follows.
#[derive(Debug)]
pub struct KubeProxy {
    process: Process,
}

impl KubeProxy {
    /// Starts one as `node`, which it makes a Node object for: kube-proxy waits for that Node's address.
    #[track_caller]
    pub fn start(kubernetes: &Kubernetes, node: &str, address: &str) -> Self {
        assert!(
            !kubernetes.namespace().is_host(),
            "kube-proxy would write packet filters of this machine itself"
        );
        let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
        let status =
            serde_json::json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
        let started: parts::Result<Process> = (|| {
            kubernetes.apply(&manifest.to_string())?;
            kubernetes.kubectl(&[
                "patch",
                "node",
                node,
                "--subresource=status",
                "--type=merge",
                "-p",
                &status.to_string(),
            ])?;
            let kubeconfig = kubernetes.user("system:kube-proxy", None)?;
            let mut process = Launch::new("kube-proxy")?
                .args(["--proxy-mode=nftables", "--cluster-cidr=10.244.0.0/16"])
                .arg(format!("--hostname-override={node}"))
                .arg(format!("--kubeconfig={}", kubeconfig.display()))
                // The machine's own limits are nobody's business here, and cannot be set from a namespace.
                .args(["--conntrack-max-per-core=0", "--conntrack-min=0"])
                .args(["--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249"])
                .start(kubernetes.namespace(), kubernetes.logs())?;
            // It answers so once it has written its rules for the first time.
            let health = SocketAddr::from(([127, 0, 0, 1], 10256));
            let is_healthy = || kubernetes.namespace().run(|| answers(health, "/healthz"));
            process.wait_until(PATIENCE, is_healthy)?;
            Ok(process)
        })();
        KubeProxy { process: started.unwrap_or_else(|error| panic!("{error}")) }
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}
