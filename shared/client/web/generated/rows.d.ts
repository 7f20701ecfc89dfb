import type { Ledger } from "./ledger.js";
import type { Facts, Lost, Member, OutboxEntry, Row } from "./types.js";
export type View = import("./rights.js").Standing & {
    ledger: Ledger | null;
    facts: Facts;
    outbox: OutboxEntry[];
    lost: readonly Lost[];
    roster: Member[] | null;
};
/**
 * @import { Ledger } from "./ledger.js"
 * @import { Facts, LedgerEvent, Lost, Member, Message, OutboxEntry, Quote, Revision, Row } from "./types.js"
 */
/**
 * What rows are made of. outbox is what waits for this conversation; roster is null while it is unknown.
 * @typedef {import("./rights.js").Standing & {ledger: Ledger | null, facts: Facts, outbox: OutboxEntry[], lost: readonly Lost[], roster: Member[] | null}} View
 */
/** Up to this many members, each hears the positions of the others. */
export declare const RECEIPTS_MAX_MEMBERS = 20;
/** The error of an own message that the server has lost. */
export declare const LOST: Readonly<{
    code: "LOST";
    message: "the server does not have this message any more";
    retryable: true;
}>;
/**
 * The last `limit` rows in order, those without a seq at the end.
 * @param {View} view @param {number} [limit] @returns {Row[]}
 */
export declare function rowsOf(view: View, limit?: number): Row[];
/**
 * The row of the message with this seq, if it is held and shown.
 * @param {View} view @param {number} seq @returns {Row | null}
 */
export declare function rowAt(view: View, seq: number): Row | null;
