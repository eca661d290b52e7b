// The collection tab (what there is, groups of similar items, how the codes use their bits) and the duplicates tab.

import { balance, histogram } from "/charts.js";
import { addressOf, api, count, make, nameOf, newRoute, routeNow, shortened, sizeOf } from "/tools.js";

const GROUPS = 60;

// Fills `view`; returns what the server reports about the collection.
export async function showCollection(view, signal) {
  if (!view.children.length) view.append(make("p", { className: "message" }, "Looking at the collection…"));
  const stats = await api("/api/stats", { signal });
  const facts = [
    ["Items", stats.items.toLocaleString("en")], ["With an image", stats.images.toLocaleString("en")],
    ["With a text", stats.texts.toLocaleString("en")], ["Bits of a code", stats.n_bits],
    ["Images seen by", stats.image_encoder], ["Texts read by", stats.text_encoder], ["On disk", sizeOf(stats.bytes)],
  ];
  const parts = [make("dl", { className: "facts" }, ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", { className: /^[\d.,]+( \w+)?$/.test(value) ? "" : "words" }, String(value)))))];
  if (stats.advice) parts.push(make("p", { className: "advice" }, stats.advice));
  const groups = make("div", { className: "groups" }), charts = make("div", { className: "charts" });
  parts.push(make("h2", {}, "Groups of similar items"), make("p", { className: "note" }, "Found by their codes alone; named by words that are in most of their captions and in few others, if there are such words."), groups);
  parts.push(make("h2", {}, "The codes"), make("p", { className: "note" }, "Good codes use every bit evenly and keep unlike items far apart."), charts);
  view.replaceChildren(...parts);
  const [listed, codes] = await Promise.all([api("/api/clusters", { signal }), api("/api/codes", { signal })]);
  groups.replaceChildren(...listed.clusters.map(({ words, size, examples }) => group(words.length
    ? make("a", { href: addressOf(newRoute({ text: words.join(" ") })), title: "Search with these words" }, words.join(" · "))
    : make("a", { href: addressOf(newRoute({ like: examples.slice(0, 4).map(({ id }) => String(id)) })) }, "More like these"), size, examples)));
  if (!listed.clusters.length) groups.append(make("p", { className: "note" }, "There is nothing to group yet."));
  if (!codes.codes) {
    charts.append(make("p", { className: "note" }, "There are no codes yet."));
    return stats;
  }
  charts.append(
    chart("Balance of the bits", "Share of the items in which each bit is set; 50 % is best.", balance(codes.bit_means)),
    chart("Distances", `Bits in which random pairs differ; dashed: coin flips. ${count(codes.distinct, "different code")} for ${count(codes.codes, "item")}.`, histogram(codes.distances)),
  );
  return stats;
}

export async function showDuplicates(view, signal) {
  view.replaceChildren(make("p", { className: "message" }, "Looking for duplicates…"));
  const { total, groups } = await api(`/api/duplicates?limit=${GROUPS}`, { signal });
  const shown = total > groups.length ? `, the largest ${groups.length} of them are shown` : "";
  const heading = make("p", { className: "note", role: "status" }, total
    ? `${count(total, "group")} of pictures that are equal byte by byte, or look the same in small${shown}.`
    : "No two items are nearly the same.");
  view.replaceChildren(make("h2", {}, "Duplicates"), heading, make("div", { className: "groups" }, ...groups.map((items) =>
    group(make("span", {}, nameOf(items[0])), items.length, items, 40))));
}

function group(heading, size, examples, shown = 8) {
  const film = make("div", { className: "film", role: "group", tabIndex: 0, ariaLabel: "Examples" }, ...examples.slice(0, shown).map((item) => {
    const link = make("a", { href: addressOf({ ...routeNow(), item: String(item.id) }), title: shortened(nameOf(item), 300) });
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
