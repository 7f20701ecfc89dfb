// Prepares people's texts and names to be shown: takes out what could change the text around them, cuts them, finds
// links. Pure.

const LRE = "\u202A";
const RLE = "\u202B";
const PDF = "\u202C";
const LRO = "\u202D";
const RLO = "\u202E";
const LRI = "\u2066";
const RLI = "\u2067";
const FSI = "\u2068";
const PDI = "\u2069";

const DIRECTIONS = /[\u202A-\u202E\u2066-\u2069]/;
const LINE_ENDS = /[\u0000-\u001F\u007F\u0085\u2028\u2029]+/g; // each of them would also end an isolation
const MAX_UNITS_OF_A_GRAPHEME = 16; // on average; without it a letter with 4,000 accents counts as one
const MAX_BIG_EMOJI = 3;

/**
 * A name or title as it is shown: one line, in its own direction. It closes what it opens, so that nothing around the
 * element that isolates it changes.
 */
export function nameOf(text) {
  const line = text.replace(LINE_ENDS, " ");
  return DIRECTIONS.test(line) ? balanced(line) : line;
}

/** A name or a text for places without elements, such as a title or a label. Its direction stays within it. */
export function isolated(text) {
  return FSI + nameOf(text) + PDI;
}

// Leaves out overrides, which only make a name look like another one, and ends without a beginning; ends every
// beginning.
function balanced(text) {
  const open = []; // {isolate, end}
  let isolates = 0;
  let shown = "";
  const close = ({ isolate, end }) => {
    if (isolate) isolates--;
    shown += end;
  };
  for (const char of text) {
    switch (char) {
      case LRO:
      case RLO:
        open.push({ isolate: false, end: "" });
        break;
      case LRE:
      case RLE:
        open.push({ isolate: false, end: PDF });
        shown += char;
        break;
      case LRI:
      case RLI:
      case FSI:
        open.push({ isolate: true, end: PDI });
        isolates++;
        shown += char;
        break;
      case PDF:
        if (open.length > 0 && !open.at(-1).isolate) close(open.pop());
        break;
      case PDI:
        if (isolates === 0) break;
        while (!open.at(-1).isolate) close(open.pop());
        close(open.pop());
        break;
      default:
        shown += char;
    }
  }
  while (open.length > 0) close(open.pop());
  return shown;
}

/** The first max characters as people count them, with an ellipsis if there are more. */
export function cut(text, max) {
  let shown = "";
  let count = 0;
  for (const grapheme of graphemesOf(text)) {
    if (count === max || shown.length + grapheme.length > max * MAX_UNITS_OF_A_GRAPHEME) return `${shown.trimEnd()}…`;
    shown += grapheme;
    count++;
  }
  return shown;
}

/** The letter that stands for a name. */
export function initialOf(name) {
  const [first = "?"] = graphemesOf(nameOf(name).trim());
  return first.length > MAX_UNITS_OF_A_GRAPHEME ? first.slice(0, first.codePointAt(0) > 0xffff ? 2 : 1) : first.toUpperCase();
}

/** A number below count that is always the same for a name. */
export function hueOf(name, count) {
  let hash = 0;
  for (const char of name) hash = (hash * 31 + char.codePointAt(0)) % 65_521;
  return hash % count;
}

const SEGMENTER = globalThis.Intl?.Segmenter && new Intl.Segmenter(undefined, { granularity: "grapheme" });

// Lazy, as a text may be long. Code points in a browser that cannot segment text.
function* graphemesOf(text) {
  if (!SEGMENTER) return yield* text;
  for (const { segment } of SEGMENTER.segment(text)) yield segment;
}

const EMOJI = /^(?:\p{Emoji_Presentation}|\p{Extended_Pictographic}\uFE0F|\p{Regional_Indicator}{2}|[0-9#*]\uFE0F\u20E3)/u;

/** Whether a text is nothing but a few emoji. */
export function isBigEmoji(text) {
  let count = 0;
  for (const grapheme of graphemesOf(text.trim())) {
    if (++count > MAX_BIG_EMOJI || !EMOJI.test(grapheme)) return false;
  }
  return count > 0;
}

// ---- links ----

// A link ends at a space, a quote, punctuation that no address has, and a character without width.
const LINK = /(?:https?:\/\/|mailto:|www\.)[^\s<>"`\u0000-\u001F\u007F\u00AD\u061C\u200B-\u200F\u202A-\u202E\u2060-\u2069\uFEFF，。、！？；：（）「」『』【】《》“”«»]+/giu;
const INSIDE_A_WORD = /[\p{L}\p{N}_]$/u;
const TRAILING = new Set(".,;:!?'’…*_~|");
const BRACKETS = { ")": "(", "]": "[", "}": "{" };
const SCHEMES = new Set(["http:", "https:", "mailto:"]);

/**
 * Splits a text into strings, and {text, href} for each link to the web or to a mail address. Nothing else becomes a
 * link, nor does an address with a user before the host, such as http://bank.example@evil.example.
 */
export function partsOf(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(LINK)) {
    const found = trimmed(match[0]);
    const href = INSIDE_A_WORD.test(text.slice(Math.max(0, match.index - 2), match.index)) ? null : hrefOf(found);
    if (href === null) continue;
    if (match.index > end) parts.push(text.slice(end, match.index));
    parts.push({ text: found, href });
    end = match.index + found.length;
  }
  if (end < text.length) parts.push(text.slice(end));
  return parts;
}

// Punctuation after a link belongs to the sentence; so does a bracket that was opened before the link.
function trimmed(link) {
  const surplus = new Map(Object.keys(BRACKETS).map((closing) => [closing, 0])); // of those that close
  for (const char of link) {
    for (const [closing, opening] of Object.entries(BRACKETS)) {
      if (char === closing) surplus.set(closing, surplus.get(closing) + 1);
      if (char === opening) surplus.set(closing, surplus.get(closing) - 1);
    }
  }
  let end = link.length;
  for (; end > 0; end--) {
    const last = link[end - 1];
    if (surplus.get(last) > 0) surplus.set(last, surplus.get(last) - 1);
    else if (!TRAILING.has(last)) break;
  }
  return link.slice(0, end);
}

function hrefOf(link) {
  let url;
  try {
    url = new URL(/^www\./i.test(link) ? `https://${link}` : link);
  } catch {
    return null;
  }
  if (!SCHEMES.has(url.protocol) || url.username !== "" || url.password !== "") return null;
  if (url.protocol === "mailto:") return /^[^@\s]+@[^@\s]+$/.test(url.pathname) ? url.href : null;
  return url.hostname.replaceAll(".", "") === "" || url.hostname === "www." ? null : url.href;
}
