import type { Role } from "./role.js";
import type { Clock, Conversation, ConversationKey, Member, Row } from "./types.js";
/** For how many lists of rows, and how many conversations, reading returns the same objects until they change. */
export declare const MAX_VIEWS = 1000;
export declare class Readings {
    #private;
    /** @param {Role} role @param {Clock} clock @param {() => void} onChange called when such a time is over */
    constructor(role: Role, clock: Clock, onChange: () => void);
    /** What the server's clock says, as far as is known, in ms since 1970. */
    now(): number;
    /** Something may have changed: all is read anew. */
    changed(): void;
    /** @returns {readonly Conversation[]} most recent first */
    conversations(): readonly Conversation[];
    /** @param {ConversationKey} key a current one @returns {Conversation} */
    conversation(key: ConversationKey): Conversation;
    /** @param {ConversationKey} key a current one @param {number} limit @returns {readonly Row[]} */
    messages(key: ConversationKey, limit: number): readonly Row[];
    /** @param {ConversationKey} key a current one @returns {readonly Member[] | null} */
    members(key: ConversationKey): readonly Member[] | null;
}
