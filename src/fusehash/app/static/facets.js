// What can be filtered by, and the order of a list.

import { $, count, isSearch, make } from "/tools.js";

const SHOWN = 300;

export function fill(facets) {
  document.body.classList.add("known"); // no room is kept for what is not there
  const byName = (a, b) => a.name.localeCompare(b.name);
  options("label", facets.labels.slice(0, SHOWN).sort(byName).map(({ name, count: n }) => [name, `${name} (${n})`]));
  options("folder", facets.folders.length > 1 ? facets.folders.slice(0, SHOWN).map(({ name, count: n }) => [name, `${name || "(top)"} (${n})`]) : []);
  options("year", facets.years.length > 1 ? facets.years.map(({ year, count: n }) => [year, `${year} (${n})`]) : []);
  const both = facets.with_text && facets.without_text;
  options("caption", both ? [["true", `with (${facets.with_text})`], ["false", `without (${facets.without_text})`]] : []);
}

function options(id, listed) {
  const select = $(id);
  select.replaceChildren(select.options[0], ...listed.map(([value, name]) => make("option", { value }, name)));
  select.closest("label").hidden = !listed.length;
}

const YEAR = /^(\d{4})-01-01$/;

export function mirror(route) {
  const { label = "", folder = null, has_text: hasText = "", after = "", before = "" } = route.filters;
  const year = YEAR.test(after) && Number(before.slice(0, 4)) === Number(after.slice(0, 4)) + 1 ? after.slice(0, 4) : "";
  for (const [id, value] of [["label", label], ["folder", folder ?? " "], ["year", year], ["caption", hasText], ["order", route.order]]) {
    const select = $(id);
    if (value.trim() && ![...select.options].some((option) => option.value === value)) select.append(make("option", { value }, value));
    select.value = value === " " ? "" : value;
    if (folder === null && id === "folder") select.selectedIndex = 0;
    select.classList.toggle("on", Boolean(value.trim()) || (id === "folder" && folder !== null));
  }
  $("order").closest("label").hidden = isSearch(route);
  $("unfilter").hidden = !Object.keys(route.filters).length;
}

// The filters that the controls show.
export function chosen() {
  const filters = {}, year = $("year").value;
  if ($("label").value) filters.label = $("label").value;
  if ($("folder").selectedIndex > 0) filters.folder = $("folder").value;
  if ($("caption").value) filters.has_text = $("caption").value;
  if (year) Object.assign(filters, { after: `${year}-01-01`, before: `${String(Number(year) + 1).padStart(4, "0")}-01-01` });
  return filters;
}

export function listen(changed) {
  for (const id of ["label", "folder", "year", "caption", "order"]) $(id).addEventListener("change", changed);
}

export function describe(route, answer) {
  if (!isSearch(route)) return count(answer.total, "item");
  if (answer.matching === null || !answer.total) return count(answer.total, "item");
  const all = count(answer.total, "item");
  return answer.matching ? `${count(answer.matching, "caption")} ${answer.matching === 1 ? "has" : "have"} all words, of ${all}` : `${all}, best first`;
}
