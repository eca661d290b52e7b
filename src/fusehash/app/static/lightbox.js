// One item at full size: the original, all that is known about it, and the way to the next.

import { chips, marked, why } from "/results.js";
import { isSelected, toggle } from "/selection.js";
import { $, addressOf, api, count, fileOf, make, nameOf, newRoute, routeNow, shortened, sizeOf, toast } from "/tools.js";
import { editing } from "/writing.js";

const state = { id: null, request: null, list: () => [], answer: () => null, leave: () => {}, go: () => {} };
const SWIPE = 50;

export function listen(connected) {
  Object.assign(state, connected);
  const box = $("box");
  box.addEventListener("close", () => { document.body.append($("toast")); if (state.id !== null) leave(); });
  box.addEventListener("click", (event) => { if (event.target === box) box.close(); });
  box.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") { event.preventDefault(); step(event.key === "ArrowRight" ? 1 : -1); }
    if (event.key === "z" || event.key === "+" || event.key === "-") zoom();
    if (event.key === "x") { const item = itemNow(); if (item) toggle(item); }
  });
  let start = null;
  box.addEventListener("touchstart", (event) => { start = event.touches.length === 1 && event.target.closest(".stage:not(.zoomed)") ? [event.touches[0].clientX, event.touches[0].clientY] : null; }, { passive: true });
  box.addEventListener("touchend", (event) => {
    if (!start) return;
    const x = event.changedTouches[0].clientX - start[0], y = event.changedTouches[0].clientY - start[1];
    start = null;
    if (Math.abs(x) > SWIPE && Math.abs(x) > 2 * Math.abs(y)) step(x < 0 ? 1 : -1);
    else if (y > 2 * SWIPE && y > 2 * Math.abs(x)) box.close();
  });
}

const itemNow = () => state.list().find(({ item }) => item.id === state.id)?.item ?? state.details?.item;

function leave() {
  state.id = null;
  state.request?.abort();
  state.leave();
}

export function close() {
  if (state.id === null) return;
  state.id = null;
  state.request?.abort();
  $("box").close();
}

function step(by) {
  const list = state.list(), place = list.findIndex(({ item }) => item.id === state.id);
  const next = list[place + by];
  if (place >= 0 && next) state.go({ ...routeNow(), item: String(next.item.id) }, true);
}

// The message at the bottom stays.
const fill = (...nodes) => $("box").replaceChildren(...nodes, ...$("box").querySelectorAll("#toast"));

// After a change: what is shown is asked for again.
export function renew() {
  const { id } = state;
  state.id = null;
  if (id !== null) open(id);
}

export async function open(id) {
  if (state.id === id) return;
  const box = $("box"), hit = state.list().find(({ item }) => item.id === id);
  state.id = id;
  state.details = null;
  state.request?.abort();
  const request = state.request = new AbortController();
  if (hit) draw(hit.item, hit.hit, null);
  else fill(make("p", { className: "message" }, "Loading…"));
  if (!box.open) box.showModal();
  try {
    const details = await api(`/api/items/${id}/details`, { signal: request.signal });
    state.details = details;
    draw(details.item, hit?.hit ?? null, details);
  } catch (error) {
    if (error.name === "AbortError") return;
    fill(make("div", { className: "message" }, make("strong", {}, "Nothing to show."), make("p", {}, error.message), make("button", { type: "button", className: "plain", onclick: () => box.close() }, "Close")));
  }
}

function draw(item, hit, details) {
  const box = $("box"), list = state.list(), place = list.findIndex((each) => each.item.id === item.id), had = box.querySelector("img.full");
  const wasOpen = had?.dataset.id === String(item.id) && box.querySelector(".why")?.open;
  const focused = box.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const top = make("div", { className: "ruler" },
    make("span", { className: "note" }, place < 0 ? "" : `${place + 1} of ${list.length} shown`),
    tool("previous", "‹", "Previous", () => step(-1), place <= 0), tool("next", "›", "Next", () => step(1), place < 0 || place === list.length - 1),
    item.thumbnail ? tool("zoom", "⤢", "Zoom", zoom) : null, tool("close", "✕", "Close", () => box.close()));
  const side = make("div", { className: "side" }, ...facts(item, hit, details));
  box.setAttribute("aria-label", shortened(nameOf(item), 100));
  if (had?.dataset.id === String(item.id)) { // it may be zoomed, scrolled and in use
    box.querySelector(".ruler").replaceWith(top);
    box.querySelector(".side").replaceWith(side);
    if (had.dataset.gone) side.prepend(gone());
  } else fill(top, make("div", { className: "stage" }, picture(item)), side);
  if (wasOpen && side.querySelector(".why")) side.querySelector(".why").open = true;
  if (!box.contains(document.activeElement) || document.activeElement === box) (box.querySelector(`[data-key="${focused}"]:not(:disabled)`) ?? box.querySelector("[data-key=close]")).focus();
}

function tool(key, sign, name, run, disabled = false) {
  const button = make("button", { type: "button", className: "icon", ariaLabel: name, title: name, disabled, onclick: run }, sign);
  button.dataset.key = key;
  return button;
}

function picture(item) {
  if (!item.thumbnail) return make("blockquote", {}, nameOf(item));
  const image = make("img", { className: "full", alt: shortened(nameOf(item), 200), src: item.image ?? item.thumbnail, width: item.width, height: item.height });
  image.dataset.id = item.id;
  image.style.backgroundImage = `url("${item.thumbnail}")`; // until the original is there
  image.addEventListener("load", () => { image.style.backgroundImage = ""; });
  image.addEventListener("error", () => { // gone, changed, or of a kind that browsers do not show
    if (image.src.endsWith("/thumbnail")) return;
    image.src = item.thumbnail;
    image.dataset.gone = "true";
    image.closest("dialog")?.querySelector(".side")?.prepend(gone());
  });
  image.addEventListener("click", zoom);
  return image;
}

const gone = () => make("p", { className: "note gone" }, "The original cannot be shown: its file is gone, has changed, or is of a kind that browsers do not show. This is its thumbnail.");

function zoom() {
  const stage = $("box").querySelector(".stage");
  stage?.classList.toggle("zoomed");
  if (stage?.classList.contains("zoomed")) { stage.scrollLeft = (stage.scrollWidth - stage.clientWidth) / 2; stage.scrollTop = (stage.scrollHeight - stage.clientHeight) / 2; stage.tabIndex = 0; }
  else stage?.removeAttribute("tabindex");
}

function facts(item, hit, details) {
  const route = routeNow(), answer = state.answer(), parts = [make("h2", {}, fileOf(item))];
  if (item.path) parts.push(make("p", { className: "path" }, make("code", {}, item.path), copy(item.path)));
  if (item.text) parts.push(make("p", { className: "whole" }, ...marked(item.text, hit?.matched)));
  else parts.push(make("p", { className: "note" }, "No caption"));
  if (item.labels.length) parts.push(chips(item.labels));
  const id = String(item.id), has = (name) => route[name].includes(id);
  const link = (name, address) => make("a", { className: "plain", href: address }, name);
  const select = make("button", { type: "button", className: "plain tick-text", ariaPressed: String(isSelected(item.id)), onclick: () => { toggle(item); select.ariaPressed = String(isSelected(item.id)); } }, "Select");
  parts.push(make("p", { className: "actions" },
    link("More like this", addressOf(newRoute({ like: [id], filters: route.filters }))),
    has("unlike") ? null : link("Less like this", addressOf({ ...route, item: "", order: "", code: "", generation: "", unlike: [...route.unlike, id] })),
    route.text || route.like.length || route.picture ? has("like") ? null : link("Add to the query", addressOf({ ...route, item: "", like: [...route.like, id] })) : null,
    select, item.image ? make("a", { className: "plain", href: item.image, target: "_blank", rel: "noopener" }, "Open original") : null));
  if (hit && answer?.hits) parts.push(why(hit, answer));
  const rows = [];
  if (item.width) rows.push(["Size", `${item.width} × ${item.height}${details?.bytes ? `, ${sizeOf(details.bytes)}` : ""}`]);
  if (item.day) rows.push(["Date", item.day]);
  for (const row of Object.entries(details?.exif ?? {})) rows.push(row);
  if (rows.length) parts.push(make("dl", { className: "exif" }, ...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])));
  if (details?.near.length) {
    parts.push(make("h3", {}, `${count(details.near.length, "near-duplicate")}`), make("div", { className: "near" }, ...details.near.map(({ item: other, distance, same_image: same }) => {
      const shown = other.thumbnail ? make("img", { src: other.thumbnail, alt: shortened(nameOf(other), 120), loading: "lazy" }) : make("span", {}, shortened(nameOf(other), 40));
      return make("a", { href: addressOf({ ...route, item: String(other.id) }), title: same ? "the same picture" : `${distance} bits differ` }, shown);
    })));
  }
  if (details) parts.push(...editing(details.item, () => $("box").close()));
  return parts;
}

function copy(text) {
  return make("button", { type: "button", className: "plain small", onclick: async () => {
    try { await navigator.clipboard.writeText(text); } catch {
      const area = make("textarea", { value: text });
      $("box").append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    toast("Copied."); // the button is made anew once all details are here
  } }, "Copy");
}
