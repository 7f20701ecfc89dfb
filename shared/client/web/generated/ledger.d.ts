import type { LedgerEvent, Message } from "./types.js";
export type SyncPage = {
    messages: Message[];
    nextSeq: number;
    committedMaxSeq: number;
    skipped?: number[] | null;
    firstSeq?: number;
};
export type RevisionMessage = Message & {
    event: LedgerEvent;
};
/** @typedef {{messages: Message[], nextSeq: number, committedMaxSeq: number, skipped?: number[] | null, firstSeq?: number}} SyncPage */
/** @typedef {Message & {event: LedgerEvent}} RevisionMessage one that recalls or edits another */
export declare class Ledger {
    #private;
    conversationId: string;
    /**
     * The shown entries in seq order, each as the recalls and edits that are held leave it.
     * @type {Message[]}
     */
    messages: Message[];
    /** How many pulls of it failed in a row. */
    failures: number;
    /** The entries up to here were not asked for yet; 0 once everything was. */
    baseSeq: number;
    /** Every seq from baseSeq up to here is either in messages or known not to be ours to see. */
    maxContiguousSeq: number;
    /** The highest seq that anyone has told us was committed. */
    maxSeenSeq: number;
    /**
     * @param {string} conversationId
     * @param {{baseSeq?: number, maxContiguousSeq?: number, messages?: Message[], earlyLimit?: number}} [held]
     */
    constructor(conversationId: string, { baseSeq, maxContiguousSeq, messages, earlyLimit }?: {
        baseSeq?: number;
        maxContiguousSeq?: number;
        messages?: Message[];
        earlyLimit?: number;
    });
    /** True while something committed has not arrived yet: a pull is due. */
    get hasGap(): boolean;
    /** How many entries wait for an earlier one. */
    get earlyCount(): number;
    /**
     * The entry with this seq, if it is held and shown.
     * @param {number} seq
     * @returns {Message | undefined}
     */
    get(seq: number): Message | undefined;
    /**
     * Counts the seqs above after, up to through, whose entries are this user's: in order, early, or among sent.
     * @param {string} userId
     * @param {number} after
     * @param {number} through
     * @param {number[]} sent
     */
    countBy(userId: string, after: number, through: number, sent: number[]): number;
    /**
     * Tells whether an entry in order, above after, is news to this user: not own, nor one that only takes content away.
     * @param {string} userId
     * @param {number} after
     */
    newsFor(userId: string, after: number): boolean;
    /**
     * Takes note that seq is committed.
     * @param {number} seq
     */
    see(seq: number): void;
    /**
     * Lets a ledger that holds nothing yet begin after seq; history brings what is before.
     * @param {number} seq
     */
    startAfter(seq: number): void;
    /**
     * Takes pushed entries, in any order and with repeats. Returns the entries that are new or changed
     * in messages.
     * @param {Message[]} messages
     * @param {number} committedMaxSeq
     */
    push(messages: Message[], committedMaxSeq: number): Message[];
    /**
     * Takes a sync page that was asked for from maxContiguousSeq, or from a value it had before. The
     * page is the authority on its range: a seq up to nextSeq that it lacks is not ours to see, whatever
     * a push said. Returns the entries that are new or changed in messages.
     * @param {SyncPage} page
     */
    page({ messages, nextSeq, committedMaxSeq }: SyncPage): Message[];
    /**
     * Takes a history page that was asked for with beforeSeq. Returns the entries that are new or
     * changed in messages; none if the page does not end where this ledger begins (any more).
     * @param {{messages: Message[], nextBeforeSeq: number, hasMore: boolean}} page
     * @param {number} beforeSeq
     */
    earlier({ messages, nextBeforeSeq, hasMore }: {
        messages: Message[];
        nextBeforeSeq: number;
        hasMore: boolean;
    }, beforeSeq: number): Message[];
    /**
     * The server says there is no more, in answer to a question asked when maxSeenSeq was seenWhenAsked.
     * A higher number heard before the question was then not for us (such as the head of a group that
     * we left), and waiting for it would never end. Held entries prove the opposite and are kept.
     * @param {number} seenWhenAsked
     */
    settle(seenWhenAsked: number): void;
    /**
     * Takes what another tab holds: messages replace what is held under their seqs.
     * @param {{baseSeq: number, maxContiguousSeq: number, messages: Message[]}} other
     */
    adopt({ baseSeq, maxContiguousSeq, messages }: {
        baseSeq: number;
        maxContiguousSeq: number;
        messages: Message[];
    }): void;
}
/**
 * Tells whether a sync page says of each seq after the one it was asked for, up to its nextSeq, where it
 * is: a page that does not is not to be believed, as what it leaves out would be lost for ever.
 * @param {SyncPage} page
 * @param {number} afterSeq
 */
export declare function accountsForAll({ messages, nextSeq, skipped, firstSeq }: SyncPage, afterSeq: number): boolean;
/**
 * Tells whether an entry is shown by what it does to others, not as a row of its own.
 * @param {Message} message
 */
export declare function isRevision(message: Message): boolean;
