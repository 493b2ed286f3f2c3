//! Any bytes, in chunks of any size, read the same as in one piece, and never panic.
#![no_main]

use inflight::sources::text_format::{End, Sample, TextError, TextReader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&size, page)) = data.split_first() else {
        return;
    };
    let end = match size % 3 {
        0 => End::Marked,
        1 => End::Delimited,
        _ => End::Closed,
    };
    let whole = read(page, end, page.len());
    assert_eq!(read(page, end, usize::from(size)), whole);
});

fn read(page: &[u8], end: End, size: usize) -> Result<Vec<(String, u64)>, TextError> {
    let mut samples = Vec::new();
    let mut take = |sample: &Sample<'_>| {
        let labels: String = sample.labels().map(|label| label.value.text()).collect();
        samples.push((format!("{}{labels}", sample.name), sample.value.to_bits()));
    };
    let mut reader = TextReader::new();
    for chunk in page.chunks(size.max(1)) {
        reader.feed(chunk, &mut take)?;
    }
    reader.finish(end, &mut take)?;
    Ok(samples)
}
