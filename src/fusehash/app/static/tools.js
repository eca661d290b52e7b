// What all parts of the page use: making nodes, asking the server, and reading and writing addresses.

export const $ = (id) => document.getElementById(id);

export function make(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in node && key !== "list") node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

export const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
export const shortened = (text, length) => text.length > length ? `${text.slice(0, length - 1).trimEnd()}…` : text;
export const nameOf = (item) => item.text || item.key;
export const sizeOf = (bytes) => bytes < 999.5 ? count(bytes, "byte") : bytes < 999500 ? `${Math.round(bytes / 1e3)} kB` : bytes < 9.95e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${Math.round(bytes / 1e6).toLocaleString("en")} MB`;
export const fileOf = (item) => (item.path ?? item.key).split(/[/\\]/).pop();

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

// -- addresses: what the part after "#" says -------------------------------------------------------------------------

const WORDS = ["text", "picture", "code", "generation", "tab", "item"], FILTERS = ["label", "folder", "has_text", "after", "before"];

export function routeNow() {
  const given = new URLSearchParams(location.hash.slice(1)), route = { like: given.getAll("like"), unlike: given.getAll("unlike"), filters: {}, order: given.get("order") ?? "" };
  for (const name of WORDS) route[name] = (given.get(name) ?? "").trim();
  for (const name of FILTERS) if (given.has(name)) route.filters[name] = given.get(name);
  return route;
}

export const newRoute = (parts = {}) => ({ text: "", picture: "", code: "", generation: "", tab: "", item: "", like: [], unlike: [], filters: {}, order: "", ...parts });
export const isSearch = (route) => Boolean(route.text || route.picture || route.code || route.like.length || route.unlike.length);

export function addressOf(route) {
  const parts = new URLSearchParams();
  for (const name of WORDS) if (route[name]) parts.set(name, route[name]);
  for (const name of ["like", "unlike"]) for (const id of route[name]) parts.append(name, id);
  for (const [name, value] of Object.entries(route.filters)) parts.set(name, value);
  if (route.order && !isSearch(route)) parts.set("order", route.order);
  return `#${parts}`;
}

// The parameters of a route as the API takes them.
export function parametersOf(route) {
  const parts = new URLSearchParams(route.filters);
  for (const name of ["text", "picture", "code", "generation"]) if (route[name]) parts.set(name, route[name]);
  for (const name of ["like", "unlike"]) for (const id of route[name]) parts.append(name, id);
  return parts;
}

// A message at the bottom. It goes after a while, which begins once `shown` has happened, but not while it is pointed at.
export function toast(text, action = null, run = null, shown = null) {
  const bar = $("toast");
  bar.replaceChildren(make("span", {}, text));
  if (action) bar.append(make("button", { type: "button", className: "plain", onclick: () => { bar.hidden = true; run(); } }, action));
  bar.hidden = false;
  ($("box").open ? $("box") : document.body).append(bar); // nothing outside of an open dialog can be used
  bar.style.bottom = `${28 + ($("box").open ? 0 : $("selection").offsetHeight)}px`;
  clearTimeout(toast.timer);
  const turn = toast.turn = {};
  const later = () => { toast.timer = setTimeout(() => { if (bar.matches(":hover, :focus-within")) later(); else bar.hidden = true; }, action ? 12000 : 5000); };
  Promise.resolve(shown).finally(() => { if (toast.turn === turn) later(); });
}
