use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A connection to an HTTP server, used again and again, which does little itself.
#[derive(Debug)]
pub struct Http {
    host: String,
    stream: BufReader<TcpStream>,
}

impl AsFd for Http {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }
}

/// What a server answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// A header, whatever its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null where it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Http {
    /// Connects to a host and port.
    pub fn connect(host: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Http { host: host.to_owned(), stream: BufReader::new(stream) })
    }

    /// Sends a request and waits for its answer.
    pub fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<Answer> {
        self.send(method, path, headers, body)?;
        self.receive()
    }

    /// Sends a request, whose answer is to be received.
    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> io::Result<()> {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.host);
        for &(name, value) in headers {
            request.extend([name, ": ", value, "\r\n"]);
        }
        request.extend(["Content-Length: ", &body.len().to_string(), "\r\n\r\n", body]);
        self.stream.get_mut().write_all(request.as_bytes())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Waits for the answer to a request that was sent.
    pub fn receive(&mut self) -> io::Result<Answer> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or(io::ErrorKind::InvalidData)?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let mut answer = Answer { status, headers, body: Vec::new() };
        let length =
            answer.header("content-length").and_then(|length| length.parse().ok()).unwrap_or_default();
        answer.body.resize(length, 0);
        self.stream.read_exact(&mut answer.body)?;
        Ok(answer)
    }
}
