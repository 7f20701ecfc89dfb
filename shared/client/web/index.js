// The browser client of Inorder: what programs import. Everything else in this folder is internal.

/**
 * @typedef {import("./types.js").Content} Content
 * @typedef {import("./types.js").Conversation} Conversation
 * @typedef {import("./types.js").ConversationKey} ConversationKey
 * @typedef {import("./types.js").ConnectionState} ConnectionState
 * @typedef {import("./types.js").LedgerEvent} LedgerEvent
 * @typedef {import("./types.js").Member} Member
 * @typedef {import("./types.js").NewMessage} NewMessage
 * @typedef {import("./types.js").Quote} Quote
 * @typedef {import("./types.js").Refusal} Refusal
 * @typedef {import("./types.js").Revision} Revision
 * @typedef {import("./types.js").Role} Role
 * @typedef {import("./types.js").Row} Row
 * @typedef {import("./types.js").Store} Store
 * @typedef {import("./client.js").Options} Options
 */

export { MAX_TEXT_RUNES, MAX_TITLE_RUNES, countRunes } from "./checks.js";
export { InorderClient, open } from "./client.js";
export { RequestError } from "./connection.js";
export { ROLES, may } from "./rights.js";
export { IndexedDBStore, MemoryStore } from "./store.js";
