//! What replicas write: split into lines, prefixed, passed to our standard error, and the last of
//! it kept for messages.
//!
//! A replica is never held up by our own standard error: lines that it does not take in time are
//! dropped and counted.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Longer lines are cut into pieces of this many bytes.
const LINE_BYTES: usize = 8 * 1024;

/// Lines kept of each replica.
const TAIL_LINES: usize = 20;

/// Lines that may wait for our standard error, over all replicas.
const WAITING_LINES: usize = 1_024;

/// Prints replicas' lines from a thread of its own. Clones share it.
#[derive(Clone, Debug)]
pub struct LogPrinter {
    lines: SyncSender<String>,
    dropped: Arc<AtomicU64>,
}

impl LogPrinter {
    /// Starts a printer to our standard error.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn to_stderr() -> io::Result<Self> {
        Self::to(io::stderr())
    }

    /// Starts a printer. Its thread ends after the last clone is dropped.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn to(writer: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(WAITING_LINES);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        // Not joined: a standard error that is stuck must not keep us from ending.
        thread::Builder::new()
            .name("replica-log".to_owned())
            .spawn(move || print_all(writer, &waiting, &counted))?;
        Ok(Self { lines, dropped })
    }

    fn print(&self, line: String) {
        match self.lines.try_send(line) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn print_all(mut writer: impl Write, waiting: &Receiver<String>, dropped: &AtomicU64) {
    for mut line in waiting {
        line.push('\n');
        let lost = dropped.swap(0, Ordering::Relaxed);
        // A standard error that takes nothing is nobody's reason to stop reading the replicas.
        if lost > 0 {
            writeln!(
                writer,
                "{lost} lines of replicas were dropped: nobody took them"
            )
            .ok();
        }
        writer.write_all(line.as_bytes()).ok();
    }
}

/// The last lines of one replica.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Returns the lines kept, oldest first.
    pub(super) fn lines(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .cloned()
            .collect()
    }
}

/// Reads a stream to its end, printing and keeping its lines.
pub(super) async fn follow(
    mut stream: impl AsyncRead + Unpin,
    prefix: String,
    printer: LogPrinter,
    tail: Tail,
) {
    let mut splitter = LineSplitter::default();
    let mut emit = |line: &str| {
        printer.print(format!("{prefix} | {line}"));
        tail.push(line.to_owned());
    };
    let mut buffer = vec![0; LINE_BYTES];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(read) => splitter.push(&buffer[..read], &mut emit),
        }
    }
    splitter.finish(&mut emit);
}

/// Cuts bytes into lines of at most [`LINE_BYTES`].
#[derive(Debug, Default)]
struct LineSplitter {
    partial: Vec<u8>,
}

impl LineSplitter {
    fn push(&mut self, bytes: &[u8], emit: &mut impl FnMut(&str)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (line, ended) = match piece.strip_suffix(b"\n") {
                Some(line) => (line, true),
                None => (piece, false),
            };
            let mut rest = line;
            while self.partial.len() + rest.len() > LINE_BYTES {
                let (fits, over) = rest.split_at(LINE_BYTES - self.partial.len());
                self.partial.extend_from_slice(fits);
                self.emit(emit);
                rest = over;
            }
            self.partial.extend_from_slice(rest);
            if ended {
                self.emit(emit);
            }
        }
    }

    fn finish(&mut self, emit: &mut impl FnMut(&str)) {
        if !self.partial.is_empty() {
            self.emit(emit);
        }
    }

    fn emit(&mut self, emit: &mut impl FnMut(&str)) {
        let line = self.partial.strip_suffix(b"\r").unwrap_or(&self.partial);
        emit(&String::from_utf8_lossy(line));
        self.partial.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]]) -> Vec<String> {
        let mut splitter = LineSplitter::default();
        let mut lines = Vec::new();
        let mut emit = |line: &str| lines.push(line.to_owned());
        for chunk in chunks {
            splitter.push(chunk, &mut emit);
        }
        splitter.finish(&mut emit);
        lines
    }

    #[test]
    fn lines_are_put_together_from_pieces() {
        assert_eq!(split(&[b"a", b"b\nc\r\n", b"\nd"]), ["ab", "c", "", "d"]);
        assert_eq!(split(&[]), Vec::<String>::new());
        assert_eq!(split(&[b"x\n"]), ["x"]);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(split(&[b"caf\xe9\n"]), ["caf\u{fffd}"]);
    }

    #[test]
    fn a_line_without_end_is_cut_and_not_collected() {
        let lines = split(&[&vec![b'x'; 3 * LINE_BYTES + 5], b"\nnext\n"]);
        let lengths: Vec<usize> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [LINE_BYTES, LINE_BYTES, LINE_BYTES, 5, 4]);
    }

    #[test]
    fn the_tail_keeps_the_last_lines() {
        let tail = Tail::default();
        for number in 0..TAIL_LINES + 3 {
            tail.push(number.to_string());
        }
        let lines = tail.lines();
        assert_eq!(lines.len(), TAIL_LINES);
        assert_eq!(lines.first().map(String::as_str), Some("3"));
    }

    #[test]
    fn a_stuck_writer_holds_nobody_up() {
        struct Stuck(Receiver<()>);
        impl Write for Stuck {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                // Waits until the test has ended.
                self.0.recv().ok();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (release, held) = sync_channel(0);
        let printer = LogPrinter::to(Stuck(held)).unwrap();
        for _ in 0..WAITING_LINES + 100 {
            printer.print("line".to_owned());
        }
        assert!(printer.dropped.load(Ordering::Relaxed) >= 90);
        drop(release);
    }
}
