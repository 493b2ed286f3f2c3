//! Prints figures of policies over scenario files, for work on the rules: `compare POLICY,… SEED..SEED FILE…`.
use inflight_sim::*;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let seeds: Vec<u64> = { let (a,b) = args[1].split_once("..").unwrap(); (a.parse().unwrap()..=b.parse().unwrap()).collect() };
    for file in &args[2..] {
        let text = std::fs::read_to_string(file).unwrap();
        let s = scenario::parse(&text, &|f| std::fs::read_to_string(f).map_err(|e| e.to_string())).unwrap_or_else(|e| panic!("{file}: {e}"));
        for p in args[0].split(',') {
            let p = Policy::named(p).unwrap();
            let started = std::time::Instant::now();
            let runs: Vec<Outcome> = seeds.iter().map(|&seed| {
                let o = run(&s, p.control(&s, seed, 0.75).unwrap(), seed);
                if let Some(b) = o.broken_identity() { println!("BROKEN {b}"); }
                o }).collect();
            let med = |f: &dyn Fn(&Outcome) -> f64| { let mut v: Vec<f64> = runs.iter().map(f).collect(); v.sort_by(f64::total_cmp); v[v.len()/2] };
            let q = |k: u64| med(&|o: &Outcome| o.sojourn.quantile(k).unwrap_or(0) as f64 / 1e9);
            println!("{:15} {:20} min {:7.1} p50 {:6.3} p90 {:7.3} p99 {:7.3} viol {:6.2} ref {:6} churn {:4} wall {:6.0} unf {:5} arr {:7} {:?}", s.name, p.name(), med(&|o| o.replica_seconds/60.0), q(500), q(900), q(990), med(&|o| 100.0*o.violation_share()), med(&|o| o.refused as f64), med(&|o| o.changes as f64), med(&|o| o.end), med(&|o| o.unfinished as f64), med(&|o| o.arrivals as f64), started.elapsed());
        }
    }
}
