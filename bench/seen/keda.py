"""A client of another language asks as KEDA does: every call of the external scaler and of the health
check, through a program that Google's generator makes of our .proto. Needs grpcio and grpcio-tools
(pip install grpcio grpcio-tools); INFLIGHT names the binary, a release build unless said otherwise."""

import importlib
import pathlib
import sys
import tempfile
import threading
import time
import urllib.request

try:
    import grpc
    from grpc_tools import protoc
except ImportError:
    sys.exit("grpcio and grpcio-tools are missing: pip install grpcio grpcio-tools")

from harness import ROOT, Product, free_port

PROTOS = ROOT / "crates" / "inflight-proto" / "proto"
failed = 0


def check(holds, what):
    global failed
    failed += not holds
    print("ok  " if holds else "FAIL", what, flush=True)


def generated(folder):
    """The modules that the generator makes of our protos."""
    names = ["keda_external_scaler", "health"]
    arguments = ["protoc", f"-I{PROTOS}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    if protoc.main(arguments + [f"{name}.proto" for name in names]):
        sys.exit("our .proto files are refused by the generator")
    sys.path.insert(0, folder)
    return [importlib.import_module(name + end) for name in names for end in ("_pb2", "_pb2_grpc")]


def refused(call, *arguments):
    try:
        call(*arguments, timeout=10)
    except grpc.RpcError as error:
        return error.code().name, error.details()
    return "OK", ""


def main():
    keda_port, gateway, nobody = free_port(), free_port(), free_port()
    fleets = f"""
  - name: one
    slots: 1
    replicas: {{ min: 0, max: 8 }}
    source: {{ gateway: {{ listen: "127.0.0.1:{gateway}" }} }}
    endpoints: {{ static: ["127.0.0.1:{nobody}"] }}
    scaling: {{ policy: occupancy, threshold: 2 }}
    target: {{ keda: {{ listen: "127.0.0.1:{keda_port}" }} }}
  - name: two
    slots: 1
    replicas: {{ min: 3, max: 8 }}
    source: {{ inflight: {{ peers: ["127.0.0.1:{nobody}"], every: 1s }} }}
    scaling: {{ policy: occupancy, unknown: {{ hold: 0s }} }}
    target: {{ keda: {{ listen: "127.0.0.1:{keda_port}" }} }}
"""
    with tempfile.TemporaryDirectory() as folder, Product(fleets) as product:
        pb, rpc, health_pb, health_rpc = generated(folder)
        channel = grpc.insecure_channel(f"127.0.0.1:{keda_port}")
        scaler, health = rpc.ExternalScalerStub(channel), health_rpc.HealthStub(channel)

        def ref(**metadata):
            metadata = {"scalerAddress": "inflight:9443", **metadata}
            return pb.ScaledObjectRef(name="triton", namespace="default", scalerMetadata=metadata)

        def metric(name="inflight", **metadata):
            return pb.GetMetricsRequest(scaledObjectRef=ref(**metadata), metricName=name)

        product.wait_until(lambda: refused(scaler.GetMetrics, metric(fleet="one"))[0] == "OK", 30, "decided")
        value = scaler.GetMetrics(metric(fleet="one")).metricValues[0]
        check((value.metricName, value.metricValue, value.metricValueFloat) == ("inflight", 0, 0.0),
              f"GetMetrics with nothing in flight: zero in both forms ({value.metricValue}, {value.metricValueFloat})")
        spec = scaler.GetMetricSpec(ref(fleet="one")).metricSpecs[0]
        check((spec.metricName, spec.targetSize, spec.targetSizeFloat) == ("inflight", 2, 2.0), "GetMetricSpec: the threshold")
        spec = scaler.GetMetricSpec(ref(fleet="one", threshold="1.5")).metricSpecs[0]
        check((spec.targetSize, spec.targetSizeFloat) == (2, 1.5), "GetMetricSpec: a threshold of the trigger's own")
        check(not scaler.IsActive(ref(fleet="one")).result, "IsActive: no")

        specs = scaler.StreamMetricSpec(ref(fleet="one"))
        check(next(specs).metricSpecs[0].targetSizeFloat == 2.0, "StreamMetricSpec: at once")
        activity = scaler.StreamIsActive(ref(fleet="one"))
        check(not next(activity).result, "StreamIsActive: no, at once")

        def held():
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{gateway}/", timeout=20).close()
            except OSError:
                pass

        asking = threading.Thread(target=held, daemon=True)
        began = time.time()
        asking.start()
        active, took = next(activity).result, time.time() - began
        check(active and took < 1.0, f"StreamIsActive: yes, {took * 1000:.0f} ms after the first request at zero")
        product.wait_until(lambda: scaler.GetMetrics(metric(fleet="one")).metricValues[0].metricValueFloat > 0, 40, "a value")
        check(scaler.IsActive(ref(fleet="one")).result, "IsActive: yes")

        code, why = refused(scaler.GetMetrics, metric(fleet="two"))
        check(code == "UNAVAILABLE", f"GetMetrics of an unknown load: {code} {why}")
        code, why = refused(scaler.IsActive, ref(fleet="two"))
        check(code == "UNAVAILABLE", f"IsActive of an unknown load: {code} {why}")
        for threshold in ("NaN", "0", "-1", "inf", "1e-9", "two"):
            code, why = refused(scaler.GetMetrics, metric(fleet="one", threshold=threshold))
            check(code == "INVALID_ARGUMENT", f"threshold {threshold}: {code} {why}")
        code, why = refused(scaler.GetMetrics, metric())
        check(code == "INVALID_ARGUMENT", f"no fleet: {code} {why}")
        code, why = refused(scaler.GetMetrics, metric(fleet="three"))
        check(code == "NOT_FOUND", f"another fleet: {code} {why}")
        code, why = refused(scaler.GetMetrics, metric(name="other", fleet="one"))
        check(code == "NOT_FOUND", f"another metric: {code} {why}")

        serving = health_pb.HealthCheckResponse.ServingStatus
        answers = {name: serving.Name(health.Check(health_pb.HealthCheckRequest(service=name)).status) for name in ("", "one", "two")}
        check(answers == {"": "SERVING", "one": "SERVING", "two": "NOT_SERVING"}, f"Health/Check: {answers}")
        first = next(health.Watch(health_pb.HealthCheckRequest(service="three")))
        check(serving.Name(first.status) == "SERVICE_UNKNOWN", "Health/Watch of what is not there")

        began, calls = time.time(), 2000
        for _ in range(calls):
            scaler.GetMetrics(metric(fleet="one"))
        print(f"     {calls / (time.time() - began):.0f} GetMetrics a second by this one client, one after the other")
        calls = product.metric('inflight_keda_calls_total{fleet="one",call="get_metrics"}')
        check(calls and calls >= 2000, f"/metrics counts them: {calls}")

        product.process.terminate()
        for name, stream in (("StreamIsActive", activity), ("StreamMetricSpec", specs)):
            try:
                while True:
                    next(stream)
            except grpc.RpcError as error:
                check(error.code().name == "UNAVAILABLE", f"{name} ends with us: {error.code().name} {error.details()}")
        check(product.process.wait(60) == 0, "SIGTERM: exit 0")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
