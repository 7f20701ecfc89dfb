// Builds and updates the nodes of the page, and never turns text into HTML.

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

export function setTime(node, ms) {
  node.hidden = !ms;
  if (!ms) return;
  const date = new Date(ms);
  const today = date.toDateString() === new Date().toDateString();
  node.dateTime = date.toISOString();
  node.title = date.toLocaleString();
  setText(node, today ? date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : date.toLocaleDateString([], { day: "numeric", month: "short" }));
}

/** A list that keeps the node of each key from one drawing to the next. */
export class KeyedList {
  #parent;
  #make;
  #nodes = new Map();

  /** make gives the node of a new key. */
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
   * Shows one node per item: key(item) names it, fill(node, item) brings it up to date. Only what moved
   * is touched: a screen reader announces what is inserted, and a moved element loses the focus.
   */
  draw(items, key, fill) {
    const wanted = items.map((item) => {
      const name = key(item);
      if (!this.#nodes.has(name)) this.#nodes.set(name, this.#make());
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
