// Applies the entries that come, pushed, pulled or as an answer: the ledger puts them in order, and what they tell of
// the conversation, of the outbox and of what was lost follows.

import { SYSTEM, apply } from "./facts.js";
import { identityOf } from "./lost.js";
import { kindOf } from "./model.js";

/**
 * @import { Parts } from "./engine.js"
 * @import { Ledger } from "./ledger.js"
 * @import { ConversationKey, Message } from "./types.js"
 */

export class Entries {
  #parts;

  /** @param {Parts} parts */
  constructor(parts) {
    this.#parts = parts;
  }

  /** @param {{conversationId: string, messages?: Message[], committedMaxSeq: number}} update of a push or a notify */
  pushed({ conversationId, messages = [], committedMaxSeq }) {
    const { model, pulls, changes, timing } = this.#parts;
    const ledger = model.ledger(conversationId);
    changes.notePush(conversationId);
    this.take(ledger, messages, () => ledger.push(messages, committedMaxSeq));
    if (model.ledgers.get(conversationId) !== ledger) return; // all is begun anew
    pulls.mind(ledger, timing.gapWaitMs);
    changes.getToKnow(conversationId);
  }

  /**
   * Lets a ledger that holds nothing begin with its end: nobody waits for ten thousand entries to read the last ten.
   * @param {Ledger} ledger
   */
  startLate(ledger) {
    const { model, limits, rosters } = this.#parts;
    const { clearedSeq } = model.factsOf(ledger.conversationId);
    if (ledger.maxContiguousSeq > 0 || ledger.maxSeenSeq - clearedSeq <= limits.late) return;
    ledger.startAfter(Math.max(ledger.maxSeenSeq - limits.end, clearedSeq));
    rosters.invalidate(ledger.conversationId); // an event that is passed over may have changed it
  }

  /**
   * @param {Ledger} ledger @param {any} page
   * @param {number} held how far the ledger was complete when the page was asked for
   */
  pulled(ledger, page, held) {
    const { model, startOver, rosters, changed } = this.#parts;
    if (page.committedMaxSeq < held) return startOver.begin();
    if (page.firstSeq > ledger.maxContiguousSeq + 1 && kindOf(ledger.conversationId) === "group") {
      model.factsOf(ledger.conversationId).recheckSeq = ledger.maxContiguousSeq; // we were away, and were not told of recalls
      ledger.absences++;
    }
    if (page.firstSeq !== undefined) rosters.invalidate(ledger.conversationId); // by an entry that is hidden from us
    this.take(ledger, page.messages, () => ledger.page(page));
    queueMicrotask(changed); // after the last page the ledger settles
  }

  /**
   * Takes a history page of what is held from before an absence.
   * @param {Ledger} ledger @param {{messages: Message[], nextBeforeSeq: number, hasMore: boolean}} page
   */
  pulledAgain(ledger, { messages, nextBeforeSeq, hasMore }) {
    const { model, startOver, writer, changed } = this.#parts;
    if (startOver.isReplaced(ledger, messages)) return startOver.begin();
    model.factsOf(ledger.conversationId).recheckSeq = hasMore ? nextBeforeSeq - 1 : 0;
    void writer.commit({ messages: ledger.again(messages), conversations: [model.record(ledger)] });
    changed();
  }

  /**
   * Loads a page of what is before the first entry held. Rejects with a RequestError.
   * @param {ConversationKey} key
   */
  async loadEarlier(key) {
    const { model, session, limits, writer, changed } = this.#parts;
    const ledger = model.ledgers.get(model.currentKey(key));
    if (!ledger || !model.hasEarlier(ledger)) return;
    await session.reached();
    const { conversationId, absences } = ledger;
    const beforeSeq = ledger.baseSeq + 1;
    const page = await session.ask("history", { conversationId, beforeSeq, limit: limits.pull });
    if (model.ledgers.get(conversationId) !== ledger || ledger.absences !== absences) return; // it may be from before that
    const messages = ledger.earlier(page, beforeSeq);
    void writer.commit({ messages, conversations: [model.record(ledger)] });
    changed();
  }

  /**
   * Lets a ledger take something in, and stores and shows the outcome. arrived may hold more than became showable: an
   * own message above a gap is committed all the same and need not be sent again.
   * @param {Ledger} ledger @param {Message[]} arrived
   * @param {() => Message[]} takeIn returns the messages that are new or changed
   */
  take(ledger, arrived, takeIn) {
    const { model, userId, outbox, answers, startOver, writer, positions, changed } = this.#parts;
    if (startOver.isReplaced(ledger, arrived)) return startOver.begin();
    const { conversationId, maxContiguousSeq: before } = ledger;
    const fresh = takeIn();
    this.#learn(conversationId, fresh);
    if (fresh.length > 0 || ledger.maxContiguousSeq > before) void writer.commit({ messages: fresh, conversations: [model.record(ledger)] });
    for (const { senderId, clientMsgId, seq, messageId, serverTime } of arrived) {
      const entry = senderId === userId ? outbox.get(clientMsgId) : undefined;
      if (entry) answers.sent(entry, { conversationId, seq, messageId, serverTime });
    }
    answers.forgetShown(ledger);
    if (model.lost.length + model.doubtful.length > 0) {
      const there = new Set(fresh.map(identityOf));
      startOver.drop(({ message }) => there.has(identityOf(message))); // it was sent again
    }
    positions.note(conversationId);
    changed();
    outbox.pump();
    this.#tellNews(ledger, fresh.filter(({ seq }) => seq > before));
  }

  // To a device that is new or starts over everything is, so nothing is told.
  /** @param {Ledger} ledger @param {Message[]} fresh */
  #tellNews({ conversationId }, fresh) {
    const { model, userId, news } = this.#parts;
    const { readSeq, clearedSeq } = model.factsOf(conversationId);
    const isNews = (/** @type {Message} */ { seq, senderId, messageType, status }) =>
      seq > Math.max(readSeq, clearedSeq) && senderId !== userId && messageType !== "event" && status !== "recalled";
    const seqs = fresh.filter(isNews).map(({ seq }) => seq);
    if (seqs.length > 0 && model.syncCursor !== null) news(conversationId, seqs);
  }

  // Takes in what entries tell of the conversation itself.
  /** @param {string} conversationId @param {Message[]} entries */
  #learn(conversationId, entries) {
    const { model, userId, rosters, startOver, changes, onScreen } = this.#parts;
    const facts = model.factsOf(conversationId);
    const isSingle = kindOf(conversationId) === "single";
    for (const entry of entries) {
      const { senderId, event, seq } = entry;
      if (isSingle && facts.peer === null && senderId && senderId !== userId && isOfPerson(entry)) model.setPeer(conversationId, senderId);
      const { roster, joined } = apply(facts, entry, userId);
      if (event?.kind === "erase") startOver.drop(({ message }) => message.conversationId === conversationId && message.senderId === event.erased);
      if (roster) rosters.invalidate(conversationId);
      if (joined) void changes.catchUp();
      // By the other one's first entry in a single conversation: only now are we told how far they are with ours.
      const isAnswered = () => model.ledger(conversationId).messages.find((message) => message.senderId !== userId)?.seq === seq;
      if ((roster || (isSingle && isAnswered())) && onScreen.has(conversationId)) void onScreen.lookUp();
    }
  }
}

// An event may be of anyone, the product or an operator: who the other one is, it does not tell.
/** @param {Message} message */
function isOfPerson({ senderId, event, messageType }) {
  return senderId !== SYSTEM && messageType !== "system" && messageType !== "event" && !event;
}
