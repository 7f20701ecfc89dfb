import type { Address, Clock, Entry, EntryRecord } from "./types.js";
/** @import { Address, Clock, Entry, EntryRecord, StoreChange } from "./types.js" */
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
export type OutboxHooks = {
    request: (action: string, fields: object) => Promise<any>;
    /**
     * says what belongs together and must keep its order
     */
    keyOf: (entry: Entry) => string;
    /**
     * stores an entry
     */
    keep: (entry: Entry) => Promise<void>;
    answered: (entry: Entry, result: any) => void;
    refused: (entry: Entry, error: any) => void;
};
/**
 * @typedef {object} OutboxHooks
 * @property {(action: string, fields: object) => Promise<any>} request
 * @property {(entry: Entry) => string} keyOf says what belongs together and must keep its order
 * @property {(entry: Entry) => Promise<void>} keep stores an entry
 * @property {(entry: Entry, result: any) => void} answered
 * @property {(entry: Entry, error: any) => void} refused
 */
export declare class Outbox {
    #private;
    /**
     * entries are shared with who shows them: by clientMsgId, oldest first.
     * @param {object} parts
     * @param {Map<string, Entry>} parts.entries
     * @param {OutboxHooks} parts.hooks
     * @param {Clock} parts.clock
     * @param {() => number} parts.random
     * @param {{backoffBaseMs: number, backoffCapMs: number}} parts.timing
     */
    constructor({ entries, hooks, clock, random, timing }: {
        entries: Map<string, Entry>;
        hooks: OutboxHooks;
        clock: Clock;
        random: () => number;
        timing: {
            backoffBaseMs: number;
            backoffCapMs: number;
        };
    });
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
