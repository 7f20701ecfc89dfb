// The page's own words. Pure.
//
// Words are lists of parts: strings are the page's own, {name} is the name or title that someone gave, and
// {text} is what a person wrote. The latter two are isolated wherever they are shown: they may run the other
// way.

import { cut, isolated, nameOf } from "./text.js";

/** A sentence around names: said`${name} left`, where a name is a part, a list of parts, or a string of ours. */
export function said(strings, ...parts) {
  const all = strings.flatMap((string, index) => (index < parts.length ? [string, parts[index]] : [string])).flat();
  return all.reduce((joined, part) => {
    if (part === "") return joined;
    const isBoth = typeof part === "string" && typeof joined.at(-1) === "string";
    return isBoth ? [...joined.slice(0, -1), joined.at(-1) + part] : [...joined, part];
  }, []);
}

/** Words for places without elements. */
export function plain(parts) {
  return parts.map((part) => (typeof part === "string" ? part : isolated(part.name ?? part.text))).join("");
}

/** A part as shown in an element of its own. */
export function shownPart(part) {
  return typeof part === "string" ? part : (part.text ?? nameOf(part.name));
}

/** What a conversation is called. Until a device knows that, it has the conversation's key only. */
export function titleOf({ key, kind, title }) {
  return title === key && kind !== "system" ? "…" : title;
}

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

const KINDS = new Map([
  ["image", "Picture"],
  ["voice", "Voice message"],
  ["file", "File"],
  ["custom", "A message that this page cannot show"],
]);

export function bodyOf(row, me) {
  if (row.recalled) return ["This message was recalled."];
  if (row.kind === "event") return eventWords(row, me);
  return row.text ? [{ text: row.text }] : [KINDS.get(row.kind) ?? "A message without a text"];
}

/** Whether a row shows its own text. If there is none, or it is gone, the page has words for it. */
export function isOwnWords({ kind, text, recalled }) {
  return !recalled && kind !== "event" && text !== "";
}

/** The words of a row, in one line of at most max characters. */
export function lineOf(row, me, max) {
  return bodyOf(row, me).map((part) => (part.text === undefined ? part : { text: cut(part.text.trim().replace(/\s+/g, " "), max) }));
}

const PREVIEW_CHARACTERS = 100;

/** The last row as a list of conversations shows it. */
export function previewOf(row, kind, me) {
  if (row === null) return ["No messages yet"];
  const line = lineOf(row, me, PREVIEW_CHARACTERS);
  if (row.state === "failed") return said`Not sent: ${line}`;
  if (row.kind === "event" || kind === "system") return line;
  if (row.mine) return said`You: ${line}`;
  return kind === "group" ? said`${{ name: row.senderId }}: ${line}` : line;
}

const BY_ITSELF = "system"; // the product; no person has this name

/** The words of an event, such as "bob added carol". */
export function eventWords({ senderId, event }, me) {
  const who = (userId) => (userId === me ? "you" : { name: userId });
  const [first, ...rest] = senderId === BY_ITSELF ? happened(event ?? {}, who) : did(senderId, event ?? {}, who);
  return typeof first === "string" ? [first[0].toUpperCase() + first.slice(1), ...rest] : [first, ...rest];
}

function did(senderId, { kind, added = [], removed = [], member, role, owner, title }, who) {
  const by = who(senderId);
  if (kind === "dissolve") return said`${by} dissolved the group`;
  if (kind === "title") return said`${by} named the group “${{ name: title ?? "" }}”`;
  if (kind !== "members") return ["Something changed"];
  if (title) {
    const others = added.filter((userId) => userId !== senderId);
    return said`${by} made the group “${{ name: title }}”${others.length > 0 ? said` with ${listOf(others.map(who))}` : ""}`;
  }
  if (member) return said`${by} made ${who(member)} ${role === "owner" ? "the owner" : role === "admin" ? "an admin" : "a plain member"}`;
  if (added.length > 0) return said`${by} added ${listOf(added.map(who))}`;
  if (removed.length === 1 && removed[0] === senderId) return said`${by} left${owner ? said`, and ${who(owner)} ${who(owner) === "you" ? "own" : "owns"} the group now` : ""}`;
  return said`${by} removed ${listOf(removed.map(who))}`;
}

function happened({ kind, added = [], removed = [], erased }, who) {
  const verb = (userIds) => (userIds.length > 1 || who(userIds[0]) === "you" ? "were" : "was");
  if (kind === "erase") return said`What ${who(erased)} had written was deleted`;
  if (kind === "dissolve") return ["This group was dissolved"];
  if (kind === "members" && added.length > 0) return said`${listOf(added.map(who))} ${verb(added)} added`;
  if (kind === "members" && removed.length > 0) return said`${listOf(removed.map(who))} ${verb(removed)} removed`;
  return ["Something changed"];
}

/** The state of an own message, {mark, words}: mark for the eye, words for everyone. */
export function deliveryOf({ kind, recalled, state, receipt, readBy, audience }) {
  if (state === "sending") return { mark: "", words: "sending" };
  if (state !== "sent" || recalled || kind === "event") return { mark: "", words: "" };
  const some = receipt !== "read" && readBy.length > 0;
  const count = some ? ` ${readBy.length}/${audience}` : "";
  const mark = (receipt ? "✓✓" : "✓") + count;
  return { mark, words: some ? `read by ${readBy.length} of ${audience}` : (receipt ?? "sent") };
}

/** "a", "a and b", "a, b and c": of parts. */
export function listOf(names) {
  return names.flatMap((name, index) => (index === 0 ? [name] : [index === names.length - 1 ? " and " : ", ", name]));
}

/** The user ids in what someone typed, each once. */
export function namesIn(text) {
  return [...new Set(text.split(/[,;\n]/).map((name) => name.trim()).filter((name) => name !== ""))];
}

/** "1 member", "2 members". */
export function membersWords(count) {
  return `${count} ${count === 1 ? "member" : "members"}`;
}

// ---- what went wrong ----

const WHY = {
  BAD_REQUEST: "the server does not take it",
  UNKNOWN_ACTION: "the server does not know how to do that",
  TOO_LARGE: "it is too long",
  NOT_FOUND: "it is not there any more",
  FORBIDDEN: "you may not do that",
  IDEMPOTENCY_CONFLICT: "another message was sent in its place",
  VERSION_CONFLICT: "it was changed somewhere else meanwhile",
  TOO_LATE: "the time for that is over",
  DISSOLVED: "the group was dissolved",
  LIMIT: "a limit is reached",
  BUSY: "the server is too busy",
  LOST: "the server does not have it any more",
  TIMEOUT: "no answer came",
  DISCONNECTED: "there is no connection",
  OUTBOX_FULL: "too many messages wait to be sent already",
  OUTDATED: "this page has to be reloaded first",
  CLOSED: "you have left",
};

// Some codes mean something more exact for an action.
const WHY_DOING = {
  send: { NOT_FOUND: "you are not in this conversation, or what you answered is gone", LIMIT: "no more messages can be sent here", BAD_REQUEST: "the server does not take it, perhaps because nobody can have that name" },
  edit: { FORBIDDEN: "it cannot be changed, because you were away from the group since" },
  group: { NOT_FOUND: "you are not in this group, or it could not be made", LIMIT: "there are too many members, or too many new groups for one day", BAD_REQUEST: "a name is one that nobody can have, or somebody is a member already" },
};

/** Why something was refused; doing is "send", "edit", "recall", "group" or "look". */
export function whyWords({ code }, doing) {
  const all = { ...WHY, ...WHY_DOING[doing] };
  return Object.hasOwn(all, code) ? all[code] : "something went wrong on the server";
}

/**
 * What to say about a row that is not on the server, {words, again, aside}: again and aside say whether it can be sent
 * again and put aside. Null if there is nothing to say.
 */
export function failureOf({ state, error, kind, lost }) {
  if (state === "failed" && error.code === "LOST") return { words: "The server does not have this any more.", again: error.retryable, aside: error.retryable };
  if (state === "failed" && kind === "event") return { words: `Not done: ${whyWords(error, "group")}.`, again: true, aside: true };
  if (state === "failed") return { words: `Not sent: ${whyWords(error, "send")}.`, again: true, aside: true };
  return lost ? { words: "Only this device still has this.", again: false, aside: false } : null;
}

/** Why the client itself refused something: its error has no code, but words. */
export function problemWords(error, doing) {
  return error.code === undefined ? error.message : whyWords(error, doing);
}

// ---- time ----

const CLOCK = new Intl.DateTimeFormat([], { hour: "numeric", minute: "2-digit" });
const FULL = new Intl.DateTimeFormat([], { dateStyle: "full", timeStyle: "medium" });
const dateFormat = (options) => new Intl.DateTimeFormat("en-GB", options); // the page is in English
const [WEEKDAY, WEEKDAY_SHORT] = [dateFormat({ weekday: "long" }), dateFormat({ weekday: "short" })];
const [DATE, DATE_SHORT] = [dateFormat({ day: "numeric", month: "long" }), dateFormat({ day: "numeric", month: "short" })];
const [DATE_YEAR, DATE_YEAR_SHORT] = [dateFormat({ day: "numeric", month: "long", year: "numeric" }), dateFormat({ day: "numeric", month: "short", year: "numeric" })];

export function clockWords(ms) {
  return CLOCK.format(ms);
}

export function fullTimeWords(ms) {
  return FULL.format(ms);
}

/** The day of a time, seen from now: "Today", "Yesterday", "Monday", "3 March", "3 March 2025". */
export function dayWords(ms, now) {
  const days = daysBetween(ms, now);
  if (days === 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days > 1 && days < 7) return WEEKDAY.format(ms);
  return (isSameYear(ms, now) ? DATE : DATE_YEAR).format(ms);
}

/** As dayWords, for a list: "14:05", "Yesterday", "Mon", "3 Mar", "3 Mar 2025". */
export function whenWords(ms, now) {
  const days = daysBetween(ms, now);
  if (days === 0) return clockWords(ms);
  if (days === 1) return "Yesterday";
  if (days > 1 && days < 7) return WEEKDAY_SHORT.format(ms);
  return (isSameYear(ms, now) ? DATE_SHORT : DATE_YEAR_SHORT).format(ms);
}

export function nextDay(now) {
  const date = new Date(now);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() + 1).getTime();
}

/** How many days are between two times here, by the calendar; a day may have 23 or 25 hours. */
export function daysBetween(ms, now) {
  const day = (time) => {
    const date = new Date(time);
    return Date.UTC(date.getFullYear(), date.getMonth(), date.getDate());
  };
  return (day(now) - day(ms)) / 86_400_000;
}

function isSameYear(a, b) {
  return new Date(a).getFullYear() === new Date(b).getFullYear();
}
