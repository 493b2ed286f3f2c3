//! `inflight render lua|envoy` and `inflight check --envoy`: what Envoy itself says of what is printed,
//! and the commands.

use std::fs;

use crate::judges::{agrees, envoy};
use crate::render::{Folder, run_on};

const FLEETS: &str = "
version: 1
fleets:
  - name: triton
    replicas: { min: 1, max: 10 }
    source:
      envoy:
        admin: ['http://127.0.0.1:9901']
        cluster: \"gr\\\"pc\"
        backend: { triton: { dns: 'http://triton:8002/metrics?a=b%26c', models: [a, 'b|c'] } }
    target: { keda: { listen: 127.0.0.1:9443 } }
    gate: { ext_authz: { listen: '127.0.0.1:9002', ready_timeout: 90s } }
  - name: everything
    replicas: { min: 1, max: 10 }
    source:
      envoy:
        dns: 'http://envoys.models:9901'
        cluster: servers
        estimator: time_sum
        backend: { vllm: { metrics: ['http://10.0.0.1:8000', 'http://[::1]:8000'] } }
    gate: { ext_authz: { listen: '0.0.0.0:9003', mode: every_request, on_failure: open, first_calls: [/a, /b] } }
  - name: own
    replicas: { min: 1, max: 5 }
    source: { prometheus: { url: 'http://p:9090/x/', query: \"sum(queue{a=\\\"[[b]]]=]\\\"})\\n\\t/ 2 # half\" } }
    scaling: { target: 50 }
";

fn run(folder: &Folder, arguments: &[&str]) -> (Option<i32>, String, String) {
    run_on(FLEETS, folder, arguments)
}

#[test]
fn envoy_takes_every_form_that_is_printed_and_check_has_nothing_to_warn_of() {
    let folder = Folder::new("render-envoy");
    let told = folder.0.join("triton.json");
    fs::write(&told, "{}").unwrap();
    let told = told.to_str().unwrap();
    let judge = envoy();
    for (fleet, more) in [
        ("triton", &[][..]),
        ("triton", &["--lua"]),
        (
            "triton",
            &["--eds", told, "--guard", "/x", "--gate", "gate.models:9002"],
        ),
        (
            "triton",
            &[
                "--server",
                "[::1]:1",
                "--server",
                "10.0.0.1:2",
                "--protocol",
                "http1",
            ],
        ),
        ("everything", &[]),
        (
            "everything",
            &[
                "--lua",
                "--prometheus",
                "http://[::1]:9090",
                "--first-call",
                "/\u{22}x",
            ],
        ),
        (
            "own",
            &[
                "--lua",
                "--timeout",
                "200ms",
                "--prometheus-cluster",
                "a\"b",
            ],
        ),
        ("own", &[]),
    ] {
        let arguments = [&["render", "envoy", "--fleet", fleet], more].concat();
        let (code, text, said) = run(&folder, &arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {said}");
        fs::write(folder.0.join("envoy.yaml"), text).unwrap();
        if let Some(judge) = &judge {
            let validate = [
                "--mode",
                "validate",
                "-c",
                "envoy.yaml",
                "--log-level",
                "error",
            ];
            agrees(judge, &folder.0, &validate);
        }
        let (code, text, said) = run(&folder, &["check", "--envoy", "envoy.yaml"]);
        assert_eq!((code, said.as_str()), (Some(0), ""));
        // The other fleets are behind other Envoys.
        let mut warnings = text
            .lines()
            .filter(|line| line.starts_with("warning: envoy"));
        assert!(
            warnings.all(|line| line.contains("which fleet")),
            "{arguments:?}: {text}"
        );
    }
}

#[test]
fn the_filter_alone_is_printed_for_one_fleet() {
    let folder = Folder::new("render-lua");
    let (code, text, said) = run(&folder, &["render", "lua", "--fleet", "own"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        text.contains("local QUERY = [==[\nsum(queue{a=\"[[b]]]=]\"})\n\t/ 2 # half\n]==]\n"),
        "{text}"
    );
    assert!(
        said.starts_with("warning: fleet own: clients are refused while your own query"),
        "{said}"
    );
    for (arguments, why) in [
        (
            &["render", "lua"][..],
            "--fleet says which one: triton, everything, own",
        ),
        (
            &["render", "lua", "--fleet", "own", "--timeout", "2h"],
            "is too long",
        ),
        (
            &[
                "render",
                "lua",
                "--fleet",
                "own",
                "--prometheus",
                "https://p",
            ],
            "without TLS",
        ),
        (
            &["render", "lua", "--fleet", "own", "--first-call", "x"],
            "begins with `/`",
        ),
        (
            &["render", "envoy", "--fleet", "own", "--timeout", "1s"],
            "needs --lua",
        ),
        (
            &[
                "render", "envoy", "--fleet", "own", "--lua", "--guard", "/x",
            ],
            "--guard is of the gate",
        ),
        (
            &["render", "envoy", "--fleet", "own", "--server", "x"],
            "is not HOST:PORT",
        ),
    ] {
        let (code, text, said) = run(&folder, arguments);
        assert_eq!(
            (code, text.as_str()),
            (Some(2), ""),
            "{arguments:?}: {said}"
        );
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}

#[test]
fn warnings_of_an_envoy_do_not_refuse_and_what_is_none_does() {
    let folder = Folder::new("check-envoy");
    fs::write(
        folder.0.join("envoy.yaml"),
        "static_resources:\n  clusters:\n  - name: gr\"pc\n",
    )
    .unwrap();
    let (code, text, said) = run(&folder, &["check", "--envoy", "envoy.yaml"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let line = "warning: envoy envoy.yaml: line 3: static_resources.clusters[0].common_lb_config\
                .healthy_panic_threshold: is not set, which is 50: ";
    assert!(text.contains(line), "{text}");
    assert!(text.starts_with("triton: cluster "), "{text}");
    let admin = "admin: { address: { socket_address: { address: 0.0.0.0, port_value: 9901 } } }\n\
                 static_resources: { clusters: [{ name: gr\"pc }] }\n";
    fs::write(folder.0.join("admin.yaml"), admin).unwrap();
    let (_, text, _) = run(&folder, &["check", "--envoy", "admin.yaml"]);
    for path in ["/ready", "/stats/prometheus", "/clusters"] {
        assert!(text.contains(&format!("`{path}`")), "{text}");
    }
    for (file, why) in [
        ("none.yaml", "cannot be read"),
        ("list.yaml", "is no configuration of Envoy"),
    ] {
        fs::write(folder.0.join("list.yaml"), "[1]").unwrap();
        let (code, text, said) = run(&folder, &["check", "--envoy", file]);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{said}");
        assert!(said.contains(why), "{said}");
    }
}
