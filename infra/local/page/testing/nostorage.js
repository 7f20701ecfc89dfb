// Runs before the page, in a browser that blocks all storage of sites: the mere mention of it throws.

for (const name of ["indexedDB", "localStorage", "sessionStorage"]) {
  Object.defineProperty(globalThis, name, {
    get() {
      throw new DOMException("Access is denied for this document.", "SecurityError");
    },
  });
}
