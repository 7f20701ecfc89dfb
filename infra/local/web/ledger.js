// What one device holds of one conversation: a gapless run of entries from the start up to
// maxContiguousSeq, and a bounded buffer of entries that arrived early. Pure: no I/O, no time.

const BUFFER_LIMIT = 500;

export class Ledger {
  /** The shown entries in seq order: replaced where an event revises them, otherwise only appended to. */
  messages;
  /** Every seq up to here is either in messages or known not to be ours to see. */
  maxContiguousSeq;
  /** The highest seq that anyone has told us was committed. */
  maxSeenSeq;

  #early = new Map();
  #earlyLimit;

  constructor(conversationId, { maxContiguousSeq = 0, messages = [], earlyLimit = BUFFER_LIMIT } = {}) {
    this.conversationId = conversationId;
    this.maxContiguousSeq = maxContiguousSeq;
    this.maxSeenSeq = maxContiguousSeq;
    this.#earlyLimit = earlyLimit;
    this.messages = bySeq(messages);
  }

  /** True while something committed has not arrived yet: a pull is due. */
  get hasGap() {
    return this.maxSeenSeq > this.maxContiguousSeq;
  }

  /** How many entries wait for an earlier one. */
  get earlyCount() {
    return this.#early.size;
  }

  /** Takes note that seq is committed. */
  see(seq) {
    if (Number.isSafeInteger(seq) && seq > this.maxSeenSeq) this.maxSeenSeq = seq;
  }

  /**
   * Takes pushed entries, in any order and with repeats. Returns the entries that are new or changed
   * in messages.
   */
  push(messages, committedMaxSeq) {
    this.see(committedMaxSeq);
    for (const message of messages) {
      this.see(message.seq);
      if (message.seq > this.maxContiguousSeq) this.#early.set(message.seq, message);
    }
    const changed = this.#drain();
    this.#trim();
    return changed;
  }

  /**
   * Takes a sync page that was asked for from maxContiguousSeq, or from a value it had before. The
   * page is the authority on its range: a seq up to nextSeq that it lacks is not ours to see, whatever
   * a push said. Returns the entries that are new or changed in messages.
   */
  page({ messages, nextSeq, committedMaxSeq }) {
    const from = this.maxContiguousSeq;
    const changed = [];
    for (const message of bySeq(messages)) {
      if (message.seq > from && message.seq <= nextSeq) changed.push(...this.#admit(message));
    }
    this.maxContiguousSeq = Math.max(from, nextSeq);
    for (const seq of this.#early.keys()) {
      if (seq <= this.maxContiguousSeq) this.#early.delete(seq);
    }
    this.see(nextSeq);
    this.see(committedMaxSeq);
    return changed.concat(this.#drain());
  }

  /**
   * The server says there is no more, in answer to a question asked when maxSeenSeq was seenWhenAsked.
   * A higher number heard before the question was then not for us (such as the head of a group that
   * we left), and waiting for it would never end. Held entries prove the opposite and are kept.
   */
  settle(seenWhenAsked) {
    if (this.maxSeenSeq === seenWhenAsked && this.#early.size === 0) this.maxSeenSeq = this.maxContiguousSeq;
  }

  #drain() {
    const changed = [];
    for (;;) {
      const message = this.#early.get(this.maxContiguousSeq + 1);
      if (!message) return changed;
      this.#early.delete(message.seq);
      this.maxContiguousSeq = message.seq;
      changed.push(...this.#admit(message));
    }
  }

  // The highest entries go first: they are the last that could be shown, and a pull brings them again.
  #trim() {
    const excess = this.#early.size - this.#earlyLimit;
    if (excess <= 0) return;
    for (const seq of [...this.#early.keys()].sort((a, b) => b - a).slice(0, excess)) this.#early.delete(seq);
  }

  #admit(message) {
    this.messages.push(message);
    const index = this.#indexOf(message.event?.targetSeq);
    const target = revise(this.messages[index], message);
    if (!target) return [message];
    this.messages[index] = target;
    return [message, target];
  }

  #indexOf(seq) {
    let low = 0;
    let high = this.messages.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (this.messages[middle].seq === seq) return middle;
      if (this.messages[middle].seq < seq) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  }
}

// The target as the event leaves it, or null when nothing changes. The target may already carry the
// revision, because sync returns entries as they are now: versions decide, and a recall is final.
function revise(target, { event, text, data }) {
  if (!target || (event.targetMessageId && event.targetMessageId !== target.messageId)) return null;
  if (target.status === "recalled") return null;
  if (event.kind === "recall") return { ...target, status: "recalled", text: null, data: null };
  if (event.kind === "edit" && event.version > target.version) return { ...target, text, data, version: event.version };
  return null;
}

function bySeq(messages) {
  return [...messages].sort((a, b) => a.seq - b.seq);
}
