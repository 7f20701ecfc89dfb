// The messages of the open conversation.

import { $, KeyedList, button, element, setData, setText, setTime } from "./dom.js";
import { bodyOf, deliveryOf, isOwnWords } from "./words.js";

const ROWS_AT_FIRST = 200;
const NEAR_THE_END_PX = 80;
const MARKED_MS = 1_500;

export class MessageList {
  #client;
  #hooks;
  #key = null;
  #shown = ROWS_AT_FIRST;
  #list = new KeyedList($("messages"), () => this.#newNode());
  #rows = new WeakMap(); // node → row

  /** hooks.menu(opener, row), hooks.quote(row) and hooks.editAgain(row) take what the user clicked. */
  constructor(client, hooks) {
    this.#client = client;
    this.#hooks = hooks;
  }

  /** Shows another conversation, from its end. */
  open(key) {
    this.#key = key;
    this.#shown = ROWS_AT_FIRST;
    this.#list.clear();
  }

  draw() {
    const { earlier } = this.#client.conversation(this.#key);
    const atTheEnd = isNearTheEnd();
    const rows = this.#client.messages(this.#key, this.#shown + 1);
    $("earlier").hidden = rows.length <= this.#shown && !earlier;
    this.#list.draw(rows.slice(-this.#shown), rowKey, (node, row) => this.#fill(node, row));
    if (atTheEnd) this.toTheEnd();
  }

  toTheEnd() {
    $("scroll").scrollTop = $("scroll").scrollHeight;
  }

  /** Shows more of what was before, and stays where it was. */
  async showEarlier() {
    const fromTheEnd = $("scroll").scrollHeight - $("scroll").scrollTop;
    this.#shown += ROWS_AT_FIRST;
    if (this.#client.messages(this.#key, this.#shown).length < this.#shown) await this.#client.loadEarlier(this.#key);
    this.draw();
    $("scroll").scrollTop = $("scroll").scrollHeight - fromTheEnd;
    if ($("earlier").hidden) $("scroll").focus();
  }

  /** Goes to the message with this seq; false if it is not there (any more). */
  async jumpTo(seq) {
    const node = () => $("messages").querySelector(`[data-seq="${Number(seq)}"]`);
    while (!node() && !$("earlier").hidden && this.#first() > seq) await this.showEarlier();
    const target = node();
    if (!target) return false;
    target.scrollIntoView({ block: "center" });
    target.classList.add("marked");
    setTimeout(() => target.classList.remove("marked"), MARKED_MS);
    target.querySelector(".more").focus({ preventScroll: true });
    return true;
  }

  #first() {
    return Number($("messages").querySelector("[data-seq]")?.dataset.seq ?? 0);
  }

  #newNode() {
    const node = element("div", "message", [
      element("div", "sender"),
      button("quote", "", () => this.#hooks.quote(this.#rows.get(node))),
      element("div", "text"),
      element("div", "revision"),
      element("div", "meta", [element("span", "seq"), element("time"), element("span", "edited"), newDelivery(), element("span", "failure")]),
      button("more", "⋯", ({ currentTarget }) => this.#hooks.menu(currentTarget, this.#rows.get(node))),
    ]);
    node.querySelector(".quote").append(element("span", "quoted-sender"), element("span", "quoted-text"));
    node.querySelector(".more").setAttribute("aria-haspopup", "true");
    node.querySelector(".more").setAttribute("aria-expanded", "false");
    return node;
  }

  #fill(node, row) {
    this.#rows.set(node, row);
    const [sender, quote, text, revision, meta, more] = node.children;
    const [seq, time, edited, delivery, failure] = meta.children;
    const event = row.kind === "event";
    const central = event || row.kind === "system";
    node.className = ["message", row.mine && !central && "mine", event && "event", row.kind === "system" && "system", !isOwnWords(row) && "stand-in", node.classList.contains("marked") && "marked"]
      .filter(Boolean)
      .join(" ");
    setData(node, "seq", row.seq);
    setData(node, "clientMsgId", row.clientMsgId);
    setData(node, "state", row.state);
    setData(node, "receipt", row.receipt);
    setData(node, "recalled", row.recalled ? "" : null);
    setText(sender, central ? "" : (row.senderId ?? ""));
    sender.className = row.mine ? "sender visually-hidden" : "sender"; // its side says it to the eye
    fillQuote(quote, row.quote, this.#client.userId);
    setText(text, bodyOf(row, this.#client.userId));
    this.#fillRevision(revision, row);
    setText(seq, row.seq === null ? "" : `#${row.seq}`);
    setTime(time, row.time);
    setText(edited, row.edited ? "edited" : "");
    fillDelivery(delivery, row);
    this.#fillFailure(failure, row);
    more.hidden = central || row.seq === null || row.recalled;
    more.setAttribute("aria-label", `Actions on message ${row.seq}`);
  }

  // What became of a recall or an edit that is not seen yet.
  #fillRevision(node, { revision, ...row }) {
    const key = revision ? `${revision.clientMsgId} ${revision.state}` : "";
    setData(node, "revision", revision?.state);
    if (node.dataset.key === key) return;
    node.dataset.key = key;
    node.replaceChildren();
    if (!revision) return;
    const { clientMsgId, action, state, text, error } = revision;
    if (state !== "failed") {
      node.append(action === "edit" ? "saving …" : "recalling …");
      return;
    }
    node.append(element("span", "", [action === "edit" ? `Your edit “${text}” was refused: ${error.message}.` : `Not recalled: ${error.message}.`]));
    if (action === "edit" && !row.recalled) {
      const again = button("again", "Edit again", () => {
        this.#client.discard(clientMsgId);
        this.#hooks.editAgain(row, text);
      });
      node.append(again);
    }
    node.append(button("dismiss", "Dismiss", () => this.#client.discard(clientMsgId)));
  }

  #fillFailure(node, { state, error, clientMsgId }) {
    const text = state === "failed" ? `failed: ${error.message}` : "";
    if (node.dataset.text === text) return;
    node.dataset.text = text;
    node.replaceChildren(text);
    if (text === "") return;
    node.append(
      button("remove", "Remove", () => {
        this.#client.discard(clientMsgId);
        $("text").focus();
      }),
    );
  }
}

// One row keeps its node from "sending" to its seq; clientMsgId is unique per sender only.
function rowKey({ clientMsgId, senderId, seq }) {
  return clientMsgId ? `${senderId}/${clientMsgId}` : `#${seq}`;
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
  node.title = row.readBy.length > 0 && row.audience > 1 ? `Read by ${row.readBy.join(", ")}` : mark && words;
}

function fillQuote(node, quote, me) {
  node.hidden = quote === null;
  if (quote === null) return;
  const [sender, text] = node.children;
  const there = quote.senderId !== null;
  setText(sender, quote.senderId === me ? "You" : (quote.senderId ?? ""));
  setText(text, there ? bodyOf(quote, me).slice(0, 200) : `Message #${quote.seq}`);
  node.setAttribute("aria-label", `In reply to ${there ? `${sender.textContent}: ` : ""}${text.textContent}. Go to that message`);
}

function isNearTheEnd() {
  const { scrollHeight, scrollTop, clientHeight } = $("scroll");
  return scrollHeight - scrollTop - clientHeight < NEAR_THE_END_PX;
}
