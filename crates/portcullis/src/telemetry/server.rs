//! The HTTP server behind `telemetry.listen`.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use super::metrics::{self, Metrics};
use super::readiness::{self, Readiness};

pub(crate) fn router(readiness: Readiness, metrics: Metrics) -> Router {
    let metrics = Arc::new(metrics);
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz).with_state(readiness))
        .route("/metrics", get(scrape).with_state(metrics))
        .fallback(not_found)
}

/// Answers until `stop` is done; then accepts no more, closes idle connections and ends when the last request
/// has its answer. How long that may take is up to the caller.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

async fn readyz(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let mut lines = String::new();
    let mut status = StatusCode::OK;
    for (name, state) in readiness.states() {
        // Writing to a String cannot fail.
        let _ = match state {
            readiness::State::Ready => writeln!(lines, "{name}: ready"),
            readiness::State::NotReady(reason) => {
                status = StatusCode::SERVICE_UNAVAILABLE;
                writeln!(lines, "{name}: not ready: {reason}")
            }
        };
    }
    let summary = if status == StatusCode::OK { "ok" } else { "not ready" };
    (status, format!("{summary}\n{lines}"))
}

async fn scrape(State(metrics): State<Arc<Metrics>>) -> Response {
    match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn not_found(uri: Uri) -> (StatusCode, String) {
    (StatusCode::NOT_FOUND, format!("no {} here; there is /livez, /readyz and /metrics\n", uri.path()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::oneshot;

    use super::*;

    async fn listen() -> (TcpListener, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    async fn ask(address: std::net::SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn readyz_says_what_is_missing() {
        let readiness = Readiness::default();
        let (listener, address) = listen().await;
        let router = router(readiness.clone(), Metrics::new("1.2.3", readiness.clone()));
        tokio::spawn(serve(listener, router, std::future::pending()));

        assert!(ask(address, "/readyz").await.ends_with("\r\n\r\nok\n"));
        let aws = readiness.register("aws");
        let ovn = readiness.register("ovn");
        aws.ready();
        ovn.not_ready("no northbound database at tcp:127.0.0.1:6641");
        let answer = ask(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(
            answer.ends_with(
                "not ready\naws: ready\novn: not ready: no northbound database at tcp:127.0.0.1:6641\n"
            ),
            "{answer}"
        );
        let answer = ask(address, "/metrics").await;
        assert!(answer.contains("\nportcullis_ready{check=\"aws\"} 1\n"), "{answer}");
        assert!(answer.contains("\nportcullis_ready{check=\"ovn\"} 0\n"), "{answer}");
        ovn.ready();
        assert!(ask(address, "/readyz").await.starts_with("HTTP/1.1 200 "));
    }

    #[tokio::test]
    async fn a_request_in_flight_gets_its_answer_while_no_new_one_is_accepted() {
        let (listener, address) = listen().await;
        let (entered, mut running) = tokio::sync::mpsc::channel(1);
        let slow = get(async move || {
            entered.send(()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
            "done\n"
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(serve(listener, Router::new().route("/slow", slow), async {
            let _ = stopped.await;
        }));
        let request = tokio::spawn(ask(address, "/slow"));
        running.recv().await.unwrap();
        drop(stop);
        let answer = request.await.unwrap();
        assert!(answer.ends_with("\r\n\r\ndone\n"), "{answer}");
        server.await.unwrap().unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }
}
