// Checks what programs pass in before it is used, so that the error names what is wrong where it was passed. No message
// and no log ever holds a token.

/** @import { Content } from "./types.js" */

const DEVICE_ID = /^[A-Za-z0-9._-]{1,64}$/;
const KEY = /^(single|group|system|to|new):/;
const MAX_USER_ID_BYTES = 128;
const SUBPROTOCOL = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/; // what browsers accept as a subprotocol
const JWT = /eyJ[A-Za-z0-9_.-]*/g;

/** The most text one message holds, counted in code points as the server counts runes. */
export const MAX_TEXT_RUNES = 4000;

/** The longest title of a group, counted in the same way. */
export const MAX_TITLE_RUNES = 100;

/** How deep the server accepts data to be; data itself is the first object. */
export const MAX_DATA_DEPTH = 32;
const MAX_VALUES = 24 * 1024; // of one message; each takes at least a byte

/**
 * Throws a TypeError that names the option that is wrong.
 * @param {Partial<import("./client.js").Options>} options
 */
export function checkOptions({ url, userId, deviceId, token, WebSocket = globalThis.WebSocket }) {
  socketURL(url);
  const bytes = typeof userId === "string" ? new TextEncoder().encode(userId).length : 0;
  if (bytes === 0 || bytes > MAX_USER_ID_BYTES) throw new TypeError(`userId has to be the user whose token it is, its sub, 1 to ${MAX_USER_ID_BYTES} bytes`);
  if (typeof deviceId !== "string" || !DEVICE_ID.test(deviceId)) throw new TypeError("deviceId has to be 1 to 64 of A-Z a-z 0-9 . _ and -");
  if (typeof token !== "function") throw new TypeError("token has to be a function that gives a JWT");
  if (typeof WebSocket !== "function") throw new TypeError("WebSocket is missing: Node has one from version 22 on; before that give one as this option, such as that of the package ws");
}

/**
 * The server's URL in full: one that begins with / or . is relative to the page, as a WebSocket takes it. A TypeError
 * says what is wrong.
 * @param {unknown} url @param {string} [page] @returns {string}
 */
export function socketURL(url, page = globalThis.document?.baseURI ?? globalThis.location?.href) {
  const isRelative = typeof url === "string" && /^[./]/.test(url);
  if (isRelative && page === undefined) throw new TypeError(`url is ${url}, but there is no page here that it could be relative to; give a URL of wss: or ws:`);
  try {
    const full = new URL(/** @type {string} */ (url), isRelative ? page : undefined);
    if (isRelative) full.protocol = full.protocol.replace("http", "ws");
    if (typeof url === "string" && !url.includes("#") && /^wss?:$/.test(full.protocol)) return isRelative ? full.href : url;
  } catch {
    // the error below says it
  }
  throw new TypeError("url has to be a URL of wss: or ws:, or what begins with / in the page's own, without a fragment");
}

/**
 * Returns the token that a program's function returns, if it can be this user's. isKnown says whether the token itself
 * names the user; if it cannot be read here, the server does. Errors never hold the token.
 * @param {() => Promise<string> | string} token @param {string} userId
 * @returns {Promise<{jwt: string, isKnown: boolean}>}
 */
export async function tokenOf(token, userId) {
  let jwt;
  try {
    jwt = await token();
  } catch (thrown) {
    const { message = thrown, permanent = false } = /** @type {any} */ (thrown) ?? {};
    throw Object.assign(new Error(String(message).replace(JWT, "…")), { permanent });
  }
  if (typeof jwt !== "string" || !SUBPROTOCOL.test(jwt)) throw forGood("what token() gave is no token that a browser can send: it is empty, or has a space, a line break or another character that no JWT has");
  const sub = subjectOf(jwt);
  const isKnown = typeof sub === "string";
  if (isKnown) checkOwner(sub, userId);
  return { jwt, isKnown };
}

/**
 * Throws if a token is another user's: what this user wrote would be sent in that user's name.
 * @param {string} owner @param {string} userId
 */
export function checkOwner(owner, userId) {
  if (owner !== userId) throw forGood(`token() gave a token of “${owner}”, but userId is “${userId}”`);
}

/**
 * The user whose token it is; undefined if the token does not say it. Then the server does.
 * @param {string} jwt @returns {unknown}
 */
function subjectOf(jwt) {
  try {
    const payload = atob(jwt.split(".")[1].replaceAll("-", "+").replaceAll("_", "/"));
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(payload, (byte) => byte.charCodeAt(0)))).sub;
  } catch {
    return undefined;
  }
}

/**
 * Makes a socket. What the browser refuses to try now, it will refuse the next time, too.
 * @param {typeof globalThis.WebSocket} WebSocket @param {string} url @param {string} jwt
 */
export function dial(WebSocket, url, jwt) {
  try {
    return new WebSocket(url, ["inorder.v1", `bearer.${jwt}`]);
  } catch (thrown) {
    const { message } = /** @type {Error} */ (thrown);
    throw forGood(`the browser does not connect to ${url}: ${message.replaceAll(jwt, "…")}`);
  }
}

/** @param {string} message */
function forGood(message) {
  return Object.assign(new Error(message), { permanent: true });
}

/**
 * Counts the characters of a text as the server does.
 * @param {string} text
 */
export function countRunes(text) {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/**
 * Returns the parts of what is to be sent. A TypeError says what has the wrong type, a RangeError what is wrong with
 * the text.
 * @param {string | Content} content @returns {Content}
 */
export function checkedContent(content) {
  const { type, text, data } = contentOf(content);
  if (type === "text" && !data && (text ?? "").trim() === "") throw new RangeError("the message is empty");
  if (text !== undefined && countRunes(text) > MAX_TEXT_RUNES) throw new RangeError(`the message is over ${MAX_TEXT_RUNES} characters`);
  return { type, text, data };
}

/** @param {string | Content} content @returns {Content} */
function contentOf(content) {
  if (typeof content === "string") return { type: "text", text: content };
  if (typeof content !== "object" || content === null) throw new TypeError("the content has to be a text, or {type, text, data}");
  const { type = "text", text, data } = content;
  if (typeof type !== "string") throw new TypeError("type has to be a string");
  if (text !== undefined && text !== null && typeof text !== "string") throw new TypeError("text has to be a string");
  if (data !== undefined && data !== null && (typeof data !== "object" || Array.isArray(data))) throw new TypeError("data has to be an object");
  return { type, text: text ?? undefined, data: data ?? undefined };
}

/** @param {string} title */
export function checkTitle(title) {
  if (typeof title !== "string") throw new TypeError("the title has to be a string");
  if (title.trim() === "") throw new RangeError("the title is empty");
  if (countRunes(title) > MAX_TITLE_RUNES) throw new RangeError(`the title is over ${MAX_TITLE_RUNES} characters`);
}

/** @param {unknown} users */
export function checkUsers(users) {
  if (!Array.isArray(users) || !users.every((user) => typeof user === "string")) throw new TypeError("members have to be a list of user ids");
}

// A user id is no key, though either is a string.
/** @param {unknown} key @returns {asserts key is string} */
export function checkKey(key) {
  if (typeof key === "string" && KEY.test(key)) return;
  const given = typeof key === "string" ? `${JSON.stringify(key.slice(0, 100))} is none` : "it has to be a string";
  throw new TypeError(`a conversation's key is its conversationId, or what keyFor or createGroup returns; ${given}`);
}

/**
 * Copies value as JSON holds it: a Proxy as what it shows, a Date as its text. A TypeError says where there is
 * something that JSON has no place for (a function, a BigInt, NaN, a Map, a node of the page, a cycle).
 * @param {unknown} value @param {string} name @returns {any}
 */
export function jsonCopy(value, name) {
  /** @type {unknown[]} */
  const around = [];
  let count = 0;
  /** @param {any} part @param {string} path @returns {any} */
  const copy = (part, path) => {
    if (++count > MAX_VALUES) throw new TypeError(`${name} cannot be sent: it is too large`);
    const given = typeof part?.toJSON === "function" ? part.toJSON() : part;
    if (given === null || typeof given === "string" || typeof given === "boolean" || Number.isFinite(given)) return given;
    if (!isPlain(given)) throw new TypeError(`${path} cannot be sent: JSON has no ${kindOf(given)}`);
    if (around.includes(given)) throw new TypeError(`${path} cannot be sent: it contains itself`);
    if (around.length >= MAX_DATA_DEPTH) throw new TypeError(`${path} cannot be sent: it is more than ${MAX_DATA_DEPTH} objects and lists deep`);
    around.push(given);
    const copied = Array.isArray(given)
      ? Array.from(given, (item, i) => copy(item, `${path}[${i}]`))
      : Object.fromEntries(Object.entries(given).filter(([, item]) => item !== undefined).map(([field, item]) => [field, copy(item, `${path}.${field}`)]));
    around.pop();
    return copied;
  };
  return copy(value, name);
}

/** @param {unknown} value */
function isPlain(value) {
  return Array.isArray(value) || Object.prototype.toString.call(value) === "[object Object]";
}

/** @param {unknown} value */
function kindOf(value) {
  return typeof value === "object" ? Object.prototype.toString.call(value).slice("[object ".length, -1) : typeof value === "number" ? String(value) : typeof value;
}
