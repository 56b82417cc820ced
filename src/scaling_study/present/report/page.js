"use strict";
// What the page does: draws figures when they come near, shows runs and timelines, filters tables. Sets text, never HTML.

const data = JSON.parse(document.getElementById("data").textContent);
const runs = new Map(); // run id -> its records, one a provenance
data.runs.rows.forEach((row) => {
  const record = Object.fromEntries(data.runs.columns.map((name, index) => [name, row[index]]));
  runs.set(record.run_id, [...(runs.get(record.run_id) ?? []), record]);
});
const MOST_ENLARGED = 1.5;
const MARKS = data.marks;

function make(name, attributes = {}, text = "") {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

function shown(value) {
  return typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(5))) : String(value);
}

function rowOf(name, value) {
  const row = make("tr");
  row.append(make("td", {}, name.replaceAll("_", " ")), make("td", {}, shown(value)));
  return row;
}

// -- figures ---------------------------------------------------------------------------------------------------------

function units(spec) {
  // every part of a specification that draws marks
  if (spec.mark) return [spec];
  return ["layer", "concat", "hconcat", "vconcat"].flatMap((kind) => (spec[kind] ?? []).flatMap(units));
}

function hasRuns(unit, spec) {
  const rows = spec.datasets?.[unit.data?.name] ?? [];
  return rows.some((row) => row.run_id);
}

const PLACES = new Set(["row", "reach", "gpus", "nodes", "ranks"]); // fields that say where a mark stands, not what it shows

function seriesOf(unit) {
  // what a switch turns off: a quantity, told by the field that is drawn
  const fields = [unit.encoding?.y?.field, unit.encoding?.x?.field].filter((field) => field && !PLACES.has(field));
  return (fields[0] ?? "").replace(/_(low|high|p05|p95)$/, "");
}

function inWords(field) {
  return field.replace(/_(s|w)$/, "").replaceAll("_", " ").replace(/\bgpu\b/, "GPU").replace(/\bmfu\b/, "MFU");
}

function prepared(key, off) {
  const spec = JSON.parse(document.getElementById(`spec-${key}`).textContent);
  spec.config = data.theme;
  delete spec.title; // the page has it as text
  for (const unit of units(spec)) {
    if (!hasRuns(unit, spec)) continue;
    const type = unit.mark.type ?? unit.mark;
    unit.mark = { ...(typeof unit.mark === "string" ? { type } : unit.mark) };
    if (type !== "line" && type !== "area") unit.mark.tooltip = { content: "data" };
    if (off.has(seriesOf(unit))) unit.data = { values: [] };
  }
  for (const [name, rows] of Object.entries(spec.datasets ?? {}))
    spec.datasets[name] = rows.filter((row) => !off.has(row.provenance));
  return spec;
}

async function draw(figure, off) {
  const key = figure.dataset.figure;
  const spec = prepared(key, off);
  const chart = figure.querySelector(".chart");
  const { view } = await vegaEmbed(chart, spec, {
    ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: showTooltip,
  });
  view.addEventListener("click", (_, item) => item?.datum?.run_id && showRun(item.datum.run_id));
  enlarge(chart);
  chart.style.minHeight = "0";
}

function enlarge(chart) {
  // figures are made for print, where a point is a pixel
  const picture = chart.querySelector("svg");
  const factor = Math.min(MOST_ENLARGED, Math.max(1, chart.clientWidth / picture.width.baseVal.value));
  for (const name of ["width", "height"]) picture.setAttribute(name, picture[name].baseVal.value * factor);
}

function addSwitches(figure) {
  const off = new Set();
  const spec = JSON.parse(document.getElementById(`spec-${figure.dataset.figure}`).textContent);
  const group = figure.querySelector(".switches");
  const provenances = [...new Set((spec.usermeta.runs ?? []).map((run) => run.provenance))];
  const drawn = units(spec).filter((unit) => hasRuns(unit, spec));
  const series = [...new Set(drawn.map(seriesOf))].filter(Boolean);
  const switches = [
    ...(provenances.length > 1 ? provenances.map((name) => [name, `${MARKS[name] ?? ""} ${name}`]) : []),
    ...(series.length > 1 ? series.map((name) => [name, inWords(name)]) : []),
  ];
  for (const [name, text] of switches) {
    const label = make("label");
    const box = make("input", { type: "checkbox", checked: "" });
    box.addEventListener("change", () => {
      box.checked ? off.delete(name) : off.add(name);
      draw(figure, off);
    });
    label.append(box, ` ${text}`);
    group.append(label);
  }
  return off;
}

function listRuns(list, records) {
  list.replaceChildren(
    ...records.map(({ run_id, provenance, outcome }) => {
      const item = make("li");
      const button = make("button", { type: "button" }, run_id);
      button.addEventListener("click", () => showRun(run_id));
      item.append(button, make("span", {}, ` ${MARKS[provenance] ?? ""} ${provenance}${outcome === "ok" ? "" : `, ${outcome}`}`));
      return item;
    }),
  );
}

function prepareList(figure) {
  const details = figure.querySelector("details");
  const drawn = data.figures[figure.dataset.figure].runs ?? [];
  details.hidden = drawn.length === 0;
  details.addEventListener("toggle", () => listRuns(details.querySelector("ul"), drawn), { once: true });
}

const near = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) {
    near.unobserve(entry.target);
    draw(entry.target, addSwitches(entry.target));
  }
}, { rootMargin: "300px" });
for (const figure of document.querySelectorAll("figure")) {
  prepareList(figure);
  near.observe(figure);
}

// -- tooltips and runs -----------------------------------------------------------------------------------------------

const tooltip = make("div", { class: "tooltip", role: "tooltip" });
tooltip.hidden = true;
document.body.append(tooltip);

function showTooltip(_, event, item, value) {
  tooltip.hidden = !value || !item?.datum;
  if (tooltip.hidden) return;
  const table = make("table");
  for (const [name, one] of Object.entries(item.datum)) {
    if (one !== null && typeof one !== "object") table.append(rowOf(name, one));
  }
  tooltip.replaceChildren(table);
  const left = Math.min(event.clientX + 12, window.innerWidth - tooltip.offsetWidth - 8);
  tooltip.style.left = `${Math.max(0, left)}px`;
  tooltip.style.top = `${Math.min(event.clientY + 12, window.innerHeight - tooltip.offsetHeight - 8)}px`;
}

function showRun(id) {
  tooltip.hidden = true;
  const records = runs.get(id) ?? [];
  const dialog = document.getElementById("run");
  document.getElementById("run-title").textContent = id;
  document.getElementById("run-provenance").textContent = records.length
    ? records.map((one) => `${MARKS[one.provenance] ?? ""} ${one.provenance}`).join(" and ")
    : "No record of this run is in the page.";
  const figures = Object.entries(data.figures).filter(([, meta]) => (meta.runs ?? []).some((run) => run.run_id === id));
  const line = document.getElementById("run-figures");
  line.textContent = figures.length ? "Drawn in " : "";
  for (const [key] of figures) {
    const link = make("a", { href: `#${key}` }, key);
    link.addEventListener("click", () => dialog.close());
    line.append(link, " ");
  }
  if (data.timelines[id]) {
    const link = make("a", { href: "#timelines" }, "its timeline");
    link.addEventListener("click", () => {
      dialog.close();
      document.getElementById("timeline-form").elements.run.value = id;
      drawTimeline();
    });
    line.append("and ", link);
  }
  const body = document.querySelector("#run-values tbody");
  const names = data.runs.columns.filter((name) => records.some((one) => one[name] !== null && one[name] !== undefined));
  body.replaceChildren(
    ...names.map((name) => {
      const row = make("tr");
      row.append(make("th", { scope: "row" }, name), ...records.map((one) => make("td", {}, one[name] === null ? "" : shown(one[name]))));
      return row;
    }),
  );
  if (!dialog.open) dialog.showModal();
}

// -- tables ----------------------------------------------------------------------------------------------------------

function filterClaims() {
  const { verdict, place, text } = document.getElementById("claim-filters").elements;
  const wanted = text.value.toLowerCase();
  let count = 0;
  for (const row of document.querySelectorAll("#claim-table tbody tr")) {
    const tested = row.dataset.verdict !== "not testable here";
    const judged = verdict.value === "tested" ? tested : !verdict.value || row.dataset.verdict === verdict.value;
    const fits = judged && (!place.value || row.dataset.place === place.value);
    row.hidden = !(fits && row.textContent.toLowerCase().includes(wanted));
    count += row.hidden ? 0 : 1;
  }
  document.getElementById("claim-count").textContent = `${count} shown`;
}

const MOST_LISTED = 200;

function filterRuns() {
  const { text, provenance } = document.getElementById("run-filters").elements;
  const found = [...runs.values()].flat().filter(
    (one) => one.run_id.includes(text.value.trim()) && (!provenance.value || one.provenance === provenance.value),
  );
  listRuns(document.getElementById("run-table"), found.slice(0, MOST_LISTED));
  const first = found.length > MOST_LISTED ? `, the first ${MOST_LISTED} listed` : "";
  document.getElementById("run-count").textContent = `${found.length} records${first}`;
}

function connect(id, act) {
  const form = document.getElementById(id);
  if (!form) return;
  form.addEventListener("input", act);
  form.addEventListener("submit", (event) => event.preventDefault());
  act();
}

// -- timelines -------------------------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, LEFT, ROW] = [1000, 130, 18];
const KINDS = new Set(["compute", "communication"]);

function svg(name, attributes, text = "") {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

function drawTimeline() {
  const form = document.getElementById("timeline-form").elements;
  const spans = data.timelines[form.run.value];
  const end = spans.end_ns.reduce((most, one) => Math.max(most, one), 1);
  const width = (end * Number(form.width.value)) / 1000;
  const from = ((end - width) * Number(form.from.value)) / 1000;
  const lanes = [...new Set(spans.rank.map((rank, index) => `rank ${rank} ${spans.stream[index]}`))];
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${lanes.length * ROW + 4}` });
  lanes.forEach((lane, index) => picture.append(svg("text", { x: 4, y: index * ROW + 13 }, lane)));
  const scale = (WIDTH - LEFT) / width;
  spans.start_ns.forEach((start, index) => {
    const [left, right] = [Math.max(start, from), Math.min(spans.end_ns[index], from + width)];
    if (right <= left) return;
    const kind = KINDS.has(spans.kind[index]) ? spans.kind[index] : "other";
    const lane = lanes.indexOf(`rank ${spans.rank[index]} ${spans.stream[index]}`);
    const block = svg("rect", {
      class: kind, x: LEFT + (left - from) * scale, y: lane * ROW + 2, width: Math.max(0.3, (right - left) * scale), height: ROW - 4,
    });
    const ms = (ns) => (ns / 1e6).toFixed(3);
    const size = spans.bytes[index] === null ? "" : `, ${spans.bytes[index].toLocaleString("en")} bytes`;
    const text = `${spans.op[index]}: ${ms(start)} to ${ms(spans.end_ns[index])} ms${size}`;
    block.append(svg("title", {}, text));
    block.addEventListener("mouseenter", () => { document.getElementById("span-text").textContent = text; });
    picture.append(block);
  });
  document.getElementById("timeline").replaceChildren(picture);
  document.getElementById("timeline-window").textContent =
    `${(from / 1e6).toFixed(1)} to ${((from + width) / 1e6).toFixed(1)} of ${(end / 1e6).toFixed(1)} ms`;
}

connect("claim-filters", filterClaims);
connect("run-filters", filterRuns);
connect("timeline-form", drawTimeline);
