// Where a message is written: a new one, an answer to another, or another text for an own one. What is not sent yet is
// kept per conversation.

import { MAX_TEXT_RUNES, countRunes } from "./client/index.js";
import { $, isTouch, setParts, setText } from "./dom.js";
import { closedWords, lineOf, problemWords, said } from "./words.js";

const COUNTER_FROM_RUNES = MAX_TEXT_RUNES - 200;
const QUOTE_CHARACTERS = 120;
const GROWS = CSS.supports("field-sizing", "content"); // by itself, with what is in it
const MAX_ROWS = 6;
const COMPOSING = 229; // the keyCode of a key that an input method takes

const ENDED = {
  recalled: "This message was recalled meanwhile.",
  gone: "The message that you were answering is not there any more.",
  late: "This message cannot be changed any more.",
};

export class Composer {
  #client;
  #onSent;
  #key = null;
  // {mode: "reply" or "edit", row, draft, changed} while one is written; draft is the text that an edit has displaced.
  // {mode: "note", words} says how it ended. Else null.
  #context = null;
  #kept = new Map(); // conversation key → {text, context}

  /** onSent(isEdit) is called after each message and each edit. */
  constructor(client, onSent) {
    this.#client = client;
    this.#onSent = onSent;
    $("text").addEventListener("input", () => this.#typed());
    $("text").addEventListener("keydown", (event) => this.#keyDown(event));
    // Some keyboard drivers send the character as an event of its own, which would start the next message with an empty
    // line.
    $("text").addEventListener("keypress", (event) => isSendKey(event, isTouch()) && event.preventDefault());
    $("context-cancel").addEventListener("click", () => this.#cancel());
    $("send").addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus, and a phone its keyboard
    $("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      if (!$("send").disabled) this.#send();
    });
  }

  /** Goes to another conversation. */
  open(key) {
    if (this.#key !== null) this.#keep(this.#key, { text: $("text").value, context: this.#context?.mode === "note" ? null : this.#context });
    this.#key = key;
    const { text, context } = this.#take(key);
    $("text").value = text;
    this.#context = context;
  }

  #keep(key, { text, context }) {
    this.#take(key);
    if (text !== "" || context !== null) this.#kept.set(key, { text, context });
  }

  // The conversation may have another key by now.
  #take(key) {
    const isSame = (other) => key !== null && this.#client.currentKey(other) === this.#client.currentKey(key);
    const found = [...this.#kept.keys()].find(isSame);
    const kept = this.#kept.get(found) ?? { text: "", context: null };
    this.#kept.delete(found);
    return kept;
  }

  focus() {
    if ($("composer").hidden) $("title").focus();
    else $("text").focus();
  }

  reply(row) {
    this.#setContext({ mode: "reply", row });
    this.draw();
    this.focus();
  }

  /** Lets the user change an own message, beginning with text. */
  edit(row, text) {
    this.#setContext({ mode: "edit", row, changed: false });
    $("text").value = text;
    this.draw();
    this.focus();
  }

  draw() {
    this.#follow();
    const { closed } = this.#client.conversation(this.#key);
    $("composer").hidden = closed !== null;
    $("closed").hidden = closed === null;
    setText($("closed"), closed === null ? "" : closedWords(closed));
    const runes = countRunes($("text").value);
    const over = runes > MAX_TEXT_RUNES;
    setText($("counter"), runes < COUNTER_FROM_RUNES ? "" : `${runes.toLocaleString("en")} / ${MAX_TEXT_RUNES.toLocaleString("en")}`);
    $("counter").classList.toggle("over", over);
    $("text").setAttribute("aria-invalid", over);
    if (!GROWS) $("text").rows = Math.min($("text").value.split("\n").length, MAX_ROWS);
    const outdated = this.#client.detail === "outdated"; // it would be refused
    $("text").disabled = closed !== null;
    $("send").disabled = closed !== null || outdated || over || $("text").value.trim() === "";
    setText($("send"), this.#context?.mode === "edit" ? "Save" : "Send");
    $("composer").dataset.mode = this.#context?.mode ?? "new";
    $("context").hidden = this.#context === null;
    setParts($("context-text"), this.#contextWords());
  }

  #contextWords() {
    if (this.#context === null) return [];
    const { mode, row, words, changed } = this.#context;
    if (mode === "note") return [words];
    const line = lineOf(row, this.#client.userId, QUOTE_CHARACTERS);
    if (mode === "edit") return changed ? said`It was changed on another device meanwhile, to: ${line}` : said`Editing: ${line}`;
    return said`Reply to ${row.mine ? "yourself" : { name: row.senderId }}: ${line}`;
  }

  // The message that is answered or edited may change meanwhile, or go.
  #follow() {
    const context = this.#context;
    if (context === null || context.mode === "note") return;
    const { mode, row } = context;
    const now = this.#client.messages(this.#key).findLast(({ seq, messageId }) => seq === row.seq && messageId === row.messageId);
    if (mode === "reply") {
      if (now) context.row = now;
      else this.#end(ENDED.gone);
    } else if (!now?.canEdit) this.#end(!now || now.recalled || now.revision?.action === "recall" ? ENDED.recalled : ENDED.late);
    else {
      const untouched = $("text").value === row.text;
      if (now.text !== row.text && untouched) $("text").value = now.text;
      context.changed ||= now.text !== row.text && !untouched;
      context.row = now;
    }
  }

  // What the user has written for it is added to what they were writing before.
  #end(words) {
    const { mode, row } = this.#context;
    const written = $("text").value;
    this.#setContext({ mode: "note", words });
    if (mode === "edit" && written !== row.text) $("text").value = joined($("text").value, written);
  }

  // An edit uses the same field: the draft waits until the edit is over.
  #setContext(context) {
    if (this.#context?.mode === "edit") $("text").value = this.#context.draft;
    if (context?.mode === "edit") context.draft = $("text").value;
    this.#context = context;
  }

  #typed() {
    if (this.#context?.mode === "note") this.#context = null;
    this.draw();
  }

  #cancel() {
    this.#setContext(null);
    this.draw();
    this.focus();
  }

  #keyDown(event) {
    if (isComposing(event)) return;
    if (event.key === "Escape" && this.#context) this.#cancel();
    if (!isSendKey(event, isTouch())) return;
    event.preventDefault();
    $("composer").requestSubmit();
  }

  #send() {
    const key = this.#key;
    const text = $("text").value;
    const { mode, row } = this.#context ?? {};
    const isEdit = mode === "edit";
    if (!isEdit) {
      this.#client.send(key, text, { replyTo: mode === "reply" ? row : null }).catch((error) => this.#refused(key, text, error));
      $("text").value = "";
    } else if (text !== row.text) this.#client.edit(key, row, text).catch((error) => this.#refused(key, text, error));
    this.#setContext(null);
    this.#onSent(isEdit);
    this.draw();
    this.focus();
  }

  // It was not put into the outbox, so it is only here.
  #refused(key, text, error) {
    if (this.#key !== null && this.#client.currentKey(this.#key) === this.#client.currentKey(key)) {
      $("text").value = joined(text, $("text").value);
      this.#context ??= { mode: "note", words: `Not sent: ${problemWords(error, "send")}.` };
      this.draw();
    } else {
      const { text: later, context } = this.#take(key);
      this.#keep(key, { text: joined(text, later), context });
    }
  }
}

/** Whether a key sends what is written. On a phone, Enter makes a new line: its keyboard has no other key for it. */
function isSendKey(event, onTouch) {
  if (event.key !== "Enter" || event.shiftKey || event.altKey || isComposing(event)) return false;
  return !onTouch || event.ctrlKey || event.metaKey;
}

// Safari ends the composition first, and then sends the key that ended it.
function isComposing({ isComposing, keyCode }) {
  return isComposing || keyCode === COMPOSING;
}

function joined(...texts) {
  return texts.filter((text) => text.trim() !== "").join("\n");
}
