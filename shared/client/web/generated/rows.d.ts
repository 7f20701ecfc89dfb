import type { Ledger } from "./ledger.js";
import type { Entry, Facts, Lost, Member, Row } from "./types.js";
export type View = import("./rights.js").Standing & {
    ledger: Ledger | null;
    facts: Facts;
    entries: Entry[];
    lost: readonly Lost[];
    roster: Member[] | null;
};
/**
 * @import { Ledger } from "./ledger.js"
 * @import { Entry, Facts, LedgerEvent, Lost, Member, Message, Quote, Revision, Row } from "./types.js"
 */
/**
 * entries are the outbox's for this conversation, roster is null while it is unknown.
 * @typedef {import("./rights.js").Standing & {ledger: Ledger | null, facts: Facts, entries: Entry[], lost: readonly Lost[], roster: Member[] | null}} View
 */
/** Up to so many members, each hears how far the others are. */
export declare const RECEIPTS_MAX_MEMBERS = 20;
/** Why an own message failed that the server has lost. */
export declare const LOST: Readonly<{
    code: "LOST";
    message: "the server does not have this message any more";
    retryable: true;
}>;
/**
 * Whether an outbox entry changes a message, and so has no row of its own.
 * @param {Entry} entry
 */
export declare function revises({ action }: Entry): boolean;
/**
 * The last `limit` rows in order, those without a seq at the end.
 * @param {View} view
 * @param {number} [limit]
 * @returns {Row[]}
 */
export declare function rowsOf(view: View, limit?: number): Row[];
/**
 * The row of the message with this seq, if it is held and shown.
 * @param {View} view
 * @param {number} seq
 * @returns {Row | null}
 */
export declare function rowAt(view: View, seq: number): Row | null;
