//! Whatever a page says, what is collected from it is counts or an error, and never a panic.
#![no_main]

use inflight::config::{CustomExecuting, CustomSettings, ServerKind};
use inflight::sources::envoy::EnvoyPage;
use inflight::sources::servers::{ServerPage, ServerTable};
use inflight::sources::text_format::{End, Sample, TextReader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut envoy = EnvoyPage::new("c");
    if read(data, |sample| envoy.take(sample))
        && let Ok(reading) = envoy.reading()
    {
        assert!(reading.active >= 0.0 && reading.pending.is_finite());
    }
    let kinds = [
        ServerKind::Triton { models: Vec::new() },
        ServerKind::Vllm {
            model: Some("m".to_owned()),
            cache_target: Some(0.9),
        },
        ServerKind::Custom(CustomSettings {
            executing: CustomExecuting::Gauge("x".to_owned()),
            queued: Some("y".to_owned()),
            labels: vec![("a".to_owned(), "b".to_owned())],
        }),
    ];
    for kind in &kinds {
        let table = ServerTable::of(kind);
        let mut page = ServerPage::new(&table);
        if read(data, |sample| page.take(sample))
            && let Ok(reading) = page.reading()
        {
            let seconds = reading.series.iter().map(|(_, row)| row.total_seconds);
            assert!(seconds.chain(reading.executing).all(|value| value >= 0.0));
        }
    }
});

fn read(page: &[u8], mut take: impl FnMut(&Sample<'_>)) -> bool {
    let mut reader = TextReader::new();
    reader.feed(page, &mut take).is_ok() && reader.finish(End::Delimited, &mut take).is_ok()
}
