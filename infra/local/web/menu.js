// The menu of one message.

import { $, button } from "./dom.js";

const GAP_PX = 4;

/** Opens the menu beside its opener: items are {act, label, run}. */
export function openMenu(opener, items) {
  const menu = $("menu");
  menu.replaceChildren(
    ...items.map(({ act, label, run }) => {
      const item = button("", label, () => {
        menu.hidePopover();
        run();
      });
      item.dataset.act = act;
      return item;
    }),
  );
  menu.ontoggle = ({ newState }) => opener.setAttribute("aria-expanded", newState === "open");
  menu.showPopover();
  place(menu, opener.getBoundingClientRect());
  menu.firstElementChild.focus();
}

function place(menu, { right, top, bottom }) {
  const { width, height } = menu.getBoundingClientRect();
  const below = bottom + GAP_PX + height <= window.innerHeight;
  menu.style.left = `${Math.max(GAP_PX, Math.min(right - width, window.innerWidth - width - GAP_PX))}px`;
  menu.style.top = `${below ? bottom + GAP_PX : Math.max(GAP_PX, top - GAP_PX - height)}px`;
}
