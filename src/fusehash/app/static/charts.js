// What is drawn: codes as strips of bits, and the two figures of the collection tab. Plain SVG.

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// Bit j of a code is bit j % 8, lowest first, of byte j / 8.
export function bitsOf(hex) {
  const bits = [];
  for (let i = 0; i < hex.length; i += 2) {
    const byte = parseInt(hex.slice(i, i + 2), 16);
    for (let j = 0; j < 8; j++) bits.push((byte >> j) & 1);
  }
  return bits;
}

// A code as cells, at most 32 a row. Bits that differ from `other` have another colour and the full height.
export function strip(hex, other = null) {
  const bits = bitsOf(hex), others = other ? bitsOf(other) : null;
  const columns = Math.min(32, bits.length), rows = Math.ceil(bits.length / columns);
  const paths = { one: "", zero: "", off: "", "off-zero": "" };
  let differing = 0;
  bits.forEach((bit, j) => {
    const x = (j % columns) * 10, y = Math.floor(j / columns) * 24;
    if (others && bit !== others[j]) {
      differing++;
      paths[bit ? "off" : "off-zero"] += `M${x} ${y}h8v20h-8z`;
    } else {
      paths[bit ? "one" : "zero"] += `M${x} ${y + 5}h8v10h-8z`;
    }
  });
  const label = others ? `Code: ${differing} of ${bits.length} bits differ from the query` : `The query's code of ${bits.length} bits`;
  const node = svg("svg", {
    class: "strip", viewBox: `0 0 ${columns * 10 - 2} ${rows * 24 - 4}`, preserveAspectRatio: "none", role: "img", "aria-label": label,
  });
  for (const [kind, d] of Object.entries(paths)) if (d) node.append(svg("path", { class: kind, d }));
  return node;
}

// Drawn at the size they are shown, so that their text is as large on a phone.
const WIDTH = Math.max(280, Math.min(560, innerWidth - 70)), HEIGHT = 190, LEFT = 38, BOTTOM = 22, TOP = 8;

function frame(label) {
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
}

function text(x, y, content, anchor) {
  const node = svg("text", { x, y, "text-anchor": anchor });
  node.textContent = content;
  return node;
}

function bar(x, y, width, height, title) {
  const named = svg("title");
  named.textContent = title;
  return svg("rect", { x, y, width, height: Math.max(height, .6), rx: Math.min(1.5, width / 3) }, named);
}

// One bar a bit, up or down from the middle: how far the bit is from halving the collection.
export function balance(means) {
  const reach = Math.max(.25, ...means.map(Math.abs)), step = (WIDTH - LEFT) / means.length;
  const middle = TOP + (HEIGHT - TOP - BOTTOM) / 2, scale = (HEIGHT - TOP - BOTTOM) / 2 / reach;
  const share = (mean) => `${((1 + mean) * 50).toFixed(0)} %`;
  const worst = means.reduce((worst, mean) => Math.abs(mean) > Math.abs(worst) ? mean : worst, 0);
  const node = frame(`Balance of ${means.length} bits; the least even one is set in ${share(worst)} of the items`);
  for (const [y, mean] of [[TOP, reach], [middle, 0], [HEIGHT - BOTTOM, -reach]]) {
    node.append(svg("line", { x1: LEFT, x2: WIDTH, y1: y, y2: y }), text(LEFT - 6, y + 4, share(mean), "end"));
  }
  means.forEach((mean, j) => {
    const height = Math.abs(mean) * scale, y = mean > 0 ? middle - height : middle;
    node.append(bar(LEFT + j * step + step * .12, y, step * .76, height, `Bit ${j + 1}: set in ${share(mean)} of the items`));
  });
  node.append(text(LEFT, HEIGHT - 5, "bit 1", "start"), text(WIDTH, HEIGHT - 5, `bit ${means.length}`, "end"));
  return node;
}

// How far random pairs are apart, and (dashed) how far codes of coin flips would be.
export function histogram(shares) {
  const n = shares.length - 1, step = (WIDTH - LEFT) / shares.length;
  let chance = Math.exp(-n * Math.LN2);
  const expected = shares.map((_, d) => {
    const now = chance;
    chance *= (n - d) / (d + 1);
    return now;
  });
  const top = Math.max(...shares, ...expected, 1e-9), scale = (HEIGHT - TOP - BOTTOM) / top;
  const percent = (share) => `${(100 * share).toFixed(share < .1 ? 1 : 0)} %`;
  const mean = shares.reduce((sum, share, d) => sum + share * d, 0);
  const node = frame(`Distances of random pairs of items; the mean is ${mean.toFixed(1)} of ${n} bits`);
  for (const [y, share] of [[TOP, top], [HEIGHT - BOTTOM, 0]]) {
    node.append(svg("line", { x1: LEFT, x2: WIDTH, y1: y, y2: y }), text(LEFT - 6, y + 4, percent(share), "end"));
  }
  shares.forEach((share, d) => {
    if (share > 0) {
      node.append(bar(LEFT + d * step + step * .08, HEIGHT - BOTTOM - share * scale, step * .84, share * scale, `${d} bits: ${percent(share)} of the pairs`));
    }
  });
  const points = expected.map((share, d) => `${LEFT + (d + .5) * step},${HEIGHT - BOTTOM - share * scale}`);
  node.append(svg("polyline", { class: "expected", points: points.join(" ") }));
  for (const d of [0, n / 4, n / 2, 3 * n / 4, n]) node.append(text(LEFT + (d + .5) * step, HEIGHT - 5, d, d === n ? "end" : "middle"));
  return node;
}
