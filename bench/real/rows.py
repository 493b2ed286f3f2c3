#!/usr/bin/env python3
"""Feeds known loads as series to a real Prometheus and asks it the queries that `inflight render promql` prints:
by promtool's rule tests and by the HTTP API. Each must give the number that the words give, or nothing.

  FOLDER/venv/bin/python rows.py [ROWS.json ...]      # rows.json beside this file unless others are named

A row has l_in_flight, l_service and healthy, as numbers or "p/q", null for a series that is not there, and what
is expected of R_needed and of the ratio, null for an empty answer. Each load is spread over two Envoys and three
servers; where no replica is healthy and nothing is executed, it is asked with and without series of servers."""

import fractions
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import real

WINDOW, STEP, LENGTH, SLOT = 60, 15, 300, 1800   # seconds; a slot is longer than any look back
BEGIN = 1_735_689_600
CLOSE = 1e-9


def number(value):
    return None if value is None else float(fractions.Fraction(str(value)))


class Row:
    def __init__(self, row, servers=True):
        self.name = row["id"] + ("" if servers else " (without series of servers)")
        self.in_flight, self.healthy = number(row["l_in_flight"]), number(row["healthy"])
        self.executing = number(row["l_service"]) if servers else None
        expected = row["expected"]
        self.expected = {"R_needed": number(expected["r_needed"]), "ratio": number(expected["ratio"])}

    def series(self):
        """Each series as its name with labels, its first value, and what it grows by in a second."""
        for envoy, part in (("a", 0.75), ("b", 0.25)):
            labels = f'{{envoy_cluster_name="{real.CLUSTER}",instance="{envoy}"}}'
            if self.in_flight is not None:
                yield "envoy_cluster_upstream_rq_time_sum" + labels, 0, self.in_flight * part * 1e3
                yield "envoy_cluster_upstream_rq_active" + labels, self.in_flight * part / 2, 0
                yield "envoy_cluster_upstream_rq_pending_active" + labels, self.in_flight * part / 2, 0
            if self.healthy is not None:
                yield "envoy_cluster_membership_healthy" + labels, self.healthy, 0
        if self.executing is None:
            return
        for server, part in (("x", 0.5), ("y", 0.25), ("z", 0.25)):
            labels = f'{{model="m",version="1",instance="{server}"}}'
            queued = self.executing / 2
            yield "nv_inference_queue_duration_us" + labels, 0, queued * part * 1e6
            yield "nv_inference_request_duration_us" + labels, 0, (queued + self.executing) * part * 1e6


def rows_of(path):
    for row in json.loads(pathlib.Path(path).read_text())["rows"]:
        yield Row(row)
        if number(row["healthy"]) == 0 and number(row["l_service"]) == 0:
            yield Row(row, servers=False)


def by_promtool(rows, queries):
    """Which rows promtool refuses, with its words. Its samples are compared exactly, so the query is compared."""
    groups = []
    for row in rows:
        tests = []
        for form, query in queries.items():
            expected = row.expected[form]
            if expected is None:
                tests.append({"expr": query, "eval_time": f"{LENGTH}s", "exp_samples": []})
            else:
                near = f"abs(({query}) - {expected!r}) <= bool {CLOSE * max(abs(expected), CLOSE)!r}"
                tests.append({"expr": near, "eval_time": f"{LENGTH}s", "exp_samples": [{"labels": "{}", "value": 1}]})
        groups.append({"interval": f"{STEP}s", "promql_expr_test": tests, "input_series": [
            {"series": name, "values": f"{first!r}+{growth * STEP!r}x{LENGTH // STEP}"}
            for name, first, growth in row.series()]})
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump({"rule_files": [], "tests": groups}, file)
        file.flush()
        done = subprocess.run([real.REAL / "bin" / "promtool", "test", "rules", file.name],
                              capture_output=True, text=True, timeout=60)
    said = (done.stdout + done.stderr).strip()
    return f"{said[:2000]}…" if done.returncode else None


def by_api(rows, queries):
    """What the HTTP API answers for each row, all rows in one store, one after the other in time."""
    prometheus = real.Prometheus()
    text = []
    for index, row in enumerate(rows):
        for name, first, growth in row.series():
            text += [f"{name} {first + growth * at!r} {BEGIN + index * SLOT + at}" for at in range(0, LENGTH + 1, STEP)]
    metrics = prometheus.path / "rows.txt"
    metrics.write_text("\n".join(text + ["# EOF\n"]))
    subprocess.run([real.REAL / "bin" / "promtool", "tsdb", "create-blocks-from", "openmetrics", metrics,
                    prometheus.path / "data"], check=True, capture_output=True, timeout=120)
    with prometheus:
        return [{form: prometheus.query(query, at=BEGIN + index * SLOT + LENGTH) for form, query in queries.items()}
                for index in range(len(rows))]


def same(value, expected):
    if value is None or expected is None:
        return value is None and expected is None
    return math.isclose(value, expected, rel_tol=CLOSE, abs_tol=CLOSE * CLOSE)


def main():
    rows = [row for path in sys.argv[1:] or [real.HERE / "rows.json"] for row in rows_of(path)]
    all_right = True
    for estimator in ("time_sum", "gauges"):
        queries = real.rendered(real.fleet("rows", [real.Envoy([])], [real.Triton()], WINDOW, estimator))
        for row, answers in zip(rows, by_api(rows, queries)):
            right = all(same(answers[form], row.expected[form]) for form in queries)
            all_right = all_right and right
            said = ", ".join(f"{form} {'nothing' if answers[form] is None else answers[form]}" for form in queries)
            print(f"{'ok  ' if right else 'FAIL'} {estimator:8} {row.name:50} {said}"
                  + ("" if right else f", expected {row.expected}"))
        refused = by_promtool(rows, queries)
        all_right = all_right and not refused
        print(f"FAIL {estimator:8} promtool:\n{refused}" if refused
              else f"ok   {estimator:8} promtool: {len(rows)} rows, {len(queries)} queries each")
    sys.exit(0 if all_right else 1)


if __name__ == "__main__":
    main()
