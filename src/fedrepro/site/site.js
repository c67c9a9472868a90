// What pages do beyond being read: a bubble over judged cells, sortable tables, charts on demand.
(function () {
  "use strict";
  const base = new URL(".", document.currentScript.src).href;
  const loaded = {};

  function script(name) {
    loaded[name] = loaded[name] || new Promise(function (done, failed) {
      const tag = document.createElement("script");
      tag.src = base + name;
      tag.onload = done;
      tag.onerror = failed;
      document.head.appendChild(tag);
    });
    return loaded[name];
  }

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

  // ------------------------------------------------------------------------- tables of values
  const tables = document.querySelectorAll("table.data");
  if (tables.length) {
    script("tables.js").then(function () {
      tables.forEach(function (table) {
        const many = table.tBodies[0].rows.length > 12;  // what one sees at once needs no pages
        new window.DataTable(table, { pageLength: 50, order: [], autoWidth: false,
          paging: many, searching: many, info: many,
          lengthMenu: [25, 50, 100, 1000] });
      });
    });
  }

  // --------------------------------------------------------------------------------- charts
  window.fedreproChart = function (key, spec) {
    document.querySelectorAll('details[data-chart="' + key + '"] .vega').forEach(function (place) {
      window.vegaEmbed(place, spec, { actions: false, renderer: "svg" });
    });
  };
  document.querySelectorAll("details[data-chart]").forEach(function (fold) {
    fold.addEventListener("toggle", function () {
      if (!fold.open || fold.dataset.drawn) return;
      fold.dataset.drawn = "yes";
      script("vega.js").then(function () { return script("charts/" + fold.dataset.chart + ".js"); });
    });
  });

  // ------------------------------------------------------- a place that a link names is opened
  function open() {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id && document.getElementById(id);
    const near = target && (target.closest("details") ||
      (target.closest("p") || target).nextElementSibling);
    if (near && near.tagName === "DETAILS" && document.querySelector("dl.made")) near.open = true;
  }
  window.addEventListener("hashchange", open);
  open();
})();
