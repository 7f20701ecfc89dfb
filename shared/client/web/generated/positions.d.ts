import type { Parts } from "./engine.js";
import type { OwnPositions } from "./facts.js";
export type TellState = {
    timer: any;
    busy: boolean;
    failures: number;
    asked: OwnPositions;
    told: OwnPositions;
    said: number;
};
/**
 * Of a conversation, on one connection. told is what was told without an answer since the last catch-up, said how far
 * any such was.
 * @typedef {{timer: any, busy: boolean, failures: number, asked: OwnPositions, told: OwnPositions, said: number}} TellState
 */
export declare class Positions {
    #private;
    /** @param {Parts} parts */
    constructor(parts: Parts);
    /** A connection is there. */
    start(): void;
    /** The connection is gone; what was not answered is told again over the next one. */
    stop(): void;
    /**
     * Raises the user's positions in a conversation.
     * @param {string} conversationId @param {OwnPositions} positions
     */
    raise(conversationId: string, positions: OwnPositions): void;
    /**
     * Takes positions that the server is known to know.
     * @param {string} conversationId @param {OwnPositions} positions
     */
    know(conversationId: string, positions: OwnPositions): void;
    /** A catch-up has said what the server knows. Where it did not, nothing that was told without an answer is taken as known. */
    caughtUp(): void;
    /**
     * Something may have changed in a conversation.
     * @param {string} conversationId
     */
    note(conversationId: string): void;
}
