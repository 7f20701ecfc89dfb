// Begins anew when the server was restored or set up anew, and so has other messages than this device. What the user
// wrote stays, whether it is answered or, see lost.js, not there any more.

import { recordOf } from "./outbox.js";

/**
 * @import { Parts } from "./engine.js"
 * @import { Ledger } from "./ledger.js"
 * @import { ConversationKey, Lost, StoreChange } from "./types.js"
 */

export class StartOver {
  /** Another object once all is begun anew: what belongs to an earlier one is void. */
  world = {};
  #parts;

  /** @param {Parts} parts */
  constructor(parts) {
    this.#parts = parts;
  }

  /**
   * Whether the server knows less of a conversation than we held when we asked, or something else.
   * @param {{conversations: any[], heads?: any[], full: boolean}} changes
   * @param {Map<string, number>} held by conversationId, up to which seq
   */
  isContradicted({ conversations, heads = [], full }, held) {
    const { ledgers } = this.#parts.model;
    const listed = new Set(conversations.map(({ conversationId }) => conversationId));
    const missing = full && [...held].some(([conversationId, seq]) => seq > 0 && !listed.has(conversationId));
    return (
      missing ||
      heads.some(({ conversationId, committedMaxSeq }) => committedMaxSeq < (held.get(conversationId) ?? 0)) ||
      conversations.some(({ conversationId, lastSeq, lastMessage }) => {
        const same = lastMessage && ledgers.get(conversationId)?.get(lastMessage.seq);
        return lastSeq < (held.get(conversationId) ?? 0) || (same && same.serverTime !== lastMessage.serverTime);
      })
    );
  }

  /**
   * Whether one of these entries of the server is held here as another one.
   * @param {Ledger | undefined} ledger @param {{seq: number, messageId: string}[]} entries
   */
  isReplaced(ledger, entries) {
    return entries.some(({ seq, messageId }) => (ledger?.get(seq)?.messageId ?? messageId) !== messageId);
  }

  /** Forgets what is held, and asks for all of it. */
  begin() {
    const { model, outbox, lost, session, pulls, positions, writer, changes, log, changed } = this.#parts;
    log("the server's conversations are not those held here any more: starting over");
    this.world = {};
    lost.doubt(outbox.all());
    model.status = { ...model.status, inDoubt: true };
    for (const entry of outbox.all()) {
      const peer = model.facts.get(entry.address.conversationId ?? "")?.peer;
      if (entry.state === "sent") outbox.delete(entry.clientMsgId);
      else if (entry.action === "send" && peer) entry.address = { to: peer }; // it may have to be made anew
    }
    model.forget();
    if (session.isOpen) {
      pulls.start();
      positions.start();
    }
    void writer.commit({ forget: true, outboxPut: outbox.all().map(recordOf), lost: lost.all() });
    changed();
    void changes.catchUp();
  }

  /**
   * Has what the server turned out to have lost shown from here on. Returns what is to be stored.
   * @returns {StoreChange}
   */
  settle() {
    const { model, lost, changed } = this.#parts;
    if (!model.status.inDoubt) return {};
    model.status = { ...model.status, inDoubt: false };
    const again = lost.settle();
    changed();
    return { lost: lost.all(), outboxPut: again.map(recordOf) };
  }

  /**
   * Puts what the server has lost of a conversation aside.
   * @param {ConversationKey} key
   */
  discard(key) {
    const { model } = this.#parts;
    const current = model.currentKey(key);
    this.drop((lost) => model.keyOfLost(lost) === current);
  }

  /**
   * Puts lost messages aside for good.
   * @param {(lost: Lost) => boolean} isAside
   */
  drop(isAside) {
    const { lost, writer, changed } = this.#parts;
    if (!lost.drop(isAside)) return;
    void writer.commit({ lost: lost.all() });
    changed();
  }
}
