import type { Content } from "./types.js";
/** The most text one message holds, counted in code points as the server counts runes. */
export declare const MAX_TEXT_RUNES = 4000;
/** The longest title of a group, counted in the same way. */
export declare const MAX_TITLE_RUNES = 100;
/** How deep the server accepts data to be; data itself is the first object. */
export declare const MAX_DATA_DEPTH = 32;
/**
 * Throws a TypeError that names the option that is wrong.
 * @param {Partial<import("./client.js").Options>} options
 */
export declare function checkOptions({ url, userId, deviceId, token, WebSocket }: Partial<import("./client.js").Options>): void;
/**
 * The server's URL in full: one that begins with / or . is relative to the page, as a WebSocket takes it. A TypeError
 * says what is wrong.
 * @param {unknown} url @param {string} [page] @returns {string}
 */
export declare function socketURL(url: unknown, page?: string): string;
/**
 * Returns the token that a program's function returns, if it can be this user's. isKnown says whether the token itself
 * names the user; if it cannot be read here, the server does. Errors never hold the token.
 * @param {() => Promise<string> | string} token @param {string} userId
 * @returns {Promise<{jwt: string, isKnown: boolean}>}
 */
export declare function tokenOf(token: () => Promise<string> | string, userId: string): Promise<{
    jwt: string;
    isKnown: boolean;
}>;
/**
 * Throws if a token is another user's: what this user wrote would be sent in that user's name.
 * @param {string} owner @param {string} userId
 */
export declare function checkOwner(owner: string, userId: string): void;
/**
 * Makes a socket. What the browser refuses to try now, it will refuse the next time, too.
 * @param {typeof globalThis.WebSocket} WebSocket @param {string} url @param {string} jwt
 */
export declare function dial(WebSocket: typeof globalThis.WebSocket, url: string, jwt: string): WebSocket;
/**
 * Counts the characters of a text as the server does.
 * @param {string} text
 */
export declare function countRunes(text: string): number;
/**
 * Returns the parts of what is to be sent. A TypeError says what has the wrong type, a RangeError what is wrong with
 * the text.
 * @param {string | Content} content @returns {Content}
 */
export declare function checkedContent(content: string | Content): Content;
/** @param {string} title */
export declare function checkTitle(title: string): void;
/** @param {unknown} users */
export declare function checkUsers(users: unknown): void;
/** @param {unknown} key @returns {asserts key is string} */
export declare function checkKey(key: unknown): asserts key is string;
/**
 * Copies value as JSON holds it: a Proxy as what it shows, a Date as its text. A TypeError says where there is
 * something that JSON has no place for (a function, a BigInt, NaN, a Map, a node of the page, a cycle).
 * @param {unknown} value @param {string} name @returns {any}
 */
export declare function jsonCopy(value: unknown, name: string): any;
