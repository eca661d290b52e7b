// Adding, editing and removing, for those who have the token that the terminal prints (serve --writable).

import { $, api, count, make, toast } from "/tools.js";

const KEY = "fusehash-token", state = { writable: false, token: "", changed: () => {}, shown: () => {} };

export function listen(changed, shown) {
  Object.assign(state, { changed, shown });
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  try {
    if (given) sessionStorage.setItem(KEY, given);
    state.token = given ?? sessionStorage.getItem(KEY) ?? "";
  } catch { state.token = given ?? ""; }
  if (given) history.replaceState(null, "", "#"); // out of the address, so that nobody shares it
  $("unlock").addEventListener("submit", (event) => {
    event.preventDefault();
    state.token = $("token").value.trim();
    $("token").value = "";
    try { sessionStorage.setItem(KEY, state.token); } catch { /* then it lasts as long as the page */ }
    show();
  });
  $("add").addEventListener("click", () => $("added").click());
  $("added").addEventListener("change", () => { add([...$("added").files]); $("added").value = ""; });
  $("undo").addEventListener("click", undo);
}

export function allow(writable) {
  state.writable = writable;
  show();
}

export const mayWrite = () => state.writable && Boolean(state.token);

function show() {
  $("unlock").hidden = !state.writable || Boolean(state.token);
  $("writer").hidden = $("drop-add").hidden = !mayWrite(); // the second also while a file is held over the page
  state.shown();
}

async function send(path, method, content) {
  const headers = { Authorization: `Bearer ${state.token}` };
  if (method !== "DELETE") headers["Content-Type"] = "application/json";
  try {
    return await api(path, { method, headers, body: method === "DELETE" ? undefined : JSON.stringify(content ?? {}) });
  } catch (error) {
    if (error.code === "unauthorized") {
      state.token = "";
      try { sessionStorage.removeItem(KEY); } catch { /* it was not kept */ }
      show();
    }
    throw error;
  }
}

const attempt = async (work) => { try { return await work(); } catch (error) { toast(error.message); return null; } };

function encoded(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

export async function add(files) {
  let added = 0;
  const problems = [];
  for (const [number, file] of files.entries()) {
    toast(`Adding ${number + 1} of ${files.length}…`);
    try {
      const report = await send("/api/items", "POST", { items: [{ key: file.name || `picture ${new Date().toISOString()}`, image: await encoded(file) }] });
      added += report.added;
      problems.push(...Object.values(report.skipped));
    } catch (error) { problems.push(error.message); }
  }
  toast(`Added ${count(added, "picture")}.${problems.length ? ` ${problems[0]}` : ""}`, added ? "Undo" : null, undo, added ? state.changed() : null);
}

async function undo() {
  const report = await attempt(() => send("/api/undo", "POST"));
  if (!report) return;
  toast("Undone.");
  state.changed();
}

// Several items at once.
export async function removeAll(ids) {
  const report = await attempt(() => send("/api/remove", "POST", { ids }));
  if (!report) return;
  toast(`Removed ${count(report.removed, "item")} from the collection; the files are untouched.`, "Undo", undo, state.changed(ids));
}

export async function labelAll(ids, add, remove) {
  const report = await attempt(() => send("/api/label", "POST", { ids, add, remove }));
  if (!report) return false;
  toast(report.changed ? `Changed the labels of ${count(report.changed, "item")}.` : "Nothing has changed.", report.changed ? "Undo" : null, undo, report.changed ? state.changed() : null);
  return true;
}

export const labelsIn = (text) => text.split(";").map((label) => label.trim()).filter(Boolean);

// The form below the facts of an item.
export function editing(item, leave) {
  if (!mayWrite()) return [];
  const text = make("textarea", { id: "edit-text", value: item.text ?? "", rows: 4, maxLength: 20000 });
  const labels = make("input", { id: "edit-labels", value: item.labels.join("; "), type: "text" });
  const form = make("form", { className: "edit", hidden: true },
    make("label", {}, "Caption", text), make("label", {}, "Labels, separated by ;", labels),
    make("p", { className: "actions" }, make("button", { className: "plain", type: "submit" }, "Save"), make("button", { className: "plain", type: "button", onclick: () => { form.hidden = true; } }, "Cancel")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const content = { text: text.value, labels: labelsIn(labels.value) };
    const report = await attempt(() => send(`/api/items/${item.id}`, "PATCH", content));
    if (!report) return;
    toast(report.changed ? "Saved." : "Nothing has changed.", report.changed ? "Undo" : null, undo, report.changed ? state.changed() : null);
    if (!report.changed) form.hidden = true;
  });
  const remove = async () => {
    const report = await attempt(() => send(`/api/items/${item.id}`, "DELETE"));
    if (!report) return;
    leave();
    toast("Removed from the collection; its file is untouched.", "Undo", undo, state.changed([item.id]));
  };
  return [make("p", { className: "actions" },
    make("button", { type: "button", className: "plain", onclick: () => { form.hidden = !form.hidden; if (!form.hidden) text.focus(); } }, "Edit"),
    make("button", { type: "button", className: "plain danger", onclick: remove }, "Delete")), form];
}
