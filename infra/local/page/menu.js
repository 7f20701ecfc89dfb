// The menu of one message.

import { $, button } from "./dom.js";

const GAP_PX = 4;

let current = null; // {opener, offers} of the menu that is open

$("menu").addEventListener("focusout", ({ relatedTarget }) => {
  if (relatedTarget !== null && !$("menu").contains(relatedTarget)) closeMenu(); // it was left with Tab
});

/**
 * Opens the menu beside its opener. offers() returns what can be done now, as {act, label, run}; it is called again by
 * redrawMenu, and before something is done.
 */
export function openMenu(opener, offers) {
  const menu = $("menu");
  const items = offers();
  if (items.length === 0) return;
  current = { opener, offers };
  menu.replaceChildren(
    ...items.map(({ act, label }) => {
      const item = button("", label, () => {
        const offer = offers().find((now) => now.act === act);
        menu.hidePopover();
        offer?.run();
      });
      item.dataset.act = act;
      return item;
    }),
  );
  menu.ontoggle = ({ newState }) => {
    opener.setAttribute("aria-expanded", newState === "open");
    if (newState === "closed" && current?.opener === opener) current = null;
  };
  menu.showPopover({ source: opener }); // which Tab comes back to
  place(menu, opener.getBoundingClientRect());
  menu.firstElementChild.focus();
}

/** Takes out of an open menu what cannot be done any more. */
export function redrawMenu() {
  if (current === null) return;
  const menu = $("menu");
  const acts = current.opener.isConnected ? current.offers().map(({ act }) => act) : [];
  for (const item of [...menu.children]) {
    if (acts.includes(item.dataset.act)) continue;
    const hadFocus = item === document.activeElement;
    item.remove();
    if (hadFocus) menu.firstElementChild?.focus();
  }
  if (menu.childElementCount === 0) menu.hidePopover();
}

export function closeMenu() {
  $("menu").hidePopover();
}

function place(menu, { right, top, bottom }) {
  const { width, height } = menu.getBoundingClientRect();
  const below = bottom + GAP_PX + height <= window.innerHeight;
  menu.style.left = `${Math.max(GAP_PX, Math.min(right - width, window.innerWidth - width - GAP_PX))}px`;
  menu.style.top = `${below ? bottom + GAP_PX : Math.max(GAP_PX, top - GAP_PX - height)}px`;
}
