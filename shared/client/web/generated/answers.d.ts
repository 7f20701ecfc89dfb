import type { Parts } from "./engine.js";
import type { Ledger } from "./ledger.js";
import type { OutboxEntry, Refusal } from "./types.js";
export declare class Answers {
    #private;
    /** @param {Parts} parts */
    constructor(parts: Parts);
    /**
     * Takes what the user asked for, once. Resolves when it is stored.
     * @param {OutboxEntry} entry
     */
    accept(entry: OutboxEntry): Promise<void>;
    /**
     * Forgets what was refused; if that is a group that could not be made, also what was meant for it.
     * @param {string} clientMsgId
     */
    discard(clientMsgId: string): void;
    /**
     * Sends what was refused again, after all else, and with a group that could not be made what was meant for it.
     * Returns its clientMsgId, which is a new one if the server would refuse the old one for itself; null if nothing of
     * it was refused.
     * @param {string} clientMsgId @returns {Promise<string | null>}
     */
    retry(clientMsgId: string): Promise<string | null>;
    /** @param {OutboxEntry} entry @param {any} result */
    answered(entry: OutboxEntry, result: any): void;
    /**
     * Notes that an entry is committed, as an answer or the entry itself tells.
     * @param {OutboxEntry} entry
     * @param {{conversationId: string, seq: number, messageId?: string, serverTime?: number}} result
     */
    sent(entry: OutboxEntry, { conversationId, seq, messageId, serverTime }: {
        conversationId: string;
        seq: number;
        messageId?: string;
        serverTime?: number;
    }): void;
    /**
     * Forgets the entries whose messages the ledger shows: its own rows stand for them.
     * @param {Ledger} ledger
     */
    forgetShown({ conversationId, maxContiguousSeq }: Ledger): void;
    /** @param {OutboxEntry} entry @param {Refusal} error */
    refused(entry: OutboxEntry, { code, message, retryable }: Refusal): void;
}
