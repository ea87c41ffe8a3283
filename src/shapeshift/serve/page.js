"use strict";
// A sentence and its translations by several runs.

const $ = (id) => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

let positions = {};  // name of a run -> its position representation
let sentence = "", pending = null;

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
  if (!sentence) return;
  if (!runs.length) return say("Choose at least one run.", true);
  pending?.abort();
  const mine = pending = new AbortController();
  say("Translating …");
  $("results").setAttribute("aria-busy", "true");
  try {
    const answer = await ask("translate", { sentences: [sentence], runs, tokens: true }, mine.signal);
    say("");
    $("results").replaceChildren(...answer.map(card));
  } catch (error) {
    if (mine === pending) say(error.message, true);
  } finally {
    if (mine === pending) $("results").removeAttribute("aria-busy");
  }
}

function card(run) {
  const { text, tokens, at_limit: atLimit } = run.lines[0].candidates[0];
  const pieces = make("ol", { className: "pieces" }, ...tokens.map(([token, logProb]) => {
    const probability = Math.exp(logProb);
    return make("li", { className: probability < 0.5 ? "unsure" : "" },
      make("span", { textContent: token }),
      make("span", { className: "share", textContent: `${Math.round(100 * probability)} %` }));
  }));
  const shown = make("section", { className: "run" },
    make("h2", { textContent: run.run }),
    make("p", { className: "note", textContent: positions[run.run] ?? "" }),
    make("p", { className: "translation", lang: "", textContent: text || "(an empty translation)" }));
  if (atLimit) shown.append(make("p", { className: "note", textContent: "It reaches the length limit; its end may be missing." }));
  const legend = "Below, the pieces with the probability of each; outlined where it is under 50 %.";
  shown.append(make("p", { className: "note", textContent: legend }), pieces);
  return shown;
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
}

start();
