// Cards, the query above them, highlights, and what a score means.

import { strip } from "/charts.js";
import { isSelected, toggle } from "/selection.js";
import { addressOf, fileOf, make, nameOf, newRoute, shortened } from "/tools.js";

const ICONS = {
  like: "M10 16.5S3 12.4 3 7.6A3.6 3.6 0 0 1 10 6a3.6 3.6 0 0 1 7 1.6c0 4.8-7 8.9-7 8.9z",
  check: "m4.5 10.5 3.5 3.5 7.5-8",
};

export function icon(name) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  node.setAttribute("viewBox", "0 0 20 20");
  node.setAttribute("aria-hidden", "true");
  path.setAttribute("d", ICONS[name]);
  node.append(path);
  return node;
}

// A caption with the words that were asked for marked; never markup.
export function marked(text, words) {
  if (!words?.length) return [text];
  const wanted = new Set(words), nodes = [];
  for (const part of text.split(/([\p{L}\p{N}_]+)/u)) {
    if (part) nodes.push(wanted.has(part) ? make("mark", {}, part) : part);
  }
  return nodes;
}

export const percent = (share) => `${Math.round(100 * share)} %`;

export function meaningOf(hit, answer) {
  if (hit.same_image) return "This is the picture that you searched with, byte by byte.";
  if (hit.confidence === null) return answer.matching === null
    ? `Results are sorted by how similar their codes are to the query: ${hit.distance} of ${answer.n_bits} bits differ.`
    : "Too few captioned pictures are known here to say how likely this result is right; results are sorted by words and codes.";
  if (hit.confidence === 1 && hit.score === 1) return "Its caption has exactly the words of the query.";
  return `${percent(hit.confidence)}: how likely somebody who describes it uses a word of the query, as measured on captions that were hidden.${hit.item.text ? " A word of its own caption makes that more likely." : ""}`;
}

export function why(hit, answer) {
  return make("details", { className: "why" }, make("summary", {}, "Why this?"),
    make("p", {}, meaningOf(hit, answer)),
    hit.matched.length ? make("p", {}, "Words that match: ", ...marked(hit.matched.join(" "), hit.matched)) : null,
    answer.code ? make("p", { className: "note" }, `${hit.distance} of ${answer.n_bits} bits of its code differ from the query's (colored):`) : null,
    answer.code ? strip(hit.code, answer.code) : null);
}

export function chips(labels) {
  return make("ul", { className: "chips", ariaLabel: "Labels" }, ...labels.slice(0, 12).map((label) =>
    make("li", {}, make("a", { href: addressOf(newRoute({ filters: { label } })) }, label))));
}

export function card(route, item, hit = null) {
  const well = make("div", { className: "well" });
  if (item.thumbnail) {
    const ratio = item.width / item.height;
    const image = make("img", { className: ratio > 1.18 && ratio < 1.56 ? "near" : "", alt: item.text ? "" : item.key, loading: "lazy", decoding: "async", draggable: false });
    onItsGround(image, well);
    image.src = item.thumbnail;
    well.append(image);
  } else {
    well.append(make("blockquote", {}, ...marked(shortened(nameOf(item), 240), hit?.matched)));
  }
  if (hit && (hit.confidence !== null || hit.same_image)) well.append(make("span", { className: "score", title: hit.same_image ? "The picture that you searched with" : "How likely somebody who describes it uses these words" }, hit.same_image ? "same picture" : percent(hit.confidence)));
  const caption = item.thumbnail && item.text ? marked(shortened(item.text, 300), hit?.matched) : [fileOf(item)];
  const open = make("a", { className: "card", href: addressOf({ ...route, item: String(item.id) }), title: shortened(nameOf(item), 500), draggable: false },
    well, make("div", { className: item.thumbnail && item.text ? "caption" : "caption note" }, ...caption));
  const select = make("button", { type: "button", className: "tick", tabIndex: -1, ariaPressed: String(isSelected(item.id)), ariaLabel: `Select ${shortened(nameOf(item), 60)}`, title: "Select" }, icon("check"));
  select.addEventListener("click", () => toggle(item));
  select.dataset.id = item.id;
  const like = make("a", { className: "like", tabIndex: -1, href: addressOf(newRoute({ like: [String(item.id)], filters: route.filters })), ariaLabel: `More like ${shortened(nameOf(item), 60)}`, title: "More like this" }, icon("like"));
  return make("li", {}, open, select, like);
}

export function showQuery(query, route, answer, kept) {
  query.hidden = !(route.picture || route.code || route.like.length || route.unlike.length);
  if (query.hidden) return;
  const parts = [];
  if (route.picture) {
    const image = kept ? make("img", { className: "seen", src: kept, alt: "The picture that was searched with" }) : null;
    if (image) onItsGround(image, image);
    parts.push(part(route, { picture: "" }, image ?? make("span", { className: "note" }, "A picture that was searched with before"), "Your picture"));
  }
  if (route.code) parts.push(part(route, { code: "", generation: "" }, strip(route.code), "A code"));
  for (const [name, heading] of [["like", "More like"], ["unlike", "Less like"]]) {
    for (const item of answer[name] ?? []) {
      const seen = item.thumbnail ? make("img", { className: "seen", src: item.thumbnail, alt: shortened(nameOf(item), 120) }) : make("span", {}, shortened(nameOf(item), 60));
      parts.push(part(route, { [name]: route[name].filter((id) => id !== String(item.id)) }, seen, heading));
    }
  }
  query.replaceChildren(...parts);
}

function part(route, without, shown, heading) {
  return make("div", { className: "part" }, shown, make("span", { className: "note" }, heading),
    make("a", { className: "plain small", href: addressOf({ ...route, ...without, item: "" }), ariaLabel: `Remove: ${heading}` }, "Remove"));
}

// A picture with a white or transparent edge gets a white background, so that it is no white square on another color.
export function onItsGround(image, ground) {
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
