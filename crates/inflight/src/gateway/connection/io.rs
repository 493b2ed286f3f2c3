//! A TCP socket as hyper reads and writes it, while others can watch it.
//!
//! The socket is shared: whoever waits for a slot on behalf of a client must notice that the
//! client left, even while bytes that nobody reads yet stand before the end of the stream.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes};
use futures_util::FutureExt;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::client::Activity;

/// The first bytes of every HTTP/2 connection (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A shared socket, read and written by one task.
pub(in crate::gateway) struct Io {
    stream: Arc<TcpStream>,
    /// Bytes that were read before and are given to the first reads.
    prefix: Bytes,
    watcher: Watcher,
}

/// Who is told of bytes that move.
pub(in crate::gateway) enum Watcher {
    /// Nobody.
    Nobody,
    /// The connection of a client.
    Client(Arc<Activity>),
    /// Somebody who wants to know the first byte a replica sends.
    FirstByte(Option<oneshot::Sender<u8>>),
}

/// The protocol that a client began to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Protocol {
    Http1,
    Http2,
}

impl Io {
    pub(in crate::gateway) fn new(stream: Arc<TcpStream>, prefix: Bytes, watcher: Watcher) -> Self {
        Self {
            stream,
            prefix,
            watcher,
        }
    }

    /// Reads until the protocol is known. What was read is given to the first reads.
    ///
    /// # Errors
    /// The socket's error; `UnexpectedEof` when the client left before it said anything.
    pub(in crate::gateway) async fn sniff(&mut self) -> io::Result<Protocol> {
        let mut read = [0; HTTP2_PREFACE.len()];
        let mut filled = 0;
        loop {
            self.stream.readable().await?;
            match self.stream.try_read(&mut read[filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            let is_http2 = HTTP2_PREFACE.starts_with(&read[..filled]);
            if is_http2 && filled < HTTP2_PREFACE.len() {
                continue;
            }
            self.prefix = Bytes::copy_from_slice(&read[..filled]);
            return Ok(if is_http2 {
                Protocol::Http2
            } else {
                Protocol::Http1
            });
        }
    }

    /// Reads once. A read that leaves room has emptied the socket: its readiness is cleared
    /// without asking the system again. The readiness that is cleared is the one from before the
    /// read, so bytes that arrive in between are not forgotten.
    fn try_read(&self, buf: &mut ReadBuf<'_>) -> io::Result<usize> {
        let mut partial = None;
        let whole = self.stream.try_io(Interest::READABLE, || {
            let room = buf.remaining_mut();
            let count = self.stream.try_read_buf(buf)?;
            if count > 0 && count < room {
                partial = Some(count);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(count)
        });
        partial.map_or(whole, Ok)
    }

    fn try_write(&self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match bufs {
            [buf] => self.stream.try_write(buf),
            bufs => self.stream.try_write_vectored(bufs),
        }
    }
}

/// Tells whether the peer closed its sending side or the connection broke, even while bytes
/// before that were not read.
pub(in crate::gateway) fn is_read_closed(stream: &TcpStream) -> bool {
    match stream.ready(Interest::READABLE).now_or_never() {
        None => false,
        Some(Ok(ready)) => ready.is_read_closed(),
        Some(Err(_)) => true,
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.prefix.is_empty() {
            let count = this.prefix.len().min(buf.remaining());
            buf.put_slice(&this.prefix.split_to(count));
            this.watcher.on_read(buf.filled());
            return Poll::Ready(Ok(()));
        }
        loop {
            match this.try_read(buf) {
                Ok(_) => {
                    this.watcher.on_read(buf.filled());
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(this.stream.poll_read_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.try_write(bufs) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.watcher.on_write(false);
                    ready!(self.stream.poll_write_ready(cx))?;
                }
                written => {
                    self.watcher.on_write(true);
                    return Poll::Ready(written);
                }
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.stream).shutdown(std::net::Shutdown::Write))
    }
}

impl Watcher {
    fn on_read(&mut self, bytes: &[u8]) {
        match self {
            Self::Nobody => {}
            Self::Client(activity) => activity.on_read(),
            Self::FirstByte(told) => {
                if let (Some(first), Some(told)) = (bytes.first(), told.take()) {
                    // Whoever asked may have given up waiting.
                    let _gone = told.send(*first);
                }
            }
        }
    }

    fn on_write(&self, has_written: bool) {
        if let Self::Client(activity) = self {
            activity.on_write(has_written);
        }
    }
}
