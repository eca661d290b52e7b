// Several items at once: export them, look for more like them, label or delete them.

import { $, addressOf, api, count, make, newRoute, toast } from "/tools.js";
import { labelAll, labelsIn, mayWrite, removeAll } from "/writing.js";

const chosen = new Map(), MAX_EXAMPLES = 16, MAX_CHANGED = 1000;
let shown = () => [], isOld = false; // the items on the screen; whether something has changed since they were selected

export const isSelected = (id) => chosen.has(id);
export const listen = (list) => { shown = list; };

export function toggle(item) {
  if (chosen.has(item.id)) chosen.delete(item.id);
  else chosen.set(item.id, item);
  refresh();
}

// After a change: some items are gone, and what is known about the others is old.
export function changed(gone) {
  for (const id of gone) chosen.delete(id);
  isOld = chosen.size > 0;
  refresh();
}

// The selected items as they are now.
async function current() {
  for (const id of isOld ? chosen.keys() : []) {
    try { chosen.set(id, await api(`/api/items/${id}`)); } catch { chosen.delete(id); }
  }
  isOld = false;
  refresh();
  return [...chosen.values()];
}

export function refresh() {
  for (const tick of document.querySelectorAll(".tick")) tick.ariaPressed = String(chosen.has(Number(tick.dataset.id)));
  const bar = $("selection");
  bar.hidden = !chosen.size;
  document.body.classList.toggle("selecting", chosen.size > 0);
  if (bar.hidden) return bar.replaceChildren();
  const like = addressOf(newRoute({ like: [...chosen.keys()].slice(0, MAX_EXAMPLES).map(String) }));
  const form = bar.querySelector("form"); // what is being typed stays
  bar.replaceChildren(
    make("span", { role: "status" }, `${count(chosen.size, "item")} selected`),
    make("a", { className: "plain", href: like }, "More like these"),
    button("All shown", () => { for (const item of shown()) chosen.set(item.id, item); refresh(); }),
    button("CSV", async () => (await import("/export.js")).exportTable(await current())),
    button("Pictures (zip)", async () => (await import("/export.js")).exportPictures(await current())),
    ...mayWrite() ? [button("Labels", openForm), button("Delete", () => few() && removeAll([...chosen.keys()]), "plain danger")] : [],
    button("Clear", () => { chosen.clear(); refresh(); }), ...form && mayWrite() ? [form] : []);
}

const button = (name, run, className = "plain") => make("button", { type: "button", className, onclick: run }, name);

function few() {
  if (chosen.size > MAX_CHANGED) toast(`At most ${count(MAX_CHANGED, "item")} can be changed at once.`);
  return chosen.size <= MAX_CHANGED;
}

function openForm() {
  const bar = $("selection"), open = bar.querySelector("form");
  if (open) return open.remove();
  const names = make("input", { type: "text", required: true, placeholder: "beach; summer", ariaLabel: "Labels, separated by ;" });
  const form = make("form", {}, names, make("button", { className: "plain", type: "submit", value: "add" }, "Add"), make("button", { className: "plain", type: "submit", value: "remove" }, "Remove"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const labels = labelsIn(names.value), removes = event.submitter?.value === "remove";
    if (few() && await labelAll([...chosen.keys()], removes ? [] : labels, removes ? labels : [])) form.remove();
  });
  bar.append(form);
  names.focus();
}
