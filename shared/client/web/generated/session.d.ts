import type { Parts } from "./engine.js";
export type Server = {
    url: string;
    /**
     * returns a JWT for each connect; an error with `permanent` ends the
     * attempts
     */
    token: () => Promise<string> | string;
    WebSocket: typeof globalThis.WebSocket;
};
/** @import { Parts } from "./engine.js" */
/**
 * @typedef {object} Server where it is, and who asks
 * @property {string} url
 * @property {() => Promise<string> | string} token returns a JWT for each connect; an error with `permanent` ends the
 *   attempts
 * @property {typeof globalThis.WebSocket} WebSocket
 */
export declare class Session {
    #private;
    /** @param {Parts} parts @param {Server} server */
    constructor(parts: Parts, { url, token, WebSocket }: Server);
    /** Whether there is a connection, and it is the user's. */
    get isOpen(): boolean;
    /** Connects, and stays connected until stop. */
    start(): void;
    /** @param {string} [detail] why, for people */
    stop(detail?: string): void;
    /** @param {number} [quietMs] see Connection */
    retryNow(quietMs?: number): void;
    /** Resolves when there is a connection, and rejects if there is to be none. */
    reached(): Promise<void>;
    /**
     * Asks the server once.
     * @param {string} action @param {object} [fields]
     */
    request(action: string, fields?: object): Promise<any>;
    /**
     * Asks for what the device pulls. A device that is too fast is told how long to wait and waits here, in its place
     * among the pulls: what the others asked meanwhile would be refused as well.
     * @param {string} action @param {object} fields
     */
    ask(action: string, fields: object): Promise<any>;
    /**
     * Tells the server something that it does not answer.
     * @param {string} action @param {object} fields
     */
    tell(action: string, fields: object): void;
    /**
     * Takes the user that the server takes us for. Throws for good if it is another one.
     * @param {string | undefined} owner
     */
    identify(owner: string | undefined): void;
}
