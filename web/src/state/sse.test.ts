import { expect, it } from "vitest";
import { EventParser } from "./sse";

it("joins chunks to messages", () => {
  const parser = new EventParser();
  expect(parser.push("retry: 1000\n\nevent: sta")).toEqual([]);
  expect(parser.push('te\ndata: {"a":1}\n')).toEqual([]);
  expect(parser.push("\n: alive\n\n")).toEqual([{ event: "state", data: '{"a":1}' }]);
});

it("accepts several messages in a chunk, and data of several lines", () => {
  const parser = new EventParser();
  const found = parser.push("data: x\ndata: y\n\nevent: error\r\ndata:z\r\n\r\n");
  expect(found).toEqual([
    { event: "message", data: "x\ny" },
    { event: "error", data: "z" },
  ]);
});
