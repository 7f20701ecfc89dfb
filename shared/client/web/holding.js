// What a store cannot hold does not end storing: the rest is stored, and a stand-in for it.

/** @import { Message, Store, StoreChange } from "./types.js" */

const OF_A_VALUE = new Set(["DataCloneError", "DataError"]); // not of the store

/**
 * Commits a change as store.commit does. If it holds a value that cannot be stored, all else is stored, in
 * an order that a crash does no harm to: the messages before what stands for them.
 * @param {Store} store
 * @param {StoreChange} change
 * @param {number | undefined} term
 * @param {(message: string) => void} log
 */
export async function commitAll(store, change, term, log) {
  if (await isStored(store, change, term, log)) return;
  const { forget = false, messages = [], outboxPut = [], ...rest } = change;
  if (forget) await store.commit({ forget }, term);
  for (const message of messages) {
    if (!(await isStored(store, { messages: [message] }, term, log))) await store.commit({ messages: [standInFor(message)] }, term);
  }
  for (const entry of outboxPut) await isStored(store, { outboxPut: [entry] }, term, log); // else it lives in memory
  await store.commit(rest, term);
}

/**
 * @param {Store} store
 * @param {StoreChange} change
 * @param {number | undefined} term
 * @param {(message: string) => void} log
 */
async function isStored(store, change, term, log) {
  try {
    await store.commit(change, term);
    return true;
  } catch (thrown) {
    const error = /** @type {Error} */ (thrown);
    if (!OF_A_VALUE.has(error?.name)) throw error;
    log(`a value cannot be stored: ${error.message}`);
    return false;
  }
}

// Its place in the conversation, without what it says.
/**
 * @param {Message} message
 * @returns {Message}
 */
function standInFor({ conversationId, seq, messageId, senderId, clientMsgId, serverTime }) {
  const names = JSON.parse(JSON.stringify({ messageId, senderId, clientMsgId, serverTime }));
  return { ...names, conversationId, seq, messageType: "custom", text: null, data: null, version: 1, status: "normal" };
}
