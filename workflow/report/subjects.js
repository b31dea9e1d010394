(() => {
  const body = document.querySelector("tbody"), rows = [...body.rows];
  const links = [...document.querySelectorAll("a[data-site]")];
  const buttons = [...document.querySelectorAll("[data-show]")];
  const count = document.getElementById("count");
  let site = "", show = "";
  const apply = () => {
    let shown = 0;
    for (const row of rows) {
      row.hidden = (site && row.dataset.site !== site) || (show === "in" ? row.className === "out" : show && row.className !== show);
      shown += !row.hidden;
    }
    count.textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} subjects shown`;
    links.forEach((one) => one.setAttribute("aria-current", one.dataset.site === site));
    buttons.forEach((one) => one.setAttribute("aria-pressed", one.dataset.show === show));
  };
  links.forEach((one) => one.addEventListener("click", (event) => {
    event.preventDefault();
    site = site === one.dataset.site ? "" : one.dataset.site;
    apply();
  }));
  buttons.forEach((one) => one.addEventListener("click", () => { show = one.dataset.show; apply(); }));
  const heads = [...document.querySelectorAll("thead th")];
  const compare = (a, b) => a.localeCompare(b, undefined, { numeric: true });
  heads.forEach((head, column) => {
    if (column === 6) return;
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      const words = [0, 1, 2, 8].includes(column);
      const key = (row) => words ? row.cells[column].textContent : row.cells[column].dataset.value;
      rows.sort((a, b) => {
        const first = key(a), second = key(b);
        if (!first || !second) return (first ? 0 : 1) - (second ? 0 : 1);
        return down * (words ? compare(first, second) : first - second);
      });
      body.append(...rows);
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down > 0 ? "ascending" : "descending");
    });
  });
  document.documentElement.classList.add("live");
  apply();
})();
