"use strict";
// What the page is better with, and whole without: sorting, contents, printing.
(() => {
  // Sorting: up, down, and back to the order in which the table was made.
  const collator = new Intl.Collator("en", { numeric: true });
  const MISSING = "–";

  function sortKey(row, column) {
    const cell = row.cells[column];
    const text = cell.textContent.trim();
    if (cell.dataset.value !== undefined) return { rank: 0, number: Number(cell.dataset.value), text };
    return { rank: text === MISSING || text === "" ? 2 : 1, number: 0, text };
  }

  // Numbers before words, and what is missing last, whichever way the column is sorted.
  function compare(a, b, sign) {
    return a.rank - b.rank || sign * (a.number - b.number || collator.compare(a.text, b.text));
  }

  function makeSortable(table) {
    const headers = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const original = [...body.rows];
    const next = { none: "ascending", ascending: "descending", descending: "none" };
    headers.forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      header.append(button);
      button.addEventListener("click", () => {
        const order = next[header.getAttribute("aria-sort") || "none"];
        headers.forEach((each) => each.removeAttribute("aria-sort"));
        let rows = original;
        if (order !== "none") {
          header.setAttribute("aria-sort", order);
          const sign = order === "ascending" ? 1 : -1;
          const keyed = original.map((row) => [sortKey(row, column), row]);
          rows = keyed.sort(([a], [b]) => compare(a, b, sign)).map(([, row]) => row);
        }
        body.append(...rows);
      });
    });
  }

  // Only what does scroll is a stop for the Tab key.
  function watchScrolling() {
    const observer = new ResizeObserver((entries) => {
      for (const { target } of entries) {
        if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
        else target.removeAttribute("tabindex");
      }
    });
    document.querySelectorAll(".scroll").forEach((frame) => observer.observe(frame));
  }

  function prepareContents() {
    const contents = document.querySelector(".toc");
    const wide = matchMedia("(min-width: 68rem)");
    const fit = () => { contents.open = wide.matches; };
    wide.addEventListener("change", fit);
    fit();

    const links = new Map();
    contents.querySelectorAll("a").forEach((link) => links.set(link.hash.slice(1), link));
    const mark = (name) => {
      links.forEach((link) => link.removeAttribute("aria-current"));
      links.get(name).setAttribute("aria-current", "location");
    };
    const observer = new IntersectionObserver((entries) => {
      const seen = entries.filter((entry) => entry.isIntersecting);
      if (seen.length) mark(seen[seen.length - 1].target.id);
    }, { rootMargin: "-10% 0px -80% 0px" });
    links.forEach((_, name) => {
      const place = document.getElementById(name);
      if (place) observer.observe(place);
    });
  }

  function openForPrinting() {
    let closed = [];
    window.addEventListener("beforeprint", () => {
      closed = [...document.querySelectorAll("details:not([open])")];
      closed.forEach((details) => { details.open = true; });
    });
    window.addEventListener("afterprint", () => closed.forEach((details) => { details.open = false; }));
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("table.sortable").forEach(makeSortable);
    watchScrolling();
    prepareContents();
    openForPrinting();
  });
})();
