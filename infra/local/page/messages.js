// The messages of the open conversation, and how far the user has read them.

import { arrange, isCentral, isNews } from "./arrange.js";
import { $, HUES, KeyedList, askFirst, button, element, fillOnce, setData, setParts, setText, setTime, worded } from "./dom.js";
import { cut, hueOf, isBigEmoji, partsOf } from "./text.js";
import { bodyOf, clockWords, deliveryOf, failureOf, isOwnWords, lineOf, listOf, plain, said, whyWords } from "./words.js";

const ROWS_AT_FIRST = 200;
const ROWS_FOR_NEWS = 1_000; // at most this many are shown at once because they are new
const ROWS_ABOVE_NEWS = 50;
const NEAR_THE_END_PX = 80;
const NEAR_THE_BEGINNING_PX = 300;
const ABOVE_THE_NEW_PX = 80; // how much of what was read already is shown
const MARKED_MS = 1_500;
const QUOTE_CHARACTERS = 160;

export class MessageList {
  #client;
  #hooks;
  #key = null;
  #shown = ROWS_AT_FIRST;
  #list = new KeyedList($("messages"), (item) => this.#newNode(item));
  #rows = new WeakMap(); // node → row
  #looks = new WeakMap(); // node → what else it was filled with
  #newAfter = null; // the seq that was read when something new came; a line follows it
  #hasReadAll = true;
  #isOpening = true;
  #atTheEnd = true; // as it was left
  #lastTop = 0;
  #loading = null;

  /**
   * hooks.menu(opener, rowNow), hooks.quote(row), hooks.editAgain(row, text), hooks.copy(text) and
   * hooks.retry(clientMsgId) are called when the user clicks, hooks.earlier() when more has to be shown.
   */
  constructor(client, hooks) {
    this.#client = client;
    this.#hooks = hooks;
    $("scroll").addEventListener("scroll", () => this.#scrolled(), { passive: true });
    $("down").addEventListener("click", () => {
      this.toTheEnd();
      $("scroll").focus({ preventScroll: true });
    });
    askFirst($("lost-remove"), "Remove the only copies?", leaving(() => this.#client.discardLost(this.#key)));
    // A keyboard that comes up, or a field that grows, takes some of the height: the end stays in view.
    new ResizeObserver(() => {
      if (this.#atTheEnd && $("scroll").clientHeight > 0) this.toTheEnd();
    }).observe($("scroll"));
  }

  /** Shows another conversation; call draw and toTheNews next. */
  open(key) {
    this.#key = key;
    this.#shown = ROWS_AT_FIRST;
    this.#newAfter = null;
    this.#hasReadAll = true;
    this.#isOpening = true;
    this.#list.clear();
  }

  draw(now = Date.now()) {
    const { earlier, readSeq, unread } = this.#client.conversation(this.#key);
    this.#shown = Math.max(this.#shown, Math.min(unread + ROWS_ABOVE_NEWS, ROWS_FOR_NEWS));
    const all = this.#client.messages(this.#key, this.#shown + 1);
    const rows = all.slice(-this.#shown);
    const isLost = rows.some((row) => failureOf(row)?.aside === false); // what can be put aside has a button of its own
    const stayed = this.#place();
    const news = rows.find((row) => isNews(row, readSeq));
    $("lost").hidden = !isLost;
    setText($("lost-words"), isLost ? "The server does not have some of these messages any more, only this device." : "");
    $("earlier").hidden = all.length <= this.#shown && !earlier;
    if (!news) this.#hasReadAll = true;
    else if (stayed !== null || this.#isOpening || !isAttended()) this.#noteNews(readSeq);
    this.#isOpening = false;
    this.#drawRows(rows, now);
    if (stayed !== null) {
      if (stayed.node.isConnected) $("scroll").scrollTop += topOf(stayed.node) - stayed.top;
      return this.#look();
    }
    scrollToTheEnd();
    if (news && topOf(nodeOf(news.seq)) < topOf($("scroll"))) {
      this.#noteNews(readSeq); // more has come at once than there is room for
      this.#drawRows(rows, now);
    }
    this.toTheNews();
  }

  #drawRows(rows, now) {
    const conversation = this.#client.conversation(this.#key);
    const items = arrange(rows, { newAfter: this.#newAfter, now });
    this.#list.draw(items, ({ key }) => key, (node, item) => this.#fill(node, item, conversation));
  }

  toTheEnd() {
    scrollToTheEnd();
    this.#look();
  }

  /** Goes to the end, but not past the first message that was not read. */
  toTheNews() {
    scrollToTheEnd();
    const line = this.#hasReadAll ? null : $("messages").querySelector(".new-line");
    const over = line === null ? 0 : topOf($("scroll")) + ABOVE_THE_NEW_PX - topOf(line);
    if (over > 0) $("scroll").scrollTop -= over;
    this.#look();
  }

  /** The user has written: what came before is not new any more. */
  answered() {
    this.#newAfter = null;
    this.#hasReadAll = true;
    this.draw();
    this.toTheEnd();
  }

  /** Shows earlier messages; what is in view stays where it is. */
  showEarlier() {
    this.#loading ??= this.#showEarlier().finally(() => (this.#loading = null));
    return this.#loading;
  }

  async #showEarlier() {
    const key = this.#key;
    const shown = this.#shown + ROWS_AT_FIRST;
    if (this.#client.messages(key, shown).length < shown && this.#client.conversation(key).earlier) await this.#client.loadEarlier(key);
    if (!this.#isOpen(key)) return;
    const hadFocus = document.activeElement === $("earlier");
    this.#shown = shown;
    this.draw();
    if (hadFocus && $("earlier").hidden) $("scroll").focus({ preventScroll: true });
  }

  /** Goes to the message with this seq; false if it is not there (any more). */
  async jumpTo(seq) {
    const key = this.#key;
    while (!nodeOf(seq) && !$("earlier").hidden && this.#first() > seq) {
      await this.showEarlier();
      if (!this.#isOpen(key)) return true; // the user went elsewhere
    }
    const target = nodeOf(seq);
    if (!target) return false;
    target.scrollIntoView({ block: "center" });
    target.classList.add("marked");
    setTimeout(() => target.classList.remove("marked"), MARKED_MS);
    target.querySelector(".more").focus({ preventScroll: true });
    return true;
  }

  #isOpen(key) {
    return this.#key !== null && this.#client.currentKey(key) === this.#client.currentKey(this.#key);
  }

  #first() {
    return Number($("messages").querySelector("[data-seq]")?.dataset.seq ?? 0);
  }

  // ---- what is in view ----

  // The message that has to stay where it is while the list changes; null at the end, which stays in view.
  #place() {
    if (isNearTheEnd()) return null;
    const top = $("scroll").getBoundingClientRect().top;
    const node = nodesOf().find((candidate) => candidate.getBoundingClientRect().bottom > top);
    return node ? { node, top: topOf(node) } : null;
  }

  // Messages that come while the user is away or further up are marked as new, and stay so while the user reads.
  #noteNews(readSeq) {
    if (!this.#hasReadAll) return;
    this.#newAfter = readSeq;
    this.#hasReadAll = false;
  }

  #scrolled() {
    if (this.#key === null) return;
    const { scrollTop } = $("scroll");
    const isUp = scrollTop < this.#lastTop;
    this.#look();
    if (isUp && scrollTop < NEAR_THE_BEGINNING_PX && !$("earlier").hidden && this.#loading === null) this.#hooks.earlier();
  }

  // Notes what the user has seen, and offers a way to the rest.
  #look() {
    const scroll = $("scroll");
    this.#atTheEnd = isNearTheEnd();
    this.#lastTop = scroll.scrollTop;
    if (this.#key === null || scroll.clientHeight === 0) return;
    if (isAttended()) this.#markSeen();
    const { readSeq } = this.#client.conversation(this.#key);
    const count = this.#client.messages(this.#key, this.#shown + 1).filter((row) => isNews(row, readSeq)).length;
    $("down").hidden = this.#atTheEnd;
    setText($("down-count"), count > 99 ? "99+" : String(count));
    $("down-count").hidden = count === 0;
    $("down").setAttribute("aria-label", count > 0 ? `Go to the end, ${count} new` : "Go to the end");
  }

  // A message is seen once its end has been in view; so are the seqs after it that have no row.
  #markSeen() {
    const nodes = nodesOf().filter((node) => node.dataset.seq !== undefined);
    const end = $("scroll").getBoundingClientRect().bottom + 1;
    let [low, high] = [0, nodes.length]; // nodes below low are seen
    while (low < high) {
      const middle = (low + high) >> 1;
      if (nodes[middle].getBoundingClientRect().bottom <= end) low = middle + 1;
      else high = middle;
    }
    const newest = this.#client.messages(this.#key, this.#shown + 1).findLast(({ seq }) => seq !== null)?.seq ?? 0;
    const lastShown = Number(nodes.at(-1)?.dataset.seq ?? 0);
    if (low < nodes.length) {
      if (low > 0) this.#client.markRead(this.#key, Number(nodes[low].dataset.seq) - 1);
    } else if (lastShown === newest) this.#client.markRead(this.#key);
    else this.#client.markRead(this.#key, lastShown);
  }

  // ---- nodes ----

  #newNode({ kind, row }) {
    if (kind === "day") return element("div", "day", [element("span")]);
    if (kind === "new") return element("div", "new-line", [element("span", "", ["New messages"])]);
    const node = element("div", "message", [
      worded("div", "sender"),
      button("quote", "", () => this.#hooks.quote(this.#rows.get(node))),
      element("div", "body", [worded("div", "text"), element("div", "meta", [element("span", "edited"), element("time"), newDelivery()])]),
      element("div", "revision"),
      element("div", "failure"),
      button("more", "⋯", ({ currentTarget }) => this.#hooks.menu(currentTarget, () => this.#rows.get(node))),
    ]);
    node.querySelector(".quote").append(worded("span", "quoted-sender"), worded("span", "quoted-text"));
    node.querySelector(".more").setAttribute("aria-haspopup", "true");
    node.querySelector(".more").setAttribute("aria-expanded", "false");
    if (row.senderId !== undefined) node.querySelector(".sender").dataset.hue = hueOf(row.senderId, HUES);
    return node;
  }

  #fill(node, { kind, words, row, follows }, { kind: where, closed }) {
    if (kind === "day") setText(node.firstChild, words);
    if (kind !== "row") return;
    const look = `${follows} ${where} ${closed}`;
    if (this.#rows.get(node) === row && this.#looks.get(node) === look) return; // a row is the same object until it changes
    this.#rows.set(node, row);
    this.#looks.set(node, look);
    this.#fillRow(node, row, { follows, where, again: closed === null || closed === "failed" });
  }

  #fillRow(node, row, { follows, where, again }) {
    const [sender, quote, body, revision, failure, more] = node.children;
    const [text, meta] = body.children;
    const [edited, time, delivery] = meta.children;
    const event = row.kind === "event";
    const central = isCentral(row);
    const ownWords = isOwnWords(row);
    const big = ownWords && row.quote === null && isBigEmoji(row.text);
    const flags = { mine: row.mine && !central, event, system: row.kind === "system", "stand-in": !ownWords, follows, big, marked: node.classList.contains("marked") };
    node.className = ["message", ...Object.keys(flags).filter((name) => flags[name])].join(" ");
    setData(node, "seq", row.seq);
    setData(node, "clientMsgId", row.clientMsgId);
    setData(node, "state", row.state);
    setData(node, "receipt", row.receipt);
    setData(node, "recalled", row.recalled ? "" : null);
    setParts(sender, central ? [] : [{ name: row.senderId ?? "" }]);
    const isSeen = !row.mine && !follows && where === "group";
    sender.classList.toggle("visually-hidden", !isSeen); // the side shows it to the eye
    fillQuote(quote, row.quote, this.#client.userId);
    if (ownWords) fillText(text, row.text);
    else setParts(text, bodyOf(row, this.#client.userId));
    this.#fillRevision(revision, row);
    this.#fillFailure(failure, row, again);
    setTime(time, row.time, clockWords(row.time), row.seq === null ? "" : `Message ${row.seq}, `);
    setText(edited, row.edited ? "edited" : "");
    fillDelivery(delivery, row);
    more.hidden = central || row.recalled || row.state === "failed";
    more.setAttribute("aria-label", plain(said`Actions on the message of ${row.mine ? "yourself" : { name: row.senderId ?? "" }}, ${clockWords(row.time)}`));
  }

  // The state of a recall or an edit that the message does not show yet.
  #fillRevision(node, { revision, canEdit }) {
    setData(node, "revision", revision?.state);
    fillOnce(node, JSON.stringify([revision, canEdit]), () => (revision ? this.#revisionNodes(node, revision, canEdit) : []));
  }

  #revisionNodes(node, { clientMsgId, action, state, text, error }, canEdit) {
    if (state !== "failed") return [action === "edit" ? "saving …" : "recalling …"];
    const why = whyWords(error, action);
    const words = worded("span", "", action === "edit" ? said`Your change to “${{ text: cut(text ?? "", QUOTE_CHARACTERS) }}” was not saved: ${why}.` : [`Not recalled: ${why}.`]);
    words.title = technical(error);
    const editAgain = () => {
      this.#client.discard(clientMsgId);
      this.#hooks.editAgain(this.#rows.get(node.parentNode), text);
    };
    return [
      words,
      ...(action === "edit" && canEdit ? [button("again", "Edit again", editAgain)] : []),
      ...(action === "edit" && text ? [button("copy", "Copy", () => this.#hooks.copy(text))] : []),
      button("dismiss", "Dismiss", leaving(() => this.#client.discard(clientMsgId))),
    ];
  }

  #fillFailure(node, row, canSend) {
    const { error, clientMsgId, text, state } = row;
    const failure = failureOf(row);
    fillOnce(node, JSON.stringify([failure, error, canSend]), () => {
      if (failure === null) return [];
      const words = element("span", "", [failure.words]);
      words.title = error ? technical(error) : "";
      return [
        words,
        ...(canSend && failure.again ? [button("retry", "Send again", leaving(() => this.#hooks.retry(clientMsgId)))] : []),
        ...(state === "failed" && text ? [button("copy", "Copy", () => this.#hooks.copy(text))] : []), // a failed message has no menu
        ...(failure.aside ? [button("remove", "Remove", leaving(() => this.#client.discard(clientMsgId)))] : []),
      ];
    });
  }
}

// For a button that goes when it is clicked: the focus goes to where it was.
function leaving(act) {
  return () => {
    act();
    $("scroll").focus({ preventScroll: true });
  };
}

// A title for developers.
function technical({ code, message }) {
  return `${code}: ${message}`;
}

function newDelivery() {
  const mark = element("span", "mark");
  mark.ariaHidden = "true";
  return element("span", "delivery", [mark, element("span", "")]);
}

function fillDelivery(node, row) {
  const { mark, words } = deliveryOf(row);
  const [eye, ear] = node.children;
  setText(eye, mark);
  setText(ear, words);
  ear.className = mark === "" ? "" : "visually-hidden";
  node.hidden = words === "";
  node.title = row.readBy.length > 0 && row.audience > 1 ? plain(said`Read by ${listOf(row.readBy.map((name) => ({ name })))}`) : mark && words;
}

function fillQuote(node, quote, me) {
  node.hidden = quote === null;
  if (quote === null) return;
  const [sender, text] = node.children;
  const there = quote.senderId !== null;
  const who = !there ? [] : quote.senderId === me ? ["You"] : [{ name: quote.senderId }];
  const line = there ? lineOf(quote, me, QUOTE_CHARACTERS) : ["An earlier message"];
  setParts(sender, who);
  setParts(text, line);
  node.setAttribute("aria-label", plain(said`In reply to ${there ? said`${who}: ` : ""}${line}. Go to that message`));
}

// A person's text, with its links.
function fillText(node, text) {
  fillOnce(node, `text ${text}`, () => partsOf(text).map((part) => (typeof part === "string" ? part : linkTo(part))));
}

function linkTo({ text, href }) {
  const link = element("a", "", [text]);
  link.href = href;
  link.target = "_blank";
  link.rel = "noopener noreferrer";
  link.dir = "ltr"; // the text around it cannot make it look like another one
  link.title = href; // with the real name of the host
  return link;
}

function nodeOf(seq) {
  return $("messages").querySelector(`[data-seq="${Number(seq)}"]`);
}

function nodesOf() {
  return [...$("messages").querySelectorAll(":scope > .message")];
}

function topOf(node) {
  return node.getBoundingClientRect().top;
}

function isAttended() {
  return !document.hidden && document.hasFocus();
}

function scrollToTheEnd() {
  $("scroll").scrollTop = $("scroll").scrollHeight;
}

function isNearTheEnd() {
  const { scrollHeight, scrollTop, clientHeight } = $("scroll");
  return scrollHeight - scrollTop - clientHeight < NEAR_THE_END_PX;
}
