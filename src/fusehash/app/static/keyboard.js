// Moving without a mouse: "/" to the box, arrows in the grid, "m" for more like it, "x" to select, Escape to start
// again, "?" for help.

const $ = (id) => document.getElementById(id);

// Whether the last thing used was the keyboard.
export let used = false;

const cardsShown = () => [...document.querySelectorAll("#grid .card")];

// One stop of the Tab key for the whole grid.
export function roving(place) {
  cardsShown().forEach((one, i) => { one.tabIndex = i === place ? 0 : -1; });
}

export function focusCard(place) {
  const cards = cardsShown();
  if (!cards.length) return;
  const bounded = Math.max(0, Math.min(place, cards.length - 1));
  roving(bounded);
  cards[bounded].focus();
  cards[bounded].scrollIntoView({ block: "nearest" });
}

function columns(cards) {
  const top = cards[0].getBoundingClientRect().top;
  const next = cards.findIndex((one) => one.getBoundingClientRect().top > top + 1);
  return next < 0 ? cards.length : next;
}

function onKey(event, clear) {
  used = true;
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open], #help:popover-open")) return;
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    $("text").focus();
    $("text").select();
    return;
  }
  if (event.key === "?" && !typing) return $("help").showPopover();
  if (event.key === "Escape") {
    $("text").value = "";
    clear();
    $("text").focus();
    return;
  }
  const cards = cardsShown(), place = cards.indexOf(document.activeElement);
  if (!cards.length || $("search-view").hidden) return;
  if (event.target === $("text") && event.key === "ArrowDown") {
    event.preventDefault();
    focusCard(0);
  }
  if (typing || (place < 0 && document.activeElement !== document.body)) return;
  if (place >= 0 && (event.key === "x" || event.key === "m")) {
    event.preventDefault();
    cards[place].parentNode.querySelector(event.key === "x" ? ".tick" : ".like").click();
    return;
  }
  const wide = columns(cards);
  const target = { ArrowRight: place + 1, ArrowLeft: place - 1, ArrowDown: place < 0 ? 0 : place + wide, ArrowUp: place - wide, Home: 0, End: cards.length - 1 }[event.key];
  if (target === undefined || (place < 0 && ["Home", "End"].includes(event.key))) return;
  event.preventDefault();
  if (event.key === "ArrowUp" && target < 0) $("text").focus();
  else if (event.key === "ArrowDown" && target >= cards.length && Math.floor(place / wide) === Math.floor((cards.length - 1) / wide)) $("more").hidden || $("more").focus();
  else focusCard(target);
}

export function listen(clear) {
  document.addEventListener("keydown", (event) => onKey(event, clear));
  document.addEventListener("pointerdown", () => { used = false; });
}
