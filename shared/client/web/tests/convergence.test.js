import { test } from "node:test";
import assert from "node:assert/strict";
import { TIMING } from "../engine.js";
import { MemoryStore } from "../store.js";
import { seededRandom } from "./clock.js";
import { jwtOf, opaqueTokenOf, setUp } from "./world.js";

const USERS = ["alice", "bob", "carol", "dave"];
const DEVICES = ["alice/web-1", "alice/web-2", "bob/web-3", "carol/web-4", "dave/web-5"];
const REVISIONS = new Set(["recall", "edit", "erase"]);

// G5, G8, G7, G3, G1 under everything at once: devices of several users write, answer, edit, recall, read, clear and
// change their group, and users are erased, while frames come late and out of order, pushes are lost and doubled,
// answers are lost, and there are errors, cuts and reloads. In the end all hold what the server holds.
for (const seed of [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) {
  test(`G5: convergence under faults, seed ${seed}`, async (t) => {
    const { clock, server, device } = setUp(t);
    const random = seededRandom(seed);
    const chance = (p) => random() < p;
    const oneOf = (list) => list[Math.floor(random() * list.length)];
    server.latency = () => random() ** 3 * 400;
    server.pageSize = 4;
    server.listSize = 2;
    if (seed % 3 === 0) server.inboxGroupMax = 2; // a large group, which only its head tells of
    if (seed % 4 === 0) server.notifyAbove = 2; // a crowd: pushes are hints
    server.pushes = () => (chance(0.3) ? 0 : chance(0.2) ? 2 : 1);
    server.refuse = () => (chance(0.1) ? { code: "BUSY", message: "contention", retryable: true } : undefined);
    server.answer = (frame) => {
      if (chance(0.05)) return "lose";
      if (chance(0.02)) return "cut";
      return chance(0.03) ? { message: "Internal server error", connectionId: "x=", requestId: "y=" } : undefined;
    };
    server.admit = () => chance(0.8);
    const group = server.group("g", ["alice", "bob", "carol"], seed % 2 === 0 ? "all" : "sinceJoin");
    server.post("alice", { conversationId: group }, "welcome");
    const slots = DEVICES.map((name) => ({ name, store: new MemoryStore(), sent: new Map() }));
    const boot = async (slot) => {
      const [userId, deviceId] = slot.name.split("/");
      slot.client?.setOffline(true);
      const token = () => (seed % 2 === 0 ? opaqueTokenOf : jwtOf)(userId);
      slot.client = device(userId, { token, deviceId, store: slot.store, random, limits: { late: 6, end: 3 } });
      await slot.client.start();
    };
    for (const slot of slots) await boot(slot);

    const write = async ({ client, sent, name }, step) => {
      const to = oneOf(USERS);
      const key = chance(0.5) ? group : client.keyFor(to);
      const replyTo = chance(0.2) ? oneOf(client.messages(key).filter(({ seq, kind }) => seq !== null && kind === "text")) : null;
      const id = await client.send(key, `${name} ${step}`, { replyTo });
      const place = key === group ? group : to;
      sent.set(place, [...(sent.get(place) ?? []), id]);
    };
    const revise = async ({ client }, step) => {
      const key = chance(0.5) ? group : client.keyFor(oneOf(USERS));
      const row = oneOf(client.messages(key).filter(({ mine, seq, kind }) => mine && seq !== null && kind === "text"));
      if (!row) return;
      if (chance(0.3)) await client.recall(key, row);
      else await client.edit(key, row, `edited ${step}`);
    };
    const manage = async ({ client }, step) => {
      const who = oneOf(USERS);
      await oneOf([
        () => client.addMembers(group, [who]),
        () => client.removeMembers(group, [who]),
        () => client.setRole(group, who, oneOf(["admin", "member"])),
        () => client.setTitle(group, `title ${step}`),
        () => chance(0.3) && client.leave(group),
      ])();
    };
    const look = async ({ client }) => {
      const key = chance(0.5) ? group : client.keyFor(oneOf(USERS));
      client.show(key);
      if (chance(0.7)) client.markRead(key);
      if (chance(0.1)) client.clear(key);
      if (chance(0.5)) client.loadEarlier(key).catch(() => {});
    };
    for (let step = 0; step < 250; step++) {
      const slot = oneOf(slots);
      if (chance(0.45)) await write(slot, step);
      else if (chance(0.25)) await revise(slot, step);
      else if (chance(0.2)) await manage(slot, step);
      else if (chance(0.4)) await look(slot);
      else if (chance(0.03)) server.erase(oneOf(USERS));
      else if (chance(0.1)) server.cutAll();
      else if (chance(0.15)) await boot(slot);
      else slot.client.setOffline(chance(0.3));
      await clock.advance(random() * 400);
    }
    Object.assign(server, { pushes: () => 1, refuse: () => undefined, answer: () => undefined, admit: () => true });
    for (const { client } of slots) client.setOffline(false);
    await clock.advance(2 * TIMING.heartbeatMs);

    const known = (conversationId, userId) => server.conversations.get(conversationId).lines.has(userId);
    for (const slot of slots) {
      const { client, name } = slot;
      for (const [conversationId, { members, lines, head }] of server.conversations) {
        if (!known(conversationId, client.userId)) continue;
        const what = `${name} in ${conversationId}`;
        for (let pages = 0; client.conversation(conversationId).earlier; pages++) {
          assert.ok(pages < 100, `${what}: history comes to an end`);
          let loaded = false;
          client.loadEarlier(conversationId).then(() => (loaded = true));
          await clock.until(() => loaded);
        }
        const visible = server.visible(client.userId, conversationId);
        const shown = visible.filter(({ event }) => !REVISIONS.has(event?.kind));
        const { leftSeq, leftHead, deliveredSeq } = lines.get(client.userId);
        // Who has left does not hear what was recalled and erased since.
        const told = new Set(visible.map(({ seq }) => seq));
        const untold = server.entries(conversationId).filter(({ seq }) => leftSeq && !told.has(seq));
        const erased = new Set(untold.map(({ event }) => event?.erased));
        const recalled = new Set(untold.filter(({ event }) => event?.kind === "recall").map(({ event }) => event.targetSeq));
        const content = (seq, ...parts) => (recalled.has(seq) || erased.has(server.entries(conversationId)[seq - 1].senderId) ? [seq] : [seq, ...parts]);
        const want = shown.map(({ seq, text, status, version }) => content(seq, text ?? "", status === "recalled", status === "normal" && version > 1));
        const got = client.messages(conversationId).filter(({ seq }) => seq !== null);
        assert.deepEqual(got.map(({ seq, text, recalled, edited }) => content(seq, text, recalled, edited)), want, what);

        const summary = client.conversation(conversationId);
        assert.equal(summary.unread, server.line(client.userId, conversationId).unread, `${what}: unread`);
        assert.ok(deliveredSeq >= (visible.findLast(({ senderId, event }) => senderId !== client.userId && event?.kind !== "erase")?.seq ?? 0), `${what}: delivered`);
        if (conversationId !== group) continue;
        assert.equal(summary.title, (leftHead ?? head).title, `${what}: title`);
        assert.equal(summary.closed, leftSeq ? "left" : head.state === "dissolved" ? "dissolved" : null, `${what}: closed`);
        if (leftSeq) continue;
        client.show(conversationId);
        await clock.advance(5_000);
        const roster = [...members.values()].map(({ userId, role }) => [userId, role]).sort();
        assert.deepEqual(client.members(conversationId).map(({ userId, role }) => [userId, role]), roster, `${what}: members`);
        assert.equal(client.conversation(conversationId).memberCount, members.size, `${what}: how many they are`);
        const last = client.messages(conversationId).findLast(({ mine, seq, kind, recalled }) => mine && seq !== null && kind === "text" && !recalled);
        if (!last || members.size > server.inboxGroupMax) continue;
        const readBy = [...members.values()].filter(({ userId, joinedAt }) => userId !== client.userId && joinedAt <= last.time && lines.get(userId).readSeq >= last.seq);
        assert.deepEqual(last.readBy.toSorted(), readBy.map(({ userId }) => userId).sort(), `${what}: read by`);
      }
      const { outbox } = await slot.store.load();
      assert.deepEqual(outbox.filter(({ state }) => state !== "failed"), [], `${name}: everything was answered`);
      const failed = new Set(outbox.map(({ clientMsgId }) => clientMsgId));
      for (const [place, ids] of slot.sent) {
        const key = place === group ? group : client.keyFor(place);
        const committed = server.conversations.get(key)?.entries ?? [];
        const mine = new Set(ids);
        const got = committed.map(({ clientMsgId }) => clientMsgId).filter((id) => mine.has(id));
        assert.deepEqual(got, ids.filter((id) => !failed.has(id)), `${name} to ${place}: each once, in the order written`);
      }
    }
  });
}
