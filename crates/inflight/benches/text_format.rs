//! How fast metric pages are read, and what a fleet needs is collected from them: synthetic pages
//! with the names, labels and values of a proxy's with many clusters and of a server's with many
//! models. Run it with `cargo bench -p inflight --bench text_format`.
#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use inflight::config::ServerKind;
use inflight::sources::envoy::EnvoyPage;
use inflight::sources::servers::{ServerPage, ServerTable};
use inflight::sources::text_format::{End, Sample, TextReader};
use inflight_core::Timestamp;
use inflight_core::load::{Estimator, Measured, MeasuredBy, Patience, PeerId};

const SERVERS: u64 = 1_000;

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

/// About 100 KB of a server.
fn server_page() -> String {
    let mut page = String::new();
    for counter in [
        "nv_inference_request_success",
        "nv_inference_request_duration_us",
        "nv_inference_queue_duration_us",
        "nv_inference_compute_infer_duration_us",
        "nv_inference_pending_request_count",
    ] {
        writeln!(page, "# TYPE {counter} counter").unwrap();
        for model in 0..300 {
            let labels = format!("model=\"particle_net_{model}\",version=\"1\"");
            writeln!(page, "{counter}{{{labels}}} {}", model * 1_234_567).unwrap();
        }
    }
    page
}

fn feed(page: &str, mut take: impl FnMut(&Sample<'_>)) {
    let mut reader = TextReader::new();
    for chunk in page.as_bytes().chunks(CHUNK) {
        reader.feed(chunk, &mut take).unwrap();
    }
    reader.finish(End::Delimited, take).unwrap();
}

/// What one reading of a server costs, from its bytes to its place among a thousand.
fn collect(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("collect");
    let proxies = page();
    group.throughput(Throughput::BytesDecimal(proxies.len() as u64));
    group.bench_function("envoy", |bencher| {
        bencher.iter(|| {
            let mut page = EnvoyPage::new("inference_server_7");
            feed(black_box(&proxies), |sample| page.take(sample));
            page.reading().err()
        });
    });
    let servers = server_page();
    group.throughput(Throughput::BytesDecimal(servers.len() as u64));
    let table = ServerTable::of(&ServerKind::Triton { models: Vec::new() });
    let mut joined = Measured::new(MeasuredBy {
        proxies: Some(Estimator::LiveGauge),
        servers: Estimator::CompletionCounter,
        patience: Patience {
            late: Duration::from_secs(15),
            stale: Duration::from_secs(30),
        },
    });
    for server in 0..SERVERS {
        joined.add_server(PeerId(server));
    }
    let (mut now, mut server) = (Timestamp::ORIGIN, 0);
    group.bench_function("triton", |bencher| {
        bencher.iter(|| {
            let mut page = ServerPage::new(&table);
            feed(black_box(&servers), |sample| page.take(sample));
            server = (server + 1) % SERVERS;
            now = now + Duration::from_millis(5);
            joined.on_server(now, PeerId(server), &page.reading().unwrap())
        });
    });
    group.finish();
    criterion.bench_function("collect/observe_1000", |bencher| {
        bencher.iter(|| joined.observe(black_box(now)));
    });
}

fn text_format(criterion: &mut Criterion) {
    let page = page();
    let mut group = criterion.benchmark_group("text_format");
    group.throughput(Throughput::BytesDecimal(page.len() as u64));
    group.bench_function("page", |bencher| bencher.iter(|| read(black_box(&page))));
    group.finish();
}

criterion_group!(benches, text_format, collect);
criterion_main!(benches);
