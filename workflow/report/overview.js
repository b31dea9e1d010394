"use strict";
// Everything stands on the page without this script; it sorts, filters, chooses, copies and names.
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const make = (tag, words, parent, ...names) => {
  const one = Object.assign(document.createElement(tag), words);
  one.classList.add(...names);
  parent.append(one);
  return one;
};
const button = (text, parent, act) => {
  const one = make("button", { type: "button", textContent: text }, parent);
  one.addEventListener("click", () => act(one));
  return one;
};

// Sorting. Rows stay below the heading of their cohort; other headings are hidden meanwhile.
const UNITS = { s: 1, min: 60, h: 3600 };
const sortable = (cell) => {
  const text = cell.textContent.trim().replace(/\u2212/g, "-").replace(/,(?=\d{3})/g, "");
  const found = text.match(/^<?\s*([+-]?\d*\.?\d+)(?:\s*(s|min|h)\b)?/);
  return found ? Number(found[1]) * (UNITS[found[2]] || 1) : text;
};
const compare = (a, b) =>
  typeof a === "number" && typeof b === "number" ? a - b
    : typeof a === "number" ? -1 : typeof b === "number" ? 1 : a.localeCompare(b);
const isMissing = (value) => value === "–" || value === "" || value === "not run";
const sort = (table, column, direction) => {
  const body = table.tBodies[0];
  table.original ||= [...body.rows];
  table.sorted = direction !== 0;
  let block = [], rows = [];
  const put = () => {
    const keyed = block.map((row) => [sortable(row.cells[column]), row]);
    keyed.sort(([a], [b]) => isMissing(a) - isMissing(b) || direction * compare(a, b));
    rows.push(...keyed.map(([, row]) => row));
    block = [];
  };
  if (direction) {
    for (const row of table.original) {
      if (!row.classList.contains("group")) block.push(row);
      else if (row.dataset.places) { put(); rows.push(row); }
      else rows.push(row);
    }
    put();
  }
  body.append(...(direction ? rows : table.original));
  for (const head of table.tHead.rows[table.tHead.rows.length - 1].cells) head.removeAttribute("aria-sort");
  show(table);
};

// What is visible: the chosen cohort and protocol, and the rows that hold what is typed.
const chosen = {};
const isChosen = (places) => !places || places.split(" ").some((place) => {
  const [cohort, protocol] = place.split("/");
  return (!chosen.cohort || chosen.cohort === cohort) && (!chosen.protocol || chosen.protocol === protocol);
});
const show = (table) => {
  const typed = (table.typed || "").toLowerCase();
  let group = null, place = true;
  for (const row of table.tBodies[0].rows) {
    if (row.classList.contains("group")) {
      if (row.dataset.places) place = isChosen(row.dataset.places);
      group = row;
      row.hidden = !place || Boolean(typed) || (table.sorted && !row.dataset.places);
    } else {
      row.hidden = !place || !row.textContent.toLowerCase().includes(typed);
      if (!row.hidden && group && place && typed && (!table.sorted || group.dataset.places)) group.hidden = false;
    }
  }
  for (const span of all("th.span[data-places]", table)) {
    const visible = isChosen(span.dataset.places), start = Number(span.dataset.start);
    span.hidden = !visible;
    for (const row of all("tr", table)) {
      if (row === span.parentElement || row.classList.contains("group")) continue;
      for (let i = start; i < start + span.colSpan; i++) if (row.cells[i]) row.cells[i].hidden = !visible;
    }
  }
};
const showAll = () => {
  all("[data-places]").forEach((one) => {
    if (!one.closest("table")) one.hidden = !isChosen(one.dataset.places);
  });
  all("table").forEach(show);
};

const copy = async (text, told) => {
  const before = told.textContent;
  try { await navigator.clipboard.writeText(text); } catch {
    const area = make("textarea", { value: text }, document.body);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  told.textContent = "Copied";
  setTimeout(() => { told.textContent = before; }, 1500);
};
const cells = (row) => [...row.cells].filter((one) => !one.hidden).map((one) => one.innerText.trim().replace(/\s+/g, " "));

for (const table of all("table")) {
  const heads = table.tHead.rows[table.tHead.rows.length - 1].cells;
  [...heads].forEach((head, column) => {
    const text = head.textContent;
    head.textContent = "";
    // Not a button: where a table breaks, the head that is printed again would be empty.
    const word = make("span", { textContent: text, tabIndex: 0 }, head);
    word.setAttribute("role", "button");
    word.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); word.click(); }
    });
    word.addEventListener("click", () => {
      // The first click shows the highest number, the third the table as it was.
      const next = { descending: 1, ascending: 0 }[head.getAttribute("aria-sort")] ?? -1;
      sort(table, column, next);
      if (next) head.setAttribute("aria-sort", next < 0 ? "descending" : "ascending");
    });
  });
  const tools = table.closest(".item").querySelector(".tools");
  button("Copy", tools, (told) => copy([...table.rows].filter((row) => !row.hidden).map((row) => cells(row).join("\t")).join("\n"), told));
  if (table.tBodies[0].rows.length >= 8) {
    const name = table.closest("[aria-label]").getAttribute("aria-label");
    const field = make("input", { type: "search", placeholder: "Filter rows" }, tools);
    field.setAttribute("aria-label", `Filter rows: ${name}`);
    field.addEventListener("input", () => { table.typed = field.value; show(table); });
  }
}
all(".copied").forEach((block) => button("Copy", make("p", {}, block.parentElement, "tools"), (told) => copy(block.textContent, told)));
all(".paper svg").forEach((svg) => {
  const item = svg.closest(".item");
  button("SVG", item.querySelector(".tools"), () => {
    const whole = svg.cloneNode(true);
    // Words of marks are titles in a file of its own.
    all("[data-tip]", whole).forEach((one) => {
      one.append(Object.assign(document.createElementNS("http://www.w3.org/2000/svg", "title"), { textContent: one.dataset.tip }));
    });
    const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(whole)], { type: "image/svg+xml" }));
    make("a", { href: url, download: `${item.dataset.name}.svg` }, item).click();
    URL.revokeObjectURL(item.lastChild.href);
    item.lastChild.remove();
  });
});

// What stands under the pointer: a site with its subjects, AUC and interval.
const tip = make("div", { hidden: true }, document.body, "tip");
tip.setAttribute("role", "status");
all(".paper svg title").forEach((title) => { title.parentElement.dataset.tip = title.textContent; title.remove(); });
all("[title]").forEach((one) => { one.dataset.tip = one.title; one.removeAttribute("title"); });
document.addEventListener("pointerover", (event) => {
  const mark = event.target.closest("[data-tip]");
  all(".same").forEach((one) => one.classList.remove("same"));
  tip.hidden = !mark;
  if (!mark) return;
  tip.textContent = mark.dataset.tip;
  const box = mark.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${box.top > 60 ? box.top - tip.offsetHeight - 8 : box.bottom + 8}px`;
  const site = mark.dataset.tip.split(": ")[0];
  if (mark.ownerSVGElement) all("[data-tip]", mark.ownerSVGElement).forEach((one) => one.classList.toggle("same", one.dataset.tip.startsWith(`${site}: `)));
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

// Choices, and contents that follow the scroll.
const choice = document.querySelector(".choice");
choice.hidden = false;
all("select", choice).forEach((field) => {
  field.closest("label").hidden = field.options.length < 3;
  field.addEventListener("change", () => { chosen[field.name] = field.value; showAll(); });
});
button("Open all", choice, (told) => {
  const open = told.textContent === "Open all";
  all("details").forEach((one) => { one.open = open; });
  told.textContent = open ? "Close all" : "Open all";
});
const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
const follow = () => {
  const heads = all("h2[id]").filter((head) => links.has(head.id));
  const passed = heads.filter((head) => head.getBoundingClientRect().top < innerHeight / 3);
  links.forEach((link) => link.removeAttribute("aria-current"));
  const current = passed.at(-1) || heads[0];
  if (current) links.get(current.id).setAttribute("aria-current", "true");
};
addEventListener("scroll", follow, { passive: true });
follow();
const unfold = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", unfold);
if (location.hash) unfold();
