//! How fast metric pages are read: a synthetic page with the names, labels and values of a proxy's
//! with many clusters. Run it with `cargo bench -p inflight --bench text_format`.
#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]

use std::fmt::Write as _;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use inflight::sources::text_format::{End, Sample, TextReader};

/// As large as the body chunks that an HTTP client hands out.
const CHUNK: usize = 8 * 1024;

fn page() -> String {
    let mut page = String::new();
    for cluster in 0..50 {
        let label = format!("envoy_cluster_name=\"inference_server_{cluster}\"");
        for counter in [
            "upstream_rq_total",
            "upstream_cx_total",
            "upstream_rq_retry",
        ] {
            let name = format!("envoy_cluster_{counter}");
            writeln!(page, "# TYPE {name} counter").unwrap();
            writeln!(page, "{name}{{{label}}} {}", cluster * 1_234_567).unwrap();
        }
        let name = "envoy_cluster_upstream_rq_time";
        writeln!(page, "# TYPE {name} histogram").unwrap();
        for le in [
            "0.5", "1", "5", "10", "25", "50", "100", "250", "1000", "+Inf",
        ] {
            writeln!(
                page,
                "{name}_bucket{{{label},le=\"{le}\"}} {}",
                cluster * 91
            )
            .unwrap();
        }
        writeln!(page, "{name}_sum{{{label}}} {}.0625", cluster * 7_777).unwrap();
        writeln!(page, "{name}_count{{{label}}} {}", cluster * 91).unwrap();
    }
    page.push_str("# EOF\n");
    page
}

fn read(page: &str) -> f64 {
    let mut sum = 0.0;
    let mut take = |sample: &Sample<'_>| {
        if sample.name == "envoy_cluster_upstream_rq_time_sum" {
            sum += sample.value;
        }
    };
    let mut reader = TextReader::new();
    for chunk in page.as_bytes().chunks(CHUNK) {
        reader.feed(chunk, &mut take).unwrap();
    }
    reader.finish(End::Marked, &mut take).unwrap();
    sum
}

fn text_format(criterion: &mut Criterion) {
    let page = page();
    let mut group = criterion.benchmark_group("text_format");
    group.throughput(Throughput::BytesDecimal(page.len() as u64));
    group.bench_function("page", |bencher| bencher.iter(|| read(black_box(&page))));
    group.finish();
}

criterion_group!(benches, text_format);
criterion_main!(benches);
