import type { Ledger } from "./ledger.js";
import type { Facts, Message } from "./types.js";
export type OwnPositions = {
    readSeq?: number;
    deliveredSeq?: number;
    clearedSeq?: number;
};
/**
 * @import { Ledger } from "./ledger.js"
 * @import { Facts, Message } from "./types.js"
 */
/** @typedef {{readSeq?: number, deliveredSeq?: number, clearedSeq?: number}} OwnPositions */
/** The sender of what the product writes; no user has this name. */
export declare const SYSTEM = "system";
/**
 * The facts of a conversation of which nothing is known yet.
 * @returns {Facts}
 */
export declare function newFacts(): Facts;
/**
 * Takes facts from a store or another tab. An earlier version of this code held receipts as an object, and may have
 * taken the product for the peer of a single conversation.
 * @param {Partial<Facts>} stored @returns {Facts}
 */
export declare function restored(stored: Partial<Facts>): Facts;
/**
 * Takes a line of the user's list of conversations.
 * @param {Facts} facts @param {any} line
 */
export declare function describe(facts: Facts, line: any): void;
/**
 * Takes an entry that became showable. Returns whether it changed the roster, and whether it made us a member: then
 * there is more to know than the entry says.
 * @param {Facts} facts @param {Pick<Message, "seq" | "senderId" | "serverTime" | "event">} entry @param {string} userId
 */
export declare function apply(facts: Facts, { seq, senderId, serverTime, event }: Pick<Message, "seq" | "senderId" | "serverTime" | "event">, userId: string): {
    roster: boolean;
    joined: boolean;
};
/**
 * Raises some of the positions readSeq, deliveredSeq and clearedSeq; none ever falls. Returns whether one rose.
 * @param {{readSeq: number, deliveredSeq: number, clearedSeq: number}} facts @param {OwnPositions} positions
 */
export declare function raise(facts: {
    readSeq: number;
    deliveredSeq: number;
    clearedSeq: number;
}, positions: OwnPositions): boolean;
/**
 * As raise, for positions that the server knows.
 * @param {Facts} facts @param {OwnPositions} positions
 */
export declare function know(facts: Facts, positions: OwnPositions): boolean;
/**
 * Takes another user's positions.
 * @param {Facts} facts @param {string} userId @param {{deliveredSeq?: number, readSeq?: number}} positions
 */
export declare function receive(facts: Facts, userId: string, { deliveredSeq, readSeq }: {
    deliveredSeq?: number;
    readSeq?: number;
}): void;
/**
 * Whether we have left the conversation and cleared all of it: then no list shows it until we are added again.
 * @param {Facts} facts
 */
export declare function isHidden({ leftSeq, clearedSeq }: Facts): boolean;
/**
 * How many seqs are unread: those above our positions that are not known to be ours, or gone. Up to the seq at
 * which the server counted, they are no more than it counted: it may know more about entries that are not held, or gone.
 * @param {Facts} facts @param {Ledger} ledger @param {string} userId
 * @param {number[]} [sent] seqs of our own that the ledger may not hold yet
 */
export declare function unreadIn({ readSeq, clearedSeq, leftSeq, unread, gaps }: Facts, ledger: Ledger, userId: string, sent?: number[]): number;
/**
 * Notes what a page that the ledger took lacks: it is gone, or not ours to see, and so not unread. Of what
 * the server's count reaches, that counts.
 * @param {Facts} facts
 * @param {number} after the seq up to which the ledger was complete before
 * @param {{messages: Message[], nextSeq: number}} page
 */
export declare function noteGaps(facts: Facts, after: number, { messages, nextSeq }: {
    messages: Message[];
    nextSeq: number;
}): void;
