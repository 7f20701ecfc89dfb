// The contract of every store. Runs in Node and in a browser, so without an assertion library.

/** Checks a store; reopen() closes it and opens the same one again where that makes sense. */
export async function checkStore(store, reopen) {
  equal(await store.load(), { syncCursor: null, conversations: [], messages: [], outbox: [], lost: [] }, "a new store is empty");

  const message = { conversationId: "group:1", seq: 1, text: "one" };
  const longerId = { conversationId: "group:12", seq: 1, text: "other" };
  const conversation = { conversationId: "group:1", maxContiguousSeq: 1, receipts: { bob: { readSeq: 1 } } };
  const entry = { clientMsgId: "a-1", order: 1, address: { to: "bob" }, text: "hi", state: "sending" };
  await store.commit({ messages: [message, longerId], conversations: [conversation], syncCursor: 7, outboxPut: [entry, { ...entry, clientMsgId: "a-2" }], lost: [{ message, peer: "bob", title: null }] });
  message.text = "changed after the commit";
  store = await reopen(store);
  const loaded = await store.load();
  equal(loaded.messages.length, 2, "both conversations' entries are kept");
  equal(loaded.messages.find((m) => m.conversationId === "group:1").text, "one", "what was committed is kept, not what became of the object");
  equal(loaded.conversations, [conversation], "the conversation is kept");
  equal(loaded.syncCursor, 7, "the cursor is kept");
  equal(loaded.outbox.length, 2, "the outbox is kept");
  equal(loaded.lost, [{ message: { ...message, text: "one" }, peer: "bob", title: null }], "what is lost is kept");

  await store.commit({ messages: [{ ...longerId, text: "edited" }], outboxDelete: ["a-1"], syncCursor: 8 });
  store = await reopen(store);
  const second = await store.load();
  equal(second.messages.find((m) => m.conversationId === "group:12").text, "edited", "an entry is replaced");
  equal(second.outbox.map((e) => e.clientMsgId), ["a-2"], "an answered entry is gone");
  equal(second.syncCursor, 8, "the cursor moved");

  let refused = null;
  await store.commit({ messages: [{ conversationId: "group:1", seq: 2 }], conversations: [{ conversationId: "group:1", broken: () => {} }], syncCursor: 9 }).catch((error) => (refused = error));
  equal(refused !== null, true, "a value that cannot be stored is refused");
  store = await reopen(store);
  const third = await store.load();
  equal(third.messages.length, 2, "a commit that fails leaves no entry");
  equal(third.syncCursor, 8, "a commit that fails does not move the cursor");

  await store.commit({ forget: true, conversations: [conversation] });
  store = await reopen(store);
  equal(await store.load(), { ...third, syncCursor: null, conversations: [conversation], messages: [], lost: [] }, "what is forgotten is gone, what comes with it and the outbox are there");
  await store.commit({ forget: true, lost: [{ message: longerId, peer: null, title: "t" }] });
  equal((await store.load()).lost.map(({ title }) => title), ["t"], "what is lost may come with it");
  await store.commit({ lost: [] });

  const term = await store.claim(5);
  equal(term > 5, true, "a term is above the one it has to be above");
  await store.commit({ syncCursor: 1 }, term);
  await store.commit({ forget: true }, term);
  store = await reopen(store);
  const later = await store.claim(0);
  equal(later > term, true, "and above every earlier one, whatever was forgotten");
  let fenced = null;
  await store.commit({ messages: [message], syncCursor: 2, outboxPut: [entry] }, term).catch((error) => (fenced = error.name));
  equal(fenced, "FencedError", "who claimed it before writes no more");
  equal((await store.load()).messages, [], "nothing of it is written");
  equal((await store.load()).syncCursor, null, "the cursor neither");
  await store.commit({ outboxPut: [{ ...entry, clientMsgId: "b-1" }] });
  await store.commit({ syncCursor: 3 }, later);
  equal((await store.load()).outbox.map((e) => e.clientMsgId), ["a-2", "b-1"], "any tab adds to the outbox");
  equal((await store.load()).syncCursor, 3, "who claimed it last writes");
  store.close();
}

function equal(got, want, what) {
  const [a, b] = [got, want].map((value) => JSON.stringify(value));
  if (a !== b) throw new Error(`${what}: got ${a}, want ${b}`);
}
