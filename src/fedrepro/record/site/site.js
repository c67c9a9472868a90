// What pages do beyond being read: a bubble over judged cells, sortable tables.
(function () {
  "use strict";
  // ------------------- a table that is wider than a telephone: its rows stand one below the other
  function headsOf(table) {
    const heads = [], taken = [];
    Array.from(table.tHead ? table.tHead.rows : []).forEach(function (row, level) {
      let at = 0;
      Array.from(row.cells).forEach(function (cell) {
        while ((taken[level] || [])[at]) at++;
        for (let down = 0; down < cell.rowSpan; down++)
          for (let over = 0; over < cell.colSpan; over++)
            (taken[level + down] = taken[level + down] || [])[at + over] = true;
        for (let over = 0; over < cell.colSpan; over++, at++)
          heads[at] = [heads[at], cell.textContent.trim()].filter(Boolean).join(", ");
      });
    });
    return heads;
  }
  function label(table) {
    const heads = headsOf(table);
    Array.from(table.tBodies).forEach(function (body) {
      Array.from(body.rows).forEach(function (row) {
        Array.from(row.cells).forEach(function (cell, at) { cell.dataset.head = at ? heads[at] || "" : ""; });
      });
    });
  }
  function stack(within) {
    // all widths are read between the two writes: the browser lays the page out once
    const tables = Array.from(within.querySelectorAll(".wide table, .table-wrapper table"));
    tables.forEach(function (table) { table.classList.remove("stacked"); });
    if (window.innerWidth > 736) return;
    tables.filter(function (table) {
      const box = table.closest(".wide, .table-wrapper");
      return box.scrollWidth > box.clientWidth + 1;  // both are 0 in a closed fold
    }).forEach(function (table) {
      label(table);
      table.classList.add("stacked");
    });
  }
  window.addEventListener("resize", function () { stack(document); });
  document.addEventListener("toggle", function (event) { if (event.target.open) stack(event.target); }, true);
  stack(document);

  // -------------------------------------------- what scrolls by itself is reached by keys too
  document.querySelectorAll("pre, .table-wrapper").forEach(function (part) { part.tabIndex = 0; });
  document.querySelectorAll("p.caption[role=heading]").forEach(function (caption) {
    caption.setAttribute("aria-level", "2");
  });

  // ------------------------------------------------------------------ what is known of a cell
  let bubble = null;
  function hide() {
    if (bubble) bubble.remove();
    bubble = null;
  }
  function show(cell) {
    hide();
    bubble = document.createElement("div");
    bubble.className = "bubble";
    bubble.setAttribute("role", "tooltip");
    bubble.textContent = cell.dataset.more;
    document.body.appendChild(bubble);
    const at = cell.getBoundingClientRect(), own = bubble.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - own.width - 8));
    const below = at.bottom + 6;
    const top = below + own.height > window.innerHeight ? at.top - own.height - 6 : below;
    bubble.style.left = left + "px";
    bubble.style.top = Math.max(8, top) + "px";
  }
  document.querySelectorAll("td[data-more]").forEach(function (cell) {
    cell.removeAttribute("title");
    cell.addEventListener("mouseenter", function () { show(cell); });
    cell.addEventListener("mouseleave", hide);
    cell.addEventListener("focus", function () { show(cell); });
    cell.addEventListener("blur", hide);
  });
  document.addEventListener("keydown", function (event) { if (event.key === "Escape") hide(); });
  document.addEventListener("scroll", function () {
    const cell = document.activeElement;
    if (cell && cell.matches("td[data-more]")) show(cell);  // reaching it by keys scrolls to it
    else hide();
  }, { passive: true });

  // ------------------------------------------------------- rows by the column whose head is clicked
  document.querySelectorAll("table.data").forEach(function (table) {
    const heads = Array.from(table.tHead.rows[0].cells);
    function sort(head, at) {
      const down = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      const text = function (row) { return row.cells[at].textContent.trim().replace(/,/g, "").replace("−", "-").replace(" GB", "e3"); };
      const rows = Array.from(table.tBodies[0].rows).sort(function (a, b) {
        const gap = parseFloat(text(a)) - parseFloat(text(b));
        return down * (isNaN(gap) ? text(a).localeCompare(text(b)) : gap);
      });
      heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", down > 0 ? "ascending" : "descending");
      table.tBodies[0].append(...rows);
    }
    heads.forEach(function (head, at) {
      head.tabIndex = 0;
      head.addEventListener("click", function () { sort(head, at); });
      head.addEventListener("keydown", function (event) { if (event.key === "Enter") sort(head, at); });
    });
  });

  // ------------------------------------------------------- a place that a link names is opened
  function open() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    let fold = target && target.closest("details");
    if (!fold) return;
    for (; fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  }
  window.addEventListener("hashchange", open);
  open();
})();
