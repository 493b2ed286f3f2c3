#!/usr/bin/env python3
"""Tables in Markdown of what run.py wrote, and plots where matplotlib is there.

  report.py [--results FOLDER] [--plots FOLDER]"""

import argparse
import json
import pathlib
import statistics

HERE = pathlib.Path(__file__).resolve().parent
ARMS = {"queue-latency": "#c0392b", "occupancy": "#2471a3", "staffing": "#1e8449", "queue-latency-hpa": "#e59866"}
LEVELS, MIXTURES = ("capped", "free", "long"), ("fast", "slow")
OLD = "queue-latency"
COLUMNS = {"wall_seconds": ("wall s", "{:.0f}"), "p50_ms": ("p50 ms", "{:.0f}"), "p90_ms": ("p90 ms", "{:.0f}"),
           "p99_ms": ("p99 ms", "{:.0f}"), "replica_minutes": ("replica-min", "{:.2f}"),
           "ready_minutes": ("of these ready", "{:.2f}"), "changes": ("changes", "{:.0f}"),
           "queued_share": ("queued %", "{:.0%}")}


def results(folder):
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    groups = {}
    for one in found:
        table = columns(one)
        ends = [*table["at"][1:], one["wall_seconds"]]
        one["ready_minutes"] = sum(ready * (end - at) for ready, at, end in zip(table["ready"], table["at"], ends)) / 60
        groups.setdefault((one["level"], one["mixture"], one["arm"]), []).append(one)
    return groups


def medians(runs):
    return {name: statistics.median(one[name] for one in runs) for name in COLUMNS}


def change(new, old, name):
    """In percent, the median over the repetitions that both have."""
    was = {one["repetition"]: one[name] for one in old}
    return statistics.median(100 * (one[name] / was[one["repetition"]] - 1) for one in new if one["repetition"] in was)


def row(*cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def cells(values):
    return [form.format(values[name]).rstrip("%") for name, (_, form) in COLUMNS.items()]


def tables(groups):
    heads = ["level", "mixture", "arm", *(head for head, _ in COLUMNS.values())]
    lines = ["Medians of the repetitions:", "", row(*heads), row(*("---" for _ in heads))]
    for level, mixture, arm in order(groups):
        lines.append(row(level, mixture, arm, *cells(medians(groups[level, mixture, arm]))))
    for old_arm in (OLD, f"{OLD}-hpa"):
        lines += ["", f"Against {old_arm}, repetition by repetition, which serve the same requests; medians:", "",
                  row("level", "mixture", "arm", "wall", "p50", "p90", "p99", "replica-minutes"), row(*["---"] * 8)]
        for level, mixture, arm in order(groups):
            if arm == old_arm or (level, mixture, old_arm) not in groups or arm == OLD:
                continue
            new, old = groups[level, mixture, arm], groups[level, mixture, old_arm]
            names = ("wall_seconds", "p50_ms", "p90_ms", "p99_ms", "replica_minutes")
            lines.append(row(level, mixture, arm, *(f"{change(new, old, name):+.0f} %" for name in names)))
    heads = ["level", "mixture", "arm", "run", *(head for head, _ in COLUMNS.values()), "requests", "errors",
             "machine busy"]
    lines += ["", "Each run:", "", row(*heads), row(*("---" for _ in heads))]
    for key in order(groups):
        for one in groups[key]:
            lines.append(row(*key, one["repetition"], *cells(one), one["requests"], one["errors"],
                             f"{one['machine']['busy']:.0%}"))
    heads = ["level", "mixture", "arm", "replicas ready", "queue latency ms", "R_needed / R", "queued %"]
    lines += ["", "What the metrics read in the second half of a run, medians of all readings:", "", row(*heads),
              row(*("---" for _ in heads))]
    for key in order(groups):
        lines.append(row(*key, *(form.format(value).rstrip("%") for form, value in
                                 zip(("{:.0f}", "{:.0f}", "{:.2f}", "{:.0%}"), readings(groups[key])))))
    return "\n".join(lines)


def readings(runs):
    """Medians of the second half, without the end, at which the jobs go: what was ready, both metrics, and what queued."""
    rows = []
    for one in runs:
        table, names = one["series"]["rows"], one["series"]["columns"]
        first_end = min(end for _, end in one["jobs"])
        rows += [dict(zip(names, values)) for values in table if one["wall_seconds"] / 2 <= values[0] <= first_end]
    of = {name: statistics.median(row[name] for row in rows if row[name] is not None)
          for name in ("ready", "queue_latency", "queued_share")}
    ratio = statistics.median(row["required"] / row["ready"] for row in rows if row["required"] is not None)
    return of["ready"], of["queue_latency"], ratio, of["queued_share"]


def order(groups):
    ranked = [(level, mixture, arm) for level in LEVELS for mixture in MIXTURES for arm in ARMS]
    return [key for key in ranked if key in groups]


def columns(one):
    table = one["series"]
    return {name: [row[index] for row in table["rows"]] for index, name in enumerate(table["columns"])}


def plots(groups, folder):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ab", "font.size": 9, "axes.grid": True,
                                "grid.alpha": 0.3, "path.simplify_threshold": 1.0})
    from matplotlib import pyplot
    folder.mkdir(parents=True, exist_ok=True)

    def save(figure, name):
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
        pyplot.close(figure)

    for level in LEVELS:
        for mixture in MIXTURES:
            present = [arm for arm in ARMS if (level, mixture, arm) in groups]
            if not present:
                continue
            figure, (sizes, queued, metric) = pyplot.subplots(3, 1, sharex=True, figsize=(8, 7))
            for arm in present:
                for number, one in enumerate(groups[level, mixture, arm]):
                    of = columns(one)
                    style = {"color": ARMS[arm], "linestyle": ("-", "--", ":")[number % 3], "linewidth": 1.2}
                    sizes.step(of["at"], of["ready"], where="post", label=f"{arm} {one['repetition']}", **style)
                    known = [(at, share) for at, share in zip(of["at"], of["queued_share"]) if share is not None]
                    smooth = [(at, statistics.mean(share for _, share in known[max(0, index - 3):index + 1]))
                              for index, (at, _) in enumerate(known)]
                    queued.plot(*zip(*smooth), **style)
                    if arm.startswith(OLD):
                        seen = [(at, value) for at, value in zip(of["at"], of["queue_latency"]) if value is not None]
                        metric.plot(*zip(*seen), **style)
            sizes.set_ylabel("ready replicas")
            sizes.legend(fontsize=7, ncols=len(present), loc="lower left", bbox_to_anchor=(0, 1.02))
            queued.set_ylabel("share of requests' time\nnot in service")
            queued.set_ylim(0, 1)
            metric.axhline(100, color="black", linewidth=0.8)
            metric.set_ylabel("queue latency, ms\n(threshold 100)")
            metric.set_ylim(bottom=0)
            metric.set_xlabel("seconds since the first job began")
            sizes.set_title(f"{level}, {mixture}", loc="right")
            save(figure, f"{level}-{mixture}")
    figure, axes = pyplot.subplots(1, 3, figsize=(9, 3), sharey=True)
    names = ("wall_seconds", "p90_ms", "replica_minutes")
    keys = [(level, mixture) for level in LEVELS for mixture in MIXTURES if (level, mixture, OLD) in groups]
    for axis, name in zip(axes, names):
        for offset, arm in enumerate(("occupancy", "staffing")):
            of = [change(groups[*key, arm], groups[*key, OLD], name) if (*key, arm) in groups else 0 for key in keys]
            axis.barh([index + 0.38 * offset for index in range(len(keys))], of, 0.36, color=ARMS[arm], label=arm)
        axis.set_title(f"{COLUMNS[name][0].rsplit(' ', 1)[0]}, % against {OLD}", fontsize=8)
        axis.axvline(0, color="black", linewidth=0.8)
    axes[0].set_yticks([index + 0.19 for index in range(len(keys))], [" ".join(key) for key in keys])
    axes[0].legend(fontsize=7)
    save(figure, "summary")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--results", type=pathlib.Path, default=HERE / "results", metavar="FOLDER")
    arguments.add_argument("--plots", type=pathlib.Path, metavar="FOLDER")
    chosen = arguments.parse_args()
    groups = results(chosen.results)
    print(tables(groups))
    if chosen.plots:
        plots(groups, chosen.plots)


if __name__ == "__main__":
    main()
