// Builds and updates the nodes of the page, and never turns text into HTML.

import { hueOf, initialOf } from "./text.js";
import { fullTimeWords, shownPart } from "./words.js";

/** How many colours style.css has for people. */
export const HUES = 8;

export const $ = (id) => document.getElementById(id);

export function element(tag, className = "", children = []) {
  const node = document.createElement(tag);
  node.className = className;
  node.append(...children);
  return node;
}

/** A button that does not submit the form it may be in. */
export function button(className, text, onClick) {
  const node = element("button", className);
  node.type = "button";
  node.textContent = text;
  if (onClick) node.addEventListener("click", onClick);
  return node;
}

/** Sets a text only where it changed: a screen reader announces what is set. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setData(node, name, value) {
  if (value === null || value === undefined) delete node.dataset[name];
  else node.dataset[name] = value;
}

/** Shows a time in these words; its title is the full time, after a prefix. */
export function setTime(node, ms, words, prefix = "") {
  node.hidden = !ms;
  if (!ms) return;
  node.dateTime = new Date(ms).toISOString();
  node.title = prefix + fullTimeWords(ms);
  setText(node, words);
}

/** Fills a node with what nodes() returns, unless it was filled under the same stamp before. */
export function fillOnce(node, stamp, nodes) {
  if (stamps.get(node) === stamp) return;
  stamps.set(node, stamp);
  node.replaceChildren(...nodes());
}

const stamps = new WeakMap(); // node → what it was filled with

/**
 * Shows words (see words.js), if they changed, in a node with dir="auto". What people wrote or are called is isolated
 * from what is around it.
 */
export function setParts(node, parts) {
  fillOnce(node, JSON.stringify(parts), () => {
    if (parts.length === 1) return [shownPart(parts[0])]; // a single part decides the direction of the node
    return parts.map((part) => (typeof part === "string" ? part : element("bdi", "", [shownPart(part)])));
  });
}

/** An element with these words, which decide its direction. */
export function worded(tag, className, parts = []) {
  const node = element(tag, className);
  node.dir = "auto";
  setParts(node, parts);
  return node;
}

/** Shows the letter that stands for a name, in one of the colours of the page. */
export function setAvatar(node, name) {
  setText(node, initialOf(name));
  node.dataset.hue = hueOf(name, HUES);
}

/** Whether the user has a touch screen only: then the keyboard covers half of the page, and has no Shift to hold. */
export function isTouch() {
  return matchMedia("(hover: none) and (pointer: coarse)").matches;
}

/** A list that keeps the node of each key from one drawing to the next. */
export class KeyedList {
  #parent;
  #make;
  #nodes = new Map();

  /** make returns the node for the item of a new key. */
  constructor(parent, make) {
    this.#parent = parent;
    this.#make = make;
  }

  get(key) {
    return this.#nodes.get(key);
  }

  clear() {
    this.#nodes.clear();
    this.#parent.replaceChildren();
  }

  /**
   * Shows one node per item: key(item) names it, fill(node, item) brings it up to date. Only what moved is touched: a
   * screen reader announces what is inserted, and a moved element loses the focus.
   */
  draw(items, key, fill) {
    const wanted = items.map((item) => {
      const name = key(item);
      if (!this.#nodes.has(name)) this.#nodes.set(name, this.#make(item));
      const node = this.#nodes.get(name);
      fill(node, item);
      return node;
    });
    const keep = new Set(wanted);
    for (const [name, node] of this.#nodes) {
      if (keep.has(node)) continue;
      this.#nodes.delete(name);
      node.remove();
    }
    let next = null;
    for (const node of wanted.reverse()) {
      if (node.parentNode !== this.#parent || node.nextSibling !== next) this.#parent.insertBefore(node, next);
      next = node;
    }
  }
}

/** Lets a button act on the second click only; the first one makes it ask. */
export function askFirst(node, question, act) {
  const label = node.textContent;
  const calm = () => {
    node.classList.remove("asking");
    node.textContent = label;
  };
  node.addEventListener("blur", calm);
  node.addEventListener("click", () => {
    if (!node.classList.contains("asking")) {
      node.classList.add("asking");
      node.textContent = question;
      return;
    }
    calm();
    act();
  });
}
