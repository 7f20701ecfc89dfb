// The wire protocol, version 1, in memory, with a hook at each place where the real world fails.
// Frames of one socket are handled concurrently, as API Gateway does.

import { may } from "../rights.js";
import { bytesOf, content, read, refusal } from "./requests.js";

/** For how long who has left by itself is not added again by members. */
const REJOIN_MS = 30 * 24 * 3_600_000;

export class FakeServer {
  /** Each request that was handled: {userId, deviceId, frame}. */
  requests = [];
  /** conversationId → {head, entries, first, holes, members, lines}; first are edited entries as they were sent, holes are seqs that retention removed. */
  conversations = new Map();

  // Hooks; each may be replaced.
  /** How long a frame travels, in ms. */
  latency = () => 5;
  /** An error to answer instead of handling the request, or undefined. */
  refuse = (frame, socket) => undefined;
  /** What becomes of an answer after the request was carried out: "lose", "cut", a frame to send in its stead, or undefined. */
  answer = (frame, socket) => undefined;
  /** How often a push frame is sent (0 loses it). */
  pushes = (frame, socket) => 1;
  /** Whether a socket may open. */
  admit = (userId, deviceId) => true;
  /** The most entries in one page, whatever the limit asks for. */
  pageSize = 100;
  /** The most lines in an answer to changes or conversations, and in a page of members or receipts, where the protocol has more. */
  listSize = Infinity;
  /** Cursors below this are too old to tell what changed. */
  floor = 0;
  /** Conversations with more members than this push {committedMaxSeq} only, as crowds with much news do. */
  notifyAbove = 1000;
  /** Conversations with more members than this are not noted with each message, and push no receipts. */
  inboxGroupMax = 20;
  /** Whom an answer to changes names as the user, or undefined. */
  names = (userId) => userId;
  /** How long after its sending a message can be changed by its sender, in ms. */
  windowMs = Infinity;

  #clock;
  #sockets = new Set();
  #results = new Map(); // senderId/clientMsgId → {content, result}
  #syncHeads = new Map(); // userId → {v, at}
  #nextGroup = 1;
  #world = 1;

  constructor(clock) {
    this.#clock = clock;
    const server = this;
    /** The WebSocket class that connects here. */
    this.WebSocket = class extends FakeSocket {
      constructor(url, protocols) {
        super();
        server.#dial(this, url, protocols);
      }
    };
  }

  get sockets() {
    return [...this.#sockets];
  }

  count(action) {
    return this.asked(action).length;
  }

  /** The frames of an action, oldest first. */
  asked(action) {
    const isMeant = ({ frame }) => frame.action === action || (action === "ack" && frame.action === "tell");
    return this.requests.filter(isMeant).map(({ frame }) => frame);
  }

  entries(conversationId) {
    const { entries, holes } = this.conversations.get(conversationId);
    return entries.filter((entry) => !holes.has(entry.seq));
  }

  /** What a user may read of a conversation, by now. */
  visible(userId, conversationId) {
    const conversation = this.conversations.get(conversationId);
    return this.entries(conversationId).filter(({ seq }) => sees(conversation, userId, seq)).map(({ seq }) => shown(conversation, userId, seq));
  }

  /** A user's line of a conversation, by now. */
  line(userId, conversationId) {
    return lineOf(this.conversations.get(conversationId), userId);
  }

  /** Makes a group, without an entry of its own; the first member owns it. */
  group(id, members, visibility = "all") {
    return this.#conversation(`group:${id}`, "group", members, { title: id, owner: members[0], visibility }).head.conversationId;
  }

  /** Makes a system conversation. */
  system(key, members, title) {
    return this.#conversation(`system:${key}`, "system", members, { title }).head.conversationId;
  }

  /** Opens a single conversation as the product does, with an event of this sender. */
  between(userIds, senderId = "system") {
    const conversation = this.#single(...userIds);
    return this.#append(conversation, { senderId, clientMsgId: `opened-${Math.random()}` }, { messageType: "event", event: { kind: "members", added: userIds } });
  }

  /** Commits a message as another client's send does, and gives its entry. */
  post(senderId, address, text, extra = {}) {
    const conversation = address.to === undefined ? this.conversations.get(address.conversationId) : this.#single(senderId, address.to);
    const entry = this.#append(conversation, { senderId, senderDeviceId: "other", clientMsgId: `other-${Math.random()}`, text }, extra);
    return entry;
  }

  /** Carries a request out as another client's, and gives its result or throws its error. */
  act(userId, action, fields) {
    return this.#actions[action]({ userId, deviceId: "other" }, { clientMsgId: `other-${Math.random()}`, ...fields });
  }

  /** Takes the content out of all that a user has sent, as the operator's tool does. */
  erase(userId) {
    for (const conversation of this.conversations.values()) {
      if (!conversation.entries.some(({ senderId }) => senderId === userId)) continue;
      const event = { kind: "erase", erased: userId };
      const { seq } = this.#append(conversation, { senderId: "system", clientMsgId: `erase-${Math.random()}` }, { messageType: "event", event });
      for (const { senderId, senderDeviceId, clientTime, text, data, event, version, ...rest } of conversation.entries.slice(0, seq - 1)) {
        if (senderId !== userId || (!text && !data && !senderDeviceId && !clientTime)) continue;
        const isContent = !event || event.kind === "edit";
        const blank = { ...rest, senderId, version, ...(event && { event }) };
        conversation.entries[rest.seq - 1] = isContent ? { ...blank, status: "recalled", version: version + 1 } : blank;
      }
    }
  }

  /** All that it knows, by now, for restore. */
  backup() {
    return structuredClone({ conversations: this.conversations, results: this.#results, syncHeads: this.#syncHeads });
  }

  /** Goes back to what it knew, without a word to who is connected. */
  restore(backup) {
    this.#world++;
    const { conversations, results, syncHeads } = structuredClone(backup);
    this.conversations = conversations;
    this.#results = results;
    this.#syncHeads = syncHeads;
  }

  /** Forgets everything, as a server that is begun anew. */
  wipe() {
    this.#world++;
    this.conversations.clear();
    this.#results.clear();
    this.#syncHeads.clear();
  }

  /** Cuts every connection, as a network that fails does. */
  cutAll() {
    for (const socket of this.sockets) this.cut(socket);
  }

  cut(socket) {
    if (this.#sockets.delete(socket)) socket.closed();
  }

  say(socket, frame) {
    const text = JSON.stringify(frame);
    this.#later(() => this.#sockets.has(socket) && socket.onmessage?.({ data: text }));
  }

  #later(fn) {
    this.#clock.setTimeout(fn, this.latency());
  }

  #dial(socket, url, protocols) {
    const deviceId = new URL(url).searchParams.get("device");
    const userId = subjectOf(protocols[1].replace("bearer.", ""));
    Object.assign(socket, { server: this, userId, deviceId, url, protocols });
    this.#later(() => {
      if (socket.gone) return;
      if (protocols[0] !== "inorder.v1" || !deviceId || deviceId.length > 64 || !userId || !this.admit(userId, deviceId)) return socket.closed();
      for (const other of this.sockets) {
        if (other.userId !== userId || other.deviceId !== deviceId) continue;
        this.say(other, { type: "goodbye", reason: "replaced" });
        this.#later(() => this.cut(other));
      }
      this.#sockets.add(socket);
      socket.onopen?.({});
    });
  }

  #sending = null; // whose request is carried out

  receive(socket, data) {
    if (!this.#sockets.has(socket)) return;
    this.#later(() => {
      const { frame, head, error } = read(data);
      if (error) return this.say(socket, { type: "error", ...head, error });
      this.requests.push({ userId: socket.userId, deviceId: socket.deviceId, frame });
      this.#sending = frame.action === "send" ? socket : null;
      const reply = this.#reply(socket, frame);
      this.#sending = null;
      const fate = this.answer(frame, socket);
      if (fate === "lose" || frame.action === "tell") return;
      if (fate === "cut") return this.cut(socket);
      this.say(socket, fate ?? reply);
    });
  }

  left(socket) {
    this.#sockets.delete(socket);
  }

  #reply(socket, frame) {
    const { action, id } = frame;
    try {
      const refusal = this.refuse(frame, socket);
      if (refusal) throw refusal;
      return { type: "reply", id, action, result: this.#actions[action](socket, frame) };
    } catch (error) {
      if (!error.code) throw error;
      return { type: "error", id, action, error };
    }
  }

  #actions = {
    ping: () => ({ serverTime: this.#clock.now() }),

    send: (caller, frame) => {
      const { to, conversationId, messageType, text, data, replyTo } = frame;
      const content = { conversationId: to === undefined ? conversationId : singleOf([caller.userId, to]), messageType, text, data, replyTo };
      return this.#once(caller, frame, content, () => {
        const conversation = to === undefined ? this.#writable(caller, conversationId) : this.#single(caller.userId, to);
        if (replyTo) this.#target(caller, conversation, replyTo, "replyTo");
        return this.#append(conversation, by(caller, frame), { messageType, text, data, replyTo });
      });
    },

    sync: ({ userId }, { conversationId, afterSeq, limit = 100 }) => {
      const conversation = this.#readable(userId, conversationId);
      const committedMaxSeq = committedMax(conversation, userId);
      const stretch = visibleTo(conversation, userId).find(({ to }) => to > afterSeq);
      if (!stretch) {
        const nextSeq = Math.max(afterSeq, committedMaxSeq);
        return { messages: [], nextSeq, committedMaxSeq, hasMore: false, ...(nextSeq > afterSeq && { firstSeq: nextSeq + 1 }) };
      }
      const from = Math.max(stretch.from, afterSeq + 1);
      const range = fitting(conversation.entries.slice(from - 1, stretch.to).slice(0, Math.min(limit, this.pageSize)));
      const nextSeq = range.at(-1).seq;
      return {
        messages: range.filter(({ seq }) => !conversation.holes.has(seq)).map(({ seq }) => shown(conversation, userId, seq)),
        skipped: range.filter(({ seq }) => conversation.holes.has(seq)).map(({ seq }) => seq),
        nextSeq,
        committedMaxSeq,
        hasMore: nextSeq < committedMaxSeq,
        ...(from > afterSeq + 1 && { firstSeq: from }),
      };
    },

    history: ({ userId }, { conversationId, beforeSeq: before, limit = 50 }) => {
      const conversation = this.#readable(userId, conversationId);
      const committedMaxSeq = committedMax(conversation, userId);
      const beforeSeq = before ?? committedMaxSeq + 1;
      const stretches = visibleTo(conversation, userId);
      const stretch = stretches.findLast(({ from }) => from < beforeSeq);
      if (!stretch) return { messages: [], nextBeforeSeq: beforeSeq, committedMaxSeq, hasMore: false };
      const range = fitting(conversation.entries.slice(stretch.from - 1, Math.min(stretch.to, beforeSeq - 1)).slice(-Math.min(limit, this.pageSize)).reverse()).reverse();
      const nextBeforeSeq = range[0].seq;
      return {
        messages: range.filter(({ seq }) => !conversation.holes.has(seq)).map(({ seq }) => shown(conversation, userId, seq)),
        nextBeforeSeq,
        committedMaxSeq,
        hasMore: stretches.some(({ from }) => from < nextBeforeSeq),
      };
    },

    changes: ({ userId }, { syncCursor, headsCursor, hidden }) => {
      const { v, at } = this.#syncHead(userId);
      if (syncCursor === 0 || syncCursor < this.floor || syncCursor > v) return { ...this.#page(userId, 0, hidden), heads: [], syncCursor: v, full: true, ...this.#windows(), userId: this.names(userId) };
      const heads = this.#of(userId)
        .filter(({ members }) => members.size > this.inboxGroupMax && members.has(userId))
        .map(({ head }) => ({ conversationId: head.conversationId, committedMaxSeq: head.lastSeq }));
      const all = JSON.stringify(heads);
      const changed = [...at].filter(([, when]) => when > syncCursor).sort(([, a], [, b]) => a - b);
      const told = changed.slice(0, Math.min(this.listSize, 50));
      const more = told.length < changed.length;
      return {
        conversations: told.map(([conversationId]) => lineOf(this.conversations.get(conversationId), userId)),
        heads: all === headsCursor ? [] : heads,
        headsCursor: all,
        syncCursor: more ? told.at(-1)[1] : v,
        more,
        full: false,
        ...this.#windows(),
        userId: this.names(userId),
      };
    },

    conversations: ({ userId }, { cursor = "0", limit, hidden }) => {
      if (!/^\d+$/.test(cursor)) throw refusal("BAD_REQUEST", "cursor");
      return this.#page(userId, Number(cursor), hidden, limit);
    },

    tell: (caller, frame) => this.#actions.ack(caller, frame),

    ack: (caller, { conversationId, deliveredSeq = 0, readSeq = 0 }) => {
      const { userId } = caller;
      const conversation = this.#readable(userId, conversationId);
      const line = conversation.lines.get(userId);
      const max = committedMax(conversation, userId);
      const before = { ...line };
      line.readSeq = Math.max(line.readSeq, Math.min(readSeq, max));
      line.deliveredSeq = Math.max(line.deliveredSeq, line.readSeq, Math.min(deliveredSeq, max));
      const receipt = {
        type: "receipt",
        conversationId,
        userId,
        ...(line.deliveredSeq > 0 && { deliveredSeq: line.deliveredSeq }),
        ...(line.readSeq > 0 && { readSeq: line.readSeq }),
      };
      if (readSeq > 0 && readSeq >= line.readSeq) this.#note(userId, conversationId);
      const few = conversation.head.kind !== "system" && conversation.members.size <= this.inboxGroupMax && conversation.members.has(userId);
      const rose = line.deliveredSeq > before.deliveredSeq || line.readSeq > before.readSeq;
      // In a group those hear of it who wrote what was acked.
      const wrote = (id, name) => conversation.entries.some(({ seq, senderId }) => senderId === id && before[name] < seq && seq <= line[name]);
      const concerns = (id) => id === userId || conversation.head.kind === "single" || wrote(id, "deliveredSeq") || wrote(id, "readSeq");
      if (rose) this.#post(few && !areStrangers(conversation) ? [...conversation.members.keys()].filter(concerns) : [userId], receipt, caller);
      return { deliveredSeq: line.deliveredSeq, readSeq: line.readSeq };
    },

    clear: (caller, { conversationId, throughSeq }) => {
      const { userId } = caller;
      const conversation = this.#readable(userId, conversationId);
      const line = conversation.lines.get(userId);
      const clearedSeq = Math.min(throughSeq, committedMax(conversation, userId));
      line.clearedSeq = Math.max(line.clearedSeq, clearedSeq);
      if (throughSeq >= line.clearedSeq) {
        this.#post([userId], { type: "changed", syncCursor: this.#note(userId, conversationId) }, caller);
      }
      return { clearedSeq: line.clearedSeq };
    },

    recall: (caller, frame) => {
      const { conversationId, seq, messageId } = frame;
      return this.#once(caller, frame, { seq, messageId }, () => {
        const conversation = this.#writable(caller, conversationId);
        const target = this.#target(caller, conversation, { seq, messageId });
        const first = conversation.entries.find(({ event }) => event?.kind === "recall" && event.targetSeq === seq);
        if (first) return { ...first, duplicate: true };
        this.#mayRecall(caller, conversation, target);
        const event = { kind: "recall", targetSeq: seq, targetMessageId: messageId, version: target.version + 1 };
        this.#revise(conversation, seq, { text: null, data: null, status: "recalled", version: event.version });
        for (const edit of conversation.entries.filter((entry) => entry.event?.kind === "edit" && entry.event.targetSeq === seq)) {
          this.#revise(conversation, edit.seq, { text: null, data: null, status: "recalled" });
        }
        return this.#append(conversation, by(caller, frame), { messageType: "event", event });
      });
    },

    edit: (caller, frame) => {
      const { conversationId, seq, messageId, version, text, data } = frame;
      const done = this.#once(caller, frame, { seq, messageId, version, text, data }, () => {
        const conversation = this.#writable(caller, conversationId);
        const target = this.#target(caller, conversation, { seq, messageId });
        if (target.senderId !== caller.userId || target.messageType === "event") refuse("FORBIDDEN", "this message is not yours to edit");
        if (timeOf(conversation, caller.userId, seq).to < conversation.head.lastSeq) refuse("FORBIDDEN", "you were away since you sent this message");
        if (target.version !== version || target.status !== "normal") {
          throw { ...refusal("VERSION_CONFLICT", "version", { version: target.version, status: target.status }), message: "the message was changed meanwhile" };
        }
        this.#inTime(target, "edited");
        const wrong = content({ messageType: target.messageType, text, data });
        if (wrong) throw wrong;
        const event = { kind: "edit", targetSeq: seq, targetMessageId: messageId, version: version + 1 };
        if (version === 1) conversation.first.set(seq, target);
        this.#revise(conversation, seq, { text, data, version: event.version });
        return this.#append(conversation, by(caller, frame), { messageType: "event", text, data, event });
      });
      return { ...done, version: version + 1 };
    },

    createGroup: (caller, frame) => {
      const { title, members, visibility = "all" } = frame;
      const { userId } = caller;
      if (members.includes(userId)) throw refusal("BAD_REQUEST", "members");
      const { conversationId, duplicate } = this.#once(caller, frame, { title, members, visibility }, () => {
        const all = [userId, ...members];
        const conversation = this.#conversation(`group:g${this.#nextGroup++}`, "group", all, { title, owner: userId, visibility });
        return this.#append(conversation, by(caller, frame), { messageType: "event", event: { kind: "members", added: all, owner: userId, title } });
      });
      const conversation = this.conversations.get(conversationId);
      return { ...lineOf(conversation, userId), duplicate };
    },

    addMembers: (caller, frame) =>
      this.#change(caller, frame, "add", { kind: "members", added: frame.members }, ({ head, members, lines }) => {
        const present = frame.members.filter((id) => members.has(id));
        if (present.length > 0) throw refusal("BAD_REQUEST", "members", { members: present });
        const out = frame.members.filter((id) => lines.get(id)?.leftAt > this.#clock.now() - REJOIN_MS);
        if (out.length > 0) throw refusal("FORBIDDEN", "members", { members: out });
        const seq = head.lastSeq + 1;
        for (const id of frame.members) {
          const former = lines.get(id);
          const atOnce = former?.leftSeq === seq - 1; // nothing was written since: never away
          const joinSeq = atOnce ? former.joinSeq : head.visibility === "all" && !former ? 1 : seq;
          members.set(id, { userId: id, role: "member", joinSeq, joinedSeq: seq, joinedAt: this.#clock.now() });
          if (!former) lines.set(id, { readSeq: seq - 1, deliveredSeq: seq - 1, clearedSeq: 0, joinSeq, leftSeq: 0, past: [] });
          else Object.assign(former, { past: atOnce ? former.past : [...former.past, { from: former.joinSeq, to: former.leftSeq }], joinSeq, leftSeq: 0, leftHead: null, leftAt: 0 });
        }
      }),

    removeMembers: (caller, frame) => {
      if (frame.members.includes(caller.userId)) throw refusal("BAD_REQUEST", "members");
      return this.#change(caller, frame, "remove", { kind: "members", removed: frame.members }, (conversation, role) => {
        const absent = frame.members.filter((id) => !conversation.members.has(id));
        if (frame.members.some((id) => !absent.includes(id) && !may(role, "remove", conversation.members.get(id).role))) throw refusal("FORBIDDEN", "members");
        if (absent.length > 0) throw refusal("BAD_REQUEST", "members", { members: absent });
        this.#leave(conversation, frame.members);
      });
    },

    leave: (caller, frame) => {
      const event = { kind: "members", removed: [caller.userId] };
      return this.#change(caller, frame, "leave", event, (conversation, role) => {
        const { head, members } = conversation;
        if (role === "owner") {
          const next = [...members.values()].filter(({ userId }) => userId !== caller.userId).sort(successorFirst)[0];
          if (next) {
            next.role = "owner";
            head.owner = event.owner = next.userId;
          } else head.state = "dissolved";
        }
        this.#leave(conversation, [caller.userId]);
        conversation.lines.get(caller.userId).leftAt = this.#clock.now();
      });
    },

    setRole: (caller, frame) => {
      const { userId, role } = frame;
      if (userId === caller.userId) throw refusal("BAD_REQUEST", "userId");
      const event = { kind: "members", member: userId, role, ...(role === "owner" && { owner: userId }) };
      return this.#change(caller, frame, "setRole", event, ({ head, members }) => {
        if (!members.has(userId)) throw refusal("BAD_REQUEST", "members", { members: [userId] });
        members.get(userId).role = role;
        if (role !== "owner") return;
        members.get(caller.userId).role = "admin";
        head.owner = userId;
      });
    },

    setTitle: (caller, frame) => this.#change(caller, frame, "setTitle", { kind: "title", title: frame.title }, ({ head }) => (head.title = frame.title)),

    dissolve: (caller, frame) => this.#change(caller, frame, "dissolve", { kind: "dissolve" }, ({ head }) => (head.state = "dissolved")),

    members: ({ userId }, { conversationId, cursor = "" }) => {
      const { head, members } = this.#current(userId, conversationId);
      const all = [...members.values()].filter((member) => member.userId > cursor).sort(byUserId);
      const page = all.slice(0, Math.min(this.listSize, 80)).map(({ joinedSeq, ...member }) => member);
      return { members: page, membersVersion: head.membersVersion, ...(page.length < all.length && { cursor: page.at(-1).userId }) };
    },

    receipts: ({ userId }, { conversationId, seq, cursor = "" }) => {
      if (!sees(this.#readable(userId, conversationId), userId, seq)) refuse("NOT_FOUND", "no such message", "seq");
      const conversation = this.#current(userId, conversationId);
      const all = [...conversation.members.keys()].filter((id) => id > cursor).sort();
      const page = all.slice(0, Math.min(this.listSize, 50));
      const reached = (name) => page.filter((id) => conversation.members.get(id).joinedSeq <= seq && (id === userId || !areStrangers(conversation)) && conversation.lines.get(id)[name] >= seq);
      return { delivered: reached("deliveredSeq"), read: reached("readSeq"), ...(page.length < all.length && { cursor: page.at(-1) }) };
    },
  };

  // ---- reading ----

  #of(userId) {
    return [...this.conversations.values()].filter(({ lines }) => lines.has(userId));
  }

  // It may be empty and not the last.
  #page(userId, from, hidden, limit = 50) {
    const all = this.#of(userId);
    const end = from + Math.min(limit, this.listSize);
    const conversations = all
      .slice(from, end)
      .map((conversation) => lineOf(conversation, userId))
      .filter(({ leftSeq = 0, clearedSeq }) => hidden || leftSeq === 0 || clearedSeq < leftSeq);
    return { conversations, ...(end < all.length && { cursor: String(end) }) };
  }

  #readable(userId, conversationId) {
    const conversation = this.conversations.get(conversationId);
    return conversation?.lines.has(userId) ? conversation : refuse("NOT_FOUND", "no such conversation", "conversationId");
  }

  #current(userId, conversationId) {
    const conversation = this.#readable(userId, conversationId);
    if (!conversation.members.has(userId)) refuse("FORBIDDEN", "you are no member of this conversation any more");
    if (conversation.head.kind === "system") refuse("FORBIDDEN", "the readers of a system conversation are not told of each other");
    return conversation;
  }

  // ---- writing ----

  // A retry gets the first result, whatever has changed since.
  #once({ userId }, { action, clientMsgId }, content, write) {
    const key = `${userId}/${clientMsgId}`;
    const asked = JSON.stringify({ action, ...content }, inOrder);
    const first = this.#results.get(key);
    if (first && first.asked !== asked) {
      const { conversationId, messageId, seq } = first.result;
      throw refusal("IDEMPOTENCY_CONFLICT", "clientMsgId", { conversationId, messageId, seq });
    }
    if (first) return { ...first.result, duplicate: true };
    const { conversationId, seq, messageId, serverTime, duplicate = false } = write();
    const result = { conversationId, seq, messageId, serverTime, duplicate };
    if (!duplicate) this.#results.set(key, { asked, result });
    return result;
  }

  #writable({ userId }, conversationId, action) {
    const conversation = this.conversations.get(conversationId);
    if (!conversation?.members.has(userId)) refuse("NOT_FOUND", "no such conversation", "conversationId");
    if (conversation.head.kind === "system") refuse("FORBIDDEN", "a system conversation is read-only");
    if (conversation.head.state === "dissolved" && action !== "leave") refuse("DISSOLVED", "the group is dissolved");
    return conversation;
  }

  #target({ userId }, conversation, { seq, messageId }, field = "messageId") {
    const target = conversation.entries[seq - 1];
    if (!target || target.messageId !== messageId || conversation.holes.has(seq) || !sees(conversation, userId, seq)) refuse("NOT_FOUND", "no such message", field);
    return target;
  }

  #mayRecall({ userId }, { head, members }, target) {
    if (target.messageType === "event") refuse("FORBIDDEN", "an event stays as it is");
    const own = target.senderId === userId;
    if (head.kind === "group" && members.get(userId).role !== "member") {
      if (own || may(members.get(userId).role, "recall", members.get(target.senderId)?.role)) return;
    }
    if (!own) refuse("FORBIDDEN", "this message is not yours to recall");
    this.#inTime(target, "recalled");
  }

  #inTime({ serverTime }, what) {
    if (this.#clock.now() - serverTime >= this.windowMs) refuse("TOO_LATE", `the message cannot be ${what} any more`);
  }

  #windows() {
    return { windows: this.windowMs < Infinity ? { editMs: this.windowMs, recallMs: this.windowMs } : {} };
  }

  #revise(conversation, seq, change) {
    conversation.entries[seq - 1] = { ...conversation.entries[seq - 1], ...change };
  }

  #change(caller, frame, right, event, apply) {
    const { action, id, clientMsgId, ...content } = frame;
    return this.#once(caller, frame, content, () => {
      const conversation = this.#writable(caller, frame.conversationId, action);
      if (conversation.head.kind !== "group") refuse("FORBIDDEN", "this is no group", "conversationId");
      const { role } = conversation.members.get(caller.userId);
      if (!may(role, right)) refuse("FORBIDDEN", `your role is ${role}`);
      const audience = [...conversation.members.keys()];
      apply(conversation, role);
      if (event.kind === "members") conversation.head.membersVersion++;
      return this.#append(conversation, by(caller, frame), { messageType: "event", event }, audience);
    });
  }

  #leave({ head, members, lines }, userIds) {
    for (const id of userIds) members.delete(id);
    const leftHead = { ...head, lastSeq: head.lastSeq + 1, memberCount: members.size, updatedAt: this.#clock.now() };
    for (const id of userIds) Object.assign(lines.get(id), { leftSeq: leftHead.lastSeq, leftHead });
  }

  #conversation(conversationId, kind, userIds, extra = {}) {
    const conversation = {
      head: { conversationId, kind, state: "active", lastSeq: 0, membersVersion: 1, updatedAt: this.#clock.now(), ...extra },
      entries: [],
      first: new Map(),
      holes: new Set(),
      members: new Map(),
      lines: new Map(),
    };
    for (const userId of userIds) {
      conversation.members.set(userId, { userId, role: userId === extra.owner ? "owner" : "member", joinSeq: 1, joinedSeq: 1, joinedAt: this.#clock.now() });
      conversation.lines.set(userId, { readSeq: 0, deliveredSeq: 0, clearedSeq: 0, joinSeq: 1, leftSeq: 0, past: [] });
    }
    this.conversations.set(conversationId, conversation);
    return conversation;
  }

  #single(from, to) {
    const members = [...new Set([from, to])].sort();
    const conversationId = singleOf(members);
    return this.conversations.get(conversationId) ?? this.#conversation(conversationId, "single", members);
  }

  #append(conversation, sender, extra, before = [...conversation.members.keys()]) {
    const { head, entries, lines } = conversation;
    const seq = ++head.lastSeq;
    head.updatedAt = this.#clock.now();
    const entry = {
      conversationId: head.conversationId,
      seq,
      messageId: `id-${head.conversationId}-${seq}${"'".repeat(this.#world - 1)}`,
      messageType: "text",
      version: 1,
      status: "normal",
      serverTime: this.#clock.now(),
      ...sender,
      ...extra,
    };
    entries.push(entry);
    if (seq === 1 && lines.has(entry.senderId)) Object.assign(lines.get(entry.senderId), { readSeq: 1, deliveredSeq: 1 });
    this.#fanOut(conversation, entry, before);
    return entry;
  }

  // First the sync heads, then the connections, as the real fan-out does. A push carries the entry as it
  // is when it is read.
  #fanOut(conversation, { seq, event }, before) {
    const sender = this.#sending; // it has the message by its answer
    const { members, head } = conversation;
    const { conversationId } = head;
    const moved = new Set([...(event?.added ?? []), ...(event?.removed ?? [])]);
    const audience = new Set([...members.keys(), ...before]);
    for (const userId of audience) {
      if (members.size <= this.inboxGroupMax || moved.has(userId)) this.#note(userId, conversationId);
    }
    const whole = members.size <= this.notifyAbove;
    this.#later(() => {
      const update = { conversationId, committedMaxSeq: seq };
      if (!whole) this.#post([...audience], { type: "notify", updates: [update] });
      else for (const userId of audience) {
        if (timeOf(conversation, userId, seq)) this.#post([userId], { type: "push", updates: [{ ...update, messages: [shown(conversation, userId, seq)] }] }, sender);
      }
    });
  }

  #syncHead(userId) {
    if (!this.#syncHeads.has(userId)) this.#syncHeads.set(userId, { v: 0, at: new Map() });
    return this.#syncHeads.get(userId);
  }

  #note(userId, conversationId) {
    const head = this.#syncHead(userId);
    head.at.set(conversationId, ++head.v);
    return head.v;
  }

  #post(userIds, frame, except = null) {
    for (const socket of this.sockets) {
      if (socket === except || !userIds.includes(socket.userId)) continue;
      for (let times = this.pushes(frame, socket); times > 0; times--) this.say(socket, frame);
    }
  }
}

// A token is a JWT, which nobody has signed, or just the user's id.
function subjectOf(token) {
  const parts = token.split(".");
  return parts.length === 3 ? JSON.parse(atob(parts[1])).sub : decodeURIComponent(token);
}

function refuse(code, message, field) {
  throw { ...refusal(code, field), message };
}

// The id of the conversation of two users, or of one with itself.
function singleOf(users) {
  return `single:${[...new Set(users)].sort().map((user) => `${user.length}.${user}`).join("")}`;
}

// What JSON.stringify is to write of a value, whatever the order of its keys.
function inOrder(_, value) {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))) : value;
}

// As many of the entries as a frame of 32 KB takes.
function fitting(entries) {
  let bytes = 0;
  const end = entries.findIndex((entry, i) => i > 0 && (bytes += bytesOf(JSON.stringify(entry))) + bytesOf(JSON.stringify(entries[0])) > 31 * 1024);
  return end < 0 ? entries : entries.slice(0, end);
}

function by({ userId, deviceId }, { clientMsgId, clientTime }) {
  return { senderId: userId, senderDeviceId: deviceId, clientMsgId, clientTime };
}

// Whether one alone has written to a single conversation: then nobody hears how far the other is.
function areStrangers({ head, entries }) {
  const senders = new Set(entries.map(({ senderId }) => senderId));
  return head.kind === "single" && senders.size < 2 && !senders.has("system");
}

// ---- what a user may see ----

function committedMax({ head, lines }, userId) {
  return lines.get(userId).leftSeq || head.lastSeq;
}

// The user's times of membership.
function timesOf(conversation, userId) {
  const { past, joinSeq } = conversation.lines.get(userId);
  return [...past, { from: joinSeq, to: committedMax(conversation, userId) }];
}

function timeOf(conversation, userId, seq) {
  return timesOf(conversation, userId).find(({ from, to }) => from <= seq && seq <= to);
}

// An entry as the user may see it: as it was at the end of that time of membership, and without what an
// edit makes of an entry of another time.
function shown({ entries, first, ...conversation }, userId, seq) {
  const entry = entries[seq - 1];
  const { from, to } = timeOf(conversation, userId, seq);
  const ofOther = entry.event?.kind === "edit" && !(from <= entry.event.targetSeq && entry.event.targetSeq <= to);
  if (ofOther && entry.status === "normal") return { ...entry, text: undefined, data: undefined, withheld: true };
  if (entry.status !== "normal" || !first.has(seq)) return entry;
  const last = entries.slice(0, to).findLast(({ event }) => event?.kind === "edit" && event.targetSeq === seq);
  return last ? { ...first.get(seq), text: last.text, data: last.data, version: last.event.version } : first.get(seq);
}

function visibleTo(conversation, userId) {
  const { clearedSeq } = conversation.lines.get(userId);
  return timesOf(conversation, userId)
    .map(({ from, to }) => ({ from: Math.max(from, clearedSeq + 1), to }))
    .filter(({ from, to }) => from <= to);
}

function sees(conversation, userId, seq) {
  return conversation.lines.has(userId) && visibleTo(conversation, userId).some(({ from, to }) => from <= seq && seq <= to);
}

function lineOf(conversation, userId) {
  const { readSeq, deliveredSeq, clearedSeq, joinSeq, leftSeq, leftHead } = conversation.lines.get(userId);
  const { conversationId, kind, title, state, owner, visibility, updatedAt } = leftHead ?? conversation.head;
  const members = [...conversation.members.keys()];
  const lastSeq = committedMax(conversation, userId);
  const last = sees(conversation, userId, lastSeq) && !conversation.holes.has(lastSeq) ? shown(conversation, userId, lastSeq) : null;
  return {
    conversationId,
    kind,
    ...(title && { title }),
    ...(kind === "single" && { peer: members.find((member) => member !== userId) ?? userId }),
    state,
    ...(owner && { owner }),
    ...(visibility && { visibility }),
    memberCount: leftHead?.memberCount ?? members.length,
    lastSeq,
    readSeq,
    deliveredSeq,
    clearedSeq,
    ...(leftSeq && { leftSeq }),
    unread: conversation.entries.filter(({ seq, senderId, event }) => seq > Math.max(readSeq, clearedSeq, joinSeq - 1) && seq <= lastSeq && senderId !== userId && event?.kind !== "erase").length,
    updatedAt,
    ...(last && { lastMessage: { seq: last.seq, senderId: last.senderId, messageType: last.messageType, text: last.text?.slice(0, 100), status: last.status, serverTime: last.serverTime } }),
  };
}

function byUserId(a, b) {
  return a.userId < b.userId ? -1 : 1;
}

function successorFirst(a, b) {
  if ((a.role === "admin") !== (b.role === "admin")) return a.role === "admin" ? -1 : 1;
  return a.joinedAt - b.joinedAt || byUserId(a, b);
}

class FakeSocket {
  gone = false;

  send(data) {
    this.server.receive(this, data);
  }

  close() {
    this.gone = true;
    this.server.left(this);
  }

  closed() {
    this.gone = true;
    this.onclose?.({ code: 1006 });
  }
}
