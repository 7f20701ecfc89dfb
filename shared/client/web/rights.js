// Who may do what. The server decides it by the same rules; here they only decide which buttons are shown.

/** @import { Conversation, Message, Role, Windows } from "./types.js" */

/** The roles, the one with the most rights first. */
export const ROLES = ["owner", "admin", "member"];

/**
 * Whether a member with this role may do the action: "send", "leave", "add", "remove", "setTitle", "setRole",
 * "dissolve" or "recall" (another's message). For remove and recall, target is the role of the member concerned; that
 * of a sender who is no member any more is "member".
 * @param {string | null} role @param {string} action @param {string} [target]
 */
export function may(role, action, target = "member") {
  switch (action) {
    case "send":
    case "leave":
      return role !== null && ROLES.includes(role);
    case "add":
    case "setTitle":
      return role === "owner" || role === "admin";
    case "remove":
    case "recall":
      return (role === "owner" && target !== "owner") || (role === "admin" && target === "member");
    case "setRole":
    case "dissolve":
      return role === "owner";
    default:
      return false;
  }
}

/**
 * What the rights over a message depend on: who we are and what we are in its conversation, the known roles of members,
 * and the time in ms since 1970.
 * @typedef {object} Standing
 * @property {string} userId
 * @property {Conversation["kind"]} kind
 * @property {Conversation["closed"]} closed
 * @property {Role | null} role
 * @property {Map<string, Role>} roles
 * @property {Windows} windows
 * @property {number} now
 */

/**
 * Whether we may edit and recall a message.
 * @param {Standing} standing @param {Message} message
 */
export function rightsOver({ userId, kind, closed, role, roles, windows, now }, { senderId = "", messageType, status, serverTime }) {
  if (closed !== null || status === "recalled" || messageType === "event" || messageType === "system") return { canEdit: false, canRecall: false };
  const isMine = senderId === userId;
  const { editMs = Infinity, recallMs = Infinity } = windows;
  /** @param {number} ms */
  const isInTime = (ms) => ms > 0 && now < serverTime + ms;
  const byRole = kind === "group" && (isMine ? role !== "member" : may(role, "recall", roles.get(senderId)));
  return { canEdit: isMine && isInTime(editMs), canRecall: byRole || (isMine && isInTime(recallMs)) };
}

/**
 * When the next window of these rows ends, in ms since 1970; Infinity if none will.
 * @param {readonly {mine: boolean, time: number}[]} rows @param {Windows} windows @param {number} now
 */
export function nextEnd(rows, { editMs = 0, recallMs = 0 }, now) {
  let next = Infinity;
  for (const { mine, time } of rows) {
    for (const end of mine ? [time + editMs, time + recallMs] : []) {
      if (end > now && end < next) next = end;
    }
  }
  return next;
}
