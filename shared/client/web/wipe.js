// Wipes what a device has stored, against the tabs that still write.

import { FencedError } from "./store.js";

/** @import { Store } from "./types.js" */

const TRIES = 5; // against tabs that claim the store meanwhile, each once

/**
 * Wipes a store. A tab that leads and has not heard of it yet cannot write any more, for the store is claimed; it may
 * claim it in turn before it hears.
 * @param {Store} store
 * @param {number} atLeast see claim of the store
 */
export async function wipe(store, atLeast) {
  for (let tries = 1; ; tries++) {
    const term = await store.claim(atLeast);
    const { outbox } = await store.load();
    try {
      return await store.commit({ forget: true, outboxDelete: outbox.map(({ clientMsgId }) => clientMsgId) }, term);
    } catch (error) {
      if (tries === TRIES) throw error;
      unlessFenced(error);
    }
  }
}

/** @param {unknown} error */
export function unlessFenced(error) {
  if (!(error instanceof FencedError)) throw error;
}
