import type { Parts } from "./engine.js";
import type { Ledger } from "./ledger.js";
import type { ConversationKey, Message } from "./types.js";
/**
 * @import { Parts } from "./engine.js"
 * @import { Ledger } from "./ledger.js"
 * @import { ConversationKey, Message } from "./types.js"
 */
export declare class Entries {
    #private;
    /** @param {Parts} parts */
    constructor(parts: Parts);
    /** @param {{conversationId: string, messages?: Message[], committedMaxSeq: number}} update of a push or a notify */
    pushed({ conversationId, messages, committedMaxSeq }: {
        conversationId: string;
        messages?: Message[];
        committedMaxSeq: number;
    }): void;
    /**
     * Lets a ledger that holds nothing begin with its end: nobody waits for ten thousand entries to read the last ten.
     * @param {Ledger} ledger
     */
    startLate(ledger: Ledger): void;
    /**
     * @param {Ledger} ledger @param {any} page
     * @param {number} held how far the ledger was complete when the page was asked for
     */
    pulled(ledger: Ledger, page: any, held: number): void;
    /**
     * Takes a history page of what is held from before an absence.
     * @param {Ledger} ledger @param {{messages: Message[], nextBeforeSeq: number, hasMore: boolean}} page
     */
    pulledAgain(ledger: Ledger, { messages, nextBeforeSeq, hasMore }: {
        messages: Message[];
        nextBeforeSeq: number;
        hasMore: boolean;
    }): void;
    /**
     * Loads a page of what is before the first entry held. Rejects with a RequestError.
     * @param {ConversationKey} key
     */
    loadEarlier(key: ConversationKey): Promise<void>;
    /**
     * Lets a ledger take something in, and stores and shows the outcome. arrived may hold more than became showable: an
     * own message above a gap is committed all the same and need not be sent again.
     * @param {Ledger} ledger @param {Message[]} arrived
     * @param {() => Message[]} takeIn returns the messages that are new or changed
     */
    take(ledger: Ledger, arrived: Message[], takeIn: () => Message[]): void;
}
