import { test } from "node:test";
import assert from "node:assert/strict";
import { cut, hueOf, initialOf, isBigEmoji, isolated, nameOf, partsOf } from "./text.js";

const [LRE, RLE, PDF, LRO, RLO] = ["\u202A", "\u202B", "\u202C", "\u202D", "\u202E"];
const [LRI, RLI, FSI, PDI] = ["\u2066", "\u2067", "\u2068", "\u2069"];

test("a name reaches no further than its end", () => {
  const cases = [
    ["bob", "bob"],
    ["ليلى", "ليلى"],
    [`${RLO}ecila`, "ecila"],
    [`a${RLO}b${PDF}c`, "abc"],
    [`a${LRO}b${LRE}c${PDF}d${PDF}e`, `ab${LRE}c${PDF}de`],
    [`${LRE}+1 234${PDF}`, `${LRE}+1 234${PDF}`], // as address books copy numbers
    [`a${PDI}b`, "ab"],
    [`a${PDF}b`, "ab"],
    [`a${RLE}b`, `a${RLE}b${PDF}`],
    [`a${RLI}b${RLE}c`, `a${RLI}b${RLE}c${PDF}${PDI}`],
    [`a${LRI}b${RLE}c${PDI}d${PDF}e`, `a${LRI}b${RLE}c${PDF}${PDI}de`],
    [`${FSI}a${PDI}${PDI}b`, `${FSI}a${PDI}b`],
    ["a\u2029b\r\nc\u0000d", "a b c d"],
    ["\u200Fא", "\u200Fא"],
  ];
  for (const [name, want] of cases) assert.equal(nameOf(name), want, JSON.stringify(name));
  assert.equal(isolated(`${PDI}${RLO}x`), `${FSI}x${PDI}`);
});

// Whatever it is made of, it closes what it opens and nothing else.
test("any name is balanced", () => {
  const marks = [LRE, RLE, PDF, LRO, RLO, LRI, RLI, FSI, PDI, "a", "א", "\n"];
  let seed = 1;
  const next = (count) => (seed = (seed * 48_271) % 2_147_483_647) % count;
  for (let i = 0; i < 5_000; i++) {
    const name = Array.from({ length: next(12) }, () => marks[next(marks.length)]).join("");
    const open = [];
    for (const char of nameOf(name)) {
      assert.ok(char !== LRO && char !== RLO && char !== "\n", JSON.stringify(name));
      if (char === LRE || char === RLE) open.push(PDF);
      if (char === LRI || char === RLI || char === FSI) open.push(PDI);
      if (char === PDF || char === PDI) assert.equal(open.pop(), char, JSON.stringify(name));
    }
    assert.deepEqual(open, [], JSON.stringify(name));
  }
});

test("a text is cut as people count", () => {
  const family = "👩‍👩‍👧‍👦";
  const cases = [
    ["", 3, ""],
    ["abc", 3, "abc"],
    ["abcd", 3, "abc…"],
    ["ab cd", 3, "ab…"],
    [family.repeat(3), 2, `${family.repeat(2)}…`],
    ["🇧🇪🇫🇷🇩🇪", 2, "🇧🇪🇫🇷…"],
    ["e\u0301e\u0301e\u0301", 2, "e\u0301e\u0301…"],
    ["नमस्ते", 2, "नम…"],
    [`a${"\u0301".repeat(4_000)}`, 100, "…"],
    [`ab${"\u0301".repeat(4_000)}`, 100, "a…"],
    ["\ud83d", 3, "\ud83d"],
  ];
  for (const [text, max, want] of cases) assert.equal(cut(text, max), want, text.slice(0, 20));
});

test("a few emoji are shown large", () => {
  for (const text of ["😅", " 😅\n", "😅🎉🥳", "❤️", "👩‍👩‍👧‍👦", "👍🏽", "🇧🇪", "1️⃣"]) assert.equal(isBigEmoji(text), true, text);
  for (const text of ["", " ", "1", "#", "©", "❤", "😅 ok", "😅😅😅😅", "😅 😅", "\u200D", "\ufe0f"]) assert.equal(isBigEmoji(text), false, text);
});

test("links", () => {
  const links = (text) => partsOf(text).filter((part) => typeof part !== "string").map(({ text, href }) => [text, href]);
  const cases = [
    ["see https://example.org.", ["https://example.org", "https://example.org/"]],
    ["https://example.org/a?b=c&d#e", ["https://example.org/a?b=c&d#e", "https://example.org/a?b=c&d#e"]],
    ["(https://example.org/a)", ["https://example.org/a", "https://example.org/a"]],
    ["https://example.org/a_(b).", ["https://example.org/a_(b)", "https://example.org/a_(b)"]],
    ["https://example.org/a)))!?", ["https://example.org/a", "https://example.org/a"]],
    ["“https://example.org/a”", ["https://example.org/a", "https://example.org/a"]],
    ["看https://example.org/a，好", null], // inside a word
    ["看 https://example.org/a，好", ["https://example.org/a", "https://example.org/a"]],
    ["www.example.org/x", ["www.example.org/x", "https://www.example.org/x"]],
    ["HTTPS://EXAMPLE.ORG", ["HTTPS://EXAMPLE.ORG", "https://example.org/"]],
    ["mailto:bob@example.org, please", ["mailto:bob@example.org", "mailto:bob@example.org"]],
    ["https://bücher.example", ["https://bücher.example", "https://xn--bcher-kva.example/"]],
    ["https://аpple.example", ["https://аpple.example", "https://xn--pple-43d.example/"]], // its а is Cyrillic, and the title says so
    ["https://example.org/\u202Egnp.exe", ["https://example.org/", "https://example.org/"]],
    ["https://example.org\u200B.evil.example", ["https://example.org", "https://example.org/"]],
    ["https://exam\u00ADple.org", ["https://exam", "https://exam/"]],
    ["https://bank.example@evil.example/", null],
    ["https://user:password@example.org/", null],
    ["javascript:alert(1)", null],
    ["JavaScript:https://example.org", ["https://example.org", "https://example.org/"]],
    ["data:text/html,<b>", null],
    ["file:///etc/passwd", null],
    ["ftp://example.org", null],
    ["xhttps://example.org", null],
    ["awww.example.org", null],
    ["https://", null],
    ["https://.", null],
    ["http://[::1", null],
    ["www.", null],
    ["mailto:bob", null],
    ["mailto:@", null],
  ];
  for (const [text, want] of cases) assert.deepEqual(links(text), want === null ? [] : [want], text);
  assert.deepEqual(partsOf("a https://b.example c\nhttp://d.example"), ["a ", { text: "https://b.example", href: "https://b.example/" }, " c\n", { text: "http://d.example", href: "http://d.example/" }]);
});

test("nothing of a text is lost in its parts, and only three schemes are links", () => {
  const pieces = ["https://", "http://", "mailto:", "www.", "javascript:", "a", "é", ".", "@", "/", ")", "(", " ", "\n", "\u202E", "[", "😅", "%", "#"];
  let seed = 7;
  const next = (count) => (seed = (seed * 48_271) % 2_147_483_647) % count;
  let found = 0;
  for (let i = 0; i < 5_000; i++) {
    const text = Array.from({ length: next(14) }, () => pieces[next(pieces.length)]).join("");
    const parts = partsOf(text);
    assert.equal(parts.map((part) => part.text ?? part).join(""), text);
    for (const { href } of parts.filter((part) => typeof part !== "string")) {
      assert.match(href, /^(https?:\/\/[^/@]+\/|mailto:[^@]+@[^@]+$)/, JSON.stringify(text));
      found++;
    }
  }
  assert.ok(found > 100);
});

test("the longest text takes no time", () => {
  for (const text of ["https://a".padEnd(4_000, ")"), "www.".repeat(1_000), "https://".repeat(500), "(".repeat(4_000), "\u2066".repeat(4_000), "\u202A\u2069".repeat(2_000)]) {
    const before = performance.now();
    partsOf(text);
    nameOf(text);
    cut(text, 100);
    assert.ok(performance.now() - before < 500, text.slice(0, 12));
  }
});

test("what stands for a name", () => {
  const cases = [["bob", "B"], ["  éva", "É"], ["ليلى", "ل"], ["👩‍👩‍👧‍👦 us", "👩‍👩‍👧‍👦"], ["\u202Ebob", "B"], ["", "?"], [`a${"\u0301".repeat(99)}`, "a"]];
  for (const [name, want] of cases) assert.equal(initialOf(name), want, name);
  assert.equal(hueOf("bob", 8), hueOf("bob", 8));
  assert.equal(new Set(Array.from({ length: 200 }, (_, i) => hueOf(`user${i}`, 8))).size, 8);
});
