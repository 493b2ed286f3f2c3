//! Lines between two processes of ours over a Unix socket, and file descriptors along with them.
//!
//! What the lines mean is their users' business.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Descriptors that go with one line at most; the kernel takes 253.
pub const DESCRIPTORS_MAX: usize = 128;

/// Bytes read at a time.
const CHUNK: usize = 16 * 1024;

/// The half that writes lines; clones write to the same socket.
#[derive(Clone, Debug)]
pub struct LineWriter(Arc<UnixStream>);

/// The half that reads lines.
#[derive(Debug)]
pub struct LineReader {
    stream: Arc<UnixStream>,
    unread: Vec<u8>,
    /// Up to here nothing ends a line.
    searched: usize,
    line_max: usize,
    descriptors: Vec<OwnedFd>,
}

/// Makes a socket one of lines; longer ones than `line_max` bytes are an error.
#[must_use]
pub fn over(stream: UnixStream, line_max: usize) -> (LineReader, LineWriter) {
    let stream = Arc::new(stream);
    let reader = LineReader {
        stream: Arc::clone(&stream),
        unread: Vec::new(),
        searched: 0,
        line_max,
        descriptors: Vec::new(),
    };
    (reader, LineWriter(stream))
}

impl LineWriter {
    /// Writes a line, whose end is added, and passes copies of the descriptors with it.
    ///
    /// # Errors
    /// The other side is gone, or there are more descriptors than [`DESCRIPTORS_MAX`].
    pub async fn send(&self, line: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = format!("{line}\n").into_bytes();
        let mut sent = 0;
        while sent < bytes.len() {
            // They go with the first byte, whatever else is taken with it.
            let descriptors = if sent == 0 { descriptors } else { &[] };
            let rest = &bytes[sent..];
            let send = || send_some(&self.0, rest, descriptors);
            sent += self.0.async_io(Interest::WRITABLE, send).await?;
        }
        Ok(())
    }
}

impl LineReader {
    /// Reads the next line, without its end; `None` when the other side has ended. A call that is
    /// dropped loses nothing.
    ///
    /// # Errors
    /// The socket failed, or a line is too long or no text.
    pub async fn next_line(&mut self) -> io::Result<Option<String>> {
        loop {
            let found = self.unread[self.searched..]
                .iter()
                .position(|byte| *byte == b'\n');
            if let Some(offset) = found {
                let end = self.searched + offset;
                let line: Vec<u8> = self.unread.drain(..=end).take(end).collect();
                self.searched = 0;
                let text = String::from_utf8(line);
                return text
                    .map(Some)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
            }
            self.searched = self.unread.len();
            if self.searched > self.line_max {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a line is too long",
                ));
            }
            let (stream, unread, descriptors) =
                (&self.stream, &mut self.unread, &mut self.descriptors);
            let receive = || receive_some(stream, unread, descriptors);
            if stream.async_io(Interest::READABLE, receive).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Takes the descriptors that came with the lines so far, in their order.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }
}

fn send_some(
    stream: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        let what = "more descriptors than go with one line";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let slices = [IoSlice::new(bytes)];
    Ok(sendmsg(stream, &slices, &mut control, SendFlags::NOSIGNAL)?)
}

fn receive_some(
    stream: &UnixStream,
    unread: &mut Vec<u8>,
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut chunk = [0; CHUNK];
    let mut slices = [IoSliceMut::new(&mut chunk)];
    let received = recvmsg(stream, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("not all descriptors could be taken"));
    }
    unread.extend_from_slice(&chunk[..received.bytes]);
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;

    use super::*;

    #[tokio::test]
    async fn lines_of_any_length_arrive_whole_and_descriptors_with_them() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ((_ours, writer), (mut reader, _theirs)) = (over(ours, 1 << 20), over(theirs, 1 << 20));
        let (mut output, mut input) = io::pipe().unwrap();
        let long = "x".repeat(700_000);
        let sending = async {
            writer.send("short", &[]).await.unwrap();
            writer.send(&long, &[input.as_fd()]).await.unwrap();
            drop(writer);
            drop(_ours);
        };
        let reading = async {
            assert_eq!(reader.next_line().await.unwrap().as_deref(), Some("short"));
            let second = reader.next_line().await.unwrap();
            assert_eq!(second.map(|line| line.len()), Some(700_000));
            reader.take_descriptors()
        };
        let ((), mut passed) = tokio::join!(sending, reading);
        input.write_all(b"a").unwrap();
        io::PipeWriter::from(passed.remove(0))
            .write_all(b"b")
            .unwrap();
        drop(input);
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert_eq!(text, "ab");
        assert_eq!(reader.next_line().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_line_without_end_is_an_error_and_not_all_memory() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ((_ours, writer), (mut reader, _theirs)) = (over(ours, 100), over(theirs, 100));
        let long = "x".repeat(100_000);
        let send = tokio::spawn(async move { writer.send(&long, &[]).await });
        assert!(reader.next_line().await.is_err());
        assert!(reader.unread.len() <= 100 + CHUNK);
        send.abort();
    }
}
