"use strict";
// Theme: the system's until the reader switches, then the reader's.
const root = document.documentElement;
const store = (value) => { try { return value ? localStorage.setItem("taut-theme", value) : localStorage.getItem("taut-theme"); } catch { return null; } };
const chosen = store();
if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  store(root.dataset.theme);
});

// Tables: a click on a title sorts, numbers by their exact values.
for (const table of document.querySelectorAll("table.sortable")) {
  const titles = [...table.tHead.rows[0].cells];
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  titles.forEach((title, column) => title.querySelector("button").addEventListener("click", () => {
    const order = title.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    titles.forEach((other) => other.setAttribute("aria-sort", "none"));
    title.setAttribute("aria-sort", order === 1 ? "ascending" : "descending");
    const compare = (a, b) => {
      // Rows without a value stay last.
      if (a === "" || b === "") return a === b ? 0 : (a === "" ? 1 : -1);
      return order * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
    };
    const rows = [...table.tBodies[0].rows].map((row) => [key(row, column), row]);
    rows.sort((a, b) => compare(a[0], b[0]));
    table.tBodies[0].append(...rows.map((row) => row[1]));
  }));
}

// Filters: all words, one suite, rows with both figures.
for (const form of document.querySelectorAll("form.filters")) {
  const rows = [...document.getElementById(form.dataset.table).tBodies[0].rows];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const count = form.querySelector("output");
  const apply = () => {
    const words = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const suite = form.elements.suite.value;
    let shown = 0;
    rows.forEach((row, at) => {
      const fits = (!suite || row.dataset.suite === suite) && (!form.elements.both.checked || "both" in row.dataset)
        && words.every((word) => texts[at].includes(word));
      row.hidden = !fits;
      shown += fits;
    });
    count.textContent = shown === rows.length ? `${rows.length} figures` : `${shown} of ${rows.length} figures`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}

// A link to a published figure shows it, whatever the filter hides.
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#p"]');
  const row = link && document.getElementById(link.getAttribute("href").slice(1));
  if (row) row.hidden = false;
});

// The navigation marks the section in view.
if ("IntersectionObserver" in window) {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.getAttribute("href").slice(1), link]));
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      links.forEach((link) => { link.classList.remove("here"); link.removeAttribute("aria-current"); });
      const link = links.get(entry.target.id);
      if (link) { link.classList.add("here"); link.setAttribute("aria-current", "true"); }
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  document.querySelectorAll("main > section").forEach((section) => observer.observe(section));
}

// Paper has no folds: conclusions and notes are printed open.
addEventListener("beforeprint", () => document.querySelectorAll(".notes, .reasons").forEach((fold) => { fold.open = true; }));
