// Arranges the rows of a conversation below each other. Pure.

import { daysBetween, dayWords } from "./words.js";

const SAME_BREATH_MS = 5 * 60_000;

/**
 * Returns the items to show for rows, in order, each with a key of its own: {kind: "day", words} before the first row
 * of a day, {kind: "new"} before the first row of somebody else above the seq newAfter, which may be null, and {kind:
 * "row", row, follows} for each row; follows says that it continues the one above.
 */
export function arrange(rows, { newAfter, now }) {
  const items = [];
  let last = null;
  let isNew = newAfter === null;
  for (const row of rows) {
    const key = rowKey(row);
    const isNextDay = last === null || daysBetween(last.time, row.time) !== 0;
    if (isNextDay) items.push({ kind: "day", key: `day ${key}`, words: dayWords(row.time, now) });
    const isFirstNew = !isNew && isNews(row, newAfter);
    if (isFirstNew) {
      items.push({ kind: "new", key: "new" });
      isNew = true;
    }
    items.push({ kind: "row", key: `row ${key}`, row, follows: !isNextDay && !isFirstNew && follows(row, last) });
    last = row;
  }
  return items;
}

/** Whether a row is new to a user who has read up to a seq. */
export function isNews({ mine, seq }, readSeq) {
  return !mine && seq !== null && seq > readSeq;
}

/**
 * A row keeps its key from "sending" to its seq; clientMsgId is unique per sender only. A lost message may have been
 * sent again.
 */
function rowKey({ clientMsgId, messageId, senderId, seq, lost }) {
  if (lost) return `lost ${messageId ?? clientMsgId}`;
  return clientMsgId ? `${senderId}/${clientMsgId}` : `#${seq}`;
}

function follows(row, last) {
  if (last === null || row.senderId !== last.senderId || isCentral(row) || isCentral(last)) return false;
  return Math.abs(row.time - last.time) < SAME_BREATH_MS;
}

/** Whether a row is an announcement rather than something that a person said. */
export function isCentral({ kind }) {
  return kind === "event" || kind === "system";
}
