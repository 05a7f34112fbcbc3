use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// Stands between client and server, and cuts the connection at every transaction: in turn after it was forwarded and
/// answered, but before the answer is; after it was forwarded; and before that. The fourth passes.
pub(crate) struct Proxy {
    port: u16,
    transactions: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) async fn start(server: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let transactions = Arc::new(AtomicUsize::new(0));
        let (server, counter) = (PathBuf::from(server), Arc::clone(&transactions));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server.clone(), Arc::clone(&counter)));
            }
        });
        Proxy { port, transactions }
    }

    pub(crate) fn remote(&self) -> String {
        format!("tcp:127.0.0.1:{}", self.port)
    }

    /// How many it has seen.
    pub(crate) fn transactions(&self) -> usize {
        self.transactions.load(Ordering::SeqCst)
    }
}

/// Returning cuts both connections.
async fn carry(mut client: TcpStream, server: PathBuf, transactions: Arc<AtomicUsize>) {
    let Ok(mut server) = UnixStream::connect(server).await else { return };
    let [mut request, mut answer] = [vec![0; 1 << 16], vec![0; 1 << 16]];
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(length @ 1..) = read else { return };
                let request = &request[..length];
                let cut = contains(request, r#""transact""#).then(|| transactions.fetch_add(1, Ordering::SeqCst) % 4);
                if cut == Some(2) || server.write_all(request).await.is_err() || cut == Some(1) {
                    return;
                }
                if cut == Some(0) {
                    loop {
                        let Ok(length @ 1..) = server.read(&mut answer).await else { return };
                        if contains(&answer[..length], r#""result""#) {
                            return;
                        }
                    }
                }
            }
            read = server.read(&mut answer) => {
                let Ok(length @ 1..) = read else { return };
                if client.write_all(&answer[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}
