// The device that this tab belongs to. All tabs of a browser are one device and share its connection; a link with
// device=new in its hash makes a tab a device of its own, to see what several devices do.

const KEY = "inorder.device";

/**
 * Returns the device of a tab with these parameters in its hash. If the id was made for this tab, put it into the hash,
 * so that a reload finds it.
 */
export function deviceOf(parameters, storage) {
  const named = parameters.get("device");
  if (named === "new") return newDeviceId();
  if (/^[A-Za-z0-9._-]{1,64}$/.test(named ?? "")) return named;
  try {
    if (!storage().getItem(KEY)) storage().setItem(KEY, newDeviceId());
    return storage().getItem(KEY);
  } catch {
    return newDeviceId(); // the browser has no storage
  }
}

function newDeviceId() {
  const bytes = crypto.getRandomValues(new Uint8Array(4));
  return "web-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
