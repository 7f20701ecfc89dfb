import type { Parts } from "./engine.js";
import type { ConversationKey } from "./types.js";
/**
 * @import { Parts } from "./engine.js"
 * @import { ConversationKey } from "./types.js"
 */
export declare class Receipts {
    #private;
    /** @param {Parts} parts */
    constructor(parts: Parts);
    /** @param {{conversationId: string, userId: string, deliveredSeq?: number, readSeq?: number}} frame */
    pushed({ conversationId, userId, deliveredSeq, readSeq }: {
        conversationId: string;
        userId: string;
        deliveredSeq?: number;
        readSeq?: number;
    }): void;
    /**
     * Who has received and who has read a message. Rejects with a RequestError.
     * @param {ConversationKey} key @param {number} seq
     */
    of(key: ConversationKey, seq: number): Promise<{
        delivered: string[];
        read: string[];
    }>;
    /**
     * Looks them up for the last own message: they are pushed once, perhaps while we were away.
     * @param {string} conversationId
     */
    lookUp(conversationId: string): Promise<void>;
}
