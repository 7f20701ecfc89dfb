// Where a message is written: a new one, an answer to another, or another text for an own one. What is
// not sent yet is kept per conversation.

import { MAX_TEXT_RUNES, countRunes } from "./client/index.js";
import { $, setText } from "./dom.js";
import { bodyOf, closedWords } from "./words.js";

export class Composer {
  #client;
  #onSent;
  #key = null;
  #context = null; // {mode: "reply" or "edit", row}, or null
  #drafts = new Map(); // conversation key → text

  /** onSent is called after each message. */
  constructor(client, onSent) {
    this.#client = client;
    this.#onSent = onSent;
    $("text").addEventListener("input", () => this.draw());
    $("text").addEventListener("keydown", (event) => this.#keyDown(event));
    // Some drivers of keyboards send the character as an event of its own, which would start the next
    // message with an empty line.
    $("text").addEventListener("keypress", (event) => isSendKey(event) && event.preventDefault());
    $("context-cancel").addEventListener("click", () => this.#cancel());
    $("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      if (!$("send").disabled) this.#send();
    });
  }

  /** Goes to another conversation. */
  open(key) {
    this.#setContext(null);
    if (this.#key !== null) this.#drafts.set(this.#key, $("text").value);
    this.#key = key;
    $("text").value = this.#drafts.get(key) ?? "";
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
    this.#setContext({ mode: "edit", row });
    $("text").value = text;
    this.draw();
    this.focus();
  }

  draw() {
    const { closed } = this.#client.conversation(this.#key);
    $("composer").hidden = closed !== null;
    $("closed").hidden = closed === null;
    setText($("closed"), closed === null ? "" : closedWords(closed));
    const runes = countRunes($("text").value);
    const over = runes > MAX_TEXT_RUNES;
    setText($("counter"), `${runes.toLocaleString("en")} / ${MAX_TEXT_RUNES.toLocaleString("en")}`);
    $("counter").classList.toggle("over", over);
    $("text").setAttribute("aria-invalid", over);
    const outdated = this.#client.detail === "outdated"; // it would not be taken
    $("text").disabled = closed !== null;
    $("send").disabled = closed !== null || outdated || over || $("text").value.trim() === "";
    setText($("send"), this.#context?.mode === "edit" ? "Save" : "Send");
    $("composer").dataset.mode = this.#context?.mode ?? "new";
    $("context").hidden = this.#context === null;
    setText($("context-text"), this.#contextWords());
  }

  #contextWords() {
    if (this.#context === null) return "";
    const { mode, row } = this.#context;
    if (mode === "edit") return `Editing #${row.seq}`;
    return `Reply to ${row.mine ? "yourself" : row.senderId}: ${bodyOf(row, this.#client.userId).slice(0, 120)}`;
  }

  // An edit uses the same field: the draft waits until it is over.
  #setContext(context) {
    if (this.#context?.mode === "edit") $("text").value = this.#drafts.get(this.#key) ?? "";
    if (context?.mode === "edit") this.#drafts.set(this.#key, $("text").value);
    this.#context = context;
  }

  #cancel() {
    this.#setContext(null);
    this.draw();
    this.focus();
  }

  #keyDown(event) {
    if (event.key === "Escape" && this.#context) this.#cancel();
    if (!isSendKey(event)) return;
    event.preventDefault();
    $("composer").requestSubmit();
  }

  #send() {
    const text = $("text").value;
    const { mode, row } = this.#context ?? {};
    if (mode !== "edit") {
      this.#client.send(this.#key, text, { replyTo: row });
      $("text").value = "";
    } else if (text !== row.text) this.#client.edit(this.#key, row, text);
    this.#setContext(null);
    this.#onSent();
    this.focus();
  }
}

function isSendKey(event) {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing;
}
