/** Grows when tabs of different versions of this code would misunderstand each other. */
export declare const CHANNEL_VERSION = 4;
export type ChannelMessage = {
    v: number;
    from: string;
    to?: string;
    type: string;
    term?: number;
    [field: string]: any;
};
export type Port = {
    postMessage: (message: any) => void;
    close: () => void;
    onmessage: ((event: any) => void) | null;
};
export type ChannelHooks = {
    message: (message: ChannelMessage) => void;
    /**
     * a tab runs a newer version of this code
     */
    newer: () => void;
    /**
     * a tab runs an older version of this code
     */
    older: () => void;
};
/** @typedef {{v: number, from: string, to?: string, type: string, term?: number, [field: string]: any}} ChannelMessage */
/**
 * @typedef {object} Port the part of a BroadcastChannel that is used
 * @property {(message: any) => void} postMessage
 * @property {() => void} close
 * @property {((event: any) => void) | null} onmessage
 */
/**
 * @typedef {object} ChannelHooks
 * @property {(message: ChannelMessage) => void} message
 * @property {() => void} newer a tab runs a newer version of this code
 * @property {() => void} older a tab runs an older version of this code
 */
export declare class Channel {
    #private;
    tabId: string;
    /**
     * @param {object} parts
     * @param {(name: string) => Port} parts.open
     * @param {string} parts.name the same in all tabs of a device
     * @param {string} parts.tabId
     * @param {ChannelHooks} parts.hooks
     * @param {(message: string) => void} parts.log
     */
    constructor({ open, name, tabId, hooks, log }: {
        open: (name: string) => Port;
        name: string;
        tabId: string;
        hooks: ChannelHooks;
        log: (message: string) => void;
    });
    /** @param {string} type @param {object} [fields] */
    post(type: string, fields?: object): void;
    /**
     * Opens the way to one tab alone.
     * @param {string} tabId
     */
    inbox(tabId: string): {
        /** @param {string} type @param {object} fields */
        post: (type: string, fields: object) => void;
        close: () => void;
    };
    close(): void;
}
