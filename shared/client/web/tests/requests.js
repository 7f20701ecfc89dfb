// Reads frames as the real server does, and refuses what is no request. What a name may be is not looked at.

const STRING = "string";
const NUMBER = "number";
const FLAG = "boolean";
const LIST = "list";
const CHANGE = { conversationId: STRING, clientMsgId: STRING };
const TARGET = { ...CHANGE, seq: NUMBER, messageId: STRING };
const MEMBERS = { ...CHANGE, members: LIST };
const POSITIONS = { conversationId: STRING, deliveredSeq: NUMBER, readSeq: NUMBER };

/** The fields of each action that have a type. */
const FIELDS = {
  ping: {},
  send: { ...CHANGE, to: STRING, messageType: STRING, text: STRING, replyTo: { seq: NUMBER, messageId: STRING }, clientTime: NUMBER },
  sync: { conversationId: STRING, afterSeq: NUMBER, limit: NUMBER },
  history: { conversationId: STRING, beforeSeq: NUMBER, limit: NUMBER },
  changes: { syncCursor: NUMBER, headsCursor: STRING, hidden: FLAG },
  conversations: { cursor: STRING, limit: NUMBER, hidden: FLAG },
  ack: POSITIONS,
  tell: POSITIONS,
  clear: { conversationId: STRING, throughSeq: NUMBER },
  recall: TARGET,
  edit: { ...TARGET, version: NUMBER, text: STRING },
  createGroup: { title: STRING, members: LIST, clientMsgId: STRING, visibility: STRING },
  addMembers: MEMBERS,
  removeMembers: MEMBERS,
  leave: CHANGE,
  dissolve: CHANGE,
  setRole: { ...CHANGE, userId: STRING, role: STRING },
  setTitle: { ...CHANGE, title: STRING },
  members: { conversationId: STRING, cursor: STRING },
  receipts: { conversationId: STRING, seq: NUMBER, cursor: STRING },
};

const MAX_ROSTER_CHANGE = 48;
const MAX_TITLE_RUNES = 100;
const MAX_TEXT_RUNES = 4000;
const MAX_MESSAGE_BYTES = 24 * 1024;
const SENDABLE = ["text", "image", "voice", "file", "custom"];

/** How many bytes a text takes. */
export const bytesOf = (text) => new TextEncoder().encode(text).length;

const runesOf = (text) => [...text].length;

/** Makes a refusal. */
export const refusal = (code, field, details) => ({ code, message: `${code} ${field ?? ""}`, retryable: false, ...(field && { field }), ...(details && { details }) });

const bad = (field) => refusal("BAD_REQUEST", field);

/** Gives the frame of a text, without fields that are null, and what the answer to it repeats; or the error with them. */
export function read(text) {
  let frame = null;
  try {
    frame = JSON.parse(text);
  } catch {
    // as below
  }
  if (typeof frame !== "object" || frame === null || Array.isArray(frame)) return { head: {}, error: refusal("UNKNOWN_ACTION") };
  frame = Object.fromEntries(Object.entries(frame).filter(([, value]) => value !== null));
  const isId = typeof frame.id === "string" && frame.id !== "" && bytesOf(frame.id) <= 64;
  const action = typeof frame.action === "string" ? frame.action : "";
  const head = { ...(isId && { id: frame.id }), ...(action && { action }) };
  if (!isId) return { head, error: bad("id") };
  if (!Object.hasOwn(FIELDS, action)) return { head, error: refusal("UNKNOWN_ACTION") };
  return { frame, head, error: wrongType(frame, FIELDS[action]) ?? CHECKS[action]?.(frame) };
}

function wrongType(frame, fields, path = "") {
  for (const [name, type] of Object.entries(fields)) {
    const value = frame[name];
    if (value === undefined) continue;
    if (typeof type === "object") {
      if (typeof value !== "object" || Array.isArray(value)) return bad(path + name);
      const inner = wrongType(value, type, `${path}${name}.`);
      if (inner) return inner;
    } else if (type === LIST ? !Array.isArray(value) || value.some((item) => typeof item !== "string") : typeof value !== type || (type === NUMBER && !Number.isInteger(value))) return bad(path + name);
  }
  return undefined;
}

const isNumber = (value, least) => value !== undefined && value >= least && value <= Number.MAX_SAFE_INTEGER;
const conversation = ({ conversationId = "" }) => (/^(single|group|system):./.test(conversationId) && bytesOf(conversationId) <= 128 ? undefined : bad("conversationId"));
const change = (frame) => conversation(frame) ?? key(frame);
const key = ({ clientMsgId = "" }) => (/^[ -~]{1,64}$/.test(clientMsgId) ? undefined : bad("clientMsgId"));
const required = (frame, name, least) => (isNumber(frame[name], least) ? undefined : bad(name));
const optional = (frame, name) => (frame[name] === undefined || isNumber(frame[name], 1) ? undefined : bad(name));
const limit = (frame, most) => (frame.limit === undefined || (frame.limit >= 1 && frame.limit <= most) ? undefined : bad("limit"));
const target = (frame) => required(frame, "seq", 1) ?? (frame.messageId ? undefined : bad("messageId"));
const positions = (frame) => conversation(frame) ?? (frame.deliveredSeq === undefined && frame.readSeq === undefined ? bad("readSeq") : (optional(frame, "deliveredSeq") ?? optional(frame, "readSeq")));

function title({ title: text = "" }) {
  if (text.trim() === "") return bad("title");
  return runesOf(text) > MAX_TITLE_RUNES ? refusal("TOO_LARGE", "title") : undefined;
}

function roster({ members = [] }) {
  if (members.length === 0) return bad("members");
  if (members.length > MAX_ROSTER_CHANGE) return refusal("LIMIT", "members", { max: MAX_ROSTER_CHANGE });
  return new Set(members).size < members.length ? bad("members") : undefined;
}

/** Refuses what cannot be the content of a message. */
export function content({ messageType, text = "", data, replyTo, ...rest }) {
  if (runesOf(text) > MAX_TEXT_RUNES) return refusal("TOO_LARGE", "text");
  if (data !== undefined && (typeof data !== "object" || Array.isArray(data))) return bad("data");
  if (replyTo && (!isNumber(replyTo.seq, 1) || !replyTo.messageId)) return bad("replyTo");
  if (messageType === "text" && text === "") return bad("text");
  if (messageType !== "text" && messageType !== "event" && data === undefined) return bad("data");
  return bytesOf(JSON.stringify({ ...rest, text, data })) > MAX_MESSAGE_BYTES ? refusal("TOO_LARGE") : undefined;
}

const CHECKS = {
  send: (frame) => {
    const { conversationId, to, messageType, clientTime = 0 } = frame;
    if (!conversationId && !to) return bad("conversationId");
    if (conversationId && to) return bad("to");
    if (!SENDABLE.includes(messageType)) return bad("messageType");
    if (!isNumber(clientTime, 0)) return bad("clientTime");
    if (to && bytesOf(to) > 128) return bad("to");
    return (to ? undefined : conversation(frame)) ?? key(frame) ?? content(frame);
  },
  sync: (frame) => conversation(frame) ?? required(frame, "afterSeq", 0) ?? limit(frame, 500),
  history: (frame) => conversation(frame) ?? optional(frame, "beforeSeq") ?? limit(frame, 100),
  changes: (frame) => required(frame, "syncCursor", 0),
  conversations: (frame) => limit(frame, 100),
  ack: positions,
  tell: positions,
  clear: (frame) => conversation(frame) ?? required(frame, "throughSeq", 1),
  recall: (frame) => target(frame) ?? change(frame),
  edit: (frame) => target(frame) ?? required(frame, "version", 1) ?? change(frame) ?? content({ ...frame, messageType: "event" }),
  createGroup: (frame) => {
    const { members, visibility = "all" } = frame;
    if (!members) return bad("members");
    const wrong = title(frame);
    if (wrong) return wrong;
    if (visibility !== "all" && visibility !== "sinceJoin") return bad("visibility");
    if (members.length >= MAX_ROSTER_CHANGE) return refusal("LIMIT", "members", { max: MAX_ROSTER_CHANGE - 1 });
    return (members.length > 0 ? roster(frame) : undefined) ?? key(frame);
  },
  addMembers: (frame) => roster(frame) ?? change(frame),
  removeMembers: (frame) => roster(frame) ?? change(frame),
  leave: change,
  dissolve: change,
  setRole: (frame) => {
    if (!frame.userId) return bad("userId");
    return ["owner", "admin", "member"].includes(frame.role) ? change(frame) : bad("role");
  },
  setTitle: (frame) => title(frame) ?? change(frame),
  members: conversation,
  receipts: (frame) => conversation(frame) ?? required(frame, "seq", 1),
};
