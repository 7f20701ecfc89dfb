import { Ledger } from "./ledger.js";
import type { Conversation, ConversationKey, ConversationRecord, Delta, Facts, Lost, Member, OutboxEntry, Picture, Saved, Status } from "./types.js";
/**
 * @import { Conversation, ConversationKey, ConversationRecord, Delta, Facts, Lost, Member, Message, OutboxEntry, Picture, Saved, Status } from "./types.js"
 */
/** Begins the key of a single conversation that the server has not named yet. */
export declare const TO_KEY = "to:";
/** Begins the key of a group that the server has not named yet. */
export declare const NEW_KEY = "new:";
export declare class Model {
    #private;
    userId: string;
    /** @type {Map<string, Ledger>} */
    ledgers: Map<string, Ledger>;
    /** @type {Map<string, Facts>} What else is known of a conversation, see facts.js. */
    facts: Map<string, Facts>;
    /** @type {Map<string, OutboxEntry>} The outbox, by clientMsgId, oldest first. */
    outbox: Map<string, OutboxEntry>;
    /** @type {Map<string, Member[]>} The members of the groups that were looked at. */
    rosters: Map<string, Member[]>;
    /** @type {Map<string, string>} The conversationId by the clientMsgId of the createGroup. */
    created: Map<string, string>;
    /** @type {string[]} Outbox entries that load found committed in a ledger. */
    answered: string[];
    /** @type {number | null} */
    syncCursor: number | null;
    /** @type {readonly Lost[]} What the server has lost, oldest first; another list once that changes. */
    lost: readonly Lost[];
    /** @type {readonly Lost[]} What it may have lost: what was held before all began anew. */
    doubtful: readonly Lost[];
    /** @type {Status} */
    status: Status;
    /** @param {string} userId */
    constructor(userId: string);
    /**
     * Takes what a store holds.
     * @param {Saved} saved
     */
    load({ syncCursor, conversations, messages, outbox, lost }: Saved): void;
    /**
     * What a store would have to hold, as of now.
     * @returns {Saved}
     */
    dump(): Saved;
    /** Forgets all but the outbox and what is lost. */
    forget(): void;
    /**
     * All of it, for another tab.
     * @returns {Picture}
     */
    picture(): Picture;
    /**
     * Makes a model of what another tab told.
     * @param {string} userId @param {Picture} picture
     */
    static of(userId: string, { saved, entries, rosters, created, status }: Picture): Model;
    /**
     * Takes what changed in the tab that leads. Each part replaces what is held of it, so that nothing goes wrong if
     * something is told twice.
     * @param {Omit<Delta, "news">} delta
     */
    apply({ forget, messages, conversations, entriesPut, entriesDelete, rosters, created, status, lost }: Omit<Delta, "news">): void;
    /**
     * Takes over what an earlier model of this tab knew and a store does not hold, so that it is still shown.
     * @param {Model} earlier
     */
    inherit(earlier: Model): void;
    /** @param {string} userId @returns {ConversationKey} */
    keyFor(userId: string): ConversationKey;
    /** @param {ConversationKey} key @returns {ConversationKey} */
    currentKey(key: ConversationKey): ConversationKey;
    /**
     * The key of the conversation that an outbox entry is for.
     * @param {OutboxEntry} entry
     */
    keyOf({ clientMsgId, conversationId, action, address }: OutboxEntry): string;
    /**
     * The outbox's entries for a conversation.
     * @param {ConversationKey} key a current one
     */
    outboxOf(key: ConversationKey): OutboxEntry[];
    /**
     * The key of the conversation that shows a lost message.
     * @param {Lost} lost
     */
    keyOfLost({ message: { conversationId }, peer }: Lost): string;
    /**
     * Whether the server does not have a message, as far as is known; it is not known for what is before the held
     * entries.
     * @param {Lost} lost
     */
    isLost({ message: { conversationId, seq, messageId } }: Lost): boolean;
    /**
     * What is shown as lost in a conversation, oldest first.
     * @param {ConversationKey} key a current one
     */
    lostIn(key: ConversationKey): Lost[];
    /** @param {ConversationKey} key */
    members(key: ConversationKey): Member[] | null;
    /**
     * The ledger of a conversation, a new one if nothing is known of it.
     * @param {string} conversationId
     */
    ledger(conversationId: string): Ledger;
    /**
     * The facts of a conversation that has a ledger.
     * @param {string} conversationId
     */
    factsOf(conversationId: string): Facts;
    /** @param {string} conversationId @param {string} userId */
    setPeer(conversationId: string, userId: string): void;
    /** @param {string} conversationId */
    notePeer(conversationId: string): void;
    /** @param {Ledger} ledger */
    hasEarlier(ledger: Ledger): boolean;
    /**
     * The last seq that is to be read again, 0 if there is none.
     * @param {Ledger} ledger
     */
    unchecked({ conversationId, baseSeq }: Ledger): number;
    /**
     * Whether there is anything to pull.
     * @param {Ledger} ledger
     */
    isBehind(ledger: Ledger): boolean;
    /**
     * What is stored of a conversation besides its messages.
     * @param {Ledger} ledger @returns {ConversationRecord}
     */
    record({ conversationId, baseSeq, maxContiguousSeq }: Ledger): ConversationRecord;
    /**
     * Whether what an outbox entry asks for is in the ledger already: the tab that led before may have ended between
     * storing the message and removing its entry from the outbox.
     * @param {OutboxEntry} entry
     */
    holds(entry: OutboxEntry): boolean;
}
/**
 * An outbox entry as another tab shows it.
 * @param {OutboxEntry} entry
 */
export declare function shownOf(entry: OutboxEntry): {
    clientMsgId: string;
    order: number;
    action: string;
    address: import("./types.js").Address;
    fields: Record<string, any>;
    text: string | null;
    clientTime: number;
    state: import("./types.js").EntryState;
    error: import("./types.js").Refusal | null;
    conversationId: string | undefined;
    seq: number | undefined;
    messageId: string | undefined;
    serverTime: number | undefined;
};
/**
 * A text that differs for the states of an outbox entry that look different.
 * @param {OutboxEntry} entry
 */
export declare function lookOf({ state, error, seq, address }: OutboxEntry): string;
/**
 * The kind of a conversation, as its id tells.
 * @param {string} conversationId
 */
export declare function kindOf(conversationId: string): Conversation["kind"];
