// The page. The address after "#" says what is shown (tools.js), so the back button works and an address can be kept or
// shared; `picture` stands for a picture that was searched with. Nothing from the server is ever taken for HTML.

import * as facets from "/facets.js";
import * as keyboard from "/keyboard.js";
import * as lightbox from "/lightbox.js";
import { card, showQuery } from "/results.js";
import * as selection from "/selection.js";
import { $, Refusal, addressOf, api, count, isSearch, make, newRoute, parametersOf, routeNow, sizeOf } from "/tools.js";
import * as writing from "/writing.js";

const STEP = 48, CACHED = 30;
const page = {
  stats: null, // what the server reports about the collection
  pictures: new Map(), // `picture` of a route -> address of the picture that was searched with
  answers: new Map(), // address of a route without `item` -> answer, so that going back is instant
  places: new Map(), // the same -> how far it was scrolled
  shown: null, // the address on screen
  answer: null, // what is on screen
  route: newRoute(),
  request: null, // the one under way
  own: false, // whether the coming change of the address was made by this page (and not by the back button)
  pushed: false, // whether the lightbox was opened by this page, so that "back" closes it
  loading: false, // whether more results are under way
};

function go(route, replace = false) {
  const address = addressOf(route);
  if (address === (location.hash || "#")) return show();
  page.own = true;
  if (replace) { history.replaceState(null, "", address); show(); }
  else location.hash = address;
}

// -- asking ----------------------------------------------------------------------------------------------------------

function ask(route, offset, signal) {
  const parts = parametersOf(route), searching = isSearch(route);
  parts.set("offset", offset);
  parts.set(searching ? "k" : "limit", STEP);
  if (!searching && route.order) parts.set("order", route.order);
  return api(`/api/${searching ? "search" : "items"}?${parts}`, { signal });
}

function remember(address, answer) {
  page.answers.delete(address);
  page.answers.set(address, answer);
  if (page.answers.size > CACHED) page.answers.delete(page.answers.keys().next().value);
}

// -- showing ---------------------------------------------------------------------------------------------------------

async function show() {
  const route = routeNow(), item = Number(route.item), back = !page.own;
  const address = addressOf({ ...route, item: "" });
  page.own = false;
  if (address === page.shown && !page.failed) { // only the lightbox changes
    if (item) lightbox.open(item);
    else lightbox.close();
    return;
  }
  if (page.shown !== null) page.places.set(page.shown, scrollY);
  const fromGrid = keyboard.used && (document.activeElement === document.body || $("grid").contains(document.activeElement));
  page.shown = address;
  page.failed = false;
  page.request?.abort();
  const request = page.request = new AbortController();
  const tab = ["collection", "duplicates"].includes(route.tab) ? route.tab : "search";
  reveal(tab);
  if (!item) lightbox.close();
  if (document.activeElement !== $("text") || back) $("text").value = route.text;
  $("clear").hidden = !$("text").value && !isSearch(route);
  facets.mirror(route);
  document.title = [titleOf(route), page.stats?.name, "fusehash"].filter(Boolean).join(" – ");
  try {
    if (tab !== "search") {
      page.answer = null;
      const view = $("collection-view"), { showCollection, showDuplicates } = await import("/overview.js");
      if (tab === "collection") page.stats = await showCollection(view, request.signal);
      else await showDuplicates(view, request.signal);
    } else {
      let answer = page.answers.get(address);
      if (!answer) {
        waiting();
        answer = await ask(route, 0, request.signal);
        remember(address, answer);
      }
      if (request.signal.aborted) return;
      render(route, answer);
    }
    scrollTo(0, back ? page.places.get(address) ?? 0 : 0);
    if (fromGrid && tab === "search") keyboard.focusCard(0);
    if (item && Number(routeNow().item) === item) lightbox.open(item); // it may have been left meanwhile
  } catch (error) {
    if (error.name !== "AbortError" && !request.signal.aborted) fail(error, tab);
  }
}

function reveal(tab) {
  $("search-view").hidden = tab !== "search";
  $("collection-view").hidden = tab === "search";
  if ($("collection-view").dataset.tab !== tab) $("collection-view").replaceChildren();
  $("collection-view").dataset.tab = tab;
  $("collection-view").ariaLabel = tab === "duplicates" ? "Duplicates" : "Collection";
  for (const name of ["search", "collection", "duplicates"]) {
    if (name === tab) $(`tab-${name}`).setAttribute("aria-current", "page");
    else $(`tab-${name}`).removeAttribute("aria-current");
  }
}

function titleOf(route) {
  if (route.tab) return route.tab === "collection" ? "Collection" : "Duplicates";
  return route.text || (route.picture && "By picture") || (route.code && "By code") || ((route.like.length || route.unlike.length) && "More like this") || route.filters.label;
}

function waiting() {
  const grid = $("grid");
  grid.setAttribute("aria-busy", "true");
  clearTimeout(page.timer);
  page.timer = setTimeout(() => {
    $("status").textContent = "Searching…";
    if (grid.children.length && $("message").hidden) grid.classList.add("stale");
    else {
      $("message").hidden = true;
      grid.replaceChildren(...Array.from({ length: 12 }, () => make("li", { className: "ghost", ariaHidden: "true" })));
    }
  }, 120);
}

function settled() {
  clearTimeout(page.timer);
  $("grid").classList.remove("stale");
  $("grid").removeAttribute("aria-busy");
  $("message").hidden = true;
  $("message").classList.remove("wrong");
  $("status").classList.remove("quiet");
}

function say(heading, sentence, wrong = false, way = null, wayName = "Try again") {
  const message = $("message");
  message.classList.toggle("wrong", wrong);
  message.replaceChildren(make("strong", {}, heading), make("p", {}, sentence));
  if (way) message.append(make("button", { type: "button", className: "plain", onclick: way }, wayName));
  message.hidden = false;
  $("status").classList.add("quiet"); // it is on the screen already, but screen readers must announce it
  $("status").textContent = `${heading} ${sentence}`;
}

function fail(error, tab = "search") {
  if (!(error instanceof Refusal)) console.error(error);
  page.failed = true;
  const sentence = error instanceof Refusal ? error.message : "The page has failed; reload it.";
  if (tab !== "search") {
    $("collection-view").replaceChildren(make("div", { className: "message wrong", role: "alert" }, make("strong", {}, "That did not work."), make("p", {}, sentence)));
    return;
  }
  settled();
  page.answer = null;
  $("grid").replaceChildren();
  for (const id of ["more", "end", "query", "note"]) $(id).hidden = true;
  const mild = ["unusable", "not_found", "invalid"].includes(error.code);
  say(mild ? "Nothing to show." : "That did not work.", sentence, !mild, mild ? null : () => show());
}

const rowsOf = (answer) => answer.hits ? answer.hits.map((hit) => ({ item: hit.item, hit })) : answer.items.map((item) => ({ item, hit: null }));

function render(route, answer, from = 0) {
  settled();
  Object.assign(page, { answer, route });
  const rows = rowsOf(answer);
  showQuery($("query"), route, answer, page.pictures.get(route.picture));
  $("note").textContent = answer.note ?? "";
  $("note").hidden = !answer.note;
  const cards = rows.slice(from).map(({ item, hit }) => card(route, item, hit));
  if (from) $("grid").append(...cards);
  else $("grid").replaceChildren(...cards);
  if (!from) keyboard.roving(0);
  $("status").textContent = facets.describe(route, answer);
  const furthest = answer.hits ? page.stats?.limits.max_offset ?? Infinity : Infinity;
  $("more").hidden = !rows.length || rows.length >= answer.total || rows.length > furthest || answer.done;
  $("end").hidden = rows.length <= furthest || rows.length >= answer.total;
  $("end").textContent = `These are the best ${rows.length.toLocaleString("en")} of ${count(answer.total, "item")}. Add words or filters to see others.`;
  if (rows.length) return;
  if (page.stats && page.stats.items === 0) say("This collection is empty.", "Add pictures or texts with “fusehash index”, then reload this page.");
  else if (Object.keys(route.filters).length) say("Nothing found.", answer.note || "No item has what the filters ask for.", false, () => $("unfilter").click(), "Clear filters");
  else if (answer.hits) say("Nothing found.", answer.note || "No item has what the query asks for. Take a word, a label or a date away.", false, () => $("clear").click(), "Clear the search");
  else say("Nothing found.", answer.note || "There is no item that can be found yet.");
}

async function more() {
  const route = page.route, address = page.shown, answer = page.answer;
  if (page.loading || !answer || $("more").hidden) return;
  const had = rowsOf(answer).length, button = $("more");
  page.loading = button.disabled = true;
  button.textContent = "Loading…";
  try {
    const next = await ask(route, had), name = answer.hits ? "hits" : "items";
    const longer = { ...answer, [name]: [...answer[name], ...next[name]], done: !next[name].length };
    remember(address, longer);
    if (address !== page.shown) return;
    render(route, longer, had);
    if (document.activeElement === document.body && keyboard.used) keyboard.focusCard(had);
  } catch (error) {
    $("status").textContent = error.message;
  } finally {
    page.loading = button.disabled = false;
    button.textContent = "Show more";
    if (address === page.shown) nearEnd.observe(button); // again, if it is still on the screen
  }
}

const nearEnd = new IntersectionObserver((entries) => {
  if (!entries.some((entry) => entry.isIntersecting)) return;
  nearEnd.unobserve($("more")); // and observed again once there is more
  if (page.answer && rowsOf(page.answer).length) more();
  else nearEnd.observe($("more"));
}, { rootMargin: "600px" });

// What was changed by writing is asked for again.
async function changed(removed = []) {
  selection.changed(removed);
  page.answers.clear();
  const open = routeNow().item;
  page.stats = await api("/api/stats").catch(() => page.stats);
  facets.fill(await api("/api/facets").catch(() => ({ labels: [], folders: [], years: [], with_text: 0, without_text: 0 })));
  if (open && !removed.length && page.shown !== null) { // behind the lightbox
    const route = { ...routeNow(), item: "" };
    if (!route.tab) await ask(route, 0).then((answer) => { remember(page.shown, answer); render(route, answer); }).catch(() => {});
    lightbox.renew();
    return;
  }
  page.shown = null;
  await show();
}

// -- images ----------------------------------------------------------------------------------------------------------

async function searchBy(file) {
  const limit = page.stats?.limits.upload_bytes ?? Infinity;
  reveal("search");
  page.shown = null;
  if (file.type && !file.type.startsWith("image/")) return fail(new Refusal("unusable", "To search by image, drop an image file (JPEG, PNG, GIF, WEBP, BMP or TIFF)."));
  if (file.size > limit) return fail(new Refusal("unusable", `An image may have at most ${sizeOf(limit)}; this one has ${sizeOf(file.size)}.`));
  page.request?.abort();
  const request = page.request = new AbortController();
  const { filters, text, tab } = routeNow();
  const copy = smallCopy(file); // while the server searches
  waiting();
  try {
    const route = newRoute({ filters, text: tab ? "" : text }), parts = parametersOf(route);
    parts.set("k", STEP);
    const body = new FormData();
    body.append("image", new Blob([await file.arrayBuffer()], { type: file.type }), "image");
    const answer = await api(`/api/search?${parts}`, { method: "POST", body, signal: request.signal });
    route.picture = answer.picture;
    page.pictures.set(route.picture, URL.createObjectURL(file));
    keepPicture(route.picture, await copy);
    remember(addressOf(route), answer);
    go(route);
  } catch (error) {
    if (error.name !== "AbortError") fail(error);
  }
}

// A small copy of the picture, so that it is there after a reload.
async function smallCopy(file) {
  try {
    const bitmap = await createImageBitmap(file), scale = Math.min(1, 240 / Math.max(bitmap.width, bitmap.height));
    const canvas = make("canvas", { width: Math.max(1, bitmap.width * scale), height: Math.max(1, bitmap.height * scale) });
    canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL("image/webp", .8);
  } catch { return null; } // then it is gone after a reload; the search is not
}

function keepPicture(name, copy) {
  try {
    if (copy) sessionStorage.setItem("fusehash-picture", JSON.stringify([name, copy]));
  } catch { /* the same */ }
}

function recallPicture() {
  try {
    const [name, address] = JSON.parse(sessionStorage.getItem("fusehash-picture") ?? "[]");
    if (name && address?.startsWith("data:image/")) page.pictures.set(name, address);
  } catch { /* nothing was kept */ }
}

function imageIn(transfer) {
  return [...(transfer?.files ?? [])].find((file) => file.type.startsWith("image/")) ?? transfer?.files?.[0] ?? null;
}

// -- wiring ----------------------------------------------------------------------------------------------------------

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("text").value.trim(), now = routeNow();
  const limit = page.stats?.limits.text_length ?? Infinity;
  if (text.length > limit) return fail(new Refusal("unusable", `A text to search for may have at most ${limit} characters.`));
  go(newRoute({ text, picture: text ? now.picture : "", filters: now.filters, like: text ? now.like : [], unlike: text ? now.unlike : [] }));
});
const start = () => { $("text").value = ""; go(newRoute({ filters: routeNow().filters })); };
$("clear").addEventListener("click", () => { start(); $("text").focus(); });
$("text").addEventListener("input", () => { $("clear").hidden = !$("text").value && !isSearch(routeNow()); });
facets.listen(() => go({ ...routeNow(), tab: "", item: "", filters: facets.chosen(), order: $("order").value }));
$("unfilter").addEventListener("click", () => go({ ...routeNow(), tab: "", item: "", filters: {} }));
$("more").addEventListener("click", more);
$("pick").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => {
  const [file] = $("file").files;
  if (file) searchBy(file);
  $("file").value = "";
});
$("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("fusehash-theme", root.dataset.theme); } catch { /* then it lasts as long as the page */ }
});
$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  event.stopPropagation();
  ($("search-view").hidden ? $("collection-view") : $("search-view")).focus();
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (link.getAttribute("href") === (location.hash || "#")) show(); // no change of the address will tell
  else {
    page.own = true;
    page.pushed = new URLSearchParams(link.getAttribute("href").slice(1)).has("item") && !routeNow().item;
  }
});
selection.listen(() => page.answer ? rowsOf(page.answer).map(({ item }) => item) : []);
lightbox.listen({
  list: () => page.answer ? rowsOf(page.answer) : [],
  answer: () => page.answer,
  go,
  leave: () => {
    if (page.pushed) history.back();
    else go({ ...routeNow(), item: "" }, true);
    page.pushed = false;
  },
});
keyboard.listen(() => { if (!routeNow().tab) start(); });
document.addEventListener("paste", (event) => {
  const file = imageIn(event.clipboardData);
  if (file) {
    event.preventDefault();
    searchBy(file);
  }
});
let depth = 0;
const dragsFiles = (event) => event.dataTransfer?.types.includes("Files");
const dropped = () => { depth = 0; $("drop").hidden = true; };
document.addEventListener("dragenter", (event) => { if (dragsFiles(event)) { depth++; $("drop").hidden = false; } });
document.addEventListener("dragleave", (event) => { if (dragsFiles(event) && --depth <= 0) dropped(); });
document.addEventListener("dragover", (event) => { if (dragsFiles(event)) event.preventDefault(); });
document.addEventListener("drop", (event) => {
  if (!dragsFiles(event)) return;
  event.preventDefault();
  const adds = event.target.closest?.("#drop-add");
  dropped();
  if (adds) return writing.add([...event.dataTransfer.files]);
  const file = imageIn(event.dataTransfer);
  if (file) searchBy(file);
});
addEventListener("hashchange", show);

// What is known about the collection is used as soon as it is here: who sees pictures may also add some.
async function learn() {
  const stats = page.stats = await api("/api/stats");
  $("name").textContent = $("heading").textContent = stats.name;
  document.title = [titleOf(routeNow()), stats.name, "fusehash"].filter(Boolean).join(" – ");
  writing.allow(stats.writable);
  if (!stats.items && page.answer) render(page.route, page.answer);
}

async function learnFilters() {
  facets.fill(await api("/api/facets"));
  facets.mirror(routeNow());
}

writing.listen(changed, selection.refresh);
recallPicture();
nearEnd.observe($("more"));
Promise.allSettled([learn(), learnFilters(), show()]); // an answer that is missing leaves the rest usable
