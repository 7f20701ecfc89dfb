import type { Parts } from "./engine.js";
import type { Address, Clock, EntryRecord, OutboxEntry } from "./types.js";
/**
 * @import { Parts } from "./engine.js"
 * @import { Address, Clock, EntryRecord, OutboxEntry } from "./types.js"
 */
/** The fields of an entry that is neither stored nor under way. */
export declare const NOT_IN_FLIGHT: Readonly<{
    busy: null;
    failures: 0;
    stored: false;
}>;
/**
 * Makes an entry to be sent after all of entries.
 * @param {object} what
 * @param {Iterable<OutboxEntry>} what.entries
 * @param {Clock} what.clock
 * @param {string} what.action
 * @param {Address} what.address
 * @param {Record<string, any>} [what.fields]
 * @param {string | null} [what.text]
 * @returns {OutboxEntry}
 */
export declare function newEntry({ entries, clock, action, address, fields, text }: {
    entries: Iterable<OutboxEntry>;
    clock: Clock;
    action: string;
    address: Address;
    fields?: Record<string, any>;
    text?: string | null;
}): OutboxEntry;
/**
 * Makes a refused entry one to be sent again, after all of entries. Its clientMsgId stays, so that it is committed once
 * if only a copy of it was refused, unless the clientMsgId itself was refused.
 * @param {OutboxEntry} entry @param {Iterable<OutboxEntry>} entries @param {Clock} clock @returns {OutboxEntry}
 */
export declare function anew({ clientMsgId, action, address, fields, text, error }: OutboxEntry, entries: Iterable<OutboxEntry>, clock: Clock): OutboxEntry;
export declare class Outbox {
    #private;
    /** @param {Parts} parts */
    constructor(parts: Parts);
    /** The entries, oldest first. */
    all(): OutboxEntry[];
    /** @param {string | undefined} clientMsgId */
    get(clientMsgId: string | undefined): OutboxEntry | undefined;
    /**
     * Adds an entry, once. Resolves when it is stored; it is sent only then.
     * @param {OutboxEntry} entry
     */
    add(entry: OutboxEntry): Promise<void>;
    /**
     * Stores an entry that is there already.
     * @param {OutboxEntry} entry
     */
    keep(entry: OutboxEntry): Promise<void>;
    /**
     * Forgets an entry. The caller deletes it from the store.
     * @param {string} clientMsgId
     */
    delete(clientMsgId: string): void;
    /** Entries are sent from here on. */
    resume(): void;
    /** Nothing is sent until resume; an answer that comes late counts all the same. */
    pause(): void;
    /**
     * Sends the oldest unanswered entry of each conversation unless it is under way, a few at a time. Only the oldest: the
     * server may handle frames of one client at the same time, in any order. Only a few: what is sent to hundreds of people
     * would be too fast, again and again, and the user thrown out for it.
     */
    pump(): void;
}
/**
 * What is stored of an entry.
 * @param {EntryRecord} entry @returns {EntryRecord}
 */
export declare function recordOf({ clientMsgId, order, action, address, fields, text, clientTime, state, error }: EntryRecord): EntryRecord;
