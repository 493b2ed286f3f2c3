//! A connection to a replica that closed its receiving side: what is still to be sent is thrown
//! away, so that what the replica said before it closed can be read.
//!
//! A replica that wants no more of an upload answers early and closes. hyper would see the failed
//! write first, and drop the answer. Whether one came, and whether it is whole, the reading tells.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Reads on when it cannot write.
pub(super) struct Patient<T>(T);

impl<T> Patient<T> {
    pub(super) const fn new(io: T) -> Self {
        Self(io)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.get_mut().0).poll_write_vectored(cx, bufs));
        let is_closed = written.as_ref().is_err_and(|error| {
            let kind = error.kind();
            kind == io::ErrorKind::BrokenPipe || kind == io::ErrorKind::ConnectionReset
        });
        Poll::Ready(if is_closed {
            Ok(bufs.iter().map(|buf| buf.len()).sum())
        } else {
            written
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}
