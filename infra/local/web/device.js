// Which device this tab is.

const KEY = "inorder.device";

/**
 * Gives the tab's device id, the same after a reload. Duplicating a tab copies its session storage, so
 * the id is also held as a lock: the copy finds it taken and becomes a device of its own.
 */
export async function claimDevice({ storage = sessionStorage, locks = globalThis.navigator?.locks, waitMs = 500 } = {}) {
  let id = storage.getItem(KEY);
  if (!id || !(await hold(locks, id, waitMs))) {
    id = newDeviceId();
    await hold(locks, id, waitMs);
    storage.setItem(KEY, id);
  }
  return id;
}

function newDeviceId() {
  const bytes = crypto.getRandomValues(new Uint8Array(4));
  return "web-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The wait lets the page that a reload replaces let go first. Locks exist in secure contexts only
// (loopback is one); without them the id is simply trusted.
function hold(locks, id, waitMs) {
  if (!locks) return Promise.resolve(true);
  return new Promise((resolve) => {
    const untilTheTabCloses = new Promise(() => {});
    const held = () => {
      resolve(true);
      return untilTheTabCloses;
    };
    locks.request(`${KEY}/${id}`, { signal: AbortSignal.timeout(waitMs) }, held).catch(() => resolve(false));
  });
}
