export type Content = import("./types.js").Content;
export type Conversation = import("./types.js").Conversation;
export type ConversationKey = import("./types.js").ConversationKey;
export type ConnectionState = import("./types.js").ConnectionState;
export type LedgerEvent = import("./types.js").LedgerEvent;
export type Member = import("./types.js").Member;
export type NewMessage = import("./types.js").NewMessage;
export type Quote = import("./types.js").Quote;
export type Refusal = import("./types.js").Refusal;
export type Revision = import("./types.js").Revision;
export type Role = import("./types.js").Role;
export type Row = import("./types.js").Row;
export type Store = import("./types.js").Store;
export type Options = import("./client.js").Options;
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
