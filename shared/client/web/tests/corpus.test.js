// The fake server answers and pushes as the scripts of shared/wire/testdata say, which the real one does, too. Their
// README has the format.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";
import { VirtualClock } from "./clock.js";
import { FakeServer } from "./server.js";
import { jwtOf } from "./world.js";

const folder = new URL("../../../wire/testdata/", import.meta.url);
const scripts = readdirSync(folder).filter((name) => name.endsWith(".json"));

test("there are scripts", () => assert.ok(scripts.length > 0));

for (const name of scripts) {
  const { about, only = ["js"], why, devices, steps } = JSON.parse(readFileSync(new URL(name, folder), "utf8"));
  test(`${name}: ${about}`, { skip: !only.includes("js") && why }, async () => {
    const player = new Player(devices);
    for (const device of devices) await player.connect(device);
    for (const [i, step] of steps.entries()) {
      await player.play(String(i + 1), step).catch((thrown) => assert.fail(`step ${i + 1}, ${step.by}: ${JSON.stringify(step.send)}: ${thrown.message}`));
    }
    await player.end();
  });
}

class Player {
  #clock = new VirtualClock();
  #server = new FakeServer(this.#clock);
  #names;
  #devices = new Map(); // name → {socket, answers, pushes, heard}

  constructor(devices) {
    this.#names = new Names(devices.map(userOf));
    for (const device of devices) this.#devices.set(device, { socket: null, answers: [], pushes: [], heard: [] });
  }

  async connect(name) {
    const [user, deviceId = "phone"] = name.split("/");
    const device = this.#devices.get(name);
    const socket = new this.#server.WebSocket(`ws://fake/v1?device=${deviceId}`, ["inorder.v1", `bearer.${jwtOf(user)}`]);
    device.socket = socket;
    let isOpen = false;
    socket.onopen = () => (isOpen = true);
    socket.onmessage = ({ data }) => {
      const frame = JSON.parse(data);
      if (["reply", "error", undefined].includes(frame.type)) device.answers.push(frame);
      else device.pushes.push(...single(frame));
    };
    await this.#clock.until(() => isOpen, 1_000, `${name} is connected`);
  }

  async play(id, { by, send, connect, disconnect, reply, error, answer, pushes = {} }) {
    const device = this.#devices.get(by);
    if (connect) await this.connect(by);
    else if (disconnect) {
      device.socket.close();
      device.socket = null;
    } else {
      const request = typeof send === "string" ? this.#names.fillText(send) : { ...this.#names.fill(send), id };
      device.socket.send(typeof request === "string" ? request : JSON.stringify(request));
      const head = { id, action: request.action };
      const want = reply ? { type: "reply", ...head, result: reply } : error ? { type: "error", ...head, error } : answer;
      if (want) {
        await this.#clock.until(() => device.answers.length > 0, 1_000, "there is an answer");
        const got = device.answers.shift();
        if (got.error) delete got.error.message;
        this.#names.match(want, got);
      }
    }
    for (const names of Object.keys(pushes).sort()) {
      for (const name of names.split(", ")) {
        for (const push of pushes[names]) await this.#hear(name, push);
      }
    }
  }

  async #hear(name, want) {
    const device = this.#devices.get(name);
    await this.#clock.advance(1_000);
    const why = [];
    for (const [i, push] of device.pushes.entries()) {
      try {
        this.#names.match(want, push);
        device.heard.push(...device.pushes.splice(i, 1));
        return;
      } catch (thrown) {
        why.push(`${JSON.stringify(push)}: ${thrown.message}`);
      }
    }
    assert.fail(`${name} is not pushed ${JSON.stringify(want)}:\n${why.join("\n")}`);
  }

  /** Sees to it that nothing came that nobody expected. */
  async end() {
    await this.#clock.advance(60_000);
    for (const [name, { answers, pushes, heard }] of this.#devices) {
      assert.deepEqual(answers, [], name);
      const known = heard.map((push) => JSON.stringify(push));
      assert.deepEqual(pushes.filter((push) => !known.includes(JSON.stringify(push))), [], `what nobody expected ${name} to be pushed`);
    }
  }
}

const userOf = (device) => device.split("/")[0];

// One push of each message and each head in a push: what comes together is up to the server.
function single({ type, updates, ...rest }) {
  if (!updates) return [{ type, ...rest }];
  return updates.flatMap((update) => (update.messages ?? [null]).map((message) => ({ type, updates: [message ? { ...update, messages: [message] } : update] })));
}

// What stands for the names of a script: its users, and what it met so far.
class Names {
  #values = new Map();

  constructor(users) {
    for (const user of users) this.#values.set(user, user);
  }

  fill(value) {
    if (typeof value === "string") return this.#repeated(value) ?? this.#valueOf(value);
    if (Array.isArray(value)) return value.flatMap((item) => this.#crowd(item) ?? [this.fill(item)]);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, this.fill(item)]));
  }

  /** Puts names into a frame that is given as a text. */
  fillText(text) {
    return this.#repeated(text) ?? text.replace(/\$([A-Za-z]\w*)/g, (_, name) => this.#values.get(name));
  }

  #valueOf(text) {
    if (!text.startsWith("$")) return text;
    assert.ok(this.#values.has(text.slice(1)), `nothing is known of ${text} yet`);
    return this.#values.get(text.slice(1));
  }

  #repeated(text) {
    const [, times, what] = /^\$repeat (\d+) (.+)$/.exec(text) ?? [];
    return what?.repeat(Number(times));
  }

  #crowd(item) {
    const [, name, from, to] = /^\$([a-z]+) (\d+)-(\d+)$/.exec(item) ?? [];
    if (!name) return undefined;
    const all = Array.from({ length: to - from + 1 }, (_, i) => `${name}${Number(from) + i}`);
    for (const user of all) this.#values.set(user, user);
    return all;
  }

  /** Compares what came with what a script expects, and learns what stands for its new names. */
  match(want, got) {
    const before = new Map(this.#values);
    try {
      this.#compare("", want, got);
    } catch (thrown) {
      this.#values = before;
      throw thrown;
    }
  }

  #compare(at, want, got) {
    if (typeof want === "string") this.#compareText(at, want, got);
    else if (Array.isArray(want)) this.#compareLists(at, want, got);
    else if (typeof want === "object" && want !== null) this.#compareObjects(at, want, got);
    else assert.ok(want === got, `${at} is ${JSON.stringify(got)}, not ${want}`);
  }

  #compareText(at, want, got) {
    const name = /^\$([A-Za-z]\w*)$/.exec(want)?.[1];
    if (name) assert.ok(got !== undefined && got !== null, `${at} is missing`);
    if (name === "any") return;
    if (name && !this.#values.has(name)) return void this.#values.set(name, got);
    const value = name ? this.#values.get(name) : (this.#repeated(want) ?? want);
    if (typeof value === "object") this.#compare(at, value, got);
    else assert.ok(value === got, `${at} is ${JSON.stringify(got)}, not ${want}, ${value}`);
  }

  #compareObjects(at, { $as: name, ...want }, got) {
    assert.ok(typeof got === "object" && got !== null && !Array.isArray(got), `${at} is ${JSON.stringify(got)}, no object`);
    for (const [key, value] of Object.entries(want)) {
      assert.ok(key in got, `${at}.${key} is missing, not ${JSON.stringify(value)}`);
      this.#compare(`${at}.${key}`, value, got[key]);
    }
    for (const [key, value] of Object.entries(got)) assert.ok(key in want || isEmpty(value), `${at}.${key} is there: ${JSON.stringify(value)}`);
    if (name) this.#values.set(name, got);
  }

  #compareLists(at, want, got) {
    assert.ok(Array.isArray(got), `${at} is ${JSON.stringify(got)}, no list`);
    const [first, ...rest] = want;
    const isUnordered = first === "$unordered";
    const all = (isUnordered ? rest : want).flatMap((item) => this.#crowd(item) ?? [item]);
    assert.ok(all.length === got.length, `${at} has ${got.length} elements, not ${all.length}: ${JSON.stringify(got)}`);
    if (!isUnordered) return all.forEach((item, i) => this.#compare(`${at}[${i}]`, item, got[i]));
    const left = [...got];
    for (const item of all) {
      const found = left.findIndex((one) => this.#matches(item, one));
      assert.ok(found >= 0, `${at} has no ${JSON.stringify(item)}: ${JSON.stringify(got)}`);
      left.splice(found, 1);
    }
  }

  #matches(want, got) {
    try {
      this.match(want, got);
      return true;
    } catch {
      return false;
    }
  }
}

// What an optional field may be left out for.
function isEmpty(value) {
  return !value || (typeof value === "object" && Object.keys(value).length === 0);
}
