// When a connection may have died without a word: the network is another one, or the page was out of sight,
// as it is while a phone sleeps.

/** A page that comes into sight asks whether its connection lives if nothing was heard for so long, in ms. */
const SEEN_QUIET_MS = 30_000;

/**
 * Says when it is time to look whether the connection lives, and how long nothing must have been heard for
 * that, in ms. Gives what ends it.
 * @param {(quietMs: number) => void} doubt
 * @param {any} [scope] a window; where there is none nothing is said
 * @returns {() => void}
 */
export function watchNetwork(doubt, scope = globalThis) {
  const { addEventListener, document } = scope;
  if (!addEventListener) return () => {};
  const listeners = [
    { target: scope, type: "online", listener: () => doubt(0) },
    { target: document, type: "visibilitychange", listener: () => document.visibilityState === "visible" && doubt(SEEN_QUIET_MS) },
  ].filter(({ target }) => target);
  for (const { target, type, listener } of listeners) target.addEventListener(type, listener);
  return () => {
    for (const { target, type, listener } of listeners) target.removeEventListener(type, listener);
  };
}
