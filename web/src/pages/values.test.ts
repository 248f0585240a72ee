import { expect, it } from "vitest";
import { hexDump, hexStart, indentJson } from "./values";

it("indents JSON like JSON.stringify", () => {
  for (const text of ['{"a":[1,2,{"b":null}],"c":{},"d":[ ],"e":"x, {y}: \\"z\\""}', "[]", '[[],[[1]]]', '{"a":-1.5,"b":true}']) {
    expect(indentJson(text)).toBe(JSON.stringify(JSON.parse(text), null, 2));
  }
});

it("changes no number and no repeated key", () => {
  expect(indentJson('{"id":12345678901234567890,"id":1.10}')).toBe('{\n  "id": 12345678901234567890,\n  "id": 1.10\n}');
});

it("indents deep JSON in time that grows with its length", () => {
  const deep = "[".repeat(8000) + "]".repeat(8000);
  expect(indentJson(deep).replace(/\s/g, "")).toBe(deep);
});

it("shows bytes as hexadecimal and ASCII", () => {
  const base64 = btoa("\u0000\u0001Tidelog, a log!\u00ff");
  expect(hexDump(base64).split("\n")).toEqual([
    "0000  00 01 54 69 64 65 6c 6f 67 2c 20 61 20 6c 6f 67  ..Tidelog, a log",
    "0010  21 ff                                            !.",
  ]);
  expect(hexStart(base64, 4)).toBe("00 01 54 69");
});
