"""Tests the chart. Run by test.sh, which installs what this needs.

Each example of examples/ is linted, rendered, and held against what will read it: the types of Kubernetes and
KEDA, `inflight check`, `envoy --mode validate` and `promtool check`. What KEDA asks and what Prometheus records is
compared with what `inflight render` prints for the configuration that the chart makes. Then what must fail is
tried, what the notes must warn of, and the Lua filter in a real Envoy with the chart's values; bench/real/lua.py
tries the filter itself, against a Prometheus that answers oddly.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

import kinds
import lua

HERE = pathlib.Path(__file__).resolve().parent
CHART = HERE / "inflight"
FOLDER = pathlib.Path(sys.argv[1])
HELM = FOLDER / "bin/helm"
REAL = pathlib.Path(os.environ["INFLIGHT_REAL"]) / "bin"
INFLIGHT = pathlib.Path(os.environ["INFLIGHT"])
WITHOUT = set(filter(None, os.environ.get("INFLIGHT_WITHOUT", "").split(",")))
RELEASE, NAMESPACE = "t", "models"

# Values, and a part of the sentence with which they fail.
FAILS = [
    (["envoy.enabled=false"], "the default load is measured at Envoy: with envoy.enabled: false, serverLoadMetric has to be"),
    (["serverLoadThreshold=1000"], "serverLoadThreshold: 1000 is not between 0.1 and 100"),
    (["serverAdmissionThreshold=0.5"], "serverAdmissionThreshold: 0.5 is not between 1 and 1000"),
    (["serverLoadThreshold=two"], "serverLoadThreshold"),
    (["keda.metricType=Value"], "the default load is a total of the fleet, for AverageValue"),
    (["keda.minReplicaCount=3"], "keda.minReplicaCount: 3 is above keda.maxReplicaCount, 2"),
    (["keda.minReplicaCount=0", "keda.zeroIdleReplicas=true"], "needs a keda.minReplicaCount above 0"),
    (["scaleFromZero.enabled=true"], "scaleFromZero.enabled: needs envoy.enabled, keda.enabled"),
    (["scaleFromZero.enabled=true", "keda.enabled=true", "keda.trigger=prometheus"], "scaleFromZero.enabled: needs"),
    (["envoy.external_config.load_from_configmap=true"], "needs envoy.external_config.configmap_name"),
    (["envoy.deploy=false"], "envoy.deploy: false needs envoy.admin.dns"),
    (["prometheus.external.enabled=true"], "needs prometheus.external.url"),
    (["serverLoadMetric=up", "prometheus.external.enabled=true", "prometheus.external.url=p"], "asks Prometheus without TLS"),
    (["serverLoadMetric=up", "envoy.enabled=false", "keda.metricType=Value"], "serverReplicasMetric has to say how many"),
    (["replicas=2", "envoy.rate_limiter.prometheus_based.enabled=true"], "each inflight knows its own sessions"),
    (["serverLoadTreshold=2"], "serverLoadTreshold"),
    (["envoy.loadBalancerPolicy=FASTEST"], "loadBalancerPolicy"),
    (["serverLoadMetric=sum(a{b=~'[[c]=]'})", "envoy.rate_limiter.prometheus_based.enabled=true"], "ends a text in Lua"),
]
# Values, and a part of what the notes warn of; None where they warn of nothing.
NOTES = [
    (["keda.enabled=true"], None),
    ([], "inflight says how many servers are needed and changes nothing"),
    (["keda.enabled=true", "serverLoadThreshold=100"], "serverLoadThreshold is 100. The default load is 1 when nobody waits"),
    (["keda.enabled=true", "serverLoadThreshold=1.3"], "asks for servers that do nothing"),
    (["keda.enabled=true", "serverLoadMetric=up"], "are those of the default load"),
    (["keda.enabled=true", "serverLoadMetric=up", "serverLoadThreshold=100", "envoy.rate_limiter.prometheus_based.enabled=true"],
     "New clients are refused all the time"),
    (["keda.enabled=true", "serverLoadMetric=up", "serverAdmissionThreshold=300", "envoy.rate_limiter.prometheus_based.enabled=true"],
     "nobody is refused"),
    (["keda.enabled=true", "serverLoadMetric=up", "serverLoadThreshold=100", "serverAdmissionThreshold=150",
      "envoy.rate_limiter.prometheus_based.enabled=true"], None),
    (["keda.enabled=true", "serverAdmissionThreshold=1.5", "envoy.rate_limiter.prometheus_based.enabled=true"],
     "clients are refused that it would have grown for"),
]
# Further renderings, so that each option is seen on and off.
VARIANTS = {
    "fractions as texts": ["--set-string", "serverLoadThreshold=1.5,serverAdmissionThreshold=2.5,keda.activationThreshold=0.2",
                           "--set", "keda.enabled=true,keda.trigger=prometheus,prometheus.enabled=true"],
    "one model, no label": ["--set", "triton.models={a.b},prometheus.labelSelector=,prometheus.enabled=true,keda.enabled=true,keda.trigger=prometheus"],
    "several labels": ["--set-string", r'prometheus.labelSelector=release="x"\,site=~"a|b"', "--set", "prometheus.enabled=true"],
    "over IPv6": ["--set", "listenAddress=::,keda.enabled=true"],
    "an Envoy that runs": ["--set", "envoy.deploy=false,envoy.admin.dns=http://envoys.other:9901,keda.enabled=true"],
    "a gate before it, and who may reach us": [
        "--set", "envoy.deploy=false,envoy.admin.dns=http://envoys.other:9901,envoy.rate_limiter.prometheus_based.enabled=true,"
                 "networkPolicy.enabled=true,networkPolicy.envoy.podSelector.matchLabels.app=envoy,podDisruptionBudget.enabled=true"],
    "a large threshold": ["--set", "serverLoadMetric=up,serverLoadThreshold=2e8,keda.enabled=true"],
    "what pods may be told": [
        "--set-json", 'image.pullSecrets=[{"name":"a"}],podLabels={"a":"b"},podAnnotations={"a":"b"},nodeSelector={"a":"b"},'
                      'tolerations=[{"operator":"Exists"}],affinity={"nodeAffinity":{}},priorityClassName="high",'
                      'topologySpreadConstraints=[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"ScheduleAnyway"}],'
                      'serviceAccount.annotations={"a":"b"},keda.annotations={"autoscaling.keda.sh/paused":"true"},keda.enabled=true,'
                      'envoy.annotations={"a":"b"},envoy.nodeSelector={"a":"b"},envoy.tolerations=[{"operator":"Exists"}],'
                      'envoy.affinity={"podAntiAffinity":{}},envoy.service.annotations={"a":"b"}'],
    "an idle count": ["--set", "keda.enabled=true,keda.zeroIdleReplicas=true"],
    "a gate that is open when in doubt": ["--set", "keda.enabled=true,envoy.rate_limiter.prometheus_based.enabled=true,"
                                          "envoy.rate_limiter.prometheus_based.fail_open=true,"
                                          "envoy.rate_limiter.prometheus_based.session.header=x-job"],
    "a total of one's own": ["--set", "serverLoadMetric=sum(x),keda.enabled=true,keda.trigger=prometheus,prometheus.enabled=true"],
    "no account": ["--set", "serviceAccount.create=false"],
}

passed, failed = [], []


def say(ok, what, why=""):
    (passed if ok else failed).append(what)
    if not ok or "-v" in sys.argv:
        print(f"{'ok  ' if ok else 'FAIL'} {what}" + (f": {why}" if why and not ok else ""), flush=True)


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def settings(pairs):
    return [part for pair in pairs for part in ("--set", pair)]


def plain(query):
    """A query without what does not matter: blanks outside of texts, and the order of labels."""
    text = "".join(re.findall(r'"(?:[^"\\]|\\.)*"|\S', query))
    labels = r'\w+(?:=|!=|=~|!~)"(?:[^"\\]|\\.)*"'
    return re.sub(rf"\{{({labels}(?:,{labels})*)\}}", lambda it: "{" + ",".join(sorted(re.findall(labels, it[1]))) + "}", text)


def have(component, path):
    if os.access(path, os.X_OK):
        return True
    if component not in WITHOUT:
        say(False, f"{component} is not there ({path}); INFLIGHT_WITHOUT={component} does without it")
    return False


def named(things, kind):
    return {thing["metadata"]["name"]: thing for thing in things if thing["kind"] == kind}


def check_references(things, what):
    """Names in one object that another has to have."""
    pods = {name: it["spec"]["template"] for name, it in named(things, "Deployment").items()}
    for name, service in named(things, "Service").items():
        selector = service["spec"]["selector"].items()
        chosen = [pod for pod in pods.values() if selector <= pod["metadata"]["labels"].items()]
        ports = {port["name"] for pod in chosen for box in pod["spec"]["containers"] for port in box["ports"]}
        wanted = {port["targetPort"] for port in service["spec"]["ports"]}
        say(len(chosen) == 1 and wanted <= ports, f"{what}: Service {name} finds its pods and ports", f"{len(chosen)}, {wanted - ports}")
    accounts = set(named(things, "ServiceAccount")) | {"default"}
    maps = named(things, "ConfigMap")
    for name, pod in pods.items():
        labels = named(things, "Deployment")[name]["spec"]["selector"]["matchLabels"].items()
        say(labels <= pod["metadata"]["labels"].items(), f"{what}: Deployment {name} selects its own pods")
        say(pod["spec"]["serviceAccountName"] in accounts, f"{what}: the account of {name} is there")
        for volume in pod["spec"]["volumes"]:
            source = volume.get("configMap", {}).get("name")
            say(source is None or source in maps or source == "our-envoy", f"{what}: {name} mounts what is there", source)
    names = set(named(things, "Deployment"))
    say(names <= {"t-inflight", "t-inflight-envoy"}, f"{what}: no model server", names)
    hosts = {f"{name}.{NAMESPACE}.svc.cluster.local" for name in named(things, "Service")}
    for thing in named(things, "ScaledObject").values():
        address = thing["spec"]["triggers"][0]["metadata"].get("scalerAddress")
        say(address is None or address.rsplit(":", 1)[0] in hosts, f"{what}: KEDA asks a Service that is there", address)


def check_inflight(things, what, folder):
    """inflight takes its configuration, and renders the same query and rules as the chart."""
    file = folder / "inflight.yaml"
    file.write_text(named(things, "ConfigMap")["t-inflight"]["data"]["inflight.yaml"])
    code, _, errors = run(INFLIGHT, "check", "-c", file)
    say(code == 0, f"{what}: inflight check", errors)
    if code != 0:
        return
    selector = folder / "selector"
    selection = ["--selector", selector.read_text()] if selector.read_text() else []
    for thing in named(things, "ScaledObject").values():
        spec = thing["spec"]
        code, out, errors = run(INFLIGHT, "render", "keda", "-c", file, *selection)
        say(code == 0, f"{what}: inflight render keda", errors)
        if code != 0:
            return
        theirs = yaml.safe_load(out)["spec"]
        mine, wanted = spec["triggers"][0], theirs["triggers"][0]
        keys = ["threshold", "ignoreNullValues", "fleet"]
        say(
            (mine["type"], mine["metricType"], [mine["metadata"].get(key) for key in keys])
            == (wanted["type"], wanted["metricType"], [wanted["metadata"].get(key) for key in keys]),
            f"{what}: the trigger is that of inflight render keda", f"{mine} {wanted}")
        mine, wanted = (plain(it["metadata"].get("query", "")) for it in (mine, wanted))
        say(mine == wanted, f"{what}: the query is that of inflight render keda", f"\n{mine}\n{wanted}")
        both = [it["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"] for it in (spec, theirs)]
        say(both[0].get("tolerance") == both[1].get("tolerance"), f"{what}: who waits before it shrinks", both)
        say(both[0]["stabilizationWindowSeconds"] == both[1]["stabilizationWindowSeconds"], f"{what}: how long it waits", both)
    rules = named(things, "ConfigMap").get("t-inflight-prometheus")
    if rules:
        code, out, errors = run(INFLIGHT, "render", "prometheus", "--rules", "-c", file, *selection)
        say(code == 0, f"{what}: inflight render prometheus --rules", errors)
        both = [
            [
                (rule.get("record"), rule.get("alert"), plain(rule["expr"]), rule.get("for"), rule["labels"])
                for group in yaml.safe_load(text)["groups"] for rule in group["rules"]
            ]
            for text in (rules["data"]["inflight.rules.yaml"], out or "groups: []")
        ]
        say(both[0] == both[1], f"{what}: the rules are those of inflight render prometheus",
            [pair for pair in zip(*both) if pair[0] != pair[1]] or [len(side) for side in both])


def check_files(things, what, folder):
    maps = named(things, "ConfigMap")
    if "t-inflight-envoy" in maps and have_envoy:
        file = folder / "envoy.yaml"
        file.write_text(maps["t-inflight-envoy"]["data"]["envoy.yaml"])
        code, out, errors = run(REAL / "envoy", "--mode", "validate", "-c", file, "--log-level", "error")
        say(code == 0, f"{what}: envoy --mode validate", (errors + out).strip()[-400:])
        if have_inflight:
            code, out, errors = run(INFLIGHT, "check", "-c", folder / "inflight.yaml", "--envoy", file)
            warnings = [line for line in out.splitlines() if line.startswith("warning: envoy")]
            say(code == 0 and not warnings, f"{what}: inflight check --envoy", errors + "\n".join(warnings))
    if "t-inflight-prometheus" in maps and have_promtool:
        for name, text in maps["t-inflight-prometheus"]["data"].items():
            (folder / name).write_text(text)
        code, out, errors = run(REAL / "promtool", "check", "config", folder / "prometheus.yaml")
        say(code == 0 and "rules found" in out, f"{what}: promtool check config, with rules", out + errors)


def check_rendering(what, arguments):
    code, out, errors = run(HELM, "template", RELEASE, CHART, "-n", NAMESPACE, *arguments)
    say(code == 0, f"{what}: helm template", errors)
    if code != 0:
        return
    things = [thing for thing in yaml.safe_load_all(out) if thing]
    if types:
        problems = [problem for thing in things for problem in types.problems(thing)]
        say(not problems, f"{what}: fits the types of Kubernetes and KEDA", "; ".join(problems))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        code, out, _ = run(HELM, "template", RELEASE, CHART, *arguments, "--set", "prometheus.enabled=true,prometheus.external.enabled=false")
        found = re.findall(r"nv_inference_request_duration_us\{([^}]*)\}", out)
        labels = re.sub(r'^model=~?"[^"]*",?', "", found[0]) if found else ""
        (folder / "selector").write_text(labels)
        check_references(things, what)
        if have_inflight:
            check_inflight(things, what, folder)
        check_files(things, what, folder)


def check_sources(update):
    """files/ is what `inflight render` prints for the placeholders."""
    labels = ["--selector", 'release="RELEASE"']
    for name, command in {
        "load.promql": ["promql", "-c", HERE / "placeholders.yaml", "--only", "scaler", *labels],
        "rules.yaml": ["prometheus", "--rules", "-c", HERE / "placeholders.yaml", *labels],
        "rules-metric.yaml": ["prometheus", "--rules", "-c", HERE / "placeholders-metric.yaml"],
        "admission.lua": ["lua", "-c", HERE / "placeholders-metric.yaml"],
    }.items():
        code, out, errors = run(INFLIGHT, "render", *command)
        file = CHART / "files" / name
        if update and code == 0:
            file.write_text(out)
        say(code == 0 and out == file.read_text(), f"files/{name} is what inflight renders",
            errors or "deploy/helm/test.sh --update writes it anew")


have_inflight = have("inflight", INFLIGHT)
have_envoy = have("envoy", REAL / "envoy")
have_promtool = have("prometheus", REAL / "promtool")
types = kinds.Types(FOLDER / "types") if (FOLDER / "types/cloudcoil").is_dir() else None

if have_inflight:
    check_sources("--update" in sys.argv)
for example in sorted((HERE / "examples").glob("*.yaml")):
    code, out, errors = run(HELM, "lint", CHART, "-f", example, "--quiet")
    say(code == 0, f"{example.stem}: helm lint", out + errors)
    check_rendering(example.stem, ["-f", example])
for what, arguments in VARIANTS.items():
    check_rendering(what, arguments)
for pairs, sentence in FAILS:
    code, _, errors = run(HELM, "template", RELEASE, CHART, *settings(pairs))
    say(code != 0 and sentence in errors, f"{', '.join(pairs)}: fails and says why", errors or "it renders")
for pairs, sentence in NOTES:
    code, out, errors = run(HELM, "install", RELEASE, CHART, "--dry-run=client", *settings(pairs))
    notes = " ".join(out.split("NOTES:")[-1].split())
    warned = "WARNING" in notes if sentence is None else sentence in notes
    say(code == 0 and warned == (sentence is not None), f"{', '.join(pairs) or 'nothing set'}: the notes say {sentence or 'no warning'}",
        errors or notes)
if have_envoy:
    code, out, errors = run(HELM, "template", RELEASE, CHART, "-f", HERE / "examples/custom-metric.yaml",
                            "--set", "prometheus.url=http://127.0.0.1:9090/under")
    things = [thing for thing in yaml.safe_load_all(out) if thing]
    lua.check(REAL / "envoy", named(things, "ConfigMap")["t-inflight-envoy"]["data"]["envoy.yaml"], say)
if failed:
    sys.exit(f"{len(failed)} failed")
print(f"the chart: {len(passed)} things looked at, all right" + (f"; without {', '.join(sorted(WITHOUT))}" if WITHOUT else ""))
