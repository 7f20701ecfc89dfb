import { test } from "node:test";
import assert from "node:assert/strict";
import { ROLES, may } from "../rights.js";

// The table of the package documentation of shared/chat, row by row: owner, admin, member.
const table = {
  send: [true, true, true],
  add: [true, true, false],
  setTitle: [true, true, false],
  setRole: [true, false, false],
  dissolve: [true, false, false],
  leave: [true, true, true],
};

test("what a role may do", () => {
  for (const [action, want] of Object.entries(table)) {
    assert.deepEqual(ROLES.map((role) => may(role, action)), want, action);
  }
});

test("an admin acts on plain members only, and nobody on the owner", () => {
  for (const action of ["remove", "recall"]) {
    const got = ROLES.map((role) => ROLES.map((target) => may(role, action, target)));
    assert.deepEqual(got, [[false, true, true], [false, false, true], [false, false, false]], action);
  }
});

test("what is unknown is not allowed", () => {
  assert.equal(may("owner", "fly"), false);
  assert.equal(may("guest", "send"), false);
});
