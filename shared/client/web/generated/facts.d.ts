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
/** Who the product writes as; no user has this name. */
export declare const SYSTEM = "system";
/**
 * Nothing known yet.
 * @returns {Facts}
 */
export declare function newFacts(): Facts;
/**
 * What a store or another tab has of it. Those of an earlier version hold receipts as an object, and may
 * take the product for the other one of a single conversation.
 * @param {Partial<Facts>} stored
 * @returns {Facts}
 */
export declare function restored(stored: Partial<Facts>): Facts;
/**
 * Takes a line of the user's list.
 * @param {Facts} facts
 * @param {any} line
 */
export declare function describe(facts: Facts, line: any): void;
/**
 * Takes an entry that became showable. Tells whether it changed the roster, and whether it made us a
 * member: then there is more to know than it says.
 * @param {Facts} facts
 * @param {Pick<Message, "seq" | "senderId" | "serverTime" | "event">} entry
 * @param {string} userId
 */
export declare function apply(facts: Facts, { seq, senderId, serverTime, event }: Pick<Message, "seq" | "senderId" | "serverTime" | "event">, userId: string): {
    roster: boolean;
    joined: boolean;
};
/**
 * Raises some of readSeq, deliveredSeq and clearedSeq; none ever falls. Tells whether one rose.
 * @param {{readSeq: number, deliveredSeq: number, clearedSeq: number}} facts
 * @param {OwnPositions} positions
 */
export declare function raise(facts: {
    readSeq: number;
    deliveredSeq: number;
    clearedSeq: number;
}, positions: OwnPositions): boolean;
/**
 * As raise, for positions that the server told.
 * @param {Facts} facts
 * @param {OwnPositions} positions
 */
export declare function know(facts: Facts, positions: OwnPositions): boolean;
/**
 * Takes how far another user is.
 * @param {Facts} facts
 * @param {string} userId
 * @param {{deliveredSeq?: number, readSeq?: number}} positions
 */
export declare function receive(facts: Facts, userId: string, { deliveredSeq, readSeq }: {
    deliveredSeq?: number;
    readSeq?: number;
}): void;
/**
 * Whether we have left the conversation and cleared all of it: then it is on no list, until we are added again.
 * @param {Facts} facts
 */
export declare function isHidden({ leftSeq, clearedSeq }: Facts): boolean;
/**
 * How many seqs are unread: those above our positions that are not known to be ours. Of what was there when
 * the server counted, it are no more than it said: it may know more of what is not held, or not there.
 * @param {Facts} facts
 * @param {Ledger} ledger
 * @param {string} userId
 * @param {number[]} [sent] seqs of our own that the ledger may not hold yet
 */
export declare function unreadIn({ readSeq, clearedSeq, leftSeq, unread }: Facts, ledger: Ledger, userId: string, sent?: number[]): number;
