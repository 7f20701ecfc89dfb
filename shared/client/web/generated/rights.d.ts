import type { Conversation, Message, Role, Windows } from "./types.js";
/** @import { Conversation, Message, Role, Windows } from "./types.js" */
/** The roles, the one with the most rights first. */
export declare const ROLES: string[];
/**
 * Whether a member with this role may do the action: "send", "leave", "add", "remove", "setTitle", "setRole",
 * "dissolve" or "recall" (another's message). For remove and recall, target is the role of the member concerned; that
 * of a sender who is no member any more is "member".
 * @param {string | null} role @param {string} action @param {string} [target]
 */
export declare function may(role: string | null, action: string, target?: string): boolean;
export type Standing = {
    userId: string;
    kind: Conversation["kind"];
    closed: Conversation["closed"];
    role: Role | null;
    roles: Map<string, Role>;
    windows: Windows;
    now: number;
};
/**
 * What the rights over a message depend on: who we are and what we are in its conversation, the known roles of members,
 * and the time in ms since 1970.
 * @typedef {object} Standing
 * @property {string} userId
 * @property {Conversation["kind"]} kind
 * @property {Conversation["closed"]} closed
 * @property {Role | null} role
 * @property {Map<string, Role>} roles
 * @property {Windows} windows
 * @property {number} now
 */
/**
 * Whether we may edit and recall a message.
 * @param {Standing} standing @param {Message} message
 */
export declare function rightsOver({ userId, kind, closed, role, roles, windows, now }: Standing, { senderId, messageType, status, serverTime }: Message): {
    canEdit: boolean;
    canRecall: boolean;
};
/**
 * When the next window of these rows ends, in ms since 1970; Infinity if none will.
 * @param {readonly {mine: boolean, time: number}[]} rows @param {Windows} windows @param {number} now
 */
export declare function nextEnd(rows: readonly {
    mine: boolean;
    time: number;
}[], { editMs, recallMs }: Windows, now: number): number;
