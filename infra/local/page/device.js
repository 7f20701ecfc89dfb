// Which device this tab is of. All tabs of a browser are one device, and share its connection; a link
// with device=new in its hash makes a tab a device of its own, to see what several do.

const KEY = "inorder.device";

/**
 * Gives the device that a tab with these parameters in its hash is of. An id that was made for this tab
 * is to be put into its hash, so that a reload finds it.
 */
export function deviceOf(parameters, storage) {
  const named = parameters.get("device");
  if (named === "new") return newDeviceId();
  if (/^[A-Za-z0-9._-]{1,64}$/.test(named ?? "")) return named;
  try {
    if (!storage().getItem(KEY)) storage().setItem(KEY, newDeviceId());
    return storage().getItem(KEY);
  } catch {
    return newDeviceId(); // the browser gives no storage
  }
}

function newDeviceId() {
  const bytes = crypto.getRandomValues(new Uint8Array(4));
  return "web-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
