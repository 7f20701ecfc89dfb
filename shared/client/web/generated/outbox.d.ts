import type { Parts } from "./engine.js";
import type { Address, Clock, Entry, EntryRecord } from "./types.js";
/**
 * @import { Parts } from "./engine.js"
 * @import { Address, Clock, Entry, EntryRecord } from "./types.js"
 */
/** What is so of an entry that is not stored and not under way. */
export declare const NOT_IN_FLIGHT: Readonly<{
    busy: null;
    failures: 0;
    stored: false;
}>;
/**
 * Makes an entry that is to be sent after all of entries.
 * @param {object} what
 * @param {Iterable<Entry>} what.entries
 * @param {Clock} what.clock
 * @param {string} what.action
 * @param {Address} what.address
 * @param {Record<string, any>} [what.fields]
 * @param {string | null} [what.text]
 * @returns {Entry}
 */
export declare function newEntry({ entries, clock, action, address, fields, text }: {
    entries: Iterable<Entry>;
    clock: Clock;
    action: string;
    address: Address;
    fields?: Record<string, any>;
    text?: string | null;
}): Entry;
/**
 * Makes an entry that was refused one that is to be sent, after all of entries. Its clientMsgId stays, so that it is
 * committed once if the refusal was of another copy, unless it is the clientMsgId that is refused.
 * @param {Entry} entry
 * @param {Iterable<Entry>} entries
 * @param {Clock} clock
 * @returns {Entry}
 */
export declare function anew({ clientMsgId, action, address, fields, text, error }: Entry, entries: Iterable<Entry>, clock: Clock): Entry;
export declare class Outbox {
    #private;
    /** @param {Parts} parts */
    constructor(parts: Parts);
    /** The entries, oldest first. */
    all(): Entry[];
    /** @param {string | undefined} clientMsgId */
    get(clientMsgId: string | undefined): Entry | undefined;
    /**
     * Adds an entry, once. Resolves once it is kept; only then is it sent.
     * @param {Entry} entry
     */
    add(entry: Entry): Promise<void>;
    /**
     * Stores an entry that is there already.
     * @param {Entry} entry
     */
    keep(entry: Entry): Promise<void>;
    /**
     * Forgets an entry. The caller deletes it from the store.
     * @param {string} clientMsgId
     */
    delete(clientMsgId: string): void;
    /** From here on entries are sent. */
    resume(): void;
    /** Nothing is sent until resume; an answer that comes late counts all the same. */
    pause(): void;
    /**
     * Sends the oldest unanswered entry of each key that is not on its way already. Only the oldest:
     * frames of one client may be handled at the same time, in any order.
     */
    pump(): void;
}
/**
 * What is stored of an entry.
 * @param {EntryRecord} entry
 * @returns {EntryRecord}
 */
export declare function recordOf({ clientMsgId, order, action, address, fields, text, clientTime, state, error }: EntryRecord): EntryRecord;
