// A program that uses the client, to be compiled and not run: what is right has to compile, and what is
// wrong must not.
import { type Conversation, type InorderClient, type NewMessage, type Row, MAX_TEXT_RUNES, MemoryStore, RequestError, open } from "inorder-client";

const client: InorderClient = await open({ url: "wss://example.com/v1", userId: "alice", deviceId: "laptop", token: async () => "jwt" });
client.addEventListener("change", () => {
  const all: readonly Conversation[] = client.conversations();
  const rows: readonly Row[] = client.messages(all[0]?.key ?? client.keyFor("bob"), 50);
  for (const { seq, text, state, quote } of rows) console.log(seq?.toFixed(), text.length > MAX_TEXT_RUNES, state === "failed", quote?.senderId?.length);
  if (client.state === "offline" && client.leads) console.log(client.detail, client.storeError?.message);
});
const stop: () => void = client.subscribe(() => {});
client.addEventListener("message", ({ detail }) => console.log(detail.key, detail.row.text.length));
client.addEventListener("message", ({ detail: { row } }: CustomEvent<NewMessage>) => console.log(row.seq), { once: true });
const key = client.createGroup("Trip", ["bob"]);
const id: string = await client.send(key, "hello");
await client.send(key, { type: "image", data: { objectKey: "k" } }, { replyTo: client.messages(key)[0] });
await client.setRole(key, "bob", "admin");
client.discard(id);
const again: string | null = await client.retry(id);
client.markRead(key, 5);
const row: Row | undefined = client.messages(key).find(({ canEdit, canRecall }) => canEdit || canRecall);
console.log(again, row?.error?.code, row?.revision?.error?.retryable);
try {
  const { delivered }: { delivered: string[] } = await client.receipts(key, 1);
  console.log(delivered);
} catch (error) {
  if (error instanceof RequestError && error.retryable) console.log(error.code, error.field);
}
stop();
await client.close({ forget: true });
await open({ url: "wss://example.com/v1", userId: "alice", deviceId: "laptop", token: () => "jwt", store: new MemoryStore(), tabs: null, timing: { requestTimeoutMs: 5_000, callMs: 9_000 }, limits: { outbox: 10 } });

// @ts-expect-error a token is needed
await open({ url: "wss://example.com/v1", userId: "alice", deviceId: "laptop" });
// @ts-expect-error a message is a text or a Content
await client.send(key, 5);
// @ts-expect-error there is no such type of message
await client.send(key, { type: "video" });
// @ts-expect-error there is no such role
await client.setRole(key, "bob", "king");
// @ts-expect-error what is given is given again: it stays as it is
client.messages(key).push();
// @ts-expect-error a seq may be null
const seq: number = client.messages(key)[0].seq;
// @ts-expect-error the state cannot be set
client.state = "online";
// @ts-expect-error what is inside is nobody's business
client.engine;
export { seq };
