import type { Parts } from "./engine.js";
export declare class Rosters {
    #private;
    /** @param {Parts} parts */
    constructor(parts: Parts);
    /**
     * The members changed: what is known is shown until the next read.
     * @param {string} conversationId
     */
    invalidate(conversationId: string): void;
    /**
     * The members are not ours to know any more.
     * @param {string} conversationId
     */
    forget(conversationId: string): void;
    /**
     * Reads the members if they are not known as they are now. Rejects with the request's error.
     * @param {string} conversationId
     */
    refresh(conversationId: string): Promise<void>;
}
