// How the page words what is no text of a person. Pure.

const CLOSED = {
  system: "You can read these messages, not answer them.",
  left: "You are not a member of this group any more.",
  dissolved: "This group was dissolved. You can still read it.",
  failed: "This group could not be made.",
  unknown: "This conversation is not there any more.",
};

/** Why nothing can be written in a conversation. */
export function closedWords(closed) {
  return CLOSED[closed];
}

/** What a row says. */
export function bodyOf(row, me) {
  if (row.recalled) return "This message was recalled.";
  if (row.kind === "event") return eventWords(row, me);
  return row.text || `[${row.kind}]`;
}

/** False where the page words a row, because there is no text or it is gone. */
export function isOwnWords({ kind, text, recalled }) {
  return !recalled && kind !== "event" && text !== "";
}

/** A row in a list of conversations. */
export function previewOf(row, kind, me) {
  if (row === null) return "No messages yet";
  const body = bodyOf(row, me).replace(/\s+/g, " ");
  if (row.state === "failed") return `Not sent: ${body}`;
  if (row.kind === "event" || kind === "system") return body;
  return row.mine ? `You: ${body}` : kind === "group" ? `${row.senderId}: ${body}` : body;
}

/** What an event tells, such as "bob added carol". */
export function eventWords({ senderId, event }, me) {
  const who = (userId) => (userId === me ? "you" : userId);
  const said = sentence(senderId, event ?? {}, who);
  return said[0] === "y" && senderId === me ? `Y${said.slice(1)}` : said;
}

function sentence(senderId, { kind, added = [], removed = [], member, role, owner, title }, who) {
  const by = who(senderId);
  if (kind === "dissolve") return `${by} dissolved the group`;
  if (kind === "title") return `${by} named the group “${title}”`;
  if (kind !== "members") return "Something changed";
  if (title) {
    const others = added.filter((userId) => userId !== senderId);
    return `${by} made the group “${title}”${others.length > 0 ? ` with ${listOf(others.map(who))}` : ""}`;
  }
  if (member) return `${by} made ${who(member)} ${role === "owner" ? "the owner" : role === "admin" ? "an admin" : "a plain member"}`;
  if (added.length > 0) return `${by} added ${listOf(added.map(who))}`;
  if (removed.length === 1 && removed[0] === senderId) return `${by} left${owner ? `, and ${who(owner)} ${who(owner) === "you" ? "own" : "owns"} the group now` : ""}`;
  return `${by} removed ${listOf(removed.map(who))}`;
}

/** How far an own message is, {mark, words}: mark for the eye, words for everyone. */
export function deliveryOf({ kind, recalled, state, receipt, readBy, audience }) {
  if (state === "sending") return { mark: "", words: "sending" };
  if (state !== "sent" || recalled || kind === "event") return { mark: "", words: "" };
  const some = receipt !== "read" && readBy.length > 0;
  const count = some ? ` ${readBy.length}/${audience}` : "";
  const mark = (receipt ? "✓✓" : "✓") + count;
  return { mark, words: some ? `read by ${readBy.length} of ${audience}` : (receipt ?? "sent") };
}

/** "a", "a and b", "a, b and c". */
export function listOf(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

/** The user ids in what someone typed, each once. */
export function namesIn(text) {
  return [...new Set(text.split(/[,;\n]/).map((name) => name.trim()).filter((name) => name !== ""))];
}

/** "1 member", "2 members". */
export function membersWords(count) {
  return `${count} ${count === 1 ? "member" : "members"}`;
}
