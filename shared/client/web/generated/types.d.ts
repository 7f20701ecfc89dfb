export type ConversationKey = string;
export type ConnectionState = "connecting" | "online" | "offline";
export type Role = "owner" | "admin" | "member";
export type ContentType = "text" | "image" | "voice" | "file" | "custom";
export type Content = {
    type?: ContentType;
    text?: string;
    data?: Record<string, unknown>;
};
export type LedgerEvent = {
    kind: "recall" | "edit" | "members" | "title" | "dissolve" | "erase";
    targetSeq?: number;
    targetMessageId?: string;
    version?: number;
    added?: string[];
    removed?: string[];
    member?: string;
    role?: Role;
    owner?: string;
    title?: string;
    /**
     * whose messages before it have no content any more
     */
    erased?: string;
};
export type Message = {
    conversationId: string;
    seq: number;
    messageId: string;
    clientMsgId?: string;
    senderId?: string;
    senderDeviceId?: string;
    messageType: ContentType | "system" | "event";
    text?: string | null;
    data?: Record<string, unknown> | null;
    replyTo?: {
        seq: number;
        messageId: string;
    } | null;
    event?: LedgerEvent | null;
    version: number;
    status: "normal" | "recalled";
    /**
     * whether it has a text or data that is not for this user
     */
    withheld?: boolean;
    serverTime: number;
    clientTime?: number;
};
export type Quote = {
    seq: number;
    senderId: string | null;
    kind: Message["messageType"] | null;
    text: string;
    recalled: boolean;
};
export type Refusal = {
    code: string;
    message: string;
    retryable: boolean;
};
export type Revision = {
    clientMsgId: string;
    action: "recall" | "edit";
    state: EntryState;
    text: string | null;
    data: Record<string, unknown> | null;
    error: Refusal | null;
};
export type Row = {
    /**
     * null until the server has numbered it
     */
    seq: number | null;
    messageId: string | null;
    /**
     * unique per sender
     */
    clientMsgId: string | undefined;
    senderId: string | undefined;
    mine: boolean;
    kind: Message["messageType"];
    text: string;
    data: Record<string, unknown> | null;
    event: LedgerEvent | null;
    quote: Quote | null;
    recalled: boolean;
    edited: boolean;
    /**
     * whether the server would take an edit by now, as far as is known here
     */
    canEdit: boolean;
    /**
     * likewise a recall
     */
    canRecall: boolean;
    revision: Revision | null;
    /**
     * ms since 1970, for the eye; seq is the order
     */
    time: number;
    /**
     * of an own one
     */
    state: EntryState | null;
    /**
     * why it failed
     */
    error: Refusal | null;
    /**
     * whether only this device still has it: the server was restored to a time before it, or begun
     * anew. It has no seq then
     */
    lost: boolean;
    /**
     * once that holds for all others
     */
    receipt: "delivered" | "read" | null;
    readBy: string[];
    /**
     * how many the others are, 0 while unknown
     */
    audience: number;
};
export type Conversation = {
    key: ConversationKey;
    kind: "single" | "group" | "system";
    /**
     * the other one of a single conversation
     */
    peer: string | null;
    title: string;
    memberCount: number;
    /**
     * why nothing can be written: "failed"
     * is a group that could not be made, "unknown" that there is no such conversation, which a new device says once it
     * has asked the server
     */
    closed: "system" | "left" | "dissolved" | "failed" | "unknown" | null;
    /**
     * ours in a group
     */
    role: Role | null;
    /**
     * whether loadEarlier would bring more
     */
    earlier: boolean;
    /**
     * up to which seq the user has read, on any device: what others wrote above it is new
     */
    readSeq: number;
    unread: number;
    last: Row | null;
    /**
     * ms since 1970
     */
    time: number;
};
export type NewMessage = {
    key: ConversationKey;
    row: Row;
};
export type Member = {
    userId: string;
    role: Role;
    joinSeq?: number;
    joinedAt: number;
};
export type Windows = {
    editMs?: number;
    recallMs?: number;
};
export type Status = {
    state: ConnectionState;
    detail: string;
    /**
     * as the server last told them
     */
    windows: Windows;
    /**
     * by how many ms the clock of this device is ahead of the server's, 0 until that is known
     */
    ahead: number;
    /**
     * whether it is still unknown which of the conversations the server has
     */
    inDoubt: boolean;
    /**
     * not an Error, which not every browser lets tabs
     * exchange
     */
    storeError: {
        name: string;
        message: string;
    } | null;
};
export type Facts = {
    asOf: number;
    kind: Conversation["kind"] | null;
    title: string | null;
    peer: string | null;
    state: "active" | "dissolved";
    owner: string | null;
    memberCount: number;
    leftSeq: number;
    updatedAt: number;
    readSeq: number;
    deliveredSeq: number;
    clearedSeq: number;
    recheckSeq: number;
    unread: {
        count: number;
        asOf: number;
    };
    told: {
        readSeq: number;
        deliveredSeq: number;
        clearedSeq: number;
    };
    receipts: Map<string, {
        deliveredSeq: number;
        readSeq: number;
    }>;
};
export type ConversationRecord = Facts & {
    conversationId: string;
    baseSeq: number;
    maxContiguousSeq: number;
};
export type EntryState = "sending" | "sent" | "failed";
export type Address = {
    conversationId?: string;
    to?: string;
    group?: string;
};
export type EntryRecord = {
    clientMsgId: string;
    order: number;
    action: string;
    address: Address;
    fields: Record<string, any>;
    text: string | null;
    clientTime: number;
    state: EntryState;
    error: Refusal | null;
};
export type ShownEntry = EntryRecord & {
    conversationId?: string;
    seq?: number;
    messageId?: string;
    serverTime?: number;
};
export type OutboxEntry = ShownEntry & {
    busy: object | null;
    failures: number;
    stored: boolean;
};
export type Lost = {
    message: Message;
    peer: string | null;
    title: string | null;
};
export type Saved = {
    syncCursor: number | null;
    conversations: ConversationRecord[];
    messages: Message[];
    outbox: EntryRecord[];
    lost?: Lost[];
};
export type StoreChange = {
    forget?: boolean;
    messages?: Message[];
    conversations?: ConversationRecord[];
    syncCursor?: number | null;
    outboxPut?: EntryRecord[];
    outboxDelete?: string[];
    lost?: Lost[];
};
export type Store = {
    /**
     * whether the other tabs see the same
     */
    shared: boolean;
    /**
     * returns a new term, above atLeast and above every earlier one
     */
    claim: (atLeast: number) => Promise<number>;
    load: () => Promise<Saved>;
    /**
     * rejects with a FencedError, and writes
     * nothing, if term is given and is not the last one that claim returned
     */
    commit: (change: StoreChange, term?: number) => Promise<void>;
    close: () => void;
};
export type Delta = {
    forget?: boolean;
    messages: Message[];
    conversations: ConversationRecord[];
    entriesPut: ShownEntry[];
    entriesDelete: string[];
    rosters: [string, Member[] | null][];
    created: [string, string][];
    status: Status;
    /**
     * all of it, if it is another now
     */
    lost?: readonly Lost[];
    /**
     * by conversationId, the seqs of messages of others that have come
     */
    news: [string, number[]][];
};
export type Picture = {
    saved: Saved;
    entries: ShownEntry[];
    rosters: [string, Member[]][];
    created: [string, string][];
    status: Status;
};
export type Clock = {
    /**
     * ms since 1970 by the user's clock, which may be set back: it does not measure time
     */
    now: () => number;
    /**
     * ms since some moment, never set back
     */
    monotonic: () => number;
    setTimeout: (fn: () => void, ms: number) => any;
    clearTimeout: (timer: any) => void;
};
/**
 * Names a conversation: its conversationId or, until the server has named it, what keyFor or createGroup returns. All
 * of them work with every method for ever, createGroup's until a reload.
 * @typedef {string} ConversationKey
 */
/** @typedef {"connecting" | "online" | "offline"} ConnectionState */
/** @typedef {"owner" | "admin" | "member"} Role */
/** @typedef {"text" | "image" | "voice" | "file" | "custom"} ContentType */
/**
 * What a message says: a text, or more than that. type is "text" if it is left out. data is an object that JSON can
 * hold.
 * @typedef {{type?: ContentType, text?: string, data?: Record<string, unknown>}} Content
 */
/**
 * A change that an entry of the ledger tells of.
 * @typedef {object} LedgerEvent
 * @property {"recall" | "edit" | "members" | "title" | "dissolve" | "erase"} kind
 * @property {number} [targetSeq]
 * @property {string} [targetMessageId]
 * @property {number} [version]
 * @property {string[]} [added]
 * @property {string[]} [removed]
 * @property {string} [member]
 * @property {Role} [role]
 * @property {string} [owner]
 * @property {string} [title]
 * @property {string} [erased] whose messages before it have no content any more
 */
/**
 * An entry of a ledger as the server sends it: a message, or an event.
 * @typedef {object} Message
 * @property {string} conversationId
 * @property {number} seq
 * @property {string} messageId
 * @property {string} [clientMsgId]
 * @property {string} [senderId]
 * @property {string} [senderDeviceId]
 * @property {ContentType | "system" | "event"} messageType
 * @property {string | null} [text]
 * @property {Record<string, unknown> | null} [data]
 * @property {{seq: number, messageId: string} | null} [replyTo]
 * @property {LedgerEvent | null} [event]
 * @property {number} version
 * @property {"normal" | "recalled"} status
 * @property {boolean} [withheld] whether it has a text or data that is not for this user
 * @property {number} serverTime
 * @property {number} [clientTime]
 */
/**
 * The message that a row answers; senderId and kind are null if it is not held.
 * @typedef {{seq: number, senderId: string | null, kind: Message["messageType"] | null, text: string, recalled: boolean}} Quote
 */
/**
 * Why the server did not do something: code is one of the protocol's, message is for developers, and retryable says
 * whether asking again can help by itself.
 * @typedef {{code: string, message: string, retryable: boolean}} Refusal
 */
/**
 * The last change that the user asked for and the message does not show yet.
 * @typedef {{clientMsgId: string, action: "recall" | "edit", state: EntryState, text: string | null, data: Record<string, unknown> | null, error: Refusal | null}} Revision
 */
/**
 * A message as people see it.
 * @typedef {object} Row
 * @property {number | null} seq null until the server has numbered it
 * @property {string | null} messageId
 * @property {string | undefined} clientMsgId unique per sender
 * @property {string | undefined} senderId
 * @property {boolean} mine
 * @property {Message["messageType"]} kind
 * @property {string} text
 * @property {Record<string, unknown> | null} data
 * @property {LedgerEvent | null} event
 * @property {Quote | null} quote
 * @property {boolean} recalled
 * @property {boolean} edited
 * @property {boolean} canEdit whether the server would take an edit by now, as far as is known here
 * @property {boolean} canRecall likewise a recall
 * @property {Revision | null} revision
 * @property {number} time ms since 1970, for the eye; seq is the order
 * @property {EntryState | null} state of an own one
 * @property {Refusal | null} error why it failed
 * @property {boolean} lost whether only this device still has it: the server was restored to a time before it, or begun
 *   anew. It has no seq then
 * @property {"delivered" | "read" | null} receipt once that holds for all others
 * @property {string[]} readBy
 * @property {number} audience how many the others are, 0 while unknown
 */
/**
 * @typedef {object} Conversation
 * @property {ConversationKey} key
 * @property {"single" | "group" | "system"} kind
 * @property {string | null} peer the other one of a single conversation
 * @property {string} title
 * @property {number} memberCount
 * @property {"system" | "left" | "dissolved" | "failed" | "unknown" | null} closed why nothing can be written: "failed"
 *   is a group that could not be made, "unknown" that there is no such conversation, which a new device says once it
 *   has asked the server
 * @property {Role | null} role ours in a group
 * @property {boolean} earlier whether loadEarlier would bring more
 * @property {number} readSeq up to which seq the user has read, on any device: what others wrote above it is new
 * @property {number} unread
 * @property {Row | null} last
 * @property {number} time ms since 1970
 */
/**
 * What the event "message" tells in its detail: row is that of the message as it was then.
 * @typedef {{key: ConversationKey, row: Row}} NewMessage
 */
/** @typedef {{userId: string, role: Role, joinSeq?: number, joinedAt: number}} Member */
/**
 * For how long its sender can change a message, in ms after it was sent; without a limit if left out.
 * @typedef {{editMs?: number, recallMs?: number}} Windows
 */
/**
 * @typedef {object} Status
 * @property {ConnectionState} state
 * @property {string} detail
 * @property {Windows} windows as the server last told them
 * @property {number} ahead by how many ms the clock of this device is ahead of the server's, 0 until that is known
 * @property {boolean} inDoubt whether it is still unknown which of the conversations the server has
 * @property {{name: string, message: string} | null} storeError not an Error, which not every browser lets tabs
 *   exchange
 */
/**
 * What is known of a conversation besides its messages, see facts.js.
 * @typedef {object} Facts
 * @property {number} asOf
 * @property {Conversation["kind"] | null} kind
 * @property {string | null} title
 * @property {string | null} peer
 * @property {"active" | "dissolved"} state
 * @property {string | null} owner
 * @property {number} memberCount
 * @property {number} leftSeq
 * @property {number} updatedAt
 * @property {number} readSeq
 * @property {number} deliveredSeq
 * @property {number} clearedSeq
 * @property {number} recheckSeq
 * @property {{count: number, asOf: number}} unread
 * @property {{readSeq: number, deliveredSeq: number, clearedSeq: number}} told
 * @property {Map<string, {deliveredSeq: number, readSeq: number}>} receipts
 */
/** @typedef {Facts & {conversationId: string, baseSeq: number, maxContiguousSeq: number}} ConversationRecord */
/** @typedef {"sending" | "sent" | "failed"} EntryState */
/**
 * Where an outbox entry goes: {conversationId}, {to: userId}, {group: the clientMsgId of the createGroup that is to be
 * answered first}, or {} for a createGroup.
 * @typedef {{conversationId?: string, to?: string, group?: string}} Address
 */
/**
 * What is stored of an outbox entry: the request is action with address, fields and text.
 * @typedef {object} EntryRecord
 * @property {string} clientMsgId
 * @property {number} order
 * @property {string} action
 * @property {Address} address
 * @property {Record<string, any>} fields
 * @property {string | null} text
 * @property {number} clientTime
 * @property {EntryState} state
 * @property {Refusal | null} error
 */
/**
 * An outbox entry as a tab shows it; it has what the server answered once it is sent.
 * @typedef {EntryRecord & {conversationId?: string, seq?: number, messageId?: string, serverTime?: number}} ShownEntry
 */
/** @typedef {ShownEntry & {busy: object | null, failures: number, stored: boolean}} OutboxEntry */
/**
 * A message that the server has lost, or may have; peer and title are those of its conversation.
 * @typedef {{message: Message, peer: string | null, title: string | null}} Lost
 */
/**
 * What a store holds.
 * @typedef {object} Saved
 * @property {number | null} syncCursor
 * @property {ConversationRecord[]} conversations
 * @property {Message[]} messages
 * @property {EntryRecord[]} outbox
 * @property {Lost[]} [lost]
 */
/**
 * What is written at once, whole or not at all. forget drops everything but the outbox first. lost replaces what is
 * stored of that.
 * @typedef {object} StoreChange
 * @property {boolean} [forget]
 * @property {Message[]} [messages]
 * @property {ConversationRecord[]} [conversations]
 * @property {number | null} [syncCursor]
 * @property {EntryRecord[]} [outboxPut]
 * @property {string[]} [outboxDelete]
 * @property {Lost[]} [lost]
 */
/**
 * What survives a reload, of one user and device.
 * @typedef {object} Store
 * @property {boolean} shared whether the other tabs see the same
 * @property {(atLeast: number) => Promise<number>} claim returns a new term, above atLeast and above every earlier one
 * @property {() => Promise<Saved>} load
 * @property {(change: StoreChange, term?: number) => Promise<void>} commit rejects with a FencedError, and writes
 *   nothing, if term is given and is not the last one that claim returned
 * @property {() => void} close
 */
/**
 * What changed in the tab that leads.
 * @typedef {object} Delta
 * @property {boolean} [forget]
 * @property {Message[]} messages
 * @property {ConversationRecord[]} conversations
 * @property {ShownEntry[]} entriesPut
 * @property {string[]} entriesDelete
 * @property {[string, Member[] | null][]} rosters
 * @property {[string, string][]} created
 * @property {Status} status
 * @property {readonly Lost[]} [lost] all of it, if it is another now
 * @property {[string, number[]][]} news by conversationId, the seqs of messages of others that have come
 */
/**
 * All that the tab that leads knows.
 * @typedef {object} Picture
 * @property {Saved} saved
 * @property {ShownEntry[]} entries
 * @property {[string, Member[]][]} rosters
 * @property {[string, string][]} created
 * @property {Status} status
 */
/**
 * Time; tests have their own.
 * @typedef {object} Clock
 * @property {() => number} now ms since 1970 by the user's clock, which may be set back: it does not measure time
 * @property {() => number} monotonic ms since some moment, never set back
 * @property {(fn: () => void, ms: number) => any} setTimeout
 * @property {(timer: any) => void} clearTimeout
 */
export {};
