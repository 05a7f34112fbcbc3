use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;

use axum::body::{Body, Bytes, HttpBody, to_bytes};

use super::timely::Late;

/// Why the body of a request was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It has more bytes than are read.
    TooLarge,
    /// It did not come in time.
    Late,
    /// The connection ended in it, or it is not written as HTTP is.
    Broken,
}

/// The body of a request, if it has at most so many bytes. What says that it has more is not waited for.
pub(crate) async fn read(body: Body, most: usize) -> Result<Bytes, Unread> {
    if body.size_hint().lower() > u64::try_from(most).unwrap_or(u64::MAX) {
        return Err(Unread::TooLarge);
    }
    to_bytes(body, most).await.map_err(|error| {
        let mut causes = std::iter::successors(Some(&error as &dyn Error), |cause| (*cause).source());
        causes
            .find_map(|cause| {
                let broken = cause.is::<hyper::Error>().then_some(Unread::Broken);
                cause.is::<Late>().then_some(Unread::Late).or(broken)
            })
            // The only other one is that of the limit.
            .unwrap_or(Unread::TooLarge)
    })
}

/// Waits for the body of a request without keeping any of it, if it has at most so many bytes. Who sends one listens to the
/// answer only afterwards.
pub(crate) async fn discard(mut body: Body, most: usize) {
    let mut left = most;
    while let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(length) else { break };
        left = rest;
    }
}
