use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::tls::Tls;

/// Where a server answers, as Open vSwitch's own programs write it: `unix:PATH`, `tcp:HOST:PORT`, `ssl:HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remote {
    Unix(PathBuf),
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16 },
}

/// A text that names no server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no OVSDB server: expected unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT")]
pub struct UnknownRemote(String);

impl FromStr for Remote {
    type Err = UnknownRemote;

    fn from_str(text: &str) -> Result<Self, UnknownRemote> {
        let unknown = || UnknownRemote(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(unknown)?;
        let address = || {
            let (host, port) = rest.rsplit_once(':').ok_or_else(unknown)?;
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let port = port.parse().map_err(|_| unknown())?;
            if host.is_empty() || port == 0 { Err(unknown()) } else { Ok((host.to_owned(), port)) }
        };
        match kind {
            "unix" if !rest.is_empty() => Ok(Remote::Unix(rest.into())),
            "tcp" => address().map(|(host, port)| Remote::Tcp { host, port }),
            "ssl" => address().map(|(host, port)| Remote::Tls { host, port }),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, host, port) = match self {
            Remote::Unix(path) => return write!(f, "unix:{}", path.display()),
            Remote::Tcp { host, port } => ("tcp", host, port),
            Remote::Tls { host, port } => ("ssl", host, port),
        };
        if host.contains(':') {
            write!(f, "{kind}:[{host}]:{port}")
        } else {
            write!(f, "{kind}:{host}:{port}")
        }
    }
}

/// A connection of any kind.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Remote {
    pub(crate) async fn connect(&self, tls: Option<&Tls>) -> io::Result<Stream> {
        let open = async |host: &str, port: u16| {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            io::Result::Ok(stream)
        };
        match self {
            Remote::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
            Remote::Tcp { host, port } => open(host, *port).await.map(Stream::Tcp),
            Remote::Tls { host, port } => {
                let tls = tls.ok_or_else(|| io::Error::other("no certificates are configured for it"))?;
                // Before the connection: a file that cannot be read is no fault of the server's.
                let connector = tls.connector()?;
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                let stream = connector.connect(name, open(host, *port).await?).await?;
                Ok(Stream::Tls(Box::new(stream)))
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remotes_read_as_they_print() {
        for text in
            ["unix:/run/ovn/nb.sock", "tcp:127.0.0.1:6641", "ssl:[2001:db8::1]:6641", "tcp:nb.example:6641"]
        {
            assert_eq!(text.parse::<Remote>().unwrap().to_string(), text);
        }
        for wrong in ["", "unix:", "tcp:6641", "tcp::6641", "tcp:h:0", "tcp:h:x", "http://x", "punix:/x"] {
            assert!(wrong.parse::<Remote>().is_err(), "{wrong}");
        }
    }
}
