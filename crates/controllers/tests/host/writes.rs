//! What is written into statuses, by a way to the API on which something happens to it.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use http::{Method, Request, Response};
use kube::client::{Body, ClientBuilder};
use portcullis_controllers::host::{HostController, Known};
use portcullis_host::datapath::Mode;
use portcullis_kube_api::enforced::ENFORCED;
use portcullis_kube_api::host::{LISTEN_ADDRESSES, NODE_LABEL};
use portcullis_testkit::{Target, can_connect, eventually};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tower::{Layer, Service};

use crate::scene::{LAN, Running, Scene, WAN};

/// The way to the API.
#[derive(Clone)]
struct Way {
    /// Whether `ipMode` is lost on it, as an API before 1.30 does not keep it.
    drops: bool,
    /// Whether nodes do not get through with what they tell of themselves.
    mute: bool,
    /// So many are let through.
    open: Arc<Semaphore>,
    /// What was written, in order.
    written: Arc<Mutex<Vec<Write>>>,
}

/// Whose status was written, and what the API said to that, if it did.
type Write = (String, Option<u16>);

impl Way {
    fn new(drops: bool, open: usize) -> Self {
        Way { drops, mute: false, open: Arc::new(Semaphore::new(open)), written: Arc::default() }
    }

    async fn known(&self, scene: &Scene) -> Known {
        Known::new(ClientBuilder::try_from(scene.config().await).unwrap().with_layer(self).build())
    }

    /// What the API said whenever the status of a Service was written.
    fn written(&self, name: &str) -> Vec<Option<u16>> {
        let path = format!("/services/{name}/status");
        let all = self.written.lock().unwrap();
        all.iter().filter(|(written, _)| written.ends_with(&path)).map(|(_, said)| *said).collect()
    }
}

impl<S> Layer<S> for Way {
    type Service = Passing<S>;

    fn layer(&self, inner: S) -> Passing<S> {
        Passing { inner, way: self.clone() }
    }
}

struct Passing<S> {
    inner: S,
    way: Way,
}

impl<S, B> Service<Request<Body>> for Passing<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send,
    B: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path().to_owned();
        if self.way.mute && request.method() == Method::PATCH && path.contains("/configmaps/") {
            let passing = self.inner.call(request);
            return Box::pin(async move {
                std::future::pending::<()>().await;
                passing.await
            });
        }
        if request.method() != Method::PATCH || !path.contains("/services/") {
            return Box::pin(self.inner.call(request));
        }
        let (mut parts, body) = request.into_parts();
        let body = body.collect_bytes().now_or_never().expect("what is written is there").unwrap();
        let mut patch: Value = serde_json::from_slice(&body).unwrap();
        let ingress = patch.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut);
        for one in ingress.into_iter().flatten().filter_map(Value::as_object_mut).filter(|_| self.way.drops) {
            one.remove("ipMode");
        }
        parts.headers.remove(http::header::CONTENT_LENGTH);
        let request = Request::from_parts(parts, Body::from(patch.to_string().into_bytes()));
        // Nothing is sent before it is waited for.
        let (passing, way) = (self.inner.call(request), self.way.clone());
        let number = {
            let mut written = way.written.lock().unwrap();
            written.push((path, None));
            written.len() - 1
        };
        Box::pin(async move {
            way.open.acquire().await.unwrap().forget();
            let answer = passing.await?;
            way.written.lock().unwrap()[number].1 = Some(answer.status().as_u16());
            Ok(answer)
        })
    }
}

/// It is written as often as something changes, and not again and again; and what is served is served.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_kept_is_not_written_again_and_again() {
    let scene = Scene::new("unkept", Mode::Nftables);
    let _serving = scene.backend.serve(8080);
    let way = Way::new(true, Semaphore::MAX_PERMITS);
    let _running = scene.start_with(&way.known(&scene).await);
    let ranges = json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]});
    scene.apply("web", json!({}), ranges);
    scene.endpoint("web", json!({"ready": true}));
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.wait_for_condition("web", ENFORCED, "True/Enforced: ");
    let kept = || scene.service("web")["status"]["loadBalancer"]["ingress"][0]["ipMode"] == "Proxy";
    assert!(!kept(), "this API drops it");
    eventually("who is in the range connects", || can_connect(&scene.inside, LAN, Target::Tcp(80)));
    assert!(!can_connect(&scene.outside, WAN, Target::Tcp(80)));

    // Others come and change meanwhile: whoever writes without an end does so thousands of times.
    for port in 81..86 {
        let name = format!("web-{port}");
        scene.apply(&name, json!({}), json!({"ports": [{"port": port}]}));
        scene.wait_for_addresses(&name, &[LAN, WAN]);
    }
    let (before, most) = (way.written("web").len(), 12);
    assert!(before <= most, "its status was written {before} times");

    // What changes is written, and what somebody else takes away is put back.
    let patch = ["-n", scene.name, "patch", "service", "web", "--subresource=status", "--type=merge", "-p"];
    let nothing = json!({"status": {"loadBalancer": {"ingress": null}}}).to_string();
    scene.kubernetes.kubectl(&[&patch[..], &[&nothing]].concat()).unwrap();
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.apply("web-86", json!({}), json!({"ports": [{"port": 86}]}));
    scene.wait_for_addresses("web-86", &[LAN, WAN]);
    let after = way.written("web").len();
    assert!(after > before && after <= before + most, "{before} and then {after}");
}

/// Somebody changes a Service while what was decided before is on its way: it comes too late, and is decided anew.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_decided_on_an_older_version_is_not_written() {
    let scene = Scene::new("too-late", Mode::None);
    let way = Way::new(false, 0);
    let _agent = scene.start_agent().await;
    let _controller = Running::of(HostController::new(scene.settings(), way.known(&scene).await).run());
    scene.apply("web", json!({}), json!({}));
    eventually("something is on its way", || way.written("web").len() == 1);
    scene.apply("web", json!({LISTEN_ADDRESSES: "to-inside"}), json!({}));
    way.open.add_permits(1);
    eventually("it came too late, and another one is on its way", || way.written("web") == [Some(409), None]);
    assert_eq!(scene.addresses("web"), Vec::<String>::new());
    way.open.add_permits(Semaphore::MAX_PERMITS / 2);
    scene.wait_for_addresses("web", &[LAN]);
    // What is not heard of yet is waited for, without asking again and again.
    assert!(way.written("web").len() <= 4, "{:?}", way.written("web"));
}

/// Where both halves are one process one hears of the other at once, and not by the API.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_tells_does_not_go_by_the_api_where_both_halves_are_one_process() {
    let scene = Scene::new("told-here", Mode::Filter);
    let way = Way { mute: true, ..Way::new(false, Semaphore::MAX_PERMITS) };
    let _running = scene.start_with(&way.known(&scene).await);
    scene.apply("web", json!({}), json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]}));
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.wait_for_condition("web", ENFORCED, "True/Enforced: ");
    scene.node.run("ip address add 192.0.2.77/24 dev to-inside");
    scene.wait_for_addresses("web", &[LAN, "192.0.2.77", WAN]);
    let told = ["get", "configmaps", "--all-namespaces", "-o", "name", "-l"];
    let label = format!("{NODE_LABEL}={}", scene.node_name());
    assert_eq!(scene.kubernetes.kubectl(&[&told[..], &[&label]].concat()).unwrap(), "");
}

/// Mostly packet filters know in a moment what is asked of them: where a Service is reached is said at once then, rather than that it
/// waits.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_in_a_moment_is_written_once() {
    let scene = Scene::new("moment", Mode::Filter);
    let way = Way::new(false, Semaphore::MAX_PERMITS);
    let _running = scene.start_with(&way.known(&scene).await);
    let ranges = json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]});
    written_once(&scene, &way, &ranges, |name| scene.wait_for_condition(name, ENFORCED, "True/Enforced: "));
}

/// So is who serves it, also where the node's half is elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_served_in_a_moment_is_written_once() {
    let scene = Scene::new("moment-too", Mode::Nftables);
    let way = Way::new(false, Semaphore::MAX_PERMITS);
    let _agent = scene.start_agent().await;
    let _controller = Running::of(HostController::new(scene.settings(), way.known(&scene).await).run());
    let ip_mode = |name: &str| scene.service(name)["status"]["loadBalancer"]["ingress"][0]["ipMode"].take();
    written_once(&scene, &way, &json!({}), |name| {
        eventually(&format!("{name} is served"), || ip_mode(name) == "Proxy");
    });
}

/// Makes some Services, each once `is_settled` has seen that all is said of the one before.
fn written_once(scene: &Scene, way: &Way, spec: &Value, is_settled: impl Fn(&str)) {
    let names: Vec<String> = (81..91).map(|port| format!("web-{port}")).collect();
    for (name, port) in names.iter().zip(81..) {
        let mut spec = spec.clone();
        spec["ports"] = json!([{"port": port}]);
        scene.apply(name, json!({}), spec);
        scene.wait_for_addresses(name, &[LAN, WAN]);
        is_settled(name);
    }
    let once = names.iter().filter(|name| way.written(name) == [Some(200)]).count();
    assert!(once > 0, "a slow machine may say that some wait, and no machine says so of all");
}
