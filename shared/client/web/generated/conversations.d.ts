import type { Model } from "./model.js";
import type { Conversation, ConversationKey, Row } from "./types.js";
/**
 * @import { Model } from "./model.js"
 * @import { Conversation, ConversationKey, Facts, Member, OutboxEntry, Role, Row } from "./types.js"
 */
/**
 * The current keys of what is on the user's list.
 * @param {Model} model
 */
export declare function listed(model: Model): string[];
/**
 * The last `limit` rows of a conversation.
 * @param {Model} model @param {ConversationKey} key @param {number} limit
 * @param {number} now ms since 1970
 * @returns {Row[]}
 */
export declare function rowsIn(model: Model, key: ConversationKey, limit: number, now: number): Row[];
/**
 * The row of one message, if it is held and shown.
 * @param {Model} model @param {ConversationKey} key @param {number} seq
 * @param {number} now ms since 1970
 */
export declare function rowIn(model: Model, key: ConversationKey, seq: number, now: number): Row | null;
/**
 * Whether we may do something in a group, as far as is known; see may in rights.js.
 * @param {Model} model @param {ConversationKey} key @param {string} action @param {string} [target]
 */
export declare function mayDo(model: Model, key: ConversationKey, action: string, target?: string): boolean;
/**
 * @param {Model} model @param {ConversationKey} key
 * @param {number} now ms since 1970
 * @returns {Conversation}
 */
export declare function summaryOf(model: Model, key: ConversationKey, now: number): Conversation;
