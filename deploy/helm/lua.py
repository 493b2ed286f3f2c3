"""The Envoy of a rendered configuration, with the chart's values in its Lua filter: bench/real/lua.py tries the
filter itself, and every odd answer of Prometheus."""

import http.client
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

import yaml

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench/real"))

import answers  # noqa: E402

INDEX = "/inference.GRPCInferenceService/RepositoryIndex"
# What passes ends at a cluster without a server.
SAID = {
    answers.PASSES: "14 no healthy upstream",
    answers.FULL: "8 the load is above the limit",
    answers.UNKNOWN: "14 the load is unknown",
}
ROWS = ["below", "at the limit", "above", "NaN", "an empty result", "a port that is closed", "below, in whole seconds"]


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def ask(port, path=INDEX, kind="application/grpc", method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request(method, path, headers={"content-type": kind, "te": "trailers"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def check(envoy, text, say):
    """Starts the Envoy of `text` on ports of its own, ends it, and says what it did."""
    config = yaml.safe_load(text)
    prometheus = answers.Prometheus()
    admin, ports = free_port(), {}
    config["admin"]["address"]["socket_address"]["port_value"] = admin
    for listener in config["static_resources"]["listeners"]:
        ports[listener["name"]] = free_port()
        listener["address"]["socket_address"].update(address="127.0.0.1", port_value=ports[listener["name"]])
    where = {"prometheus": prometheus.port, "envoy_admin": admin}
    for cluster in config["static_resources"]["clusters"]:
        cluster["type"] = "STATIC"
        address = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
        address.update(address="127.0.0.1", port_value=where.get(cluster["name"], free_port()))
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "envoy.yaml"
        file.write_text(yaml.safe_dump(config))
        with open(pathlib.Path(folder) / "log", "w") as log:
            process = subprocess.Popen([str(envoy), "-c", str(file), "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"],
                                       stdout=log, stderr=log)
        try:
            checks(prometheus, ports, admin, say)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
            prometheus.stop()


def checks(prometheus, ports, admin, say):
    for _ in range(100):
        try:
            if ask(ports["stats"], "/ready", method="GET").status == 200:
                break
        except OSError:
            pass
        time.sleep(0.1)
    for what in ROWS:
        prometheus.answer, means = answers.ODD[what]
        got = ask(ports["grpc"])
        said = f"{got.headers['grpc-status']} {urllib.parse.unquote(got.headers['grpc-message'])}"
        say(said == SAID[means] and got.status == 200, f"lua: {what}", said)
        has_details = "grpc-status-details-bin" in got.headers
        say(has_details == (means != answers.PASSES), f"lua: {what}: says when to come again")
    prometheus.answer = answers.vector("401")
    got = ask(ports["grpc"], INDEX, "text/plain")
    say(got.status == 429 and 10 <= int(got.headers["retry-after"]) <= 13, "lua: HTTP above", got.status)
    got = ask(ports["grpc"], INDEX + "?a=b")
    say(got.headers["grpc-status"] == "8", "lua: a query after the path does not hide it")
    asked = len(prometheus.asked)
    got = ask(ports["grpc"], "/inference.GRPCInferenceService/ModelInfer")
    say(got.headers["grpc-status"] == "14" and len(prometheus.asked) == asked, "lua: no other call asks Prometheus")
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(prometheus.asked[-1]).query)["query"][0].strip()
    say(prometheus.asked[-1].startswith("/under/api/v1/query?") and "nv_inference_queue_duration_us[1m]" in query
        and query.endswith(" * 1000 + 0.001)"), "lua: asks the query as it is", query)

    stats = ask(ports["stats"], "/stats/prometheus?filter=%5Ecluster%5C..%2B", method="GET")
    say(stats.status == 200, "stats: can be read", stats.status)
    for method, path in (("POST", "/quitquitquit"), ("GET", "/config_dump"), ("POST", "/stats/prometheus"), ("GET", "/")):
        got = ask(ports["stats"], path, "text/plain", method)
        say(got.status == 404, f"stats: {method} {path} is not passed on", got.status)
    script = f"exec 3<>/dev/tcp/127.0.0.1/{admin}; printf 'POST /drain_listeners?graceful&skip_exit HTTP/1.1\\r\\nhost: envoy\\r\\n" \
        "content-length: 0\\r\\nconnection: close\\r\\n\\r\\n' >&3; cat <&3"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=20)
    say("200 OK" in done.stdout, "envoy: takes the order to drain", done.stdout + done.stderr)
