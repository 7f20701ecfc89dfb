import type { Port } from "./channel.js";
export type Tabs = {
    locks: Pick<LockManager, "request">;
    channel: (name: string) => Port;
    isVisible: () => boolean;
    /**
     * calls suspend when the tab is
     * about to be frozen, put aside or closed, and resume when it is back; returns a function that ends that
     */
    watch: (hooks: {
        suspend: () => void;
        resume: () => void;
    }) => () => void;
};
/** @import { Port } from "./channel.js" */
/**
 * What tabs need of the browser.
 * @typedef {object} Tabs
 * @property {Pick<LockManager, "request">} locks
 * @property {(name: string) => Port} channel
 * @property {() => boolean} isVisible
 * @property {(hooks: {suspend: () => void, resume: () => void}) => () => void} watch calls suspend when the tab is
 *   about to be frozen, put aside or closed, and resume when it is back; returns a function that ends that
 */
/**
 * The tabs of this browser, or null where they cannot work together: only secure contexts have navigator.locks.
 * @param {any} [scope] @returns {Tabs | null}
 */
export declare function browserTabs(scope?: any): Tabs | null;
export type ElectionHooks = {
    won: () => void;
    /**
     * another tab took the lead by force
     */
    lost: () => void;
    /**
     * the browser refuses locks to this page
     */
    failed: (error: Error) => void;
};
/**
 * @typedef {object} ElectionHooks
 * @property {() => void} won
 * @property {() => void} lost another tab took the lead by force
 * @property {(error: Error) => void} failed the browser refuses locks to this page
 */
/** One lock, held by the tab that leads; the next in the queue has it when that tab ends, however it ends. */
export declare class Election {
    #private;
    /**
     * @param {object} parts
     * @param {Pick<LockManager, "request">} parts.locks
     * @param {string} parts.name
     * @param {ElectionHooks} parts.hooks
     */
    constructor({ locks, name, hooks }: {
        locks: Pick<LockManager, "request">;
        name: string;
        hooks: ElectionHooks;
    });
    /** Takes a place in the queue. */
    join(): void;
    /** Takes the lead from a tab that does not answer. */
    steal(): void;
    /** Returns the lead, or the place in the queue. */
    leave(): void;
}
/** A lock that a tab holds as long as it takes part, so that the tab that leads notices when it is gone. */
export declare class Presence {
    #private;
    /**
     * @param {object} parts
     * @param {Pick<LockManager, "request">} parts.locks
     * @param {string} parts.name the same in all tabs of a device
     * @param {string} parts.tabId
     */
    constructor({ locks, name, tabId }: {
        locks: Pick<LockManager, "request">;
        name: string;
        tabId: string;
    });
    /** Resolves once the lock is held. */
    show(): Promise<undefined>;
    end(): void;
    /**
     * Resolves when another tab has ended.
     * @param {string} tabId @param {AbortSignal} signal
     */
    awaitEnd(tabId: string, signal: AbortSignal): Promise<void>;
}
