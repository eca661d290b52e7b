// The collection tab: what there is, groups of alike items, and how the codes use their bits.

import { balance, histogram } from "/charts.js";
import { addressOf, api, count, make, nameOf, shortened } from "/tools.js";

const MEGABYTE = 1e6;

// Fills `view`; returns what the server reports about the collection.
export async function showCollection(view, signal) {
  if (!view.children.length) view.append(make("p", { className: "message" }, "Looking at the collection…"));
  const stats = await api("/api/stats", { signal });
  const facts = [
    ["Items", stats.items.toLocaleString("en")], ["With an image", stats.images.toLocaleString("en")],
    ["With a text", stats.texts.toLocaleString("en")], ["Bits of a code", stats.n_bits],
    ["Images seen by", stats.image_encoder], ["Texts read by", stats.text_encoder], ["On disk", `${(stats.bytes / MEGABYTE).toFixed(1)} MB`],
  ];
  const parts = [make("dl", { className: "facts" }, ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))))];
  if (stats.advice) parts.push(make("p", { className: "advice" }, stats.advice));
  const groups = make("div", { className: "groups" }), charts = make("div", { className: "charts" });
  parts.push(make("h2", {}, "Groups of alike items"), make("p", { className: "note" }, "Found by their codes alone, named by the words that set them apart."), groups);
  parts.push(make("h2", {}, "The codes"), make("p", { className: "note" }, "Good codes use every bit evenly and keep unlike items far apart."), charts);
  view.replaceChildren(...parts);
  const [found, codes] = await Promise.all([api("/api/clusters", { signal }), api("/api/codes", { signal })]);
  groups.replaceChildren(...found.clusters.map(group));
  if (!found.clusters.length) groups.append(make("p", { className: "note" }, "There is nothing to group yet."));
  if (!codes.codes) {
    charts.append(make("p", { className: "note" }, "There are no codes yet."));
    return stats;
  }
  charts.append(
    chart("Balance of the bits", "Share of the items in which each bit is set; 50 % tells most.", balance(codes.bit_means)),
    chart("Distances", `Bits in which random pairs differ; dashed: coin flips. ${count(codes.distinct, "different code")} for ${count(codes.codes, "item")}.`, histogram(codes.distances)),
  );
  return stats;
}

function group({ words, size, examples }) {
  const name = words.length ? words.join(" · ") : "without words";
  const heading = words.length ? make("a", { href: addressOf({ kind: "text", value: words.join(" "), label: "" }), title: "Search with these words" }, name) : make("span", {}, name);
  const film = make("div", { className: "film" }, ...examples.slice(0, 8).map((item) => {
    const link = make("a", { href: addressOf({ kind: "like", value: item.id, label: "" }), title: shortened(nameOf(item), 300) });
    if (item.thumbnail) {
      const image = make("img", { src: item.thumbnail, alt: shortened(nameOf(item), 120), loading: "lazy", decoding: "async" });
      image.style.aspectRatio = `${item.width || 4} / ${item.height || 3}`;
      link.append(image);
    } else {
      link.className = "quote";
      link.append(shortened(nameOf(item), 70));
    }
    return link;
  }));
  return make("section", { className: "group" }, make("header", {}, heading, make("span", {}, count(size, "item"))), film);
}

function chart(name, sentence, drawing) {
  return make("figure", { className: "chart" }, make("figcaption", {}, make("strong", {}, name), make("span", {}, sentence)), drawing);
}
