// Selected items as files: a table, or a zip file of the original pictures with that table.

import { count, fileOf, make, sizeOf, toast } from "/tools.js";

const MAX_ZIP = 500e6;

function save(parts, name, type) {
  const address = URL.createObjectURL(new Blob(parts, { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

// A cell that begins like a formula gets a quote, so that no program runs it.
const cell = (value) => `"${String(value ?? "").replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;

// The column "file" is the name in the zip file.
function table(items, files = null) {
  const rows = items.map((item) => [item.id, item.key, item.path ?? "", item.day, item.labels.join(";"), item.text ?? "", ...files ? [files.get(item.id) ?? ""] : []]);
  const head = ["id", "image", "path", "date", "labels", "caption", ...files ? ["file"] : []];
  return ["\ufeff", [head, ...rows].map((row) => row.map(cell).join(",")).join("\r\n"), "\r\n"];
}

export function exportTable(items) {
  save(table(items), "selection.csv", "text/csv");
}

// A name that no other file has, also where upper and lower case are the same.
export function freeName(name, taken) {
  const plain = name.replace(/[^\p{L}\p{M}\p{N}._ ()-]/gu, "_").replace(/^\.+/, "_") || "picture", dot = plain.lastIndexOf(".");
  const [stem, ending] = dot > 0 ? [plain.slice(0, dot), plain.slice(dot)] : [plain, ""];
  let free = plain;
  for (let n = 2; taken.has(free.toLowerCase()); n++) free = `${stem} (${n})${ending}`;
  taken.add(free.toLowerCase());
  return free;
}

export async function exportPictures(items) {
  const files = [], names = new Map(), taken = new Set(["selection.csv"]);
  let size = 0;
  for (const [number, item] of items.entries()) {
    if (!item.image) continue;
    toast(`Reading ${number + 1} of ${items.length}…`);
    try {
      const response = await fetch(item.image);
      if (!response.ok) continue;
      size += Number(response.headers.get("content-length"));
      if (size > MAX_ZIP) {
        response.body.cancel();
        return toast(`A zip file may hold ${sizeOf(MAX_ZIP)}; these pictures have more. Select fewer.`);
      }
      const data = new Uint8Array(await response.arrayBuffer()), name = freeName(fileOf(item), taken);
      names.set(item.id, name);
      files.push([name, data]);
    } catch { /* then it is missing, and counted below */ }
  }
  if (!files.length) return toast("None of these items has an original picture that can be read.");
  files.push(["selection.csv", new Uint8Array(await new Blob(table(items, names)).arrayBuffer())]);
  save(zipped(files), "selection.zip", "application/zip");
  const missing = items.length - names.size;
  toast(`${count(names.size, "picture")} and selection.csv, ${sizeOf(size)}.${missing ? ` ${count(missing, "item")} without an original that can be read: only in the table.` : ""}`);
}

let sums = null;
function checksum(data) {
  sums ??= Uint32Array.from({ length: 256 }, (_, n) => { for (let k = 0; k < 8; k++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1; return n; });
  let sum = -1;
  for (const byte of data) sum = (sum >>> 8) ^ sums[(sum ^ byte) & 255];
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
