// Several items at once: export them as a table or as the pictures themselves, or look for more like them.

import { $, addressOf, count, fileOf, make, newRoute, toast } from "/tools.js";

const chosen = new Map(), MAX_EXAMPLES = 16, MAX_ZIP = 500e6;

export const isSelected = (id) => chosen.has(id);
export const selected = () => [...chosen.values()];

export function toggle(item) {
  if (chosen.has(item.id)) chosen.delete(item.id);
  else chosen.set(item.id, item);
  refresh();
}

export function forget(id) {
  if (chosen.delete(id)) refresh();
}

export function refresh() {
  for (const tick of document.querySelectorAll(".tick")) tick.ariaPressed = String(chosen.has(Number(tick.dataset.id)));
  const bar = $("selection");
  bar.hidden = !chosen.size;
  document.body.classList.toggle("selecting", chosen.size > 0);
  if (bar.hidden) return;
  const like = addressOf(newRoute({ like: [...chosen.keys()].slice(0, MAX_EXAMPLES).map(String) }));
  bar.replaceChildren(
    make("span", { role: "status" }, `${count(chosen.size, "item")} selected`),
    make("a", { className: "plain", href: like }, "More like these"),
    button("CSV", exportTable), button("Pictures (zip)", exportPictures),
    button("Clear", () => { chosen.clear(); refresh(); }));
}

const button = (name, run) => make("button", { type: "button", className: "plain", onclick: run }, name);

function save(parts, name, type) {
  const address = URL.createObjectURL(new Blob(parts, { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

// A cell that begins like a formula gets a quote, so that no program runs it.
const cell = (value) => `"${String(value ?? "").replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;

export function exportTable() {
  const rows = selected().map((item) => [item.id, item.key, item.path ?? "", item.day, item.labels.join(";"), item.text ?? ""]);
  const lines = [["id", "image", "path", "date", "labels", "caption"], ...rows].map((row) => row.map(cell).join(","));
  save(["\ufeff", lines.join("\r\n"), "\r\n"], "selection.csv", "text/csv");
}

async function exportPictures() {
  const files = [], names = new Set();
  let missing = 0, size = 0;
  for (const item of selected()) {
    const response = item.image ? await fetch(item.image).catch(() => null) : null;
    if (!response?.ok) { missing++; continue; }
    const data = new Uint8Array(await response.arrayBuffer());
    if ((size += data.length) > MAX_ZIP) return toast("The pictures are more than 500 MB; select fewer.");
    let name = fileOf(item).replace(/[^\p{L}\p{N}._ -]/gu, "_") || "picture";
    if (names.has(name)) name = `${item.id}-${name}`;
    names.add(name);
    files.push([name, data]);
  }
  if (files.length) save(zipped(files), "selection.zip", "application/zip");
  if (missing) toast(`${count(missing, "item")} without an original ${missing === 1 ? "is" : "are"} left out.`);
}

let table = null;
function checksum(data) {
  table ??= Uint32Array.from({ length: 256 }, (_, n) => { for (let k = 0; k < 8; k++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1; return n; });
  let sum = -1;
  for (const byte of data) sum = (sum >>> 8) ^ table[(sum ^ byte) & 255];
  return ~sum >>> 0;
}

// A zip file without compression: pictures are compressed already.
export function zipped(files) {
  const parts = [], entries = [];
  let offset = 0, width = 0;
  const numbers = (...pairs) => {
    const view = new DataView(new ArrayBuffer(pairs.reduce((sum, [size]) => sum + size, 0)));
    let at = 0;
    for (const [size, value] of pairs) { size === 2 ? view.setUint16(at, value, true) : view.setUint32(at, value, true); at += size; }
    return new Uint8Array(view.buffer);
  };
  for (const [name, data] of files) {
    const label = new TextEncoder().encode(name), common = [[2, 20], [2, 0x800], [2, 0], [2, 0], [2, 0x21], [4, checksum(data)], [4, data.length], [4, data.length], [2, label.length], [2, 0]];
    const head = numbers([4, 0x04034b50], ...common), entry = numbers([4, 0x02014b50], [2, 20], ...common, [2, 0], [2, 0], [2, 0], [4, 0], [4, offset]);
    parts.push(head, label, data);
    entries.push(entry, label);
    offset += head.length + label.length + data.length;
    width += entry.length + label.length;
  }
  return [...parts, ...entries, numbers([4, 0x06054b50], [2, 0], [2, 0], [2, files.length], [2, files.length], [4, width], [4, offset], [2, 0])];
}
