// Reads an AsyncAPI document with AsyncAPI's own parser, and holds the examples of
// its messages to their schemas, which the parser does not. It prints what is wrong
// and then ends with 1.
"use strict";
const { readFileSync } = require("node:fs");
const { Parser } = require("@asyncapi/parser");
const Ajv = require("ajv").default;

async function check(path) {
  const { document, diagnostics } = await new Parser().parse(readFileSync(path, "utf8"), { source: path });
  const faults = diagnostics.map((d) => `${d.path.join(".")}: ${d.message}`);
  if (!document) {
    return faults.length ? faults : ["the parser made no document of it"];
  }
  const ajv = new Ajv({ allErrors: true, strict: false });
  let examples = 0;
  for (const message of document.allMessages().all()) {
    const valid = ajv.compile(message.payload().json());
    for (const example of message.examples().all()) {
      examples++;
      if (!valid(example.payload())) {
        faults.push(`an example of ${message.id()}: ${ajv.errorsText(valid.errors, { dataVar: "" })}`);
      }
    }
  }
  if (examples === 0) {
    faults.push("there are no examples");
  }
  if (faults.length === 0) {
    console.log(`${path}: ${document.allOperations().length} operations, ${document.allMessages().length} messages, ${examples} examples`);
  }
  return faults;
}

check(process.argv[2]).then((faults) => {
  faults.forEach((fault) => console.error(`${process.argv[2]}: ${fault}`));
  process.exitCode = faults.length === 0 ? 0 : 1;
});
