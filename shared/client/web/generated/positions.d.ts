import type { Parts } from "./engine.js";
import type { OwnPositions } from "./facts.js";
export type TellState = {
    timer: any;
    busy: boolean;
    failures: number;
    asked: OwnPositions;
    said: number;
};
/**
 * @import { Parts } from "./engine.js"
 * @import { OwnPositions } from "./facts.js"
 */
/** @typedef {{timer: any, busy: boolean, failures: number, asked: OwnPositions, said: number}} TellState of a conversation, on one connection */
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
    /**
     * Something may have changed in a conversation.
     * @param {string} conversationId
     */
    note(conversationId: string): void;
}
