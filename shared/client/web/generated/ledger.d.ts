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
     * The shown entries in seq order, each as the held recalls and edits leave it.
     * @type {Message[]}
     */
    messages: Message[];
    /** How many pulls failed in a row. */
    failures: number;
    /** How often it passed over a time in which the user was away. */
    absences: number;
    /** The entries up to this seq were not asked for yet; 0 once all were. */
    baseSeq: number;
    /** Every seq above baseSeq up to this one is either in messages or known not to be ours to see. */
    maxContiguousSeq: number;
    /** The highest seq that we know to be committed. */
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
    /** Whether something committed has not arrived yet: a pull is due. */
    get hasGap(): boolean;
    /** How many entries wait for an earlier one. */
    get earlyCount(): number;
    /**
     * The entry with this seq, if it is held and shown.
     * @param {number} seq @returns {Message | undefined}
     */
    get(seq: number): Message | undefined;
    /**
     * Counts the seqs above after and up to through whose entries are never unread to this user: in order, early, or
     * among sent.
     * @param {string} userId @param {number} after @param {number} through @param {number[]} sent
     */
    countBy(userId: string, after: number, through: number, sent: number[]): number;
    /**
     * Whether an entry in order, above after, is news to this user: not an own one, nor one that only takes content away.
     * One that was not asked for may be.
     * @param {string} userId @param {number} after
     */
    newsFor(userId: string, after: number): boolean;
    /**
     * Notes that seq is committed.
     * @param {number} seq
     */
    see(seq: number): void;
    /**
     * Makes a ledger that holds nothing begin after seq; history brings what is before.
     * @param {number} seq
     */
    startAfter(seq: number): void;
    /**
     * Takes pushed entries, in any order and with repeats. Returns the entries that are new or changed in messages.
     * @param {Message[]} messages @param {number} committedMaxSeq
     */
    push(messages: Message[], committedMaxSeq: number): Message[];
    /**
     * Takes a sync page that was asked for from maxContiguousSeq, or from a value it had before. The page is the
     * authority on its range: a seq up to nextSeq that it lacks is not ours to see, whatever a push held. Returns the
     * entries that are new or changed in messages.
     * @param {SyncPage} page
     */
    page({ messages, nextSeq, committedMaxSeq }: SyncPage): Message[];
    /**
     * Takes a history page that was asked for with beforeSeq. Returns the entries that are new or changed in messages;
     * none if the page does not end where this ledger begins (any more).
     * @param {{messages: Message[], nextBeforeSeq: number, hasMore: boolean}} page @param {number} beforeSeq
     */
    earlier({ messages, nextBeforeSeq, hasMore }: {
        messages: Message[];
        nextBeforeSeq: number;
        hasMore: boolean;
    }, beforeSeq: number): Message[];
    /**
     * Takes a history page of what is held already. One that the server read before an event that is held by now does not
     * undo it. Returns the entries that are changed in messages.
     * @param {Message[]} messages
     */
    again(messages: Message[]): Message[];
    /**
     * The server has answered that there is no more, to a pull that began when maxSeenSeq was seenWhenAsked. A higher seq
     * that we heard of before was not for us (such as the last one of a group that we left), and waiting for it would
     * never end. Entries that came early prove the opposite and are kept.
     * @param {number} seenWhenAsked
     */
    settle(seenWhenAsked: number): void;
    /**
     * Takes what another tab holds; messages replace those with the same seq.
     * @param {{baseSeq: number, maxContiguousSeq: number, messages: Message[]}} other
     */
    adopt({ baseSeq, maxContiguousSeq, messages }: {
        baseSeq: number;
        maxContiguousSeq: number;
        messages: Message[];
    }): void;
}
/**
 * Whether a sync page accounts for each seq after the one it was asked from, up to its nextSeq. A page that does not
 * cannot be believed: what it leaves out would be lost for ever.
 * @param {SyncPage} page @param {number} afterSeq
 */
export declare function accountsForAll({ messages, nextSeq, skipped, firstSeq }: SyncPage, afterSeq: number): boolean;
/**
 * Whether an entry shows in what it does to others, not as a row of its own.
 * @param {Message} message
 */
export declare function isRevision(message: Message): boolean;
