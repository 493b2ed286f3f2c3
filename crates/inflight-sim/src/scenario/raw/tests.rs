use super::*;

const STEP: &str = "\
name: step
about: Five a second, then forty.
duration: 1800s
fleet:
  replicas: { start: 1, min: 1, max: 16 }
  start: { delay: 30s, spread: 0.2 }
  wire: 5ms
models:
  - { name: only, slots: 2, service: { exponential: 200ms }, slo: 400ms }
load:
  - steps:
      points:
        - { at: 0s, rate: 5 }
        - { at: 300s, rate: 40 }
";

fn no_file(_: &str) -> Result<String, String> {
    Err("not there".to_owned())
}

#[track_caller]
fn refused(from: &str, to: &str, expected: &str) {
    assert!(STEP.contains(from), "{from}");
    let text = STEP.replace(from, to);
    let message = parse(&text, &no_file).unwrap_err().to_string();
    assert_eq!(message, expected);
}

#[test]
fn a_scenario_is_read() {
    let scenario = parse(STEP, &no_file).unwrap();
    assert_eq!(scenario.fleet.replicas_max, 16);
    assert_eq!(scenario.fleet.wire, Some(Law::TwoHalves { mean: 0.005 }));
    assert_eq!(
        scenario.fleet.binding,
        Binding::LeastOfTwo { queue: 20_000 }
    );
    assert!((scenario.service_mean() - 0.2).abs() < 1e-12);
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    refused("slo: 400ms", "slo: 400ms, slow: 1", "X");
    refused("rate: 40", "rate: -40", "X");
    refused("at: 300s", "at: 0s", "X");
    refused("delay: 30s", "delay: 30", "X");
    refused("spread: 0.2", "spread: 2", "X");
    refused("max: 16", "max: 0", "X");
    refused("min: 1", "min: 17", "X");
    refused("slots: 2", "slots: 0", "X");
    refused("exponential: 200ms", "exponentially: 200ms", "X");
}

#[test]
fn a_trace_that_is_not_there_is_told() {
    let load = "  - trace: { file: a.csv, columns: { at: t_s } }\n";
    let text = format!("{}load:\n{load}", STEP.split("load:").next().unwrap());
    let message = parse(&text, &no_file).unwrap_err().to_string();
    assert_eq!(message, "trace a.csv: not there");
    let given = |_: &str| Ok("t_s\n1\n2\n".to_owned());
    let scenario = parse(&text, &given).unwrap();
    assert!(matches!(&scenario.loads[..], [Load::Trace(rows)] if rows.len() == 2));
}
