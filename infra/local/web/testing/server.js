// The wire protocol, version 1, in memory, with a hook at each place where the real world fails.
// Frames of one socket are handled concurrently, as API Gateway does.
export class FakeServer {
  /** Each request that was handled: {userId, deviceId, frame}. */
  requests = [];
  /** conversationId → {members, entries, holes}; holes are seqs that retention removed. */
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
  /** Actions this server does not have. */
  unknown = new Set();
  /** Conversations with more members than this push {committedMaxSeq} only. */
  smallGroupMax = 200;

  #clock;
  #sockets = new Set();
  #results = new Map(); // senderId/clientMsgId → result
  #heads = new Map(); // userId → {v, at}

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
    return this.requests.filter((request) => request.frame.action === action).length;
  }

  entries(conversationId) {
    const { entries, holes } = this.conversations.get(conversationId);
    return entries.filter((entry) => !holes.has(entry.seq));
  }

  /** Makes a group, without an entry of its own. */
  group(id, members) {
    const conversationId = `group:${id}`;
    this.conversations.set(conversationId, { members, entries: [], holes: new Set() });
    return conversationId;
  }

  /** Commits a message as another client's send does, and gives its entry. */
  post(senderId, address, text, extra = {}) {
    const { conversationId, seq } = this.#append(senderId, "other", { ...address, text, messageType: "text", clientMsgId: `other-${Math.random()}` }, extra);
    return this.conversations.get(conversationId).entries[seq - 1];
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
    const userId = protocols[1].replace("bearer.", "");
    Object.assign(socket, { server: this, userId, deviceId, url, protocols });
    this.#later(() => {
      if (socket.gone) return;
      if (protocols[0] !== "inorder.v1" || !deviceId || !userId || !this.admit(userId, deviceId)) return socket.closed();
      for (const other of this.sockets) {
        if (other.userId !== userId || other.deviceId !== deviceId) continue;
        this.say(other, { type: "goodbye", reason: "replaced" });
        this.#later(() => this.cut(other));
      }
      this.#sockets.add(socket);
      socket.onopen?.({});
    });
  }

  receive(socket, data) {
    if (!this.#sockets.has(socket)) return;
    this.#later(() => {
      const frame = JSON.parse(data);
      this.requests.push({ userId: socket.userId, deviceId: socket.deviceId, frame });
      const reply = this.#reply(socket, frame);
      const fate = this.answer(frame, socket);
      if (fate === "lose") return;
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
      const handle = this.#actions[action];
      if (!handle || this.unknown.has(action)) throw { code: "UNKNOWN_ACTION", message: `no action ${action}`, retryable: false };
      return { type: "reply", id, action, result: handle(socket, frame) };
    } catch (error) {
      if (!error.code) throw error;
      return { type: "error", id, action, error };
    }
  }

  #actions = {
    ping: () => ({ serverTime: this.#clock.now() }),
    send: ({ userId, deviceId }, frame) => this.#append(userId, deviceId, frame),
    sync: ({ userId }, { conversationId, afterSeq, limit }) => {
      const { entries, holes } = this.#visible(userId, conversationId);
      const range = entries.slice(afterSeq, afterSeq + Math.min(limit, this.pageSize));
      const nextSeq = Math.max(afterSeq, range.at(-1)?.seq ?? 0);
      return {
        messages: range.filter((entry) => !holes.has(entry.seq)),
        skipped: range.filter((entry) => holes.has(entry.seq)).map((entry) => entry.seq),
        nextSeq,
        committedMaxSeq: entries.length,
        hasMore: nextSeq < entries.length,
      };
    },
    changes: ({ userId }, { syncCursor }) => {
      const { v, at } = this.#head(userId);
      const changed = [...at].filter(([, when]) => when > syncCursor).map(([conversationId]) => this.#item(userId, conversationId));
      return { conversations: changed, heads: [], syncCursor: v, full: syncCursor === 0 };
    },
    conversations: ({ userId }, { cursor }) => {
      const mine = [...this.conversations].filter(([, { members }]) => members.includes(userId)).map(([id]) => this.#item(userId, id));
      const from = cursor ? Number(cursor) : 0;
      return { conversations: mine.slice(from, from + 2), ...(from + 2 < mine.length && { cursor: String(from + 2) }) };
    },
  };

  #visible(userId, conversationId) {
    const conversation = this.conversations.get(conversationId);
    if (!conversation?.members.includes(userId)) throw { code: "NOT_FOUND", message: "no such conversation", retryable: false };
    return conversation;
  }

  #item(userId, conversationId) {
    const { members, entries } = this.conversations.get(conversationId);
    const single = conversationId.startsWith("single:");
    return {
      conversationId,
      kind: conversationId.split(":")[0],
      lastSeq: entries.length,
      ...(single && { peer: members.find((member) => member !== userId) ?? userId }),
    };
  }

  #head(userId) {
    if (!this.#heads.has(userId)) this.#heads.set(userId, { v: 0, at: new Map() });
    return this.#heads.get(userId);
  }

  #append(senderId, senderDeviceId, frame, extra) {
    const key = `${senderId}/${frame.clientMsgId}`;
    const first = this.#results.get(key);
    if (first) return { ...first, duplicate: true };
    const conversationId = frame.conversationId ?? this.#single(senderId, frame.to);
    const { entries, members } = this.#visible(senderId, conversationId);
    const entry = {
      conversationId,
      seq: entries.length + 1,
      messageId: `id-${conversationId}-${entries.length + 1}`,
      clientMsgId: frame.clientMsgId,
      senderId,
      senderDeviceId,
      messageType: frame.messageType,
      text: frame.text ?? null,
      data: null,
      replyTo: null,
      version: 1,
      status: "normal",
      serverTime: this.#clock.now(),
      clientTime: frame.clientTime ?? null,
      event: null,
      ...extra,
    };
    entries.push(entry);
    const { seq, messageId, serverTime } = entry;
    const result = { conversationId, seq, messageId, serverTime, duplicate: false };
    this.#results.set(key, result);
    this.#fanOut(members, entry);
    return result;
  }

  #single(from, to) {
    const members = [...new Set([from, to])].sort();
    const conversationId = `single:${members.map((member) => `${member.length}.${member}`).join("")}`;
    if (!this.conversations.has(conversationId)) this.conversations.set(conversationId, { members, entries: [], holes: new Set() });
    return conversationId;
  }

  // First the sync heads, then the connections, as the real fan-out does.
  #fanOut(members, entry) {
    const { conversationId, seq: committedMaxSeq } = entry;
    for (const member of members) {
      const head = this.#head(member);
      head.at.set(conversationId, ++head.v);
    }
    const frame =
      members.length <= this.smallGroupMax
        ? { type: "push", updates: [{ conversationId, messages: [entry], committedMaxSeq }] }
        : { type: "notify", updates: [{ conversationId, committedMaxSeq }] };
    this.#later(() => {
      for (const socket of this.sockets) {
        if (!members.includes(socket.userId)) continue;
        for (let times = this.pushes(frame, socket); times > 0; times--) this.say(socket, frame);
      }
    });
  }
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
