//! Lines to our standard error, written by a thread of its own, so that a standard error that
//! takes nothing holds nobody up: lines that it does not take in time are dropped and counted.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait: a second of a busy log.
const WAITING_LINES: usize = 1_024;

/// How long the last lines are waited for at the end.
const FLUSH_AT_MOST: Duration = Duration::from_secs(1);

/// How often a full queue is tried again at the end.
const FLUSH_RETRY: Duration = Duration::from_millis(5);

/// Prints lines without ever waiting for them to be taken. Clones share one queue.
#[derive(Clone, Debug)]
pub struct Printer {
    lines: SyncSender<Item>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Item {
    /// Ends with a line feed.
    Line(Vec<u8>),
    /// Tells when everything before it was written.
    Flush(SyncSender<()>),
}

/// Returns the printer to our standard error, of which a process has one.
pub fn printer() -> &'static Printer {
    static PRINTER: OnceLock<Printer> = OnceLock::new();
    PRINTER.get_or_init(|| Printer::to(io::stderr()))
}

impl Printer {
    /// Starts a printer. Its thread ends after the last clone is dropped.
    pub fn to(writer: impl Write + Send + 'static) -> Self {
        let (lines, waiting) = sync_channel(WAITING_LINES);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        // Not joined: a standard error that is stuck must not keep us from ending. Without a thread
        // the lines are dropped; whoever starts next is told by the system that there are none.
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || print_all(writer, &waiting, &counted))
            .ok();
        Self { lines, dropped }
    }

    /// Prints one line, or drops it when too many wait.
    pub fn line(&self, mut line: Vec<u8>) {
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        match self.lines.try_send(Item::Line(line)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Waits until what was printed is written, for a second at most.
    pub fn flush(&self) {
        let end = Instant::now() + FLUSH_AT_MOST;
        let (written, is_written) = sync_channel(1);
        let mut item = Item::Flush(written);
        while let Err(TrySendError::Full(returned)) = self.lines.try_send(item) {
            if Instant::now() >= end {
                return;
            }
            item = returned;
            thread::sleep(FLUSH_RETRY);
        }
        match is_written.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }
}

/// Takes one event's line for the printer; a log event is written at once.
#[derive(Debug)]
pub struct LogLine<'a>(&'a Printer);

impl<'a> MakeWriter<'a> for Printer {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LogLine(self)
    }
}

impl Write for LogLine<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.line(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn print_all(mut writer: impl Write, waiting: &Receiver<Item>, dropped: &AtomicU64) {
    for item in waiting {
        let line = match item {
            Item::Line(line) => line,
            Item::Flush(written) => {
                // Whoever asked may have gone.
                written.send(()).ok();
                continue;
            }
        };
        let lost = dropped.swap(0, Ordering::Relaxed);
        // A standard error that takes nothing is nobody's reason to stop.
        if lost > 0 {
            writeln!(writer, "{lost} lines were dropped: nobody took them").ok();
        }
        writer.write_all(&line).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// Takes nothing until the test has ended.
    struct Stuck(Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().ok();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_writer_holds_nobody_up() {
        let (release, held) = sync_channel(0);
        let printer = Printer::to(Stuck(held));
        for _ in 0..WAITING_LINES + 100 {
            printer.line(b"line".to_vec());
        }
        assert!(printer.dropped.load(Ordering::Relaxed) >= 90);
        printer.flush();
        drop(release);
    }

    #[test]
    fn what_was_printed_is_written_after_a_flush() {
        let kept = Kept::default();
        let printer = Printer::to(kept.clone());
        printer.line(b"one".to_vec());
        LogLine(&printer).write_all(b"two\n").unwrap();
        printer.flush();
        let written = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(String::from_utf8_lossy(&written), "one\ntwo\n");
    }
}
