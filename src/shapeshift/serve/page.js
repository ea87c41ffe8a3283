"use strict";
// A sentence, its translations by several runs, and their attention, drawn as tables.

const $ = (id) => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

let positions = {};  // name of a run -> its position representation
let sentence = "", answer = null, pending = null;

async function ask(path, body, signal) {
  const request = body && {
    method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" },
  };
  let response;
  try {
    response = await fetch(path, { ...request, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer.");
  }
  const given = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(given.error ?? `The server answers with ${response.status}.`);
  return given;
}

function say(text, isError = false) {
  $("message").textContent = text;
  $("message").classList.toggle("error", isError);
}

async function show() {
  const runs = [...document.querySelectorAll("#runs input:checked")].map((box) => box.value);
  if (!sentence) return say("Type a sentence.", true);
  if (!runs.length) return say("Choose at least one run.", true);
  pending?.abort();
  const mine = pending = new AbortController();
  say("Translating …");
  $("results").setAttribute("aria-busy", "true");
  try {
    answer = await ask("attention", { sentence, runs, kind: $("kind").value }, mine.signal);
    say("");
    draw();
  } catch (error) {
    if (mine !== pending) return;
    say(error.message, true);
    $("results").replaceChildren();  // of another sentence
    $("controls").hidden = true;
  } finally {
    if (mine === pending) $("results").removeAttribute("aria-busy");
  }
}

function fill(select, names) {
  const before = select.value;
  select.replaceChildren(...names.map((name, value) => make("option", { value, textContent: name })));
  select.value = before !== "" && before < names.length ? before : names.length - 1;
}

function draw() {
  const shapes = answer.map((run) => run.attention).filter(Boolean);
  const count = (list) => Array.from({ length: Math.max(0, ...list) }, (_, n) => String(n + 1));
  fill($("layer"), count(shapes.map((layers) => layers.length)));
  fill($("head"), [...count(shapes.map((layers) => layers[0].length)), "mean of all"]);
  $("controls").hidden = !shapes.length;
  $("results").replaceChildren(...answer.map(card));
}

function card(run) {
  const { text, tokens, at_limit: atLimit } = run.translation;
  const pieces = make("ol", { className: "pieces" }, ...tokens.map(([token, logProb]) => {
    const probability = Math.exp(logProb);
    return make("li", { className: probability < 0.5 ? "unsure" : "" },
      make("span", { textContent: token }),
      make("span", { className: "share", textContent: `${Math.round(100 * probability)} %` }));
  }));
  const shown = make("section", { className: "run" },
    make("h2", { textContent: run.run }),
    make("p", { className: "note", textContent: positions[run.run] ?? "" }),
    make("p", { className: "translation", lang: "", dir: "auto", textContent: text || "(an empty translation)" }));
  if (atLimit) shown.append(make("p", { className: "note", textContent: "It reaches the length limit; its end may be missing." }));
  const legend = "Below, the pieces with the probability of each; outlined where it is under 50 %.";
  shown.append(make("p", { className: "note", textContent: legend }), pieces, ...(run.attention ? map(run) : [
    make("p", { className: "note", textContent: "This engine does not show its attention." }),
  ]));
  return shown;
}

function matrix(layers) {
  const heads = layers[Math.min($("layer").value, layers.length - 1)];
  const head = Number($("head").value);
  if (head < $("head").options.length - 1) return heads[Math.min(head, heads.length - 1)];
  return heads[0].map((row, i) => row.map((_, j) =>
    heads.reduce((sum, probs) => sum + probs[i][j], 0) / heads.length));
}

function map({ run, rows, columns, attention }) {
  const readout = make("p", { className: "readout", textContent: "Point at a cell, or move with the arrow keys, to read its probability." });
  const head = make("tr", {}, make("td"), ...columns.map((piece) =>
    make("th", { scope: "col" }, make("span", { textContent: piece }))));
  const body = matrix(attention).map((probs, i) =>
    make("tr", {}, make("th", { scope: "row", textContent: rows[i] }), ...probs.map((p, j) => {
      const cell = make("td", { tabIndex: i || j ? -1 : 0 });
      // The root makes small probabilities visible.
      cell.style.setProperty("--share", Math.sqrt(p).toFixed(3));
      cell.onpointerenter = cell.onfocus = () => { readout.textContent = `${rows[i]} → ${columns[j]}: ${(100 * p).toFixed(1)} %`; };
      cell.append(make("span", { className: "unseen", textContent: p.toFixed(2) }));
      return cell;
    })));
  const table = make("table", { className: "map" },
    make("caption", { className: "unseen", textContent: `Attention of ${run}` }),
    make("thead", {}, head), make("tbody", {}, ...body));
  table.style.setProperty("--columns", columns.length);
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  table.onkeydown = (event) => {
    const [down, right] = steps[event.key] ?? [];
    if (down === undefined) return;
    event.preventDefault();
    const cell = event.target;
    table.tBodies[0].rows[cell.parentNode.sectionRowIndex + down]?.querySelectorAll("td")[cell.cellIndex - 1 + right]?.focus();
  };
  const frame = make("div", { className: "scroll", role: "group", ariaLabel: `Attention of ${run}` }, table);
  return [frame, readout];
}

async function start() {
  try {
    const runs = await ask("runs");
    positions = Object.fromEntries(runs.map((run) => [run.name, run.position]));
    $("runs").replaceChildren(...runs.map((run) => make("label", {},
      make("input", { type: "checkbox", value: run.name, checked: true }), ` ${run.name}`)));
  } catch (error) {
    say(error.message, true);
  }
  $("form").onsubmit = (event) => {
    event.preventDefault();
    sentence = $("sentence").value.replace(/\s+/g, " ").trim();
    show();
  };
  $("sentence").onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      $("form").requestSubmit();
    }
  };
  $("kind").onchange = show;
  $("layer").onchange = $("head").onchange = draw;
}

start();
