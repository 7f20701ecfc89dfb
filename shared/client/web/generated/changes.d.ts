import type { Parts } from "./engine.js";
export type Turn = {
    heartbeat: any;
    catching: Promise<void> | null;
    again: boolean;
    headsCursor?: string;
};
/** @import { Parts } from "./engine.js" */
/** @typedef {{heartbeat: any, catching: Promise<void> | null, again: boolean, headsCursor?: string}} Turn one per connection */
export declare class Changes {
    #private;
    /** @param {Parts} parts */
    constructor(parts: Parts);
    /** There is a connection; catchUp is to follow. */
    start(): void;
    stop(): void;
    /** Has a catch-up that is under way ask once more. */
    askAgain(): void;
    /** Asks what changed and pulls it, again if called meanwhile. Resolves when that is done, or the connection is gone. */
    catchUp(): Promise<void>;
    /**
     * Notes that entries of a conversation were pushed.
     * @param {string} conversationId
     */
    notePush(conversationId: string): void;
    /**
     * Whether the next answer is to have a conversation in it, and how far the server knows us there.
     * @param {string} conversationId
     */
    willTellOf(conversationId: string): boolean;
    /**
     * Asks what a conversation is of which only entries are known.
     * @param {string} conversationId
     */
    getToKnow(conversationId: string): void;
    /**
     * Takes a line of the user's list of conversations. Returns the ledger of its conversation.
     * @param {any} line
     */
    describe(line: any): import("./ledger.js").Ledger;
}
