// The page. The address after "#" says what is shown: text=..., like=ID, code=HEX, image=HEX~N (the code of an image
// that was dropped or pasted, and the generation that it is of), each with label=... if wanted; label=... alone browses; tab=collection is the overview.
// So the back button works, and an address can be kept or shared. Nothing from the server is ever taken for HTML.

import { strip } from "/charts.js";
import * as keyboard from "/keyboard.js";
import { showCollection } from "/overview.js";
import { Refusal, addressOf, api, count, make, nameOf, shortened } from "/tools.js";

const STEP = 24, CACHED = 30, MEGABYTE = 1e6;
const $ = (id) => document.getElementById(id);
const page = {
  stats: null, // what the server reports about the collection
  images: new Map(), // value of the route -> { file, url } of images that were searched with
  answers: new Map(), // route -> answer, so that going back is instant
  places: new Map(), // route -> how far it was scrolled
  shown: null, // the route on screen
  request: null, // the one under way
  own: false, // whether the coming change of the address was made by this page (and not by the back button)
};

// -- the address -------------------------------------------------------------------------------------------------

function routeNow() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (given.get("tab") === "collection") return { kind: "collection", value: "", label: "" };
  const label = given.get("label") ?? "";
  for (const kind of ["text", "like", "image", "code"]) {
    const value = (given.get(kind) ?? "").trim();
    if (value) return { kind, value, label };
  }
  return { kind: "browse", value: "", label };
}

function go(route) {
  const address = addressOf(route);
  if (address === (location.hash || "#")) return show();
  page.own = true;
  location.hash = address;
}

// -- asking ------------------------------------------------------------------------------------------------------

function ask(route, k, signal) {
  const parts = new URLSearchParams({ k });
  if (route.label) parts.set("label", route.label);
  const kept = route.kind === "image" ? page.images.get(route.value) : null;
  if (kept) {
    const body = new FormData();
    body.append("image", kept.file, "image");
    return api(`/api/search?${parts}`, { method: "POST", body, signal });
  }
  if (route.kind === "image") {
    const [code, generation] = route.value.split("~");
    parts.set("code", code);
    if (generation) parts.set("generation", generation);
  } else parts.set(route.kind, route.value);
  return api(`/api/search?${parts}`, { signal });
}

function browse(route, offset, signal) {
  const parts = new URLSearchParams({ offset, limit: STEP });
  if (route.label) parts.set("label", route.label);
  return api(`/api/items?${parts}`, { signal });
}

function remember(address, answer) {
  page.answers.delete(address);
  page.answers.set(address, answer);
  if (page.answers.size > CACHED) page.answers.delete(page.answers.keys().next().value);
}

// -- showing -----------------------------------------------------------------------------------------------------

async function show() {
  const route = routeNow(), address = addressOf(route), back = !page.own;
  page.own = false;
  if (page.shown !== null) page.places.set(page.shown, scrollY);
  const fromGrid = keyboard.used && (document.activeElement === document.body || $("grid").contains(document.activeElement));
  page.shown = address;
  page.request?.abort();
  const request = page.request = new AbortController();
  const isCollection = route.kind === "collection";
  reveal(isCollection);
  if (document.activeElement !== $("text") || back) $("text").value = route.kind === "text" ? route.value : "";
  $("label").value = route.label;
  $("label").classList.toggle("on", Boolean(route.label));
  document.title = [title(route), page.stats?.name, "fusehash"].filter(Boolean).join(" – ");
  try {
    if (isCollection) {
      page.stats = await showCollection($("collection-view"), request.signal);
    } else {
      let answer = page.answers.get(address);
      if (!answer) {
        waiting();
        answer = route.kind === "browse" ? await browse(route, 0, request.signal) : await ask(route, STEP, request.signal);
        remember(address, answer);
      }
      if (request.signal.aborted) return;
      render(route, answer);
    }
    scrollTo(0, back ? page.places.get(address) ?? 0 : 0);
    if (fromGrid && !isCollection) keyboard.focusCard(0);
  } catch (error) {
    if (error.name !== "AbortError" && !request.signal.aborted) fail(error, isCollection);
  }
}

function reveal(isCollection) {
  $("search-view").hidden = isCollection;
  $("collection-view").hidden = !isCollection;
  for (const [id, current] of [["tab-search", !isCollection], ["tab-collection", isCollection]]) {
    if (current) $(id).setAttribute("aria-current", "page");
    else $(id).removeAttribute("aria-current");
  }
}

function title(route) {
  return { text: route.value, like: "More like this", image: "By image", code: "By code", collection: "Collection", browse: route.label }[route.kind];
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

function say(heading, sentence, wrong = false, retry = null) {
  const message = $("message");
  message.classList.toggle("wrong", wrong);
  message.replaceChildren(make("strong", {}, heading), make("p", {}, sentence));
  if (retry) message.append(make("button", { type: "button", className: "plain", onclick: retry }, "Try again"));
  message.hidden = false;
  $("status").classList.add("quiet"); // it is on the screen already, but screen readers must announce it
  $("status").textContent = `${heading} ${sentence}`;
}

function fail(error, isCollection = false) {
  if (!(error instanceof Refusal)) console.error(error);
  const sentence = error instanceof Refusal ? error.message : "The page has failed; reload it.";
  if (isCollection) {
    $("collection-view").replaceChildren(make("div", { className: "message wrong", role: "alert" }, make("strong", {}, "That did not work."), make("p", {}, sentence)));
    return;
  }
  settled();
  $("grid").replaceChildren();
  $("more").hidden = true;
  $("query").hidden = true;
  const mild = ["unusable", "not_found", "invalid"].includes(error.code);
  say(mild ? "Nothing to show." : "That did not work.", sentence, !mild, mild ? null : () => show());
}

function render(route, answer) {
  settled();
  const searching = route.kind !== "browse";
  showQuery(route, answer);
  const cards = searching
    ? answer.hits.map((hit) => card(hit.item, route.label, hit, answer))
    : answer.items.map((item) => card(item, route.label));
  $("grid").replaceChildren(...cards.map((one) => make("li", {}, one)));
  keyboard.roving(0);
  const within = route.label ? ` with the label “${route.label}”` : "";
  if (searching) {
    $("status").textContent = `${count(cards.length, "result")}${within}`;
    $("more").hidden = cards.length < STEP || cards.length % STEP !== 0 || cards.length >= (page.stats?.limits.results ?? STEP);
  } else {
    $("status").textContent = count(answer.total, "item") + within;
    $("more").hidden = answer.offset + answer.items.length >= answer.total;
  }
  if (cards.length) return;
  $("more").hidden = true;
  if (page.stats && page.stats.items === 0) {
    say("This collection is empty.", "Add pictures or texts with “fusehash index”, then reload this page.");
  } else {
    say("Nothing found.", within ? `No item${within} can be found this way.` : "There is no item that can be found yet.");
  }
}

function showQuery(route, answer) {
  const query = $("query");
  query.hidden = route.kind === "browse";
  if (query.hidden) return;
  query.classList.toggle("words", route.kind === "text");
  const kept = route.kind === "image" ? page.images.get(route.value) : null;
  const item = answer.like ?? null;
  const source = kept?.url ?? item?.thumbnail;
  const heading = { text: "Items that fit these words", like: "More like this", image: "Items that look like your image", code: "Items with a code like this" }[route.kind];
  const said = make("div", { className: "said" }, make("p", { className: "note" }, heading));
  if (route.kind === "text") said.append(make("p", { className: "main" }, `“${route.value}”`));
  if (item) said.append(make("p", { className: "main" }, shortened(nameOf(item), 400)), chips(item.labels));
  if (route.kind === "image" && !kept) said.append(make("p", { className: "note" }, "The image itself is gone from this page; its code is what is left."));
  const legend = make("p", { className: "legend" }, make("span", {}, "1"), make("span", { className: "zero" }, "0"), make("span", { className: "differs" }, "1 where the query has 0"), make("span", { className: "differs-zero" }, "0 where it has 1"));
  const own = make("div", { className: "own", title: answer.code }, make("p", { className: "note" }, `Its code of ${answer.n_bits} bits`), strip(answer.code), legend);
  const seen = source ? make("img", { className: "seen", src: source, alt: "The image that was searched with" }) : null;
  if (seen) onItsGround(seen, seen);
  query.replaceChildren(...[seen, said, own].filter(Boolean));
}

function chips(labels) {
  return make("ul", { className: "chips", ariaLabel: "Labels" }, ...labels.slice(0, 12).map((label) =>
    make("li", {}, make("a", { href: addressOf({ kind: "browse", value: "", label }) }, label))));
}

function card(item, label, hit = null, answer = null) {
  const well = make("div", { className: "well" });
  if (item.thumbnail) {
    const ratio = item.width / item.height;
    const image = make("img", { className: ratio > 1.18 && ratio < 1.56 ? "near" : "", alt: item.text ? "" : item.key, loading: "lazy", decoding: "async", draggable: false });
    onItsGround(image, well);
    image.src = item.thumbnail;
    well.append(image);
  } else {
    well.append(make("blockquote", {}, shortened(nameOf(item), 240)));
  }
  well.append(make("span", { className: "like", ariaHidden: "true" }, "More like this"));
  const summary = make("div", { className: "summary" });
  if (item.thumbnail) summary.append(make("div", { className: "caption" }, nameOf(item)));
  else summary.append(make("div", { className: "caption note" }, item.key));
  if (hit) {
    const numbers = make("div", { className: "count" },
      make("span", { title: "Bits in which the code differs from the query's" }, make("b", {}, String(hit.distance)), ` of ${answer.n_bits} bits differ`),
      make("span", { title: "The results are in this order, from 1 down to -1" }, `score ${hit.score.toFixed(2)}`));
    summary.append(make("div", { className: "bits" }, numbers, strip(hit.code, answer.code)));
  }
  return make("a", { className: "card", href: addressOf({ kind: "like", value: item.id, label }), title: shortened(nameOf(item), 500), draggable: false }, well, summary);
}

// A picture with a white or transparent edge gets a white background, so that it is no white square on another color.
function onItsGround(image, ground) {
  image.addEventListener("load", () => {
    const side = 8, canvas = make("canvas", { width: side, height: side }), pen = canvas.getContext("2d", { willReadFrequently: true });
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, side, side);
    pen.drawImage(image, 0, 0, side, side);
    const { data } = pen.getImageData(0, 0, side, side);
    const isWhite = (x, y) => [0, 1, 2].every((channel) => data[4 * (y * side + x) + channel] > 244);
    const last = side - 1;
    ground.classList.toggle("white", [[0, 0], [0, last], [last, 0], [last, last]].every(([x, y]) => isWhite(x, y)));
  });
}

async function more() {
  const route = routeNow(), address = addressOf(route), answer = page.answers.get(address);
  const had = $("grid").children.length, button = $("more");
  button.disabled = true;
  button.textContent = "Loading…";
  try {
    let longer;
    if (route.kind === "browse") {
      const next = await browse(route, had);
      longer = { ...next, offset: 0, items: [...(answer?.items ?? []), ...next.items] };
    } else {
      longer = await ask(route, Math.min(had + STEP, page.stats?.limits.results ?? STEP));
    }
    remember(address, longer);
    if (address !== page.shown) return;
    render(route, longer);
    if (keyboard.used) keyboard.focusCard(had);
  } catch (error) {
    $("status").textContent = error.message;
  } finally {
    button.disabled = false;
    button.textContent = "Show more";
  }
}

// -- images ------------------------------------------------------------------------------------------------------

async function searchBy(file) {
  const limit = page.stats?.limits.upload_bytes ?? Infinity;
  reveal(false);
  if (file.type && !file.type.startsWith("image/")) return fail(new Refusal("unusable", "To search by image, drop an image file (JPEG, PNG, GIF, WEBP, BMP or TIFF)."));
  if (file.size > limit) return fail(new Refusal("unusable", `An image may have at most ${(limit / MEGABYTE).toFixed(0)} MB; this one has ${(file.size / MEGABYTE).toFixed(1)} MB.`));
  page.request?.abort();
  const request = page.request = new AbortController();
  const label = routeNow().label;
  waiting();
  try {
    const held = { file: new Blob([await file.arrayBuffer()], { type: file.type }), url: URL.createObjectURL(file) };
    const parts = new URLSearchParams({ k: STEP });
    if (label) parts.set("label", label);
    const body = new FormData();
    body.append("image", held.file, "image");
    const answer = await api(`/api/search?${parts}`, { method: "POST", body, signal: request.signal });
    const value = `${answer.code}~${answer.generation}`;
    page.images.set(value, held);
    const route = { kind: "image", value, label };
    remember(addressOf(route), answer);
    go(route);
  } catch (error) {
    if (error.name !== "AbortError") fail(error);
  }
}

function imageIn(transfer) {
  return [...(transfer?.files ?? [])].find((file) => file.type.startsWith("image/")) ?? transfer?.files?.[0] ?? null;
}

// -- wiring ------------------------------------------------------------------------------------------------------

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const value = $("text").value.trim();
  const limit = page.stats?.limits.text_length ?? Infinity;
  if (value.length > limit) return fail(new Refusal("unusable", `A text to search for may have at most ${limit} characters.`));
  const label = routeNow().label;
  go(value ? { kind: "text", value, label } : { kind: "browse", value: "", label });
});
$("label").addEventListener("change", () => {
  const now = routeNow();
  go({ ...now, kind: now.kind === "collection" ? "browse" : now.kind, label: $("label").value });
});
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
  else page.own = true;
});
keyboard.listen(() => { if (routeNow().kind !== "collection") go({ kind: "browse", value: "", label: "" }); });
document.addEventListener("paste", (event) => {
  const file = imageIn(event.clipboardData);
  if (file) {
    event.preventDefault();
    searchBy(file);
  }
});
let depth = 0;
const dragsFiles = (event) => event.dataTransfer?.types.includes("Files");
document.addEventListener("dragenter", (event) => { if (dragsFiles(event)) { depth++; $("drop").hidden = false; } });
document.addEventListener("dragleave", (event) => { if (dragsFiles(event) && --depth <= 0) { depth = 0; $("drop").hidden = true; } });
document.addEventListener("dragover", (event) => { if (dragsFiles(event)) event.preventDefault(); });
document.addEventListener("drop", (event) => {
  depth = 0;
  $("drop").hidden = true;
  if (!dragsFiles(event)) return;
  event.preventDefault();
  const file = imageIn(event.dataTransfer);
  if (file) searchBy(file);
});
addEventListener("hashchange", show);
history.scrollRestoration = "manual";

async function start() {
  const [stats, labels] = await Promise.allSettled([api("/api/stats"), api("/api/labels")]);
  if (stats.status === "fulfilled") {
    page.stats = stats.value;
    $("name").textContent = stats.value.name;
    document.title = `${stats.value.name} – fusehash`;
  }
  if (labels.status === "fulfilled" && labels.value.labels.length) {
    // The frequent ones, found by their name.
    const some = labels.value.labels.slice(0, 300).sort((a, b) => a.name.localeCompare(b.name));
    $("label").append(...some.map(({ name, count: n }) => make("option", { value: name }, `${name} (${n})`)));
    $("filter").hidden = false;
  }
  await show();
}

start();
