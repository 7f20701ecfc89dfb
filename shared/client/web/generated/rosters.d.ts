import type { Member } from "./types.js";
export declare class Rosters {
    #private;
    /**
     * members, by conversationId and ordered by userId, are shared with who shows them.
     * @param {object} parts
     * @param {Map<string, Member[]>} parts.members
     * @param {(action: string, fields: object) => Promise<any>} parts.request
     * @param {() => void} parts.onChange
     */
    constructor({ members, request, onChange }: {
        members: Map<string, Member[]>;
        request: (action: string, fields: object) => Promise<any>;
        onChange: () => void;
    });
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
