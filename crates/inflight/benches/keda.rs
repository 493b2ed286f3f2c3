//! What a GetMetrics costs us: the processor time of the thread that runs everything of ours, asked
//! by KEDA's client over a real connection. Run it with `cargo bench -p inflight --bench keda`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot go on fails, and says what it saw"
)]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use inflight::config::{Config, Surroundings};
use inflight::runtime::Running;
use inflight_proto::externalscaler::external_scaler_client::ExternalScalerClient;
use inflight_proto::externalscaler::{GetMetricsRequest, ScaledObjectRef};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

const LISTEN: &str = "127.0.0.1:0";
const FLEETS: usize = 10;
const RUNS: usize = 5;
const CALLS: u32 = 50_000;

fn main() {
    for callers in [1, 16] {
        let mut runs: Vec<_> = (0..RUNS).map(|_| run(callers)).collect();
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (micros, per_second) = runs[RUNS / 2];
        println!(
            "{callers:>2} at once: {micros:.1} us of one core a call, which is enough for {:.0} a second; \
             {per_second:.0} a second were made (median of {RUNS} runs, {:.1} to {:.1} us)",
            1e6 / micros,
            runs[0].0,
            runs[RUNS - 1].0,
        );
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns microseconds of our thread for a call, and calls in a second.
fn run(callers: u32) -> (f64, f64) {
    let (told, address) = oneshot::channel();
    let (stop, stopped) = oneshot::channel();
    let server = std::thread::spawn(|| runtime().block_on(serve(told, stopped)));
    let (elapsed, calls) = runtime().block_on(async {
        let address = address.await.unwrap();
        let endpoint = Endpoint::new(format!("http://{address}")).unwrap();
        let client = ExternalScalerClient::new(endpoint.connect().await.unwrap());
        call(client.clone(), 1_000).await;
        let began = Instant::now();
        let each = CALLS / callers;
        let mut calling: JoinSet<_> = (0..callers).map(|_| call(client.clone(), each)).collect();
        while let Some(called) = calling.join_next().await {
            called.unwrap();
        }
        stop.send(()).unwrap();
        (began.elapsed().as_secs_f64(), f64::from(each * callers))
    });
    let busy: Duration = server.join().unwrap();
    (busy.as_secs_f64() * 1e6 / calls, calls / elapsed)
}

async fn call(mut client: ExternalScalerClient<Channel>, times: u32) {
    let metadata = [("fleet", "fleet-7"), ("scalerAddress", "inflight:9443")];
    let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let request = GetMetricsRequest {
        scaled_object_ref: Some(ScaledObjectRef {
            name: "triton".to_owned(),
            namespace: "default".to_owned(),
            scaler_metadata: HashMap::from(metadata),
        }),
        metric_name: "inflight".to_owned(),
    };
    for _ in 0..times {
        let answer = client.get_metrics(request.clone()).await.unwrap();
        assert_eq!(answer.get_ref().metric_values.len(), 1);
    }
}

/// Runs the product until it is stopped; returns the time that it was busy, its start included.
async fn serve(told: oneshot::Sender<SocketAddr>, stopped: oneshot::Receiver<()>) -> Duration {
    let fleets: String = (0..FLEETS)
        .map(|number| {
            format!(
                "  - name: fleet-{number}\n    replicas: {{ min: 1, max: 4 }}\n    slots: 1\n    \
                 source: {{ gateway: {{ listen: \"{LISTEN}\" }} }}\n    \
                 endpoints: {{ static: [\"127.0.0.1:9\"] }}\n    \
                 scaling: {{ policy: occupancy }}\n    \
                 target: {{ keda: {{ listen: \"{LISTEN}\" }} }}\n"
            )
        })
        .collect();
    let text = format!("version: 1\nadmin: {{ listen: \"{LISTEN}\" }}\nfleets:\n{fleets}");
    let config = Config::from_text(Path::new("bench"), &text, &Surroundings::Elsewhere).unwrap();
    let running = Running::start(config, false).await.unwrap();
    let address = running.keda(LISTEN.parse().unwrap()).unwrap();
    told.send(address).unwrap();
    stopped.await.unwrap();
    let busy = clock_gettime(ClockId::ThreadCPUTime);
    running.stop().await.unwrap();
    Duration::try_from(busy).unwrap()
}
