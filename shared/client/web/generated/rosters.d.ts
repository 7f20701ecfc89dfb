import type { Parts } from "./engine.js";
export declare class Rosters {
    #private;
    /** @param {Parts} parts */
    constructor(parts: Parts);
    /**
     * They changed: what is known is shown until the next read.
     * @param {string} conversationId
     */
    invalidate(conversationId: string): void;
    /**
     * They are not ours to know any more.
     * @param {string} conversationId
     */
    forget(conversationId: string): void;
    /**
     * Reads them if they are not known as they are now. Rejects with the request's error.
     * @param {string} conversationId
     */
    refresh(conversationId: string): Promise<void>;
}
