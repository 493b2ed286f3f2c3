use super::*;
use crate::scenario::Load;

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

fn refused(from: &str, to: &str) -> String {
    assert!(STEP.contains(from), "{from}");
    let text = STEP.replace(from, to);
    parse(&text, &no_file).unwrap_err().to_string()
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
    let changes = [
        ("slo: 400ms", "slo: 400ms, slow: 1"),
        ("rate: 40", "rate: -40"),
        ("at: 300s", "at: 0s"),
        ("delay: 30s", "delay: 30"),
        ("spread: 0.2", "spread: 2"),
        ("max: 16", "max: 0"),
        ("min: 1", "min: 17"),
        ("slots: 2", "slots: 0"),
        ("exponential: 200ms", "exponentially: 200ms"),
        ("duration: 1800s", "duration: 0s"),
    ];
    let told = changes.map(|(from, to)| refused(from, to));
    let expected = [
        "line 9: unknown field `slow`, expected one of name, slots, service, slo, share",
        "line 14: a rate is -40, allowed is 0 to 1000000",
        "line 14: at is 0 s, allowed is a time after the point before",
        "line 6: `30` is no span, allowed is a number with us, ms, s, m or h",
        "line 6: a share is 2, allowed is 0 to 1",
        "line 5: replicas.max is 0, allowed is 1 to 10000",
        "line 5: replicas.min is 17 and replicas.start 1, allowed is 0 to replicas.max, which is 16",
        "line 9: slots is 0, allowed is 1 at least",
        "line 9: unknown variant `exponentially`, expected one of constant, exponential, lognormal, bimodal, batches",
        "duration is 0, allowed is more",
    ];
    assert_eq!(told.each_ref().map(String::as_str).as_slice(), expected);
}

#[test]
fn a_rate_in_more_pieces_than_fit_into_memory_is_refused() {
    let sine = "  - sine: { mean: 5, swing: 0.5, period: 0s }\n";
    let text = format!("{}load:\n{sine}", STEP.split("load:").next().unwrap());
    let message = parse(&text, &no_file).unwrap_err().to_string();
    let expected = "line 11: period is 0 s, allowed is 0.0018 s or more";
    assert_eq!(message, expected);
    assert!(refused("duration: 1800s", "duration: 2401h").starts_with("line 3: `2401h` is out"));
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
