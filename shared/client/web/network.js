// Notices when a connection may have died silently: the network changed, or the page was out of sight, as it is while a
// phone sleeps.

/** A page that comes into sight checks its connection if nothing came over it for this long, in ms. */
const SEEN_QUIET_MS = 30_000;

/**
 * Calls doubt when the connection has to be checked unless something came over it in the last quietMs. Returns a
 * function that ends that.
 * @param {(quietMs: number) => void} doubt
 * @param {any} [scope] a window; without one nothing is watched
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
