// What all parts of the page use: making nodes, asking the server, and writing addresses.

export function make(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in node && key !== "list") node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
export const shortened = (text, length) => text.length > length ? `${text.slice(0, length - 1).trimEnd()}…` : text;
export const nameOf = (item) => item.text || item.key;

export class Refusal extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

export async function api(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("offline", "The server does not answer. Is it still running?");
  }
  let content = null;
  try { content = await response.json(); } catch (error) { if (error.name === "AbortError") throw error; }
  if (!response.ok || content === null) {
    throw new Refusal(content?.error?.code ?? "broken", content?.error?.message ?? "The server gave an answer that cannot be read.");
  }
  return content;
}

// The address of a route { kind, value, label }; app.js tells the kinds.
export function addressOf({ kind, value, label }) {
  if (kind === "collection") return "#tab=collection";
  const parts = new URLSearchParams();
  if (kind !== "browse") parts.set(kind, value);
  if (label) parts.set("label", label);
  return `#${parts}`;
}
