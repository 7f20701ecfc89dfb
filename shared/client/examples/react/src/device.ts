import { type InorderClient, open } from "inorder-client";
import { useEffect, useState, useSyncExternalStore } from "react";

/** Opens this browser's device of a user, and closes it when nothing shows it any more. */
export function useDevice(userId: string): { client: InorderClient | null; error: Error | null } {
  const [opened, setOpened] = useState<{ client: InorderClient | null; error: Error | null }>({ client: null, error: null });
  useEffect(() => {
    let shown = true;
    const opening = open({
      url: "/v1",
      userId,
      deviceId: (localStorage.device ??= crypto.randomUUID()),
      token: () => fetchToken(userId),
    });
    opening.then(
      (client) => shown && setOpened({ client, error: null }),
      (error) => shown && setOpened({ client: null, error }),
    );
    return () => {
      shown = false;
      setOpened({ client: null, error: null });
      opening.then((client) => client.close(), () => {});
    };
  }, [userId]);
  return opened;
}

// The local cloud gives anyone's. Yours come from your login service.
async function fetchToken(userId: string): Promise<string> {
  const response = await fetch(`/dev/token?user=${encodeURIComponent(userId)}`);
  if (!response.ok) throw new Error(`no token: ${response.status} ${response.statusText}`);
  const { token } = await response.json();
  return token;
}

/** What read gives, again whenever it may have changed. */
export function useClient<T>(client: InorderClient, read: () => T): T {
  return useSyncExternalStore(client.subscribe, read);
}

function onVisibility(changed: () => void) {
  document.addEventListener("visibilitychange", changed);
  return () => document.removeEventListener("visibilitychange", changed);
}

/** Whether anyone can see the page. */
export const useVisible = () => useSyncExternalStore(onVisibility, () => document.visibilityState === "visible");
