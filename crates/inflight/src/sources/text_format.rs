//! Metric pages as they arrive: the Prometheus text format 0.0.4 and OpenMetrics text.
//!
//! A [`TextReader`] is fed chunks and hands out samples one by one; nothing is allocated for a
//! sample, and of the page only an unfinished line is kept, within a bound. It says nothing of what
//! samples mean: comments (HELP, TYPE and UNIT with them), time stamps and exemplars are checked and
//! dropped.
//!
//! A page that is cut or wrong anywhere is an error as a whole. So that no half of one is ever
//! used, a caller keeps what it took from the samples to itself until [`TextReader::finish`]
//! returned without one.

mod labels;
mod line;
mod number;
#[cfg(test)]
mod tests;

use memchr::{memchr, memchr_iter};

use line::Line;

pub use labels::{Escaped, Label, Labels};
pub use line::{Fault, Sample};

/// The longest line that is taken: many times those of the largest pages seen, which have
/// hundreds of bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// What proves that a page is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// `# EOF` is its last line, as OpenMetrics promises.
    Marked,
    /// It ended where its sender said it would: at its length, or with the last chunk. A last line
    /// without a line end is whole.
    Delimited,
    /// The sender closed the connection, which may have cut the page; the last line end is all
    /// there is to go by.
    Closed,
}

/// Why a page is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// A line does not have the form.
    #[error("line {line}: {fault}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        fault: Fault,
    },
    /// A line is longer than any metric's.
    #[error("line {line}: longer than {LINE_BYTES_MAX} bytes")]
    LongLine {
        /// Its number, from 1.
        line: u64,
    },
    /// Something follows the end mark.
    #[error("line {line}: more after `# EOF`")]
    AfterEnd {
        /// Its number, from 1.
        line: u64,
    },
    /// The page has no end mark.
    #[error("cut: no `# EOF`")]
    NoEndMark,
    /// The page ends in the middle of a line.
    #[error("cut in the middle of a line")]
    CutLine,
}

/// Reads one page.
#[derive(Debug, Default)]
pub struct TextReader {
    /// The beginning of a line whose end has not arrived.
    begun: Vec<u8>,
    lines: u64,
    has_ended: bool,
}

impl TextReader {
    /// Starts a page.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the page and hands out the samples whose lines they complete.
    ///
    /// # Errors
    /// A line is wrong or too long; the page is not to be used.
    pub fn feed(
        &mut self,
        mut chunk: &[u8],
        mut on_sample: impl FnMut(&Sample<'_>),
    ) -> Result<(), TextError> {
        if !self.begun.is_empty() {
            let Some(end) = memchr(b'\n', chunk) else {
                return self.begin_line(chunk);
            };
            self.begin_line(&chunk[..end])?;
            let mut line = std::mem::take(&mut self.begun);
            self.take_line(&line, &mut on_sample)?;
            line.clear();
            self.begun = line;
            chunk = &chunk[end + 1..];
        }
        let mut start = 0;
        for end in memchr_iter(b'\n', chunk) {
            self.take_line(&chunk[start..end], &mut on_sample)?;
            start = end + 1;
        }
        self.begin_line(&chunk[start..])
    }

    /// Ends the page.
    ///
    /// # Errors
    /// The page is cut, or its last line is wrong; it is not to be used.
    pub fn finish(
        mut self,
        end: End,
        mut on_sample: impl FnMut(&Sample<'_>),
    ) -> Result<(), TextError> {
        if !self.begun.is_empty() {
            let line = std::mem::take(&mut self.begun);
            // An unfinished end mark is judged below; any other unfinished line may be a part.
            if end == End::Closed {
                return Err(TextError::CutLine);
            }
            self.take_line(&line, &mut on_sample)?;
        }
        if end == End::Marked && !self.has_ended {
            return Err(TextError::NoEndMark);
        }
        Ok(())
    }

    fn begin_line(&mut self, part: &[u8]) -> Result<(), TextError> {
        if self.begun.len() + part.len() > LINE_BYTES_MAX {
            let line = self.lines + 1;
            return Err(TextError::LongLine { line });
        }
        self.begun.extend_from_slice(part);
        Ok(())
    }

    fn take_line(
        &mut self,
        text: &[u8],
        on_sample: &mut impl FnMut(&Sample<'_>),
    ) -> Result<(), TextError> {
        self.lines += 1;
        let line = self.lines;
        if text.len() > LINE_BYTES_MAX {
            return Err(TextError::LongLine { line });
        }
        match line::parse(text).map_err(|fault| TextError::Line { line, fault })? {
            Line::Nothing => {}
            Line::Comment | Line::Sample(_) | Line::End if self.has_ended => {
                return Err(TextError::AfterEnd { line });
            }
            Line::Comment => {}
            Line::End => self.has_ended = true,
            Line::Sample(sample) => on_sample(&sample),
        }
        Ok(())
    }
}
