//! What replicas write: split into lines, prefixed, passed to our standard error, and the last of
//! it kept for messages.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::telemetry::Printer;

/// Longer lines are cut into pieces of this many bytes.
const LINE_BYTES: usize = 8 * 1024;

/// Lines kept of each replica.
const TAIL_LINES: usize = 20;

/// The last lines of one replica.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    /// Keeps a line. Messages show it on terminals, which what a server writes must not steer.
    fn push(&self, line: &str) {
        let shown = |c: char| match c {
            '\t' => ' ',
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        };
        let line = line.chars().map(shown).collect();
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
    printer: Printer,
    tail: Tail,
) {
    let mut splitter = LineSplitter::default();
    let mut emit = |line: &str| {
        printer.line(format!("{prefix} | {line}").into_bytes());
        tail.push(line);
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

    #[test]
    fn what_a_server_writes_steers_no_terminal_that_a_message_is_shown_on() {
        let tail = Tail::default();
        tail.push("a\tb\u{1b}[2Jc\u{7}");
        assert_eq!(tail.lines(), ["a b\u{fffd}[2Jc\u{fffd}"]);
    }

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
            tail.push(&number.to_string());
        }
        let lines = tail.lines();
        assert_eq!(lines.len(), TAIL_LINES);
        assert_eq!(lines.first().map(String::as_str), Some("3"));
    }
}
