#!/usr/bin/env python3
"""Runs the same batch jobs on real Tritons behind a real Envoy, sized in turn by the old queue-latency metric, by the
occupancy ratio and by policy `staffing`, and says what each took.

  run.py --all [--repetitions N]         all of it, two runs at a time; README.md says how long
  run.py --arm A --mixture M --level L   one run
  run.py --quick                         one tiny job in each arm, to see that it works

FOLDER/venv/bin/python of bench/real/install.sh runs it."""

import argparse
import contextlib
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

import rig

ARMS = ("queue-latency", "occupancy", "staffing")
# The old metric with the limits and the timing of the ratio, to tell what is the metric's and what the limits'.
EXTRA_ARMS = ("queue-latency-hpa",)
# Mean service times, 25-fold apart; a client pauses for a third of one between two requests.
MIXTURES = {"fast": 25, "slow": 625}
# Capped: three clients for each slot that there may be. Free: fewer clients than slots. As in scenarios/closed30cap5 and
# closed15free, with half the clients for replicas of one slot in place of two.
LEVELS = {
    "capped": {"jobs": 15, "most": 5, "requests": {"fast": 2200, "slow": 90}},
    "free": {"jobs": 8, "most": 10, "requests": {"fast": 2600, "slow": 110}},
    # Free, for three times as long: what starts cost counts for less.
    "long": {"jobs": 8, "most": 10, "requests": {"fast": 7800, "slow": 330}},
    "tiny": {"jobs": 2, "most": 2, "requests": {"fast": 60, "slow": 3}},
}
# inflight's own intervals that can be set, at a quarter; its windows of 6 s and 30 s and its tick of 2 s cannot.
STAFFING = "policy: staffing, down_window: 15s"


def run(arm, mixture, level, repetition, delay=rig.START_DELAY):
    load = LEVELS[level]
    plan = {"model": mixture, "service_ms": MIXTURES[mixture], "think_ms": MIXTURES[mixture] / 3,
            "jobs": load["jobs"], "requests": load["requests"][mixture], "apart": 2 * rig.SCALE,
            "seed": f"{mixture} {level} {repetition}"}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        folder = pathlib.Path(folder)
        fleet = rig.Fleet(folder, rig.models(folder, mixture, 1), 1, load["most"], plan["seed"], delay)
        envoy = running.enter_context(rig.Envoy(fleet.endpoints))
        prometheus = running.enter_context(rig.Prometheus(envoy, fleet.targets))
        running.callback(fleet.stop)
        fleet.start(envoy, STAFFING)
        ratio_query = rig.rendered()
        scaler = rig.autoscaler(arm, prometheus, ratio_query, 1, load["most"])
        if scaler:
            fleet.resize(1)
        rig.wait_until(lambda: (fleet.status() or {}).get("ready") == 1 and envoy.in_flight() is not None, 90, "one replica ready")
        # Both metrics are scraped once before the load begins.
        time.sleep(5 * rig.SCALE)
        clients = rig.Clients({**plan, "port": envoy.listen})
        running.callback(clients.stop)
        began, cpu = time.time(), rig.cpu_times()
        samples, moves, polls = watch(clients, fleet, envoy, prometheus, ratio_query, scaler)
        reasons = [] if scaler else fleet.reasons()
        busy, of_all = (after - before for before, after in zip(cpu, rig.cpu_times()))
        if clients.seen is None:
            sys.exit("the clients failed")
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "arm": arm, "mixture": mixture, "level": level, "repetition": repetition, "plan": plan,
        "at": time.strftime("%FT%TZ", time.gmtime(began)),
        **summary(clients.seen, samples, moves),
        "machine": {"busy": round(busy / of_all, 3), "processors": os.cpu_count(), "load": os.getloadavg(),
                    "own_cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1)},
        "polls": polls, "reasons": reasons,
    }


def watch(clients, fleet, envoy, prometheus, ratio_query, scaler):
    """Ticks the autoscaler, if there is one, and looks at everything until the clients are done."""
    samples, moves, polls = [], [], []
    size, asked, end = None, 0.0, time.time() + 1800
    while clients.is_running() and time.time() < end:
        now, status = time.time(), fleet.status()
        if status is None or None in (status["desired"], status["ready"]):
            time.sleep(0.1)
            continue
        if scaler:
            new = scaler.tick(now, status["desired"], status["ready"], status["ready"] + status["starting"])
            if scaler.polled == now or scaler.synced == now:
                polls.append([now, scaler.value, scaler.wish])
            if new is not None:
                fleet.resize(new)
                status["desired"] = new
        if status["desired"] != size:
            moves.append([now, size, status["desired"]])
            size = status["desired"]
        sample = {"at": now, "desired": size, "ready": status["ready"], "starting": status["starting"],
                  "paid": fleet.paid(), "in_flight": envoy.in_flight()}
        if now >= asked + 2.5:
            asked = now
            sample["queue_latency"] = prometheus.ask(rig.OLD_QUERY)
            sample["required"] = prometheus.ask(ratio_query)
        samples.append(sample)
        time.sleep(max(0.0, now + 0.25 - time.time()))
    return samples, moves, polls


def summary(seen, samples, moves):
    begin, end = min(job["begin"] for job in seen["jobs"]), max(job["end"] for job in seen["jobs"])
    took = sorted(took for _, took, _ in seen["requests"])
    service = sum(service for *_, service in seen["requests"])
    inside = [sample for sample in samples if begin <= sample["at"] <= end]
    paid = sum(one["paid"] * (after["at"] - one["at"]) for one, after in zip(inside, inside[1:]))
    changes = [[at - begin, was, now] for at, was, now in moves if was is not None and at <= end]

    def at(share):
        return round(took[min(len(took) - 1, int(share * len(took)))], 1)
    return {
        "requests": len(took), "errors": len(seen["failures"]), "failures": seen["failures"][:5],
        "wall_seconds": round(end - begin, 1), "p50_ms": at(0.5), "p90_ms": at(0.9), "p99_ms": at(0.99),
        "mean_ms": round(sum(took) / len(took), 1), "replica_minutes": round(paid / 60, 3),
        "changes": sum(abs(now - was) for _, was, now in changes),
        "queued_share": round(1 - service / sum(took), 3),
        "overhead_ms": round(sorted(took - service for _, took, service in seen["requests"])[len(took) // 20], 2),
        "moves": [[round(at, 1), was, now] for at, was, now in changes],
        "jobs": [[round(job["begin"] - begin, 1), round(job["end"] - begin, 1)] for job in seen["jobs"]],
        "series": series(inside, seen["requests"], begin),
    }


def series(samples, requests, begin, step=2.5):
    """One row for each 2.5 s: what there was, what the metrics said, and what clients waited for."""
    rows = {}
    for sample in samples:
        row = rows.setdefault(int((sample["at"] - begin) / step), {})
        row.update({key: value for key, value in sample.items() if key != "at" and value is not None})
    spent = {}
    for at, took, service in requests:
        of = spent.setdefault(int((at - begin) / step), [0, 0.0, 0.0])
        of[0], of[1], of[2] = of[0] + 1, of[1] + took, of[2] + service
    columns = ("at", "desired", "ready", "starting", "paid", "in_flight", "queue_latency", "required", "requests", "queued_share")
    table = []
    for index in sorted(rows):
        count, took, service = spent.get(index, (0, 0.0, 0.0))
        row = {**rows[index], "at": index * step, "requests": count,
               "queued_share": 1 - service / took if took else None}
        table.append([round(value, 3) if isinstance(value := row.get(name), float) else value for name in columns])
    return {"columns": columns, "rows": table}


def write(result, folder):
    folder.mkdir(exist_ok=True)
    name = "{level}-{mixture}-{arm}-{repetition}.json".format(**result)
    path = folder / name
    path.write_text("{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in result.items()) + "\n}\n")
    return path


def line(result):
    return ("{level:7} {mixture:5} {arm:18} {repetition} wall {wall_seconds:6.1f} s  p50 {p50_ms:7.1f}  p90 {p90_ms:7.1f}  "
            "p99 {p99_ms:7.1f} ms  {replica_minutes:6.2f} replica-min  {changes:2} changes  queued {queued_share:.2f}  "
            "{errors} errors".format(**result)
            + "  busy {busy:.2f}  own {own_cpu_seconds:.0f} s".format(**result["machine"]))


def all_of_it(repetitions, arms, levels, more):
    """Two at a time, one of each mixture: the slow one needs next to no processor."""
    failed = 0
    for repetition in repetitions:
        for level in levels:
            for arm in arms if repetition % 2 else list(reversed(arms)):
                pair = [subprocess.Popen([sys.executable, __file__, "--arm", arm, "--mixture", mixture, "--level", level,
                                          "--repetition", str(repetition), *more]) for mixture in MIXTURES]
                failed += sum(one.wait() != 0 for one in pair)
    return failed == 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--all", action="store_true")
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--arm", choices=ARMS + EXTRA_ARMS)
    arguments.add_argument("--mixture", choices=MIXTURES)
    arguments.add_argument("--level", choices=LEVELS)
    arguments.add_argument("--repetition", type=int)
    arguments.add_argument("--repetitions", type=int, default=2, metavar="N")
    arguments.add_argument("--results", type=pathlib.Path, default=rig.HERE / "results", metavar="FOLDER")
    chosen = arguments.parse_args()
    # Ended by request, everything that was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if chosen.all:
        more = ["--results", chosen.results]
        sys.exit(not all_of_it([chosen.repetition] if chosen.repetition else range(1, chosen.repetitions + 1),
                               [chosen.arm] if chosen.arm else ARMS,
                               [chosen.level] if chosen.level else ("capped", "free"), more))
    if chosen.quick:
        results = [run(arm, "fast", "tiny", 0, delay=rig.TRITON_START) for arm in ARMS]
        print("\n".join(map(line, results)))
        sys.exit(any(result["errors"] for result in results))
    result = run(chosen.arm, chosen.mixture, chosen.level, chosen.repetition or 1)
    write(result, chosen.results)
    print(line(result), flush=True)


if __name__ == "__main__":
    main()
