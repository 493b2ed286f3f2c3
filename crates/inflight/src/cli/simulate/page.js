"use strict";
// Draws what the page's data say. Text goes in as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const svgSpace = document.querySelector("svg").namespaceURI;
const SHOWN_AT_FIRST = 4;

function element(name, attributes = {}, children = []) {
  const made = name.startsWith("svg:")
    ? document.createElementNS(svgSpace, name.slice(4))
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function digits(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 100 ? value.toFixed(0) : size >= 1 ? value.toFixed(1) : value.toPrecision(2);
}

function clock(seconds) {
  const whole = Math.round(seconds);
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return parts.map((part) => String(part).padStart(2, "0")).join(":");
}

// The piece of a timeline at a moment; undefined after its end.
function at(run, seconds) {
  const piece = Math.floor(seconds / run.width);
  return piece < run.arrivals.length ? piece : undefined;
}

function linear(most) {
  return { ticks: [most, most / 2, 0], y: (value) => 100 - (100 * value) / most };
}

function logarithmic(least, most) {
  const [low, high] = [Math.log10(least), Math.log10(most)];
  const span = Math.max(high - low, 1e-9);
  const ticks = [most, 10 ** ((low + high) / 2), least];
  return { ticks, y: (value) => 100 - (100 * (Math.log10(Math.max(value, least)) - low)) / span };
}

// A line with a gap where nothing is known; `steps` keeps a value until the next.
function path(values, width, end, scale, steps) {
  let text = "";
  let isOpen = false;
  values.forEach((value, piece) => {
    if (value === null) { isOpen = false; return; }
    const from = (1000 * piece * width) / end;
    const to = (1000 * Math.min((piece + 1) * width, end)) / end;
    const y = scale.y(value).toFixed(2);
    text += isOpen ? `L${from.toFixed(1)},${y}` : `M${from.toFixed(1)},${y}`;
    if (steps) text += `L${to.toFixed(1)},${y}`;
    isOpen = true;
  });
  return text;
}

function chart(title, lines, scale, end) {
  const described = lines.map(({ name, values }) => {
    const known = values.filter((value) => value !== null);
    const most = known.reduce((one, other) => Math.max(one, other), 0);
    return `${name} up to ${digits(most)}`;
  });
  const svg = element("svg:svg", {
    viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img",
    "aria-label": `${title}: ${described.join(", ")}`,
  });
  for (const y of [0, 50, 100]) {
    svg.append(element("svg:line", { class: "grid", x1: 0, x2: 1000, y1: y, y2: y }));
  }
  for (const { values, width, kind, steps } of lines) {
    svg.append(element("svg:path", { class: kind, d: path(values, width, end, scale, steps) }));
  }
  const cursor = element("svg:line", { class: "cursor", x1: 0, x2: 0, y1: 0, y2: 100 });
  svg.append(cursor);
  const caption = element("figcaption", {}, [title]);
  for (const { name, kind } of lines) {
    caption.append(element("span", { class: `mark ${kind}`, "aria-hidden": "true" }), name);
  }
  const axis = element("div", { class: "axis", "aria-hidden": "true" },
    scale.ticks.map((tick) => element("span", {}, [digits(tick)])));
  const plot = element("div", { class: "plot" }, [axis, svg]);
  return { figure: element("figure", {}, [caption, plot]), svg, cursor };
}

function largest(runs, keys) {
  let most = 0;
  for (const run of runs) for (const key of keys) for (const value of run[key]) {
    if (value !== null && value > most) most = value;
  }
  return most || 1;
}

function scales(runs) {
  const known = runs.flatMap((run) => run.p50.concat(run.p99)).filter((value) => value !== null && value > 0);
  const least = known.reduce((one, other) => Math.min(one, other), Infinity);
  const latency = known.length ? logarithmic(least, largest(runs, ["p99"])) : logarithmic(0.001, 1);
  return {
    arrivals: linear(largest(runs, ["arrivals"])),
    inFlight: linear(largest(runs, ["in_flight"])),
    replicas: linear(largest(runs, ["ready", "wanted"])),
    latency,
  };
}

function line(run, key, name, kind, steps) {
  return { values: run[key], width: run.width, name, kind, steps };
}

function changeList(run, moveTo) {
  const items = run.changes.map((change) => {
    const time = element("button", { type: "button" }, [clock(change.at)]);
    time.addEventListener("click", () => moveTo(change.at));
    const reason = change.reason === null ? "" : `: ${change.reason}`;
    return element("li", {}, [time, ` ${change.from} → ${change.to}${reason}`]);
  });
  const more = run.changes_total - run.changes.length;
  if (more > 0) items.push(element("li", { class: "faint" }, [`and ${more} more`]));
  if (items.length === 0) items.push(element("li", { class: "faint" }, ["the size never changed"]));
  return element("ol", { class: "changes", tabindex: "0", "aria-label": `decisions of ${run.policy}` }, items);
}

function column(run, best, scale, end, moveTo) {
  const replicas = [line(run, "ready", "ready", "one", false), line(run, "wanted", "wanted", "two", true)];
  if (best && best !== run) replicas.push(line(best, "wanted", "clairvoyant", "three", true));
  const charts = [
    chart("Arrivals per second", [line(run, "arrivals", "arrivals", "one", true)], scale.arrivals, end),
    chart("In flight", [line(run, "in_flight", "in flight", "one", true)], scale.inFlight, end),
    chart("Replicas", replicas, scale.replicas, end),
    chart("Latency in seconds, logarithmic", [line(run, "p50", "p50", "one", false), line(run, "p99", "p99", "two", false)], scale.latency, end),
  ];
  const now = element("p", { class: "now" });
  const changes = changeList(run, moveTo);
  const box = element("section", { "aria-label": run.policy }, [
    element("h3", {}, [run.policy]), now, ...charts.map(({ figure }) => figure), changes,
  ]);
  for (const { svg } of charts) {
    svg.addEventListener("pointermove", (event) => {
      const { left, width } = svg.getBoundingClientRect();
      moveTo((end * (event.clientX - left)) / width);
    });
  }
  const show = (seconds) => {
    for (const { cursor } of charts) {
      cursor.setAttribute("x1", (1000 * seconds) / end);
      cursor.setAttribute("x2", (1000 * seconds) / end);
    }
    const piece = at(run, seconds);
    now.textContent = piece === undefined
      ? "the load has ended"
      : `${digits(run.arrivals[piece])}/s, ${digits(run.in_flight[piece])} in flight, `
        + `${digits(run.ready[piece])} ready of ${run.wanted[piece]}, `
        + `p50 ${digits(run.p50[piece])} s, p99 ${digits(run.p99[piece])} s`;
    let latest = -1;
    run.changes.forEach((change, place) => { if (change.at <= seconds) latest = place; });
    [...changes.children].forEach((item, place) => item.classList.toggle("here", place === latest));
  };
  return { box, show };
}

function draw(place, runs) {
  const ends = runs.map((run) => run.end);
  const end = ends.reduce((one, other) => Math.max(one, other), 0) || 1;
  const best = runs.find((run) => run.policy === "clairvoyant");
  const scale = scales(runs);
  const slider = element("input", { type: "range", min: "0", max: "1000", value: "0", id: `time-${place}` });
  const shown = element("output", { for: `time-${place}` });
  const columns = [];
  const moveTo = (seconds, fromSlider) => {
    const moment = Math.min(Math.max(seconds, 0), end);
    if (!fromSlider) slider.value = String((1000 * moment) / end);
    shown.textContent = clock(moment);
    slider.setAttribute("aria-valuetext", clock(moment));
    for (const { show } of columns) show(moment);
  };
  slider.addEventListener("input", () => moveTo((end * Number(slider.value)) / 1000, true));
  const grid = element("div", { class: "policies" });
  const choice = element("fieldset", {}, [element("legend", {}, ["Policies side by side"])]);
  runs.forEach((run, order) => {
    const made = column(run, best, scale, end, moveTo);
    columns.push(made);
    grid.append(made.box);
    const box = element("input", { type: "checkbox" });
    box.checked = order < SHOWN_AT_FIRST;
    made.box.hidden = !box.checked;
    box.addEventListener("change", () => { made.box.hidden = !box.checked; });
    choice.append(element("label", {}, [box, ` ${run.policy}`]));
  });
  const time = element("div", { class: "time" }, [
    element("label", { for: `time-${place}` }, ["Time"]), slider, shown,
  ]);
  const scroll = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "charts of the policies" }, [grid]);
  document.getElementById(`charts-${place}`).append(choice, time, scroll);
  moveTo(0);
}

data.timelines.forEach((runs, place) => draw(place, runs));
