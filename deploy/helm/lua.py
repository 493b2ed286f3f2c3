"""The Lua filter of a rendered configuration, in a real Envoy, against a Prometheus that answers oddly."""

import http.client
import http.server
import pathlib
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse

import yaml

INDEX = "/inference.GRPCInferenceService/RepositoryIndex"


def vector(value, at="1700000000.123"):
    return '{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[%s,"%s"]}]}}' % (at, value)


PASSES, FULL, UNKNOWN = "14 no healthy upstream", "8 the load is above the limit", "14 the load is unknown"
# An answer of Prometheus, and what becomes of a first call with the limit at 400.
ANSWERS = {
    "below": (vector("399.5"), PASSES),
    "at the limit": (vector("400"), PASSES),
    "above": (vector("400.5"), FULL),
    "above, in whole seconds": (vector("401", "1700000000"), FULL),
    "above, with an exponent": (vector("4.5e+02"), FULL),
    "below, with an exponent": (vector("1e-05"), PASSES),
    "negative": (vector("-1"), PASSES),
    "infinite": (vector("+Inf"), FULL),
    "infinitely small": (vector("-Inf"), UNKNOWN),
    "no number": (vector("NaN"), UNKNOWN),
    "hexadecimal": (vector("0x20"), UNKNOWN),
    "blank before": (vector(" 12"), UNKNOWN),
    "a text": (vector("many"), UNKNOWN),
    "nothing": ('{"status":"success","data":{"resultType":"vector","result":[]}}', UNKNOWN),
    "two rows": (vector("1").replace("}]}}", '},{"metric":{},"value":[1,"2"]}]}}'), UNKNOWN),
    "a scalar": ('{"status":"success","data":{"resultType":"scalar","result":[1700000000,"401"]}}', FULL),
    "an error": ('{"status":"error","errorType":"execution","error":"too many"}', UNKNOWN),
    "no JSON": ("<html>", UNKNOWN),
    "an empty body": ("", UNKNOWN),
    "status 503": (503, UNKNOWN),
    "no answer": (None, UNKNOWN),
}


class Prometheus(http.server.BaseHTTPRequestHandler):
    answer, asked = "", []

    def do_GET(self):
        Prometheus.asked.append(self.path)
        if Prometheus.answer is None:
            time.sleep(3)
            return
        is_code = isinstance(Prometheus.answer, int)
        body = b"" if is_code else Prometheus.answer.encode()
        self.send_response(Prometheus.answer if is_code else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


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
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Prometheus)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    admin, ports = free_port(), {}
    config["admin"]["address"]["socket_address"]["port_value"] = admin
    for listener in config["static_resources"]["listeners"]:
        ports[listener["name"]] = free_port()
        listener["address"]["socket_address"].update(address="127.0.0.1", port_value=ports[listener["name"]])
    where = {"prometheus": server.server_port, "envoy_admin": admin}
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
            checks(ports, admin, say)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
            server.shutdown()


def checks(ports, admin, say):
    for _ in range(100):
        try:
            if ask(ports["stats"], "/ready", method="GET").status == 200:
                break
        except OSError:
            pass
        time.sleep(0.1)
    for what, (answer, wanted) in ANSWERS.items():
        Prometheus.answer = answer
        got = ask(ports["grpc"])
        # What passes ends at a cluster without a server.
        said = f"{got.headers['grpc-status']} {urllib.parse.unquote(got.headers['grpc-message'])}"
        say(said == wanted and got.status == 200, f"lua: {what}", said)
        has_details = "grpc-status-details-bin" in got.headers
        say(has_details == (wanted == FULL), f"lua: {what}: says when to come again")
    Prometheus.answer = vector("401")
    got = ask(ports["grpc"], INDEX, "text/plain")
    say(got.status == 429 and got.headers["retry-after"] == "10", "lua: HTTP above", got.status)
    got = ask(ports["grpc"], INDEX + "?a=b")
    say(got.headers["grpc-status"] == "8", "lua: a query after the path does not hide it")
    asked = len(Prometheus.asked)
    got = ask(ports["grpc"], "/inference.GRPCInferenceService/ModelInfer")
    say(got.headers["grpc-status"] == "14" and len(Prometheus.asked) == asked, "lua: no other call asks Prometheus")
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(Prometheus.asked[-1]).query)["query"][0]
    say(Prometheus.asked[-1].startswith("/under/api/v1/query?") and "nv_inference_queue_duration_us[1m]" in query
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
