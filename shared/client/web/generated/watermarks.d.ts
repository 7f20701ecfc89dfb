import type { OwnPositions } from "./facts.js";
import type { Clock } from "./types.js";
export type WatermarkHooks = {
    /**
     * what the server does not know yet
     */
    wanted: (conversationId: string) => OwnPositions;
    /**
     * resolves when all that came is stored
     */
    settled: () => Promise<void>;
    request: (action: string, fields: object) => Promise<any>;
    /**
     * without an answer
     */
    tell: (action: string, fields: object) => void;
    /**
     * whether the next catch-up will say how far the server knows us
     */
    confirmed: (conversationId: string) => boolean;
    /**
     * takes what the server answered
     */
    told: (conversationId: string, positions: OwnPositions) => void;
};
export type TellState = {
    timer: any;
    busy: boolean;
    failures: number;
    asked: OwnPositions;
    said: number;
};
/**
 * @import { OwnPositions } from "./facts.js"
 * @import { Clock } from "./types.js"
 */
/**
 * @typedef {object} WatermarkHooks
 * @property {(conversationId: string) => OwnPositions} wanted what the server does not know yet
 * @property {() => Promise<void>} settled resolves when all that came is stored
 * @property {(action: string, fields: object) => Promise<any>} request
 * @property {(action: string, fields: object) => void} tell without an answer
 * @property {(conversationId: string) => boolean} confirmed whether the next catch-up will say how far the server knows us
 * @property {(conversationId: string, positions: OwnPositions) => void} told takes what the server answered
 */
/** @typedef {{timer: any, busy: boolean, failures: number, asked: OwnPositions, said: number}} TellState of a conversation, on one connection */
export declare class Watermarks {
    #private;
    /**
     * @param {object} parts
     * @param {WatermarkHooks} parts.hooks
     * @param {Clock} parts.clock
     * @param {() => number} parts.random
     * @param {{backoffBaseMs: number, backoffCapMs: number, tellWaitMs: number}} parts.timing
     */
    constructor({ hooks, clock, random, timing }: {
        hooks: WatermarkHooks;
        clock: Clock;
        random: () => number;
        timing: {
            backoffBaseMs: number;
            backoffCapMs: number;
            tellWaitMs: number;
        };
    });
    /** A connection is there. */
    start(): void;
    /** The connection is gone; what was not answered is told again over the next one. */
    stop(): void;
    /**
     * Something may have changed in a conversation.
     * @param {string} conversationId
     */
    note(conversationId: string): void;
}
